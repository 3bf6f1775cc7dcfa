"""One knapsack with a hard capacity: whole items by dynamic programming, fractions by efficiency."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel


@kernel
def integer_knapsacks(values, weights, capacity):
    """Return the best subsets of items with whole weights for one hard capacity, by dynamic programming over the load.

    Args:
        values: float64 ``(R, n)``.
        weights: int64 ``(n,)``, at least 0.
        capacity: int, at least 0.

    Returns:
        1 for the items taken, float64 ``(R, n)``. Items without a positive value are left out.

    >>> integer_knapsacks(np.array([[3.0, 4.0, 5.0]]), np.array([2, 3, 4]), 6).tolist()
    [[1.0, 0.0, 1.0]]
    """
    count, n = values.shape
    result = np.zeros((count, n), np.float64)
    best = np.empty(capacity + 1, np.float64)
    taken = np.empty((n, capacity + 1), np.bool_)
    for r in range(count):
        best[:] = 0.0
        for j in range(n):
            taken[j] = False
            if values[r, j] > 0.0:
                for load in range(capacity, weights[j] - 1, -1):
                    with_item = best[load - weights[j]] + values[r, j]
                    if with_item > best[load]:
                        best[load], taken[j, load] = with_item, True
        load = capacity
        for j in range(n - 1, -1, -1):
            if taken[j, load]:
                result[r, j] = 1.0
                load -= weights[j]
    return result


@kernel
def fractional_knapsacks(values, weights, capacity):
    """Return the best fractions of items for one hard capacity: the most valuable per weight first, the last one in part.

    Args:
        values: float64 ``(R, n)``.
        weights: float64 ``(n,)``, at least 0.
        capacity: float, at least 0.

    >>> fractional_knapsacks(np.array([[3.0, 4.0, 1.0]]), np.array([2.0, 3.0, 0.0]), 3.5).tolist()
    [[1.0, 0.5, 1.0]]
    """
    count, n = values.shape
    result = np.zeros((count, n), np.float64)
    efficiency = np.empty(n, np.float64)
    order = np.empty(n, np.int64)
    for r in range(count):
        for j in range(n):
            efficiency[j] = values[r, j] / weights[j] if weights[j] > 0.0 else np.inf
        sort_decreasing(efficiency, order)
        remaining = capacity
        for j in order:
            if values[r, j] > 0.0:
                if weights[j] > remaining:
                    result[r, j] = remaining / weights[j]
                    break
                result[r, j] = 1.0
                remaining -= weights[j]
    return result


@inner_kernel
def sort_decreasing(keys, order):
    """Write the indices of ``keys`` to ``order``, the largest key first and equal ones by index; Shell's method.

    It suits the length of a knapsack, and compiles in a fraction of the time of numba's sorts.
    """
    for i in range(len(keys)):
        order[i] = i
    for gap in (301, 132, 57, 23, 10, 4, 1):
        for i in range(gap, len(keys)):
            index = order[i]
            k = i
            while k >= gap:
                other = order[k - gap]
                if keys[other] > keys[index] or (keys[other] == keys[index] and other < index):
                    break
                order[k] = other
                k -= gap
            order[k] = index
