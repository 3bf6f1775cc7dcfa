r"""Loss-augmented inference for any separable ranking metric, negative update: dynamic programming below the staircase.

The objective ``sum_i g_i(c_i)`` is that of :mod:`taskloss.kernels.ranking.isotonic`, but with ``loss_weight < 0`` the ``g_i``
are no longer concave and pooling is not exact. Since every metric falls with c, no positive gains by having more negatives
above it than in the prediction. So only the cells ``c <= #{t >= s_i}`` matter, those below the staircase of the prediction:

.. math:: h_i(c) = g_i(c) + \max_{c' \ge c} h_{i+1}(c'), \qquad c \le \#\{t \ge s_i\}.

Rows are computed from the last positive to the first, and each row from its natural count downward, so that a value is the sum
of a few score differences near the prediction rather than a difference of large sums. One bit per cell, its *mark*, says whether
the cell is better than all cells of its row with higher counts; the optimum is the first marked cell of the first row, then the
first marked cell at or above that count in the next row, and so on.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.kernels.ranking.terms import row_drop
from taskloss.kernels.sort import TwoLists, scores_of

MEMORY_LIMIT_BYTES = 2**30
"""The most memory that the table of one ranking may take."""


def augment_any(
    lists: TwoLists, at_or_above: np.ndarray, metric: int, loss_weight: np.ndarray, memory_limit: int = MEMORY_LIMIT_BYTES
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest maximizing counts for ``loss_weight < 0``; ``metric`` is an integer of ``terms.py``.

    ``at_or_above`` are the greatest counts of the prediction. Raises ``ValueError`` when a ranking's table would be larger than
    ``memory_limit`` bytes.
    """
    words, largest = largest_table(lists, at_or_above)
    if words * 8 > memory_limit:
        raise ValueError(_too_large(lists, largest, words * 8, memory_limit))
    return fill_table(lists, at_or_above, metric, loss_weight, words)


def _too_large(lists: TwoLists, ranking: int, size: int, memory_limit: int) -> str:
    positives, negatives = lists.positive_counts()[ranking], lists.negative_counts()[ranking]
    return (
        f"the negative update needs a table of {size / 2**30:.1f} GiB for a ranking of {positives:,} positives and "
        f"{negatives:,} negatives; the limit is {memory_limit / 2**30:.1f} GiB. Use update='positive', which needs no table, "
        "or smaller batches or groups."
    )


@kernel
def largest_table(lists, at_or_above):
    """Return the size of the largest table of a ranking in words of 64 cells, and the ranking."""
    largest, most_words = 0, 0
    for r in range(len(lists.positive_start) - 1):
        words = 0
        for i in range(lists.positive_start[r], lists.positive_start[r + 1]):
            words += (at_or_above[i] >> 6) + 1
        if words > most_words:
            largest, most_words = r, words
    return most_words, largest


@kernel
def fill_table(lists, at_or_above, metric, loss_weight, words):
    """Return the results of :func:`augment_any`; ``words`` is the size of the largest table."""
    table = np.empty(words, np.uint64)
    least = np.zeros(len(lists.positives), np.int64)
    chosen = np.ones(len(loss_weight), np.bool_)
    tied = _fill_rankings(lists, at_or_above, metric, loss_weight, table, True, chosen, least)
    if not tied.any():
        # The two differ only where two cells have exactly equal values.
        return least, least
    greatest = least.copy()
    _fill_rankings(lists, at_or_above, metric, loss_weight, table, False, tied, greatest)
    return least, greatest


@allocating_kernel
def _fill_rankings(lists, at_or_above, metric, loss_weight, table, prefer_least, chosen, counts):
    """Write the least or greatest optimum of the ``chosen`` rankings to ``counts``.

    Args:
        lists: the samples of R rankings, read.
        at_or_above: upper bounds of the counts, int64 ``(positives,)``, read.
        metric: an integer of :mod:`taskloss.kernels.ranking.terms`.
        loss_weight: float64 ``(R,)``, read.
        table: workspace of at least :func:`largest_table` words, uint64, overwritten.
        prefer_least: whether to write the least optimum.
        chosen: bool ``(R,)``, read.
        counts: int64 ``(positives,)``, written in the chosen rankings.

    Returns:
        Which rankings may have several optima, bool ``(R,)``.
    """
    tied = np.zeros(len(loss_weight), np.bool_)
    for r in range(len(loss_weight)):
        if chosen[r]:
            rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
            s, t = scores_of(lists, r)
            tied[r] = _fill(s, t, at_or_above[rows], metric, loss_weight[r], table, prefer_least)
            backtrack(at_or_above[rows], table, counts[rows])
    return tied


@allocating_kernel
def _fill(s, t, upper, metric, loss_weight, table, prefer_least):
    """Write the marks of one ranking to ``table``, last row first; return whether two cells were exactly equal."""
    if len(s) == 0:
        return False
    best = np.zeros(upper[-1] + 1, np.float64)
    rises = np.empty(upper[-1] + 1, np.float64)
    tied = False
    offset = 0
    for row in range(len(s) - 1, -1, -1):
        _write_rises(s[row], t, row + 1, upper[row], metric, loss_weight, rises)
        tied |= fill_row(rises, upper[row], prefer_least, best, table[offset:])
        offset += (upper[row] >> 6) + 1
    return tied


@inner_kernel
def fill_row(rises, upper, prefer_least, best, words):
    """Compute one row of the table, from the count ``upper`` down.

    Args:
        rises: ``g_i(c) - g_i(c + 1)`` for c < ``upper`` and 0 at ``upper``, float64, read.
        upper: the highest count of the row.
        prefer_least: whether the lower of two equally good cells is marked too.
        best: ``max_{c' >= c} h_{i+1}(c')`` for each c, float64; overwritten with the same of row i. Each ``g_i`` is measured
            from its value at ``upper``.
        words: the marks of the row, 64 cells in each uint64, written.

    Returns:
        Whether two cells were exactly equal.
    """
    tied = False
    value = 0.0
    record = -np.inf
    c = upper
    while c >= 0:
        base = c & ~63
        word = np.uint64(0)
        while c >= base:
            value += rises[c]
            candidate = value + best[c]
            equal = candidate == record
            tied |= equal
            word |= np.uint64((candidate > record) | (equal & prefer_least)) << np.uint64(c - base)
            record = candidate if candidate > record else record
            best[c] = record
            c -= 1
        words[base >> 6] = word
    return tied


@inner_kernel
def _write_rises(score, t, i, upper, metric, loss_weight, rises):
    """Write the ``rises`` of row i for :func:`fill_row`."""
    rises[upper] = 0.0
    for c in range(upper):
        rises[c] = (score - t[c]) - loss_weight * row_drop(metric, i, c)


@inner_kernel
def backtrack(upper, table, counts):
    """Write the optimum of one ranking to ``counts``: in each row the first marked cell at or above the count before.

    ``upper`` are the highest counts of the rows; ``table`` has the marks from the last row to the first.
    """
    start = 0
    for bound in upper:
        start += (bound >> 6) + 1
    c = 0
    for row in range(len(upper)):
        start -= (upper[row] >> 6) + 1
        while (table[start + (c >> 6)] >> np.uint64(c & 63)) & np.uint64(1) == 0:
            c += 1
        counts[row] = c
