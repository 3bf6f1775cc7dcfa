r"""Loss-augmented inference for convex ranking metrics, positive update: pool adjacent violators.

For a separable metric ``M(c) = scale * sum_i m(i, c_i)`` the objective of :mod:`taskloss.kernels.ranking.interleaving` is

.. math::
    \sum_i g_i(c_i), \qquad g_i(c) = \sum_{j \le c} (t_j - s_i) - \text{loss\_weight} \cdot m(i, c), \qquad
    \text{loss\_weight} = w \cdot \text{scale} \cdot P N / 2.

The increment ``g_i(c + 1) - g_i(c) = t_{c+1} - s_i + loss_weight (m(i, c) - m(i, c + 1))`` falls with c, because ``t`` does
and, for a metric convex in c, ``m(i, c) - m(i, c + 1)`` does. So each ``g_i`` is concave, and with the constraint
``c_1 <= ... <= c_P`` this is an isotonic regression. Rows enter from the top. Pooled rows form a *block* with one common
count, its *level*; a row whose own maximizer is below the level of the block before it joins that block. Taking the least
maximizer of every block gives the least optimal c, taking the greatest gives the greatest. A search starts at the level of
the neighbouring block, so it is short; the whole takes O(P log N).

A block ``a..b`` keeps ``s_a`` and ``sum (s_i - s_a)``: sums of the scores themselves would lose small scores beside a large one.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inlined_kernel, inner_kernel, kernel
from taskloss.kernels.ranking.terms import drop, row_drop
from taskloss.kernels.sort import TwoLists, scores_of


def augment_convex(lists: TwoLists, metric: int, loss_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest maximizing counts for ``loss_weight > 0``; ``metric`` is an integer of ``terms.py``."""
    return _pool_rankings(lists, metric, loss_weight)


@kernel
def _pool_rankings(lists, metric, loss_weight):
    """Do what :func:`augment_convex` does."""
    least, greatest = np.empty(len(lists.positives), np.int64), np.empty(len(lists.positives), np.int64)
    for r in range(len(loss_weight)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        s, t = scores_of(lists, r)
        if _pool(s, t, metric, loss_weight[r], False, least[rows]):
            _pool(s, t, metric, loss_weight[r], True, greatest[rows])
        else:
            # The two differ only where some gain is exactly zero.
            for i in range(rows.start, rows.stop):
                greatest[i] = least[i]
    return least, greatest


@allocating_kernel
def _pool(s, t, metric, loss_weight, greatest, counts):
    """Write the least or the ``greatest`` optimum of one ranking to ``counts``; return whether any computed gain was zero."""
    # A stack of blocks: the first row, the sum of s_i - s_first, and the level.
    firsts = np.empty(len(s), np.int64)
    offset_sums = np.empty(len(s), np.float64)
    levels = np.empty(len(s), np.int64)
    blocks = 0
    tied = False
    for last in range(len(s)):
        first = last
        offset_sum = 0.0
        upper = len(t)
        merged = False
        while blocks > 0 and levels[blocks - 1] > 0:
            gain = _gain(s, t, metric, loss_weight, first, last, offset_sum, levels[blocks - 1] - 1)
            tied |= gain == 0.0
            if gain > 0.0 or (greatest and gain == 0.0):
                break
            blocks -= 1
            offset_sum += offset_sums[blocks] + (last + 1 - first) * (s[first] - s[firsts[blocks]])
            first = firsts[blocks]
            upper = levels[blocks]
            merged = True
        lower = levels[blocks - 1] if blocks > 0 else 0
        level, zero = _search(s, t, metric, loss_weight, first, last, offset_sum, lower, upper, merged, greatest)
        tied |= zero
        firsts[blocks] = first
        offset_sums[blocks] = offset_sum
        levels[blocks] = level
        blocks += 1
    stop = len(s)
    for block in range(blocks - 1, -1, -1):
        counts[firsts[block] : stop] = levels[block]
        stop = firsts[block]
    return tied


@inlined_kernel
def _gain(s, t, metric, loss_weight, first, last, offset_sum, c):
    """Return the change of the objective when the counts of the rows ``first..last`` grow from c to c + 1; it falls with c."""
    if first == last:
        return (t[c] - s[first]) + loss_weight * row_drop(metric, first + 1, c)
    rows = last + 1 - first
    return rows * (t[c] - s[first]) - offset_sum + loss_weight * drop(metric, first + 1, last + 1, c)


@inner_kernel
def _search(s, t, metric, loss_weight, first, last, offset_sum, low, high, from_above, greatest):
    """Return the level of a block, known to lie in ``low..high``, and whether any computed gain was zero.

    Steps of doubling length from the nearer end, ``high`` when ``from_above``, then bisection.
    """
    tied = False
    step = 1
    while low < high:
        probe = max(high - step, low) if from_above else min(low + step - 1, high - 1)
        gain = _gain(s, t, metric, loss_weight, first, last, offset_sum, probe)
        tied |= gain == 0.0
        if gain > 0.0 or (greatest and gain == 0.0):
            low = probe + 1
            if from_above:
                break
        else:
            high = probe
            if not from_above:
                break
        step *= 2
    while low < high:
        middle = (low + high) // 2
        gain = _gain(s, t, metric, loss_weight, first, last, offset_sum, middle)
        tied |= gain == 0.0
        if gain > 0.0 or (greatest and gain == 0.0):
            low = middle + 1
        else:
            high = middle
    return low, tied
