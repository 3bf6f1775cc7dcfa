r"""Loss-augmented inference for separable metrics cut at rank k: a table over the first k ranks.

With ``m(i, c) = 0`` where ``i + c > k``, only the cells ``i + c <= k`` affect the metric. Let a be the number of positives within
rank k: the rows up to a have ``i + c_i <= k``, and every later row has a rank beyond k, where only the scores matter, so its best
count is the one nearest to its natural count ``c0_i``, namely ``max(c0_i, k - a)``. So the optimum is

.. math:: \max_a \; H_a(k - a) - \sum_{i > a} \sum_{c0_i < j \le k - a} (s_i - t_j), \qquad
          H_i(c) = \max_{c' \le c} H_{i-1}(c') + g_i(c'),

where ``g_i(c)`` is the joint score of row i at c less that at its natural count, less ``loss_weight m(i, c)``. Exact for a loss
weight of either sign, in ``O(k^2 + P + N)`` time and one byte per cell.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.kernels.ranking.staircase import MEMORY_LIMIT_BYTES
from taskloss.kernels.ranking.terms import term
from taskloss.kernels.sort import TwoLists, scores_of


def augment_cut(
    lists: TwoLists,
    above: np.ndarray,
    at_or_above: np.ndarray,
    metric: int,
    k: np.ndarray,
    loss_weight: np.ndarray,
    memory_limit: int = MEMORY_LIMIT_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest maximizing counts for a loss weight of either sign.

    Raises ``ValueError`` when a ranking's table would be larger than ``memory_limit`` bytes.

    Args:
        lists: the samples of R rankings.
        above: least counts of the prediction, int64 ``(positives,)``.
        at_or_above: greatest counts of the prediction, likewise.
        metric: an integer of :mod:`taskloss.kernels.ranking.terms`.
        k: the last rank that counts, int64 ``(R,)``.
        loss_weight: float64 ``(R,)``.
        memory_limit: the most bytes for one ranking.
    """
    cells = np.minimum(k, lists.positive_counts()) * np.minimum(k, lists.negative_counts())
    if cells.max(initial=0) > memory_limit:
        raise ValueError(
            f"a metric cut at rank {int(k[cells.argmax()]):,} needs a table of {cells.max() / 2**30:.1f} GiB; the limit is "
            f"{memory_limit / 2**30:.1f} GiB. Leave out at=, which needs no such table, or cut at a lower rank"
        )
    return _augment_cut(lists, above, at_or_above, metric, k, loss_weight)


@kernel
def _augment_cut(lists, above, at_or_above, metric, k, loss_weight):
    least = above.copy()
    greatest = at_or_above.copy()
    for r in range(len(loss_weight)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        s, t = scores_of(lists, r)
        if len(s) > 0 and len(t) > 0:
            cut = min(k[r], len(s) + len(t))
            _solve(s, t, above[rows], at_or_above[rows], metric, cut, loss_weight[r], True, least[rows])
            _solve(s, t, above[rows], at_or_above[rows], metric, cut, loss_weight[r], False, greatest[rows])
    return least, greatest


@allocating_kernel
def _solve(s, t, above, at_or_above, metric, k, loss_weight, prefer_least, counts):
    """Write the least or greatest optimum of one ranking to ``counts``.

    Args:
        s: scores of the positives, descending, float64 ``(P,)``, read.
        t: scores of the negatives, likewise ``(N,)``.
        above: least counts of the prediction, int64 ``(P,)``, read.
        at_or_above: greatest counts of the prediction, likewise.
        metric: an integer of :mod:`taskloss.kernels.ranking.terms`.
        k: the last rank that counts, at most ``P + N``.
        loss_weight: the loss weight of this ranking.
        prefer_least: whether to write the least optimum.
        counts: int64 ``(P,)``, written.
    """
    rows = min(k, len(s))
    best = np.zeros(min(k, len(t)) + 1, np.float64)
    marks = np.zeros((rows, len(best)), np.bool_)
    later_costs = _later_row_costs(s, t, above, k, rows)
    best_value = -later_costs[0] if k <= len(t) else -np.inf
    best_inside = 0
    cost_at_upper, begin, end = 0.0, 0, 0
    for i in range(rows):
        upper = min(k - i - 1, len(t))
        if above[i] > upper:
            # The cost of lowering the row from its natural count to the highest within rank k: the sum of t[begin:end] - s_i,
            # updated from row to row.
            if end > begin:
                cost_at_upper += (end - begin) * (s[i - 1] - s[i])
            else:
                begin = end = upper
            while begin > upper:
                begin -= 1
                cost_at_upper += t[begin] - s[i]
            while end < above[i]:
                cost_at_upper += t[end] - s[i]
                end += 1
        _add_row(s[i], t, above[i], cost_at_upper, i + 1, upper, metric, loss_weight, best, marks[i], prefer_least)
        inside = i + 1
        if k - inside > len(t) and inside < len(s):
            # With all negatives above it, the next positive would be within rank k too.
            continue
        value = best[min(k - inside, len(t))] - later_costs[inside]
        # More positives inside means lower counts.
        if value > best_value or (prefer_least and value == best_value):
            best_value, best_inside = value, inside
    _backtrack(above if prefer_least else at_or_above, marks, best_inside, min(k - best_inside, len(t)), counts)


@inner_kernel
def _backtrack(natural, marks, inside, bound, counts):
    """Write the counts of the ``inside`` rows within rank k from their marks, and those of the rows after them.

    ``bound`` is the number of negatives within rank k: no row inside has a higher count, no later row a lower one.
    """
    for i in range(inside, len(counts)):
        counts[i] = max(natural[i], bound)
    c = bound
    for i in range(inside - 1, -1, -1):
        while not marks[i, c]:
            c -= 1
        counts[i] = c


@allocating_kernel
def _add_row(score, t, natural, cost_at_upper, i, upper, metric, loss_weight, best, marks, prefer_least):
    """Replace ``best[c]`` by ``max_{c' <= c} best[c'] + g_i(c')`` for c up to ``upper``.

    Args:
        score: the score of the i-th positive.
        t: scores of the negatives, descending, float64, read.
        natural: the count of row i in the prediction.
        cost_at_upper: the cost of the count ``upper`` against ``natural``, if ``natural`` is higher.
        i: the row, from 1.
        upper: the highest count within rank k.
        metric: an integer of :mod:`taskloss.kernels.ranking.terms`.
        loss_weight: the loss weight of this ranking.
        best: ``H_{i-1}(c)``, float64, overwritten with ``H_i(c)``.
        marks: bool, set where c itself attains the maximum.
        prefer_least: whether, of equally good counts, only the least is marked.
    """
    costs = np.empty(upper + 1, np.float64)
    anchor = min(natural, upper)
    costs[anchor] = cost_at_upper
    for c in range(anchor - 1, -1, -1):
        costs[c] = costs[c + 1] + (t[c] - score)
    for c in range(anchor, upper):
        costs[c + 1] = costs[c] + (score - t[c])
    record = -np.inf
    for c in range(upper + 1):
        value = best[c] - costs[c] - loss_weight * term(metric, i, c)
        if value > record or (value == record and not prefer_least):
            record = value
            marks[c] = True
        best[c] = record


@allocating_kernel
def _later_row_costs(s, t, above, k, rows):
    """Return ``sum_{i > a} sum_{j <= k - a} (s_i - t_j)_+`` for a = 0..rows, each from the next by one more row and column."""
    costs = np.zeros(rows + 1, np.float64)
    column = 0.0
    end = rows
    for a in range(rows - 1, -1, -1):
        costs[a] = costs[a + 1]
        for j in range(above[a], min(k - a, len(t))):
            costs[a] += s[a] - t[j]
        j = k - a - 1
        if j < len(t):
            # ``column``: the sum of s_i - t_j over the rows after a that score higher than t_j, s[a + 1:end].
            if a + 1 < len(s) and s[a + 1] > t[j]:
                if end > a + 2:
                    column += (end - a - 2) * (t[j - 1] - t[j])
                column += s[a + 1] - t[j]
                end = max(end, a + 2)
                while end < len(s) and s[end] > t[j]:
                    column += s[end] - t[j]
                    end += 1
            else:
                column, end = 0.0, a + 1
            costs[a] += column
    return costs


@kernel
def term_sum(lists, metric, counts, k):
    """Return ``sum_i m(i, c_i)`` over the positives within rank ``k[r]``, float64 ``(R,)``."""
    result = np.zeros(len(k), np.float64)
    for r in range(len(k)):
        start = lists.positive_start[r]
        for i in range(start, lists.positive_start[r + 1]):
            row = i - start + 1
            if row + counts[i] <= k[r]:
                result[r] += term(metric, row, counts[i])
    return result
