r"""Loss-augmented inference, negative update, when the rows are monotone by themselves: divide and conquer.

Row i maximizes ``g_i(c) = sum_{j <= c} (t_j - s_i) + q m(i, c)`` over ``c <= #{t >= s_i}``. When ``m(i, c) - m(i, c + 1)``
does not grow with i, as for NDCG, whose discount is convex in ``i + c``, then ``g_{i+1}(c + 1) - g_{i+1}(c) >= g_i(c + 1) -
g_i(c)``: the best count of a later row is never lower, and the rows can be solved apart. The best count of the middle row
bounds those of the rows on either side, so each level of the recursion scans every count about once: O((P + N) log P).
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ranking.terms import row_drop


@kernel
def augment_monotone_rows(lists, at_or_above, metric, pull):
    """Least and greatest maximizing counts of all rankings; ``pull < 0`` of shape ``(R,)``."""
    least = np.zeros(len(lists.positives), np.int64)
    greatest = np.zeros(len(lists.positives), np.int64)
    for r in range(len(pull)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        s, limits = lists.positives[rows], at_or_above[rows]
        _divide(s, t, limits, metric, -pull[r], True, least[rows])
        _divide(s, t, limits, metric, -pull[r], False, greatest[rows])
    return least, greatest


@kernel
def _divide(s, t, limits, metric, push, prefer_least, counts):
    # Waiting ranges of rows with the bounds of their counts; the depth is logarithmic, so 64 rows of the stack are plenty.
    stack = np.empty((130, 4), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, len(s), 0, len(t)
    waiting = 1
    while waiting > 0:
        waiting -= 1
        begin, end, low, high = stack[waiting]
        if begin >= end:
            continue
        middle = (begin + end) // 2
        best = _best_count(s[middle], t, middle + 1, low, min(high, limits[middle]), metric, push, prefer_least)
        counts[middle] = best
        stack[waiting] = (begin, middle, low, best)
        stack[waiting + 1] = (middle + 1, end, best, high)
        waiting += 2


@kernel
def _best_count(score, t, i, low, high, metric, push, prefer_least):
    """The best count between the bounds, scanned from the highest down."""
    best, best_value, value = high, 0.0, 0.0
    for c in range(high - 1, low - 1, -1):
        value += (score - t[c]) + push * row_drop(metric, i, c)
        if value > best_value or (prefer_least and value == best_value):
            best, best_value = c, value
    return best
