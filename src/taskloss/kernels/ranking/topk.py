r"""Loss-augmented inference for precision and recall at k: how many positives the top k hold.

A ranking with a positives in the top k has the first a positives and the first k - a negatives there, everything else as the
scores have it: rows up to a are clipped to at most k - a, the others to at least k - a. The metric only sees a, so the answer
is the best a. Against the natural ranking it costs the score differences of the pairs that change sides,

.. math:: \text{cost}(a) = \sum_{i > a} \sum_{j \le k - a} (s_i - t_j)_+ \;\; (a \text{ below natural}), \qquad
          \text{cost}(a) = \sum_{i \le a} \sum_{j > k - a} (t_j - s_i)_+ \;\; (a \text{ above natural}).

The second is the first with the two lists exchanged. Going outward from the natural a, each step adds one row and one column
of pairs; both are kept as sums of differences of one sign over a growing range, so the whole is O(P + N) and nothing cancels.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel


@kernel
def augment_top_k(lists, above, at_or_above, k, pull):
    """Least and greatest maximizing counts; a positive in the top ``k`` is worth ``-pull`` (any sign), both of shape ``(R,)``."""
    least = above.copy()
    greatest = at_or_above.copy()
    for r in range(len(pull)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        s = lists.positives[start:stop]
        t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        size = min(k[r], len(s) + len(t))
        natural = above[start:stop] if pull[r] > 0 else at_or_above[start:stop]
        inside = _positives_inside(natural, size)
        # Fewer positives inside means greater counts.
        if pull[r] > 0:
            fewest, most = _best_moves(s, t, size, inside, pull[r])
            a_least, a_greatest = inside - fewest, inside - most
        else:
            fewest, most = _best_moves(t, s, size, size - inside, -pull[r])
            a_least, a_greatest = inside + most, inside + fewest
        _clip(least[start:stop], a_least, size - a_least)
        _clip(greatest[start:stop], a_greatest, size - a_greatest)
    return least, greatest


@kernel
def _clip(counts, inside, bound):
    for i in range(len(counts)):
        counts[i] = min(counts[i], bound) if i < inside else max(counts[i], bound)


@kernel
def _positives_inside(counts, k):
    """How many positives stand in the top k."""
    inside = 0
    while inside < len(counts) and inside + 1 + counts[inside] <= k:
        inside += 1
    return inside


@kernel
def _best_moves(s, t, k, inside, reward):
    """Fewest and most samples of ``s`` to move out of the top k at the best total of ``reward`` a move less the cost.

    The top k is natural at first, so whatever leaves it scores at least as high as whatever enters.
    """
    fewest = most = 0
    best = value = 0.0
    row_sum, row_end = 0.0, inside
    column_sum, column_begin, column_end = 0.0, k - inside, k - inside
    for moves in range(1, min(inside, len(t) - (k - inside)) + 1):
        leaving, entering = inside - moves, k - inside + moves - 1
        # The sample that leaves, against the samples of t inside that score no higher: t[column_begin:column_end].
        if moves > 1:
            column_sum += (column_end - column_begin) * (s[leaving] - s[leaving + 1])
        while column_begin > 0 and t[column_begin - 1] <= s[leaving]:
            column_begin -= 1
            column_sum += s[leaving] - t[column_begin]
        while column_end < entering:
            column_sum += s[leaving] - t[column_end]
            column_end += 1
        # The sample that enters, against the samples of s outside that score higher: s[leaving:row_end].
        if moves > 1:
            row_sum += (row_end - leaving - 1) * (t[entering - 1] - t[entering])
        row_sum += s[leaving] - t[entering]
        while row_end < len(s) and s[row_end] > t[entering]:
            row_sum += s[row_end] - t[entering]
            row_end += 1
        value += reward - column_sum - row_sum
        if value > best:
            best, fewest = value, moves
        if value >= best:
            most = moves
    return fewest, most


@kernel
def count_inside(lists, counts, k):
    """How many positives stand in the top ``k[r]``, shape ``(R,)``."""
    result = np.zeros(len(k))
    for r in range(len(k)):
        result[r] = _positives_inside(counts[lists.positive_start[r] : lists.positive_start[r + 1]], k[r])
    return result
