r"""Loss-augmented inference for precision and recall at k: a search over the number of positives in the top k.

Let a be the number of positives in the top k. The best such ranking has the first a positives and the first k - a negatives there
and is otherwise ordered by score: the natural counts are clipped to at most k - a in the rows up to a, and to at least k - a in
the others. The metric depends on a only, so inference finds the best a. Against the prediction a ranking costs the score
differences of the pairs that change order,

.. math:: \text{cost}(a) = \sum_{i > a} \sum_{j \le k - a} (s_i - t_j)_+ \;\; (a \text{ below natural}), \qquad
          \text{cost}(a) = \sum_{i \le a} \sum_{j > k - a} (t_j - s_i)_+ \;\; (a \text{ above natural}).

The second is the first with the two lists exchanged. Going outward from the a of the prediction, each step adds one row and one
column of pairs. Both are updated as sums of differences of one sign over a growing range, so the search takes O(P + N) and
nothing cancels.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel
from taskloss.kernels.sort import scores_of


@kernel
def augment_top_k(lists, above, at_or_above, k, loss_weight):
    """Return the least and greatest maximizing counts for a loss weight of either sign, here that of one positive in the top k.

    ``above`` and ``at_or_above`` are the counts of the prediction; ``k`` is int64 ``(R,)``.
    """
    least = above.copy()
    greatest = at_or_above.copy()
    for r in range(len(loss_weight)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        s, t = scores_of(lists, r)
        size = min(k[r], len(s) + len(t))
        natural = above[rows] if loss_weight[r] > 0 else at_or_above[rows]
        inside = _positives_inside(natural, size)
        # Fewer positives inside means greater counts.
        if loss_weight[r] > 0:
            fewest, most = _best_moves(s, t, size, inside, loss_weight[r])
            inside_least, inside_greatest = inside - fewest, inside - most
        else:
            fewest, most = _best_moves(t, s, size, size - inside, -loss_weight[r])
            inside_least, inside_greatest = inside + most, inside + fewest
        _clip(least[rows], inside_least, size - inside_least)
        _clip(greatest[rows], inside_greatest, size - inside_greatest)
    return least, greatest


@inner_kernel
def _clip(counts, inside, bound):
    """Clip the first ``inside`` counts to at most ``bound`` and the others to at least ``bound``, in place."""
    for i in range(len(counts)):
        counts[i] = min(counts[i], bound) if i < inside else max(counts[i], bound)


@inner_kernel
def _positives_inside(counts, k):
    """Return the number of positives in the top k of a ranking with these counts."""
    inside = 0
    while inside < len(counts) and inside + 1 + counts[inside] <= k:
        inside += 1
    return inside


@inner_kernel
def _best_moves(s, t, k, inside, reward):
    """Return the fewest and the most samples of ``s`` to move out of the top k for the best total of rewards less costs.

    Each move exchanges the last sample of ``s`` inside for the first sample of ``t`` outside. The top k is that of the prediction
    at first, with ``inside`` samples of ``s``, so a sample that leaves scores at least as high as one that enters.
    """
    fewest = most = 0
    best = value = 0.0
    # The costs of the current move: the entering sample against s[leaving:row_end], and the leaving one against
    # t[column_begin:column_end].
    row_sum, row_end = 0.0, inside
    column_sum, column_begin, column_end = 0.0, k - inside, k - inside
    for moves in range(1, min(inside, len(t) - (k - inside)) + 1):
        leaving, entering = inside - moves, k - inside + moves - 1
        # The leaving sample passes below the samples of t inside that score no higher.
        if moves > 1:
            column_sum += (column_end - column_begin) * (s[leaving] - s[leaving + 1])
        while column_begin > 0 and t[column_begin - 1] <= s[leaving]:
            column_begin -= 1
            column_sum += s[leaving] - t[column_begin]
        while column_end < entering:
            column_sum += s[leaving] - t[column_end]
            column_end += 1
        # The entering sample passes above the samples of s outside that score higher.
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
    """Return the number of positives in the top ``k[r]`` of each ranking, float64 ``(R,)``."""
    result = np.zeros(len(k), np.float64)
    for r in range(len(k)):
        result[r] = _positives_inside(counts[lists.positive_start[r] : lists.positive_start[r + 1]], k[r])
    return result
