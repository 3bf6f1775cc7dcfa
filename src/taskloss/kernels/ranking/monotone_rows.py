r"""Loss-augmented inference for NDCG, negative update: divide and conquer over independent rows.

Row i maximizes ``g_i(c) = sum_{j <= c} (t_j - s_i) + q m(i, c)`` over ``c <= #{t >= s_i}``, with ``q = -loss_weight > 0``.
When ``m(i, c) - m(i, c + 1)`` does not grow with i, as for NDCG, whose discount is convex in ``i + c``, then
``g_{i+1}(c + 1) - g_{i+1}(c) >= g_i(c + 1) - g_i(c)``: the best count of a later row is never lower, so the rows may be
solved independently and their counts come out nondecreasing. The best count of the middle row bounds those of the rows on
either side, so each level of the recursion scans every count about once: O((P + N) log P).
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.kernels.ranking.terms import row_drop
from taskloss.kernels.sort import scores_of
from taskloss.kernels.stack import push


@kernel
def augment_monotone_rows(lists, at_or_above, metric, loss_weight):
    """Return the least and greatest maximizing counts; ``loss_weight < 0``, ``at_or_above`` of the prediction."""
    least = np.zeros(len(lists.positives), np.int64)
    greatest = np.zeros(len(lists.positives), np.int64)
    for r in range(len(loss_weight)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        s, t = scores_of(lists, r)
        _divide(s, t, at_or_above[rows], metric, -loss_weight[r], True, least[rows])
        _divide(s, t, at_or_above[rows], metric, -loss_weight[r], False, greatest[rows])
    return least, greatest


@allocating_kernel
def _divide(s, t, upper, metric, metric_weight, prefer_least, counts):
    """Write the least or greatest best count of each row of one ranking, at most ``upper``, to ``counts``."""
    # A stack of ranges of rows with the bounds of their counts; it holds two ranges per halving of the rows, so 130 suffice.
    stack = np.empty((130, 4), np.int64)
    waiting = push(stack, 0, 0, len(s), 0, len(t))
    while waiting > 0:
        waiting -= 1
        begin, end, low, high = stack[waiting]
        if begin >= end:
            continue
        middle = (begin + end) // 2
        best = _best_count(s[middle], t, middle + 1, low, min(high, upper[middle]), metric, metric_weight, prefer_least)
        counts[middle] = best
        waiting = push(stack, waiting, begin, middle, low, best)
        waiting = push(stack, waiting, middle + 1, end, best, high)


@inner_kernel
def _best_count(score, t, i, low, high, metric, metric_weight, prefer_least):
    """Return the best count of row i in ``low..high``, scanned from the highest down."""
    best, best_value, value = high, 0.0, 0.0
    for c in range(high - 1, low - 1, -1):
        value += (score - t[c]) + metric_weight * row_drop(metric, i, c)
        if value > best_value or (prefer_least and value == best_value):
            best, best_value = c, value
    return best
