r"""Loss-augmented inference for any separable metric given as a function, both updates: the staircase table, block by block.

The table is that of :mod:`taskloss.kernels.ranking.staircase`. A numpy function is fast in few calls on long arrays, so the terms
of many rows, of one ranking or of several, are evaluated in one call and discarded when their rows are done; one bit per
cell remains.

For the positive update only the cells *above* the prediction matter, ``c_i >= #{t > s_i}``, because the metric falls with c.
That is the same problem after a reflection: negate the scores and reverse both lists, so that ``i' = P + 1 - i`` and
``c' = N - c``. Counts still rise with i', a pair in the new order still gains ``t'_j - s'_i``, and the cells are
``c' <= N - #{t > s_i}``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ragged import blocks
from taskloss.kernels.ranking.staircase import MEMORY_LIMIT_BYTES, backtrack, fill_row, largest_table
from taskloss.kernels.sort import TwoLists, scores_of


class RowTerms(Protocol):
    """The terms ``m(i, c)`` of a batch."""

    def of_rows(self, rows: np.ndarray, start: np.ndarray, step: int, cells: np.ndarray) -> np.ndarray:
        """Return, float64, the terms of positives ``rows`` one after another, each with ``cells`` counts from ``start``."""


_TermsFromZero = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``(rows, cells) -> m(i, c)`` for c = 0, 1, ... of each row in turn."""


def augment_by_table(
    lists: TwoLists,
    ranking: np.ndarray,
    above: np.ndarray,
    at_or_above: np.ndarray,
    terms: RowTerms,
    loss_weight: np.ndarray,
    memory_limit: int = MEMORY_LIMIT_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest maximizing counts; the loss weights must have one sign.

    Raises ``ValueError`` when a ranking's table would be larger than ``memory_limit`` bytes.

    Args:
        lists: the samples of R rankings.
        ranking: the ranking of each positive, int64 ``(positives,)``.
        above: least counts of the prediction, likewise.
        at_or_above: greatest counts of the prediction, likewise.
        terms: the metric.
        loss_weight: float64 ``(R,)``.
        memory_limit: the most bytes for one ranking.
    """
    if (loss_weight < 0).any():

        def rising_terms(rows: np.ndarray, cells: np.ndarray) -> np.ndarray:
            return terms.of_rows(rows, np.zeros_like(rows), 1, cells)

        return _augment_down(lists, ranking, at_or_above, rising_terms, loss_weight, memory_limit)
    negatives = _reversed(lists.negative_counts()[ranking])
    last = len(lists.positives) - 1

    def reflected_terms(rows: np.ndarray, cells: np.ndarray) -> np.ndarray:
        return terms.of_rows(last - rows, negatives[rows], -1, cells)

    least, greatest = _augment_down(
        _reflect(lists),
        len(loss_weight) - 1 - _reversed(ranking),
        negatives - above[::-1],
        reflected_terms,
        _reversed(loss_weight),
        memory_limit,
    )
    return _reversed(negatives - greatest), _reversed(negatives - least)


def _reversed(array: np.ndarray) -> np.ndarray:
    # Contiguous, or numba would compile every kernel a second time.
    return np.ascontiguousarray(array[::-1])


def _reflect(lists: TwoLists) -> TwoLists:
    """Return the rankings, and both lists of each, in reversed order with negated scores."""
    return TwoLists(
        positives=-_reversed(lists.positives),
        negatives=-_reversed(lists.negatives),
        positive_index=_reversed(lists.positive_index),
        negative_index=_reversed(lists.negative_index),
        positive_start=len(lists.positives) - _reversed(lists.positive_start),
        negative_start=len(lists.negatives) - _reversed(lists.negative_start),
    )


def _augment_down(
    lists: TwoLists, ranking: np.ndarray, upper: np.ndarray, terms: _TermsFromZero, loss_weight: np.ndarray, memory_limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest of the best counts at or below ``upper``."""
    words, largest = largest_table(lists, upper)
    if words * 8 > memory_limit:
        raise ValueError(
            f"m needs a table of {words * 8 / 2**30:.1f} GiB for a ranking of {lists.positive_counts()[largest]:,} "
            f"positives and {lists.negative_counts()[largest]:,} negatives; the limit is {memory_limit / 2**30:.1f} GiB. If m is "
            "convex in c, use update='positive' with convex=True, which needs no table; else smaller batches or groups"
        )
    table = np.empty(words, np.uint64)
    best = np.empty(upper.max(initial=0) + 1, np.float64)

    def solve(chosen: np.ndarray, prefer_least: bool, counts: np.ndarray) -> np.ndarray:
        tied = np.zeros(len(loss_weight), np.bool_)
        offset = 0
        descending = _reversed(np.flatnonzero(chosen[ranking]))
        for block in blocks(upper[descending] + 1):
            rows = descending[block]
            cells = upper[rows] + 1
            values = terms(rows, cells)
            offset = _fill_rows(lists, ranking, upper, rows, values, loss_weight, prefer_least, best, table, offset, tied, counts)
        return tied

    least = np.zeros(len(lists.positives), np.int64)
    tied = solve(np.ones(len(loss_weight), np.bool_), True, least)
    greatest = least.copy()
    if tied.any():
        # The two differ only where two cells have exactly equal values.
        solve(tied, False, greatest)
    return least, greatest


@kernel
def _fill_rows(lists, ranking, upper, rows, values, loss_weight, prefer_least, best, table, offset, tied, counts):
    """Compute some more rows of the table, and the counts of each ranking that is completed.

    Args:
        lists: the samples of R rankings, read.
        ranking: the ranking of each positive, int64 ``(positives,)``, read.
        upper: upper bounds of the counts, likewise.
        rows: the positives to compute, descending, int64, read.
        values: ``m(i, c)`` for c = 0..``upper`` of each of ``rows`` in turn, float64, read.
        loss_weight: float64 ``(R,)``, read.
        prefer_least: whether to write the least optimum.
        best: workspace of :func:`taskloss.kernels.ranking.staircase.fill_row`, kept between calls.
        table: the marks of the current ranking, uint64, kept between calls.
        offset: where the next row begins in the table.
        tied: set where a ranking may have several optima, bool ``(R,)``.
        counts: int64 ``(positives,)``, written in completed rankings.

    Returns:
        The offset for the next call.
    """
    rises = np.empty(len(best), np.float64)
    first_value = 0
    for row in rows:
        r = ranking[row]
        if row == lists.positive_start[r + 1] - 1:
            best[: upper[row] + 1] = 0.0
            offset = 0
        _, t = scores_of(lists, r)
        bound = upper[row]
        rises[bound] = 0.0
        for c in range(bound):
            drop = values[first_value + c] - values[first_value + c + 1]
            rises[c] = (lists.positives[row] - t[c]) - loss_weight[r] * drop
        tied[r] |= fill_row(rises, bound, prefer_least, best, table[offset:])
        first_value += bound + 1
        offset += (bound >> 6) + 1
        if row == lists.positive_start[r]:
            completed = slice(lists.positive_start[r], lists.positive_start[r + 1])
            backtrack(upper[completed], table, counts[completed])
    return offset
