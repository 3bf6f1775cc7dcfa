r"""Loss-augmented inference for a convex metric given as a function, positive update: bisection of the counts.

The problem is that of :mod:`taskloss.kernels.ranking.isotonic`, concave ``g_i`` under a monotone constraint. Pooling
evaluates the metric for one block at a time, from within compiled code; a numpy function is fast in few calls on long arrays.
With ``gain_i(l) = g_i(l + 1) - g_i(l)`` the objective is a sum over levels l,

.. math:: \sum_i g_i(c_i) = \sum_i g_i(0) + \sum_l \sum_{i : c_i > l} \text{gain}_i(l),

where the rows with ``c_i > l`` form a suffix ``i = a..P``. Since every ``gain_i`` falls with l, the best suffixes of the
levels are nested, so each level may be solved by itself. The best suffix of the middle level says which rows have a count
above it; the rows below and above are then solved with half the levels each. All parts of all rankings are halved together,
so the function is called twice for each binary digit of N, on at most P values: O(P log N) evaluations and O(P) memory. The
shortest of the best suffixes gives the least optimal c, the longest the greatest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.sort import TwoLists

Terms = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``(rows, counts) -> m(i, c)``: positives as indices into the flat list of all of them, int64, with int64 counts; float64."""


def augment_by_levels(
    lists: TwoLists, ranking: np.ndarray, terms: Terms, loss_weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest maximizing counts; ``loss_weight >= 0``, ``ranking`` is that of each positive, int64."""
    least, tied = _bisect(lists, ranking, terms, loss_weight, False)
    # The two differ only where some sum of gains is exactly zero.
    return least, _bisect(lists, ranking, terms, loss_weight, True)[0] if tied else least


def _bisect(
    lists: TwoLists, ranking: np.ndarray, terms: Terms, loss_weight: np.ndarray, greatest: bool
) -> tuple[np.ndarray, bool]:
    """Return the least or ``greatest`` optimal counts, and whether some sum of gains was zero."""
    low = np.zeros(len(lists.positives), np.int64)
    high = lists.negative_counts()[ranking]
    rows = np.flatnonzero(low < high)
    tied = False
    while len(rows):
        level, owner = (low[rows] + high[rows]) // 2, ranking[rows]
        drops = terms(rows, level) - terms(rows, level + 1)
        gains = (lists.negatives[lists.negative_start[owner] + level] - lists.positives[rows]) + loss_weight[owner] * drops
        tied |= _raise_suffixes(rows, owner, level, gains, greatest, low, high)
        rows = rows[low[rows] < high[rows]]
    return low, tied


@kernel
def _raise_suffixes(rows, owner, level, gains, greatest, low, high):
    """Split each part into the best suffix, whose counts are above the level, and the other rows, at or below it.

    The sum of a suffix is measured from the best one so far, so that a huge score does not swamp the others.

    Args:
        rows: indices of the positives whose counts are not yet known, ascending, int64 ``(n,)``, read.
        owner: their rankings, int64 ``(n,)``, read.
        level: the middle levels, int64 ``(n,)``, read; neighbours of equal owner and level are one part.
        gains: ``gain_i(level)``, float64 ``(n,)``, read.
        greatest: whether the longest of equally good suffixes is taken.
        low: lower bounds of all counts, int64 ``(positives,)``, written at ``rows``.
        high: upper bounds, likewise.

    Returns:
        Whether two suffixes were exactly equal.
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
