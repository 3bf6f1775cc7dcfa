r"""Loss-augmented inference for any separable metric given as a function, both updates: the staircase table, block by block.

The table is that of :mod:`taskloss.kernels.ranking.staircase`. A caller's numpy function wants few calls on long arrays, so the terms of
many rows, of one ranking or of several, are evaluated in one call and forgotten when their rows are done; one bit a cell remains.

For the positive update the metric's fall lets only the cells *above* the prediction matter, ``c_i >= #{t > s_i}``. That is the
same problem seen from the other end: with both lists negated and turned around, ``i' = P + 1 - i`` and ``c' = N - c``, counts
still rise with i', ``t'_j - s'_i`` is what a pair gains, and the cells are ``c' <= N - #{t > s_i}``.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ragged import blocks, places
from taskloss.kernels.ranking.levels import Terms
from taskloss.kernels.ranking.staircase import MEMORY_LIMIT_BYTES, fill_row, read_off, table_words
from taskloss.kernels.sort import TwoLists


def augment_by_table(
    lists: TwoLists,
    ranking: np.ndarray,
    above: np.ndarray,
    at_or_above: np.ndarray,
    terms: Terms,
    pull: np.ndarray,
    memory_limit: int = MEMORY_LIMIT_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest maximizing counts of all rankings; ``pull`` of shape ``(R,)``, all of one sign.

    ``ranking`` is that of each positive, ``above`` and ``at_or_above`` the prediction. Raises ``ValueError`` when a ranking's
    table would be larger than ``memory_limit`` bytes.
    """
    if (pull < 0).any():
        return _augment_down(lists, ranking, at_or_above, terms, pull, memory_limit)
    negatives = _from_the_end(lists.negative_counts()[ranking])
    last = len(lists.positives) - 1

    def turned_terms(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return terms(last - rows, negatives[rows] - counts)

    least, greatest = _augment_down(
        _turn(lists),
        len(pull) - 1 - _from_the_end(ranking),
        negatives - above[::-1],
        turned_terms,
        _from_the_end(pull),
        memory_limit,
    )
    return _from_the_end(negatives - greatest), _from_the_end(negatives - least)


def _from_the_end(array: np.ndarray) -> np.ndarray:
    # Contiguous, or numba would compile every kernel once more.
    return np.ascontiguousarray(array[::-1])


def _turn(lists: TwoLists) -> TwoLists:
    """All rankings and both lists of each from the end, scores negated."""
    return TwoLists(
        positives=-_from_the_end(lists.positives),
        negatives=-_from_the_end(lists.negatives),
        positive_index=_from_the_end(lists.positive_index),
        negative_index=_from_the_end(lists.negative_index),
        positive_start=len(lists.positives) - _from_the_end(lists.positive_start),
        negative_start=len(lists.negatives) - _from_the_end(lists.negative_start),
    )


def _augment_down(
    lists: TwoLists, ranking: np.ndarray, limits: np.ndarray, terms: Terms, pull: np.ndarray, memory_limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best counts at or below ``limits``."""
    words = table_words(lists, limits)
    if words.max(initial=0) * 8 > memory_limit:
        largest = int(words.argmax())
        raise ValueError(
            f"m needs a table of {words[largest] * 8 / 2**30:.1f} GiB for a ranking of {lists.positive_counts()[largest]:,} "
            f"positives and {lists.negative_counts()[largest]:,} negatives; the limit is {memory_limit / 2**30:.1f} GiB. If m is "
            "convex in c, use update='positive' with convex=True, which needs no table; else smaller batches or groups"
        )
    table = np.empty(words.max(initial=0), np.uint64)
    best = np.empty(limits.max(initial=0) + 1)

    def fill(chosen: np.ndarray, prefer_least: bool, counts: np.ndarray) -> np.ndarray:
        tied = np.zeros(len(pull), np.bool_)
        offset = 0
        waiting = _from_the_end(np.flatnonzero(chosen[ranking]))
        for block in blocks(limits[waiting] + 1):
            rows = waiting[block]
            cells = limits[rows] + 1
            values = terms(np.repeat(rows, cells), places(cells))
            offset = _fill_rows(lists, ranking, limits, rows, values, pull, prefer_least, best, table, offset, tied, counts)
        return tied

    least = np.zeros(len(lists.positives), np.int64)
    tied = fill(np.ones(len(pull), np.bool_), True, least)
    greatest = least.copy()
    if tied.any():
        # Only two cells of exactly equal value let the two answers differ.
        fill(tied, False, greatest)
    return least, greatest


@kernel
def _fill_rows(lists, ranking, limits, rows, values, pull, prefer_least, best, table, offset, tied, counts):
    """Go on with the table: ``rows`` from the last down, their terms one after another in ``values``.

    ``offset`` is where the next row begins in the table of its ranking; a ranking is read off when its first row is done.
    """
    rises = np.empty(len(best))
    place = 0
    for row in rows:
        r = ranking[row]
        if row == lists.positive_start[r + 1] - 1:
            best[: limits[row] + 1] = 0.0
            offset = 0
        t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        limit = limits[row]
        rises[limit] = 0.0
        for c in range(limit):
            rises[c] = (lists.positives[row] - t[c]) - pull[r] * (values[place + c] - values[place + c + 1])
        tied[r] |= fill_row(rises, limit, prefer_least, best, table[offset:])
        place += limit + 1
        offset += (limit >> 6) + 1
        if row == lists.positive_start[r]:
            mine = slice(lists.positive_start[r], lists.positive_start[r + 1])
            read_off(limits[mine], table, counts[mine])
    return offset
