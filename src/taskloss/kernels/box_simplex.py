"""Small linear programs with upper bounds: the simplex method for ``max c'x, A x <= b, 0 <= x <= upper`` with ``b >= 0``.

Such programs are the relaxations of knapsacks: few rows, many columns. ``x = 0`` is feasible, so there is no first phase, and the
inverse of the basis is a matrix of few rows. A variable that is not in the basis is at one of its bounds (Dantzig 1955, the
upper-bounding technique).
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel

# Reduced costs this small, relative to the largest cost that takes part in them, and pivots this small are zero.
_TOLERANCE = 1e-11


@kernel
def maximize_in_boxes(costs, matrix, rhs, upper):
    """Return the maximizers of ``costs[r]'x`` under ``matrix x <= rhs`` and ``0 <= x <= upper``, one vertex each.

    Args:
        costs: float64 ``(R, n)``.
        matrix: float64 ``(m, n)``.
        rhs: nonnegative, float64 ``(m,)``.
        upper: positive, float64 ``(n,)``; the maximum must be finite.

    >>> maximize_in_boxes(np.array([[3.0, 2.0]]), np.array([[2.0, 2.0]]), np.array([3.0]), np.ones(2)).tolist()
    [[1.0, 0.5]]
    """
    result = np.empty(costs.shape, np.float64)
    for r in range(len(costs)):
        result[r] = maximize_in_box(costs[r], matrix, rhs, upper)[0]
    return result


@allocating_kernel
def maximize_in_box(costs, matrix, rhs, upper):
    """Return the maximizer ``(n,)`` and the multipliers ``(m,) >= 0`` of the rows; arguments as those of `maximize_in_boxes`.

    Columns ``n .. n + m - 1`` are the slacks. The entering variable is the one with the largest reduced cost, and after many
    pivots the first one (Bland's rule), so that the method ends.
    """
    m, n = matrix.shape
    basis = np.arange(n, n + m)
    in_basis = np.zeros(n + m, np.bool_)
    in_basis[n:] = True
    at_upper = np.zeros(n, np.bool_)
    inverse = np.zeros((m, m), np.float64)
    values = np.empty(m, np.float64)
    for i in range(m):
        inverse[i, i] = 1.0
        values[i] = rhs[i]
    multipliers = np.zeros(m, np.float64)
    column = np.empty(m, np.float64)
    # A negative cost counts in the basis alone: a variable that nobody wants must not hide the others.
    highest = 0.0
    for j in range(n):
        highest = max(highest, costs[j])
    pivots = 0
    while True:
        largest = highest
        for k in range(m):
            if basis[k] < n:
                largest = max(largest, abs(costs[basis[k]]))
        for i in range(m):
            multipliers[i] = 0.0
            for k in range(m):
                if basis[k] < n:
                    multipliers[i] += costs[basis[k]] * inverse[k, i]
        entering = _entering(costs, matrix, multipliers, in_basis, at_upper, _TOLERANCE * largest, pivots > 20 * (m + n))
        if entering < 0:
            break
        pivots += 1
        _step(entering, matrix, upper, basis, in_basis, at_upper, inverse, values, column)
    x = np.zeros(n, np.float64)
    for j in range(n):
        if at_upper[j]:
            x[j] = upper[j]
    for k in range(m):
        multipliers[k] = max(multipliers[k], 0.0)
        if basis[k] < n:
            x[basis[k]] = min(max(values[k], 0.0), upper[basis[k]])
    return x, multipliers


@inner_kernel
def _entering(costs, matrix, multipliers, in_basis, at_upper, threshold, take_first):
    """Return the variable outside the basis whose change raises the objective the most, or the first one; -1 if none does."""
    m, n = matrix.shape
    chosen, largest = -1, threshold
    for j in range(n + m):
        if in_basis[j]:
            continue
        gain = costs[j] if j < n else 0.0
        if j < n:
            for i in range(m):
                gain -= multipliers[i] * matrix[i, j]
            if at_upper[j]:
                gain = -gain
        else:
            gain -= multipliers[j - n]
        if gain > largest:
            if take_first:
                return j
            chosen, largest = j, gain
    return chosen


@inner_kernel
def _step(entering, matrix, upper, basis, in_basis, at_upper, inverse, values, column):
    """Move the entering variable as far as the bounds allow, and exchange it for the variable that stops it.

    All arrays but ``matrix`` and ``upper`` are updated; ``column`` is a workspace ``(m,)``.
    """
    m, n = matrix.shape
    falls = entering < n and at_upper[entering]
    for k in range(m):
        column[k] = 0.0
        for i in range(m):
            if entering < n:
                column[k] += inverse[k, i] * matrix[i, entering]
            elif i == entering - n:
                column[k] += inverse[k, i]
        if falls:
            column[k] = -column[k]
    length, leaving, to_upper = upper[entering] if entering < n else np.inf, -1, False
    for k in range(m):
        if column[k] > _TOLERANCE:
            room, reaches_upper = values[k], False
        elif column[k] < -_TOLERANCE and basis[k] < n:
            room, reaches_upper = upper[basis[k]] - values[k], True
        else:
            continue
        ratio = max(room, 0.0) / abs(column[k])
        if ratio < length or (ratio == length and leaving >= 0 and basis[k] < basis[leaving]):
            length, leaving, to_upper = ratio, k, reaches_upper
    for k in range(m):
        values[k] -= length * column[k]
    if leaving < 0:
        at_upper[entering] = not falls
        return
    if basis[leaving] < n:
        at_upper[basis[leaving]] = to_upper
    in_basis[basis[leaving]] = False
    in_basis[entering] = True
    basis[leaving] = entering
    values[leaving] = upper[entering] - length if falls else length
    if entering < n:
        at_upper[entering] = False
    pivot = -column[leaving] if falls else column[leaving]
    for i in range(m):
        inverse[leaving, i] /= pivot
    for k in range(m):
        if k != leaving:
            factor = -column[k] if falls else column[k]
            for i in range(m):
                inverse[k, i] -= factor * inverse[leaving, i]
