r"""Best subsets of items under capacities that are hard, or that may be exceeded at a price.

.. math:: \max_{x \in \{0, 1\}^n} \langle v, x\rangle - \sum_i p_i (w_i' x - b_i)_+

with weights of at least zero; :math:`p_i = \infty` makes the i-th capacity hard.

**Branch and bound.** For multipliers :math:`0 \le u \le p` of the capacities, weak duality bounds the objective of every
completion of a partial selection. With :math:`s_j = u'w_j`, and for all multiples :math:`\lambda u` that stay below p at once,

.. math:: \min_{0 \le \lambda \le \lambda_{max}} \sum_{taken} v_j + \lambda u'(b - used) + \sum_{free} (v_j - \lambda s_j)_+ .

That is the bound of Dantzig (1957) for one knapsack with the weights s: at the best :math:`\lambda` the free items of the highest
efficiency :math:`v_j / s_j` fill the capacity, the last of them in part. With the items in the order of their efficiency the free
ones are a suffix, and a binary search in prefix sums finds the bound. The multipliers u are those of the linear relaxation, for
which the bound at the root is that of the relaxation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inlined_kernel, inner_kernel, kernel
from taskloss.kernels.box_simplex import maximize_in_box
from taskloss.kernels.knapsack import sort_decreasing

# A load may exceed a hard capacity by this share of it: sums of weights are rounded.
_ROUNDING = 1e-9
# Bounds this little above the best objective, relative to the sum of all values, promise no better subset.
_TOLERANCE = 1e-13


class Surrogate(NamedTuple):
    """The one knapsack whose relaxation bounds the instance; its n items are in the order of decreasing efficiency."""

    multipliers: np.ndarray
    """u, ``(m,)``."""
    efficiency: np.ndarray
    """Value per weight ``u'w``, ``(n,)``; ``inf`` for items without weight."""
    value_sums: np.ndarray
    """Of the first k items, ``(n + 1,)``."""
    weight_sums: np.ndarray
    """Of the first k items, ``(n + 1,)``."""
    largest_multiple: float
    """Largest multiple of u that is at most the price."""
    worth_any_price: int
    """Number of items whose efficiency is above that multiple."""


@kernel
def best_subsets(values, weights, capacity, price, node_limit):
    """Return the best subset of each instance by branch and bound, and whether the search was completed.

    Args:
        values: of the items, float64 ``(R, n)``.
        weights: at least 0, float64 ``(R, m, n)``, or ``(1, m, n)`` for weights that all instances share.
        capacity: at least 0, float64 ``(R, m)`` or ``(1, m)``.
        price: of one unit of load above a capacity, at least 0, float64 ``(m,)``; ``inf`` for a hard capacity.
        node_limit: number of nodes after which the search of an instance stops with the best subset so far.

    Returns:
        1 for the items taken, float64 ``(R, n)``, and bool ``(R,)``.

    >>> weights, capacity = np.array([[[2.0, 3.0, 4.0]]]), np.array([[6.0]])
    >>> best_subsets(np.array([[3.0, 4.0, 5.0]]), weights, capacity, np.array([np.inf]), 100)[0].tolist()
    [[1.0, 0.0, 1.0]]
    >>> best_subsets(np.array([[3.0, 4.0, 5.0]]), weights, capacity, np.array([1.0]), 100)[0].tolist()
    [[1.0, 1.0, 1.0]]
    """
    count, n = values.shape
    result = np.zeros((count, n), np.float64)
    complete = np.empty(count, np.bool_)
    for r in range(count):
        instance_weights = weights[r if len(weights) > 1 else 0]
        instance_capacity = capacity[r if len(capacity) > 1 else 0]
        complete[r] = _best_subset(values[r], instance_weights, instance_capacity, price, node_limit, result[r])
    return result, complete


@allocating_kernel
def _best_subset(values, weights, capacity, price, node_limit, result):
    """Write the best subset of one instance to ``result``; return whether the search was completed."""
    m = len(weights)
    items = np.empty(len(values), np.int64)
    n = 0
    for j in range(len(values)):
        useful = values[j] > 0.0
        for i in range(m):
            if price[i] == np.inf and weights[i, j] > capacity[i] * (1.0 + _ROUNDING):
                useful = False
        if useful:
            items[n] = j
            n += 1
    if n == 0:
        return True
    # The items that can be part of a solution, one row of weights each.
    useful_values, useful_weights = np.empty(n), np.empty((n, m))
    for k in range(n):
        useful_values[k] = values[items[k]]
        for i in range(m):
            useful_weights[k, i] = weights[i, items[k]]
    multipliers = _multipliers(useful_values, useful_weights, capacity, price)
    efficiency, order = np.empty(n), np.empty(n, np.int64)
    for k in range(n):
        weight = 0.0
        for i in range(m):
            weight += multipliers[i] * useful_weights[k, i]
        efficiency[k] = useful_values[k] / weight if weight > 0.0 else np.inf
    sort_decreasing(efficiency, order)
    sorted_values, sorted_weights = np.empty(n), np.empty((n, m))
    for k in range(n):
        sorted_values[k] = useful_values[order[k]]
        for i in range(m):
            sorted_weights[k, i] = useful_weights[order[k], i]
    best = np.zeros(n, np.bool_)
    surrogate = _surrogate(sorted_values, sorted_weights, multipliers, price)
    taken, totals, loads = np.zeros(n, np.bool_), np.zeros(n + 1), np.zeros((n + 1, m))
    complete = _search(sorted_values, sorted_weights, capacity, price, surrogate, node_limit, taken, totals, loads, best)
    for k in range(n):
        if best[k]:
            result[items[order[k]]] = 1.0
    return complete


@allocating_kernel
def _multipliers(values, weights, capacity, price):
    """Return the multipliers of the capacities in the linear relaxation, ``0 <= u <= price``; weights are ``(n, m)``.

    A priced capacity has one more variable, the load above it.
    """
    n, m = weights.shape
    columns = n
    for i in range(m):
        columns += price[i] < np.inf
    matrix, costs, upper = np.zeros((m, columns)), np.empty(columns), np.ones(columns)
    rhs, scale = np.empty(m), np.full(m, 1e-300)
    costs[:n] = values
    column = n
    for i in range(m):
        # Rows of comparable size: the simplex method compares its pivots with one tolerance.
        for k in range(n):
            scale[i] = max(scale[i], weights[k, i])
        for k in range(n):
            matrix[i, k] = weights[k, i] / scale[i]
        rhs[i] = capacity[i] / scale[i]
        if price[i] < np.inf:
            matrix[i, column] = -1.0
            costs[column] = -price[i] * scale[i]
            upper[column] = np.inf
            column += 1
    multipliers = maximize_in_box(costs, matrix, rhs, upper)[1]
    for i in range(m):
        multipliers[i] = min(multipliers[i] / scale[i], price[i])
    return multipliers


@allocating_kernel
def _surrogate(values, weights, multipliers, price):
    """Return the surrogate knapsack of items that are sorted already."""
    n, m = weights.shape
    efficiency, value_sums, weight_sums = np.empty(n), np.zeros(n + 1), np.zeros(n + 1)
    largest_multiple = np.inf
    for i in range(m):
        if multipliers[i] > 0.0:
            largest_multiple = min(largest_multiple, price[i] / multipliers[i])
    worth_any_price = 0
    for k in range(n):
        weight = 0.0
        for i in range(m):
            weight += multipliers[i] * weights[k, i]
        efficiency[k] = values[k] / weight if weight > 0.0 else np.inf
        value_sums[k + 1] = value_sums[k] + values[k]
        weight_sums[k + 1] = weight_sums[k] + weight
        worth_any_price += efficiency[k] > largest_multiple
    return Surrogate(multipliers, efficiency, value_sums, weight_sums, largest_multiple, worth_any_price)


@inner_kernel
def _search(values, weights, capacity, price, surrogate, node_limit, taken, totals, loads, best):
    """Search the subsets depth first, the more efficient items first and taken before left out.

    Args:
        values: of the n items, in the order of decreasing efficiency, ``(n,)``.
        weights: ``(n, m)``.
        capacity: ``(m,)``.
        price: ``(m,)``.
        surrogate: the bound.
        node_limit: number of nodes to visit.
        taken: workspace ``(n,)``, False.
        totals: workspace ``(n + 1,)``, zero; entry d is the value of the first d items that were taken.
        loads: workspace ``(n + 1, m)``, zero; row d is their load.
        best: overwritten with the best subset, ``(n,)``.

    Returns:
        Whether all subsets were searched.
    """
    n, m = weights.shape
    tolerance = _TOLERANCE * surrogate.value_sums[n]
    k, depth, best_objective = 0, 0, 0.0
    for _ in range(node_limit):
        bound = -np.inf
        if k < n:
            remaining = 0.0
            for i in range(m):
                remaining += surrogate.multipliers[i] * (capacity[i] - loads[depth, i])
            bound = totals[depth] + _gain_bound(k, remaining, surrogate)
        if bound > best_objective + tolerance:
            fits = True
            for i in range(m):
                loads[depth + 1, i] = loads[depth, i] + weights[k, i]
                if price[i] == np.inf and loads[depth + 1, i] > capacity[i] * (1.0 + _ROUNDING):
                    fits = False
            if fits:
                taken[k] = True
                depth += 1
                totals[depth] = totals[depth - 1] + values[k]
                objective = totals[depth]
                for i in range(m):
                    if price[i] < np.inf:
                        objective -= price[i] * max(loads[depth, i] - capacity[i], 0.0)
                if objective > best_objective:
                    best_objective = objective
                    for j in range(n):
                        best[j] = taken[j]
            k += 1
            continue
        # Back to the last item that was taken, and on without it.
        k -= 1
        while k >= 0 and not taken[k]:
            k -= 1
        if k < 0:
            return True
        taken[k] = False
        depth -= 1
        k += 1
    return False


@inlined_kernel
def _gain_bound(k, remaining, surrogate):
    """Return how much the items from the k-th on can add at most to the value, less the price of the load above capacity."""
    n = len(surrogate.efficiency)
    value_sums, weight_sums = surrogate.value_sums, surrogate.weight_sums
    first = max(k, surrogate.worth_any_price)
    filled = weight_sums[first] - weight_sums[k]
    if filled >= remaining and surrogate.largest_multiple < np.inf:
        return value_sums[first] - value_sums[k] + surrogate.largest_multiple * (remaining - filled)
    remaining = max(remaining, 0.0)
    # The first item that does not fit as a whole; those before ``first`` do.
    low, high = first, n
    while low < high:
        middle = (low + high) // 2
        if weight_sums[middle + 1] - weight_sums[k] > remaining:
            high = middle
        else:
            low = middle + 1
    gain = value_sums[low] - value_sums[k]
    if low < n:
        gain += (remaining - (weight_sums[low] - weight_sums[k])) * surrogate.efficiency[low]
    return gain
