r"""Loss-augmented inference for separable metrics cut at rank k: a table over the first k places.

With ``m(i, c) = 0`` where ``i + c > k``, only the cells ``i + c <= k`` count. A ranking leaves them once, after a positives:
the rows up to a have ``i + c_i <= k``, and every later row stands beyond rank k, where it only wants to be as near as it may
to its natural count, ``max(c0_i, k - a)``. So

.. math:: \max_a \; H_a(k - a) - \sum_{i > a} \sum_{c0_i < j \le k - a} (s_i - t_j), \qquad
          H_i(c) = \max_{c' \le c} H_{i-1}(c') + g_i(c'),

with ``g_i(c)`` the cost of row i against its natural count, less ``pull m(i, c)``. Exact for a pull of either sign, in
``O(k^2 + P + N)`` time and one byte a cell.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ranking.staircase import MEMORY_LIMIT_BYTES
from taskloss.kernels.ranking.terms import term
from taskloss.kernels.sort import TwoLists


def augment_cut(
    lists: TwoLists,
    above: np.ndarray,
    at_or_above: np.ndarray,
    metric: int,
    k: np.ndarray,
    pull: np.ndarray,
    memory_limit: int = MEMORY_LIMIT_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest maximizing counts; ``k`` and ``pull`` (either sign) have shape ``(R,)``.

    Raises ``ValueError`` when a ranking's table would be larger than ``memory_limit`` bytes.
    """
    cells = np.minimum(k, lists.positive_counts()) * np.minimum(k, lists.negative_counts())
    if cells.max(initial=0) > memory_limit:
        raise ValueError(
            f"a metric cut at rank {int(k[cells.argmax()]):,} needs a table of {cells.max() / 2**30:.1f} GiB; the limit is "
            f"{memory_limit / 2**30:.1f} GiB. Leave out at=, which needs no such table, or cut at a lower rank"
        )
    return _augment_cut(lists, above, at_or_above, metric, k, pull)


@kernel
def _augment_cut(lists, above, at_or_above, metric, k, pull):
    least = above.copy()
    greatest = at_or_above.copy()
    for r in range(len(pull)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        s = lists.positives[rows]
        t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        if len(s) > 0 and len(t) > 0:
            _solve(s, t, above[rows], at_or_above[rows], metric, min(k[r], len(s) + len(t)), pull[r], True, least[rows])
            _solve(s, t, above[rows], at_or_above[rows], metric, min(k[r], len(s) + len(t)), pull[r], False, greatest[rows])
    return least, greatest


@kernel
def _solve(s, t, above, at_or_above, metric, k, pull, prefer_least, counts):
    rows = min(k, len(s))
    best = np.zeros(min(k, len(t)) + 1)
    marks = np.zeros((rows, len(best)), np.bool_)
    leave = _leaving_costs(s, t, above, k, rows)
    best_value = -leave[0] if k <= len(t) else -np.inf
    best_rows = 0
    beyond, begin, end = 0.0, 0, 0
    for i in range(rows):
        limit = min(k - i - 1, len(t))
        if above[i] > limit:
            # What it costs to bring the row from its natural count to the limit: sums of t[begin:end] - s_i, carried from row
            # to row.
            if end > begin:
                beyond += (end - begin) * (s[i - 1] - s[i])
            else:
                begin = end = limit
            while begin > limit:
                begin -= 1
                beyond += t[begin] - s[i]
            while end < above[i]:
                beyond += t[end] - s[i]
                end += 1
        _add_row(s[i], t, above[i], beyond, i + 1, limit, metric, pull, best, marks[i], prefer_least)
        inside = i + 1
        if k - inside > len(t) and inside < len(s):
            continue
        value = best[min(k - inside, len(t))] - leave[inside]
        # More positives inside means lower counts.
        if value > best_value or (prefer_least and value == best_value):
            best_value, best_rows = value, inside
    _read_off(above if prefer_least else at_or_above, marks, best_rows, min(k - best_rows, len(t)), counts)


@kernel
def _read_off(natural, marks, inside, bound, counts):
    for i in range(inside, len(counts)):
        counts[i] = max(natural[i], bound)
    c = bound
    for i in range(inside - 1, -1, -1):
        while not marks[i, c]:
            c -= 1
        counts[i] = c


@kernel
def _add_row(score, t, natural, beyond, i, limit, metric, pull, best, marks, prefer_least):
    """``best[c] <- max_{c' <= c} best[c'] + g_i(c')`` for c up to ``limit``; marks cells that are the best up to themselves."""
    costs = np.empty(limit + 1)
    anchor = min(natural, limit)
    costs[anchor] = beyond
    for c in range(anchor - 1, -1, -1):
        costs[c] = costs[c + 1] + (t[c] - score)
    for c in range(anchor, limit):
        costs[c + 1] = costs[c] + (score - t[c])
    record = -np.inf
    for c in range(limit + 1):
        value = best[c] - costs[c] - pull * term(metric, i, c)
        if value > record or (value == record and not prefer_least):
            record = value
            marks[c] = True
        best[c] = record


@kernel
def _leaving_costs(s, t, above, k, rows):
    """``sum_{i > a} sum_{j <= k - a} (s_i - t_j)_+`` for a = 0..rows, each from the next: one more row and one more column."""
    costs = np.zeros(rows + 1)
    column = 0.0
    end = rows
    for a in range(rows - 1, -1, -1):
        costs[a] = costs[a + 1]
        for j in range(above[a], min(k - a, len(t))):
            costs[a] += s[a] - t[j]
        j = k - a - 1
        if j < len(t):
            # The column against the rows after a that score higher: s[a + 1:end].
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
    """``sum_i m(i, c_i)`` over the positives within rank ``k[r]``, shape ``(R,)``."""
    result = np.zeros(len(k))
    for r in range(len(k)):
        start = lists.positive_start[r]
        for i in range(start, lists.positive_start[r + 1]):
            rank = i - start + 1
            if rank + counts[i] <= k[r]:
                result[r] += term(metric, rank, counts[i])
    return result
