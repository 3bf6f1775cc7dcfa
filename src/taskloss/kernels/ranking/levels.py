r"""Loss-augmented inference for a convex metric given as a function, positive update: bisection of the counts.

The problem is that of :mod:`taskloss.kernels.ranking.isotonic`, concave rows ``g_i`` under a monotone constraint. Pooling asks for one
block at a time, from within compiled code; a caller's numpy function wants few calls on long arrays. With ``gain_i(l) =
g_i(l + 1) - g_i(l)`` the objective is a sum over levels,

.. math:: \sum_i g_i(c_i) = \sum_i g_i(0) + \sum_l \sum_{i : c_i > l} \text{gain}_i(l),

and the rows with ``c_i > l`` are the last ones, a suffix. Since every ``gain_i`` falls with l, the best suffixes of the levels
are nested, so each level may be solved by itself: the best suffix of the middle level says which rows stand above it, and the
two parts have half the levels each. All the parts of all the rankings are halved together, so the function is called twice for
each binary digit of N, on at most P numbers: O(P log N) values and O(P) memory. The least of the best suffixes gives the least
optimal c, the greatest the greatest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.sort import TwoLists

Terms = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``m(i, c)`` of positives, given by their places in the flat list of all of them (int64), and counts (int64): float64."""


def augment_by_levels(lists: TwoLists, ranking: np.ndarray, terms: Terms, pull: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest maximizing counts of all rankings, each of shape ``(positives,)``; ``pull >= 0`` of shape ``(R,)``.

    ``ranking`` is that of each positive.
    """
    least, tied = _bisect(lists, ranking, terms, pull, False)
    # Only a gain of exactly zero lets the two differ.
    return least, _bisect(lists, ranking, terms, pull, True)[0] if tied else least


def _bisect(lists: TwoLists, ranking: np.ndarray, terms: Terms, pull: np.ndarray, greatest: bool) -> tuple[np.ndarray, bool]:
    low = np.zeros(len(lists.positives), np.int64)
    high = lists.negative_counts()[ranking]
    rows = np.flatnonzero(low < high)
    tied = False
    while len(rows):
        level, owner = (low[rows] + high[rows]) // 2, ranking[rows]
        drops = terms(rows, level) - terms(rows, level + 1)
        gains = (lists.negatives[lists.negative_start[owner] + level] - lists.positives[rows]) + pull[owner] * drops
        tied |= _raise_suffixes(rows, owner, level, gains, greatest, low, high)
        rows = rows[low[rows] < high[rows]]
    return low, tied


@kernel
def _raise_suffixes(rows, owner, level, gains, greatest, low, high):
    """Split each run of rows at one level into those that stay at or below it and the best suffix, which rises above it.

    The sum of a suffix is carried only from the best one so far, so that a huge score does not drown the others. Tells whether
    two suffixes were ever exactly equal.
    """
    tied = False
    end = len(rows)
    while end > 0:
        begin = end - 1
        while begin > 0 and level[begin - 1] == level[end - 1] and owner[begin - 1] == owner[end - 1]:
            begin -= 1
        best = end
        total = 0.0
        for k in range(end - 1, begin - 1, -1):
            total += gains[k]
            tied |= total == 0.0
            if total > 0.0 or (greatest and total == 0.0):
                best = k
                total = 0.0
        for k in range(begin, best):
            high[rows[k]] = level[k]
        for k in range(best, end):
            low[rows[k]] = level[k] + 1
        end = begin
    return tied
