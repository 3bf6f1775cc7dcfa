r"""Loss-augmented inference for any separable ranking metric, negative update: a table under the staircase.

The objective is that of :mod:`taskloss.kernels.ranking.isotonic` with ``pull < 0``: the loss now pulls negatives *down*, the rows
``g_i`` are no longer concave and pooling is not exact. Since every metric falls with c, no row gains by letting more negatives
above it than the prediction does, so only the cells ``c <= #{t >= s_i}`` below the prediction's staircase matter:

.. math:: h_i(c) = g_i(c) + \max_{c' \ge c} h_{i+1}(c'), \qquad c \le \#\{t \ge s_i\}.

Rows run from the last positive to the first and each row from its natural count downward, so that a value is the sum of
a few score differences near the prediction rather than a difference of large sums. One bit a cell remembers whether the
cell is the best at or above it; the answer is read off from the first row on.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ranking.terms import row_drop
from taskloss.kernels.sort import TwoLists

#: The most memory that the table of one ranking may take.
MEMORY_LIMIT_BYTES = 2**30


def augment_any(
    lists: TwoLists, at_or_above: np.ndarray, metric: int, pull: np.ndarray, memory_limit: int = MEMORY_LIMIT_BYTES
) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest maximizing counts of all rankings, each of shape ``(positives,)``; ``pull < 0`` of shape ``(R,)``.

    ``at_or_above`` is the greatest prediction of :func:`taskloss.kernels.ranking.interleaving.natural_counts`. Raises ``ValueError``
    when a ranking's table would be larger than ``memory_limit`` bytes.
    """
    words = table_words(lists, at_or_above)
    largest = int(words.argmax()) if len(words) else 0
    if len(words) and words[largest] * 8 > memory_limit:
        raise ValueError(_too_large(lists, largest, int(words[largest]) * 8, memory_limit))
    table = np.empty(words.max(initial=0), np.uint64)
    least = np.zeros(len(lists.positives), np.int64)
    tied = _fill_rankings(lists, at_or_above, metric, pull, table, True, np.ones(len(pull), np.bool_), least)
    if not tied.any():
        # Only two cells of exactly equal value let the two answers differ.
        return least, least
    greatest = least.copy()
    _fill_rankings(lists, at_or_above, metric, pull, table, False, tied, greatest)
    return least, greatest


def _too_large(lists: TwoLists, ranking: int, size: int, limit: int) -> str:
    positives = int(lists.positive_start[ranking + 1] - lists.positive_start[ranking])
    negatives = int(lists.negative_start[ranking + 1] - lists.negative_start[ranking])
    return (
        f"the negative update needs a table of {size / 2**30:.1f} GiB for a ranking of {positives:,} positives and "
        f"{negatives:,} negatives; the limit is {limit / 2**30:.1f} GiB. Use update='positive', which needs no table, or smaller "
        "batches or groups."
    )


@kernel
def table_words(lists, at_or_above):
    """The size of each ranking's table in words of 64 cells, shape ``(R,)``."""
    words = np.zeros(len(lists.positive_start) - 1, np.int64)
    for r in range(len(words)):
        for i in range(lists.positive_start[r], lists.positive_start[r + 1]):
            words[r] += (at_or_above[i] >> 6) + 1
    return words


@kernel
def _fill_rankings(lists, at_or_above, metric, pull, table, prefer_least, chosen, counts):
    tied = np.zeros(len(pull), np.bool_)
    for r in range(len(pull)):
        if chosen[r]:
            rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
            t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
            tied[r] = _fill(lists.positives[rows], t, at_or_above[rows], metric, pull[r], table, prefer_least)
            read_off(at_or_above[rows], table, counts[rows])
    return tied


@kernel
def _fill(s, t, limits, metric, pull, table, prefer_least):
    """Write the bits of one ranking; tell whether two cells were ever exactly equal."""
    if len(s) == 0:
        return False
    best = np.zeros(limits[-1] + 1)
    rises = np.empty(limits[-1] + 1)
    tied = False
    offset = 0
    for row in range(len(s) - 1, -1, -1):
        limit = limits[row]
        _rises(s[row], t, row + 1, limit, metric, pull, rises)
        tied |= fill_row(rises, limit, prefer_least, best, table[offset:])
        offset += (limit >> 6) + 1
    return tied


@kernel
def fill_row(rises, limit, prefer_least, best, words):
    """``best[c] <- max_{c' >= c} best[c'] + sum of rises[c'..limit]`` for c up to ``limit``, its bits to ``words``.

    Tells whether two cells were ever exactly equal.
    """
    tied = False
    value = 0.0
    record = -np.inf
    c = limit
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


@kernel
def _rises(score, t, i, limit, metric, pull, rises):
    """``rises[c] = g_i(c) - g_i(c + 1)`` for c below ``limit``, zero at the limit, from where the row is measured."""
    rises[limit] = 0.0
    for c in range(limit):
        rises[c] = (score - t[c]) - pull * row_drop(metric, i, c)


@kernel
def read_off(limits, table, counts):
    """Follow the bits from the first row (written last) to the last: the nearest marked cell at or above the current count."""
    start = 0
    for limit in limits:
        start += (limit >> 6) + 1
    c = 0
    for row in range(len(limits)):
        start -= (limits[row] >> 6) + 1
        while (table[start + (c >> 6)] >> np.uint64(c & 63)) & np.uint64(1) == 0:
            c += 1
        counts[row] = c
