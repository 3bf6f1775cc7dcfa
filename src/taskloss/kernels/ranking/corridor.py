r"""Loss-augmented inference for average precision, negative update, on large sets: the staircase table, mostly in one piece.

The problem and the table are those of :mod:`taskloss.kernels.ranking.staircase`. Instead of the best values
``H_i(c) = max_{c' >= c} h_i(c')``, this solver keeps their *falls* ``f_i(c) = H_i(c) - H_i(c + 1) >= 0``. With the rises
``r_i(c) = g_i(c) - g_i(c + 1)`` of a row and the *debt* ``d_i(c) = H_i(c) - h_i(c) >= 0`` of a cell, a row of the table is

.. math::
    y_i(c) = h_i(c) - H_i(c + 1) = f_{i+1}(c) + r_i(c) - d_i(c + 1), \qquad f_i(c) = \max(y_i(c), 0), \quad
    d_i(c) = \max(-y_i(c), 0),

from the natural count, where the debt is zero, down to c = 0: a cell that cannot pay for its own loss leaves the debt to the cell
below it. The answer needs only the signs of y, and blocks of neighbouring counts rarely have more than one sign:

- In a *falling* block every fall is positive. It stays so while a lower bound of its falls is: the bound takes the least rise of
  the block and any debt from above. The rows it saw meanwhile are added up when the bound runs out, a sum in closed form.
- In a *flat* block every fall is zero. It stays so when no rise is positive, or when the debt from above is more than all its
  rises together could pay. Its rises then add to the debt, a sum in closed form again.
- The others are walked cell by cell. They form a narrow corridor along the ends of the flat stretches, one or two blocks a row.

The least and the greatest rise of a block are known from its ends, because ``t`` falls with c and so does the metric's drop: all
that is used of average precision. Exact like the table, and since falls are sums of differences of neighbouring cells only, even
less is lost to rounding. With blocks of about ``sqrt(N)`` counts the time is O(P sqrt(N)) while the corridor is narrow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ranking.staircase import MEMORY_LIMIT_BYTES, augment_any, table_words
from taskloss.kernels.ranking.terms import AVERAGE_PRECISION, drop, row_drop
from taskloss.kernels.sort import TwoLists

_FLAT, _FALLING, _MIXED = 0, 1, 2

# When no table has more words of 64 cells than this, the plain tables are faster: blocks take more arrangements a row.
_SMALL_TABLE_WORDS = 1000

# Adding up the rows that a block has not seen costs as much as walking a few of them.
_PATIENCE = 16


class _Blocks(NamedTuple):
    """The falls of one ranking after some row; a falling block has not yet seen the rows above ``since``."""

    falls: np.ndarray
    state: np.ndarray
    floor: np.ndarray
    """Falling blocks: no fall is less, rows not yet seen included."""
    since: np.ndarray
    """Falling blocks: the row (from 0) up to which ``falls`` is current."""
    spread: np.ndarray
    """Falling blocks: ``sum (s_k - s_since)`` over the rows not yet seen."""
    shortfall: np.ndarray
    """``sum (t_first - t_j)`` over the negatives of each block up to and including j."""


def augment_average_precision_down(
    lists: TwoLists,
    at_or_above: np.ndarray,
    pull: np.ndarray,
    memory_limit: int = MEMORY_LIMIT_BYTES,
    block: int | None = None,
    small_table: int = _SMALL_TABLE_WORDS,
    patience: int = _PATIENCE,
) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest maximizing counts of all rankings, each of shape ``(positives,)``; ``pull < 0`` of shape ``(R,)``.

    ``at_or_above`` is the greatest prediction of :func:`taskloss.kernels.ranking.interleaving.natural_counts`. Blocks of ``block`` counts
    are left alone when that will last for ``patience`` rows; tables of up to ``small_table`` words are filled plainly. Raises
    ``ValueError`` when the marks of a ranking would take more than ``memory_limit`` bytes.
    """
    if table_words(lists, at_or_above).max(initial=0) <= small_table:
        return augment_any(lists, at_or_above, AVERAGE_PRECISION, pull, memory_limit)
    columns = int(at_or_above.max(initial=0))
    block = _block_size(columns) if block is None else block
    blocks = _allocate(columns, block)
    least = np.zeros(len(lists.positives), np.int64)
    tied = np.ones(len(pull), np.bool_)
    tied, failed = _solve_rankings(lists, at_or_above, -pull, block, patience, blocks, True, tied, memory_limit // 8, least)
    if failed >= 0:
        raise ValueError(_too_large(lists, failed, memory_limit))
    if not tied.any():
        # Only a cell that exactly pays its debt lets the two answers differ.
        return least, least
    greatest = least.copy()
    _solve_rankings(lists, at_or_above, -pull, block, patience, blocks, False, tied, memory_limit // 8, greatest)
    return least, greatest


def _block_size(columns: int) -> int:
    block = 64
    while 4 * block * block < columns:
        block *= 2
    return block


def _allocate(columns: int, block: int) -> _Blocks:
    size = -(-columns // block)
    return _Blocks(
        falls=np.empty(size * block),
        state=np.empty(size, np.int64),
        floor=np.empty(size),
        since=np.empty(size, np.int64),
        spread=np.empty(size),
        shortfall=np.empty(size * block),
    )


def _too_large(lists: TwoLists, ranking: int, limit: int) -> str:
    positives, negatives = lists.positive_counts()[ranking], lists.negative_counts()[ranking]
    return (
        f"the negative update needs more than {limit / 2**30:.1f} GiB for a ranking of {positives:,} positives and "
        f"{negatives:,} negatives. Use update='positive', which needs no table, or smaller batches or groups."
    )


@kernel
def _solve_rankings(lists, at_or_above, push, block, patience, blocks, prefer_least, chosen, most_words, counts):
    """Solve the chosen rankings; tell which had ties, and which one needs more than ``most_words`` of marks, -1 if none."""
    tied = np.zeros(len(push), np.bool_)
    tape = np.empty(min(1 << 12, most_words), np.uint64)
    for r in range(len(push)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        if chosen[r] and start < stop:
            s, limits = lists.positives[start:stop], at_or_above[start:stop]
            t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]][: limits[-1]]
            _reset(t, block, blocks)
            row_start = np.empty(len(s) + 1, np.int64)
            tape, tied[r] = _fill(s, t, limits, push[r], block, patience, blocks, prefer_least, most_words, tape, row_start)
            if len(tape) == 0:
                return tied, r
            _read_off(limits, block, blocks.state, tape, row_start, counts[start:stop])
    return tied, -1


@kernel
def _reset(t, block, blocks):
    """Below the last row nothing falls."""
    blocks.falls[: len(t)] = 0.0
    blocks.state[: -(-len(t) // block)] = _FLAT
    for begin in range(0, len(t), block):
        total = 0.0
        for j in range(begin, min(begin + block, len(t))):
            total += t[begin] - t[j]
            blocks.shortfall[j] = total


@kernel
def _fill(s, t, limits, push, block, patience, blocks, prefer_least, most_words, tape, row_start):
    """Write the marks of one ranking; returns the tape, empty when it would be too long, and whether two cells were tied.

    For each row from the last to the first, and each block that is walked from the right to the left, the tape gets one word that
    names the block and its state before, then one bit a cell. A block that is not walked keeps its state.
    """
    record = 1 + ((block + 63) >> 6)
    rises = np.empty(block)
    used = 0
    tied = False
    for row in range(len(s) - 1, -1, -1):
        row_start[row + 1] = used
        debt = 0.0
        for k in range(-(-limits[row] // block) - 1, -1, -1):
            begin, end = k * block, min((k + 1) * block, limits[row])
            state = blocks.state[k]
            if state == _FALLING:
                if _stays_falling(s, t, row, push, k, begin, end, block, debt, blocks):
                    debt = 0.0
                    continue
                _catch_up(s, t, row, push, k, begin, end, blocks)
            elif state == _FLAT and _stays_flat(s, t, row, push, begin, end, debt):
                debt += _flat_debt(s, t, row, push, begin, end, blocks.shortfall)
                continue
            if used + record > len(tape):
                if used + record > most_words:
                    return tape[:0], tied
                tape = _longer(tape, min(2 * (used + record), most_words))
            tape[used] = np.uint64(4 * k + state)
            debt, tie = _walk(s, t, row, push, k, begin, end, debt, patience, blocks, rises, prefer_least, tape, used + 1)
            tied |= tie
            used += record
    row_start[0] = used
    return tape, tied


@kernel
def _longer(tape, length):
    result = np.empty(length, np.uint64)
    result[: len(tape)] = tape
    return result


@kernel
def _least_rise(s, t, row, push, begin, end):
    return (s[row] - t[begin]) + push * row_drop(AVERAGE_PRECISION, row + 1, end - 1)


@kernel
def _stays_falling(s, t, row, push, k, begin, end, block, debt, blocks):
    """Let a falling block see one more row, if it surely stays falling; its last cell then pays the whole debt."""
    floor = blocks.floor[k] + (_least_rise(s, t, row, push, begin, end) - debt)
    if floor > 0.0:
        blocks.floor[k] = floor
        blocks.spread[k] += s[row] - s[blocks.since[k]]
        blocks.falls[begin + block - 1] -= debt
        return True
    return False


@kernel
def _catch_up(s, t, row, push, k, begin, end, blocks):
    """Add the rises of the rows between ``row`` and ``since`` to the falls of a block."""
    since = blocks.since[k]
    rows = since - row - 1
    for c in range(begin, end):
        rises = (rows * (s[since] - t[c]) + blocks.spread[k]) + push * drop(AVERAGE_PRECISION, row + 2, since, c)
        # Positive, says the floor; rounding may say otherwise.
        blocks.falls[c] = max(blocks.falls[c] + rises, 0.0)


@kernel
def _stays_flat(s, t, row, push, begin, end, debt):
    greatest_rise = (s[row] - t[end - 1]) + push * row_drop(AVERAGE_PRECISION, row + 1, begin)
    return greatest_rise < 0.0 or (end - begin) * greatest_rise < debt


@kernel
def _flat_debt(s, t, row, push, begin, end, shortfall):
    """``-sum r(c)`` over a block: the sum of its score differences, less what the metric drops from its begin to its end."""
    width = end - begin
    i = np.float64(row + 1)
    return width * (t[begin] - s[row]) - shortfall[end - 1] - push * (i * width / ((i + begin) * (i + end)))


@kernel
def _walk(s, t, row, push, k, begin, end, debt, patience, blocks, rises, prefer_least, tape, place):
    """One row of the table in one block, cell by cell from the right; returns the debt left over and whether a cell was tied."""
    score, falls = s[row], blocks.falls
    for c in range(begin, end):
        rises[c - begin] = (score - t[c]) + push * row_drop(AVERAGE_PRECISION, row + 1, c)
    marked = 0
    tied = False
    for word in range((end - begin - 1) >> 6, -1, -1):
        bits = np.uint64(0)
        first = begin + (word << 6)
        for c in range(min(first + 64, end) - 1, first - 1, -1):
            owed = debt - (falls[c] + rises[c - begin])
            equal = owed == 0.0
            mark = (owed < 0.0) | (equal & prefer_least)
            bits |= np.uint64(mark) << np.uint64(c - first)
            marked += mark
            tied |= equal
            falls[c] = -owed if owed < 0.0 else 0.0
            debt = owed if owed > 0.0 else 0.0
        tape[place + word] = bits
    blocks.state[k] = _FLAT if marked == 0 else _MIXED
    if marked == end - begin:
        floor = falls[begin:end].min()
        if floor + patience * min(_least_rise(s, t, row, push, begin, end), 0.0) > 0.0:
            blocks.state[k] = _FALLING
            blocks.floor[k] = floor
            blocks.since[k] = row
            blocks.spread[k] = 0.0
    return debt, tied


@kernel
def _read_off(limits, block, state, tape, row_start, counts):
    """Follow the marks from the first row (written last) to the last, and wind the states of the blocks back on the way."""
    record = 1 + ((block + 63) >> 6)
    c = 0
    for row in range(len(limits)):
        at = row_start[row] - record
        while c < limits[row]:
            k = c // block
            # Records of a row stand from right to left, so reading backward meets the blocks from left to right.
            while at >= row_start[row + 1] and np.int64(tape[at] >> np.uint64(2)) < k:
                at -= record
            if at >= row_start[row + 1] and np.int64(tape[at] >> np.uint64(2)) == k:
                end = min((k + 1) * block, limits[row])
                c = _next_mark(tape, at + 1, k * block, c, end)
                if c < end:
                    break
            elif state[k] == _FALLING:
                break
            else:
                c = min((k + 1) * block, limits[row])
        counts[row] = c
        for at in range(row_start[row + 1], row_start[row], record):
            state[np.int64(tape[at] >> np.uint64(2))] = tape[at] & np.uint64(3)


@kernel
def _next_mark(tape, place, begin, c, end):
    while c < end and (tape[place + ((c - begin) >> 6)] >> np.uint64((c - begin) & 63)) & np.uint64(1) == 0:
        c += 1
    return c
