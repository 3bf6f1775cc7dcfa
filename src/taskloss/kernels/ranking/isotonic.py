r"""Loss-augmented inference for convex ranking metrics, positive update: pool adjacent violators.

Times ``P N / 2`` and up to a constant, the objective ``F(c) - w M(c)`` is

.. math::
    \sum_i g_i(c_i), \qquad g_i(c) = \sum_{j \le c} (t_j - s_i) - \text{pull} \cdot m(i, c), \qquad
    \text{pull} = w \cdot \text{scale} \cdot P N / 2.

``t`` falls and, for a metric convex in c, so does ``m(i, c) - m(i, c + 1)``: each ``g_i`` is concave, and the monotone
constraint on c makes this an isotonic regression. Rows enter from the top; a row whose own maximizer is below its
predecessor's level is pooled with it. Taking the least maximizer of every block gives the least optimal c, the greatest
gives the greatest. A search starts at the level that the neighbour already has, so it is short; the whole is O(P log N).

A block ``a..b`` keeps ``s_a`` and ``sum (s_i - s_a)``: sums of the scores themselves would lose small scores beside a large one.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel
from taskloss.kernels.ranking.terms import drop, row_drop
from taskloss.kernels.sort import TwoLists


def augment_convex(lists: TwoLists, metric: int, pull: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest maximizing counts of all rankings, each of shape ``(positives,)``; ``pull > 0`` of shape ``(R,)``."""
    least = np.zeros(len(lists.positives), np.int64)
    tied = np.ones(len(pull), np.bool_)
    tied = _pool_rankings(lists, metric, pull, False, tied, least)
    if not tied.any():
        # Only a gain of exactly zero lets the two differ.
        return least, least
    greatest = least.copy()
    _pool_rankings(lists, metric, pull, True, tied, greatest)
    return least, greatest


@kernel
def _pool_rankings(lists, metric, pull, greatest, chosen, counts):
    tied = np.zeros(len(pull), np.bool_)
    for r in range(len(pull)):
        if chosen[r]:
            start, stop = lists.positive_start[r], lists.positive_start[r + 1]
            t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
            tied[r] = _pool(lists.positives[start:stop], t, metric, pull[r], greatest, counts[start:stop])
    return tied


@kernel
def _pool(s, t, metric, pull, greatest, counts):
    """Fill ``counts`` with the least or the greatest optimum; tell whether any gain that was looked at was exactly zero."""
    firsts = np.empty(len(s), np.int64)
    spreads = np.empty(len(s))
    levels = np.empty(len(s), np.int64)
    blocks = 0
    tied = False
    for last in range(len(s)):
        first = last
        spread = 0.0
        ceiling = len(t)
        merged = False
        while blocks > 0 and levels[blocks - 1] > 0:
            gain = _gain(s, t, metric, pull, first, last, spread, levels[blocks - 1] - 1)
            tied |= gain == 0.0
            if gain > 0.0 or (greatest and gain == 0.0):
                break
            blocks -= 1
            spread += spreads[blocks] + (last + 1 - first) * (s[first] - s[firsts[blocks]])
            first = firsts[blocks]
            ceiling = levels[blocks]
            merged = True
        floor = levels[blocks - 1] if blocks > 0 else 0
        level, zero = _search(s, t, metric, pull, first, last, spread, floor, ceiling, merged, greatest)
        tied |= zero
        firsts[blocks] = first
        spreads[blocks] = spread
        levels[blocks] = level
        blocks += 1
    stop = len(s)
    for block in range(blocks - 1, -1, -1):
        counts[firsts[block] : stop] = levels[block]
        stop = firsts[block]
    return tied


@inlined_kernel
def _gain(s, t, metric, pull, first, last, spread, c):
    """What the objective gains when the counts of the rows ``first..last`` (from 0) grow from c to c + 1; falls with c."""
    if first == last:
        return (t[c] - s[first]) + pull * row_drop(metric, first + 1, c)
    rows = last + 1 - first
    return rows * (t[c] - s[first]) - spread + pull * drop(metric, first + 1, last + 1, c)


@kernel
def _search(s, t, metric, pull, first, last, spread, floor, ceiling, from_above, greatest):
    """The level of a block, known to lie in ``floor..ceiling``: gallop from the near end, then halve."""
    low, high = floor, ceiling
    tied = False
    step = 1
    while low < high:
        probe = max(high - step, low) if from_above else min(low + step - 1, high - 1)
        gain = _gain(s, t, metric, pull, first, last, spread, probe)
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
        gain = _gain(s, t, metric, pull, first, last, spread, middle)
        tied |= gain == 0.0
        if gain > 0.0 or (greatest and gain == 0.0):
            low = middle + 1
        else:
            high = middle
    return low, tied
