r"""Loss-augmented inference for average precision, negative update, on large sets: the staircase table, mostly block by block.

The problem and the table are those of :mod:`taskloss.kernels.ranking.staircase`. Instead of the best values
``H_i(c) = max_{c' >= c} h_i(c')``, this solver keeps their *falls* ``f_i(c) = H_i(c) - H_i(c + 1) >= 0``. With the *rises*
``r_i(c) = g_i(c) - g_i(c + 1)`` of a row and the *debt* ``d_i(c) = H_i(c) - h_i(c) >= 0`` of a cell, the values
``h_i(c) = g_i(c) + H_{i+1}(c)`` and ``H_i(c + 1) = g_i(c + 1) + H_{i+1}(c + 1) + d_i(c + 1)`` differ by

.. math::
    y_i(c) = h_i(c) - H_i(c + 1) = f_{i+1}(c) + r_i(c) - d_i(c + 1), \qquad f_i(c) = \max(y_i(c), 0), \quad
    d_i(c) = \max(-y_i(c), 0).

This is a recursion over a row from the natural count, where the debt is zero, down to c = 0: a cell with ``y < 0`` passes its
debt on to the cell below it. The optimum needs only the signs of y (the marks of the staircase), and blocks of neighbouring
counts rarely have more than one sign:

- In a *falling* block every fall is positive. It stays so as long as a lower bound of its falls is positive; each row changes
  the bound by the least rise of the block less the debt from above. Meanwhile the rows are deferred. When the bound runs
  out, they are added to the falls in one step, by a sum in closed form.
- In a *flat* block every fall is zero. It stays so when no rise is positive, or when the debt from above exceeds
  any possible sum of its rises. The rises then only change the debt, by a sum in closed form.
- In the other blocks the recursion is computed cell by cell. They form a narrow corridor along the ends of the flat
  stretches, one or two blocks per row.

The least and the greatest rise of a block follow from its two ends, because ``t`` falls with c and so does the drop of the
metric; that is the only property of average precision in use. The result is exact like the table's, and since falls are sums
of differences of neighbouring cells, even less is lost to rounding. With blocks of about ``sqrt(N)`` counts the time is O(P
sqrt(N)) while the corridor is narrow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.kernels.ranking.staircase import MEMORY_LIMIT_BYTES, fill_table, largest_table
from taskloss.kernels.ranking.terms import AVERAGE_PRECISION, drop, row_drop
from taskloss.kernels.sort import TwoLists, scores_of

_FLAT, _FALLING, _MIXED = 0, 1, 2

# Up to this many words of 64 cells, the plain table is faster: blocks cost more bookkeeping per row.
_SMALL_TABLE_WORDS = 1000

# A block is declared falling only if it will stay so for this many rows: adding up the deferred rows costs as much as a few rows.
_PATIENCE = 16


class _Blocks(NamedTuple):
    """The falls of one ranking after some row, in B blocks of ``block`` counts each."""

    falls: np.ndarray
    """float64 ``(B * block,)``; of a falling block without its deferred rows."""
    state: np.ndarray
    """``_FLAT``, ``_FALLING`` or ``_MIXED``, int64 ``(B,)``."""
    lower_bound: np.ndarray
    """Falling blocks: a lower bound of the falls, deferred rows included, float64 ``(B,)``."""
    updated_row: np.ndarray
    """Falling blocks: the row (from 0) up to which ``falls`` is current, int64 ``(B,)``."""
    offset_sum: np.ndarray
    """Falling blocks: ``sum (s_k - s_updated_row)`` over the deferred rows k, float64 ``(B,)``."""
    gap_sums: np.ndarray
    """``sum (t_first - t_j)`` over the negatives of each block up to and including j, float64 ``(B * block,)``."""


def augment_average_precision_down(
    lists: TwoLists,
    at_or_above: np.ndarray,
    loss_weight: np.ndarray,
    memory_limit: int = MEMORY_LIMIT_BYTES,
    block: int | None = None,
    small_table: int = _SMALL_TABLE_WORDS,
    patience: int = _PATIENCE,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest maximizing counts, as :func:`taskloss.kernels.ranking.staircase.augment_any` does.

    Raises ``ValueError`` when the marks of a ranking would take more than ``memory_limit`` bytes.

    Args:
        lists: the samples of R rankings.
        at_or_above: the greatest counts of the prediction, int64 ``(positives,)``.
        loss_weight: negative, float64 ``(R,)``.
        memory_limit: the most bytes for one ranking.
        block: counts per block; chosen by the size of the rankings if ``None``.
        small_table: if no ranking has more words of marks than this, the plain table is computed.
        patience: rows for which a block must stay falling to be declared so.
    """
    words, _ = largest_table(lists, at_or_above)
    if words <= min(small_table, memory_limit // 8):
        return fill_table(lists, at_or_above, AVERAGE_PRECISION, loss_weight, words)
    columns = int(at_or_above.max(initial=0))
    block = _block_size(columns) if block is None else block
    blocks = _allocate(columns, block)
    least = np.zeros(len(lists.positives), np.int64)
    tied = np.ones(len(loss_weight), np.bool_)
    arguments = (lists, at_or_above, -loss_weight, block, patience, blocks)
    tied, failed = _solve_rankings(*arguments, True, tied, memory_limit // 8, least)
    if failed >= 0:
        raise ValueError(_too_large(lists, failed, memory_limit))
    if not tied.any():
        # The two differ only where some y is exactly zero.
        return least, least
    greatest = least.copy()
    _solve_rankings(*arguments, False, tied, memory_limit // 8, greatest)
    return least, greatest


def _block_size(columns: int) -> int:
    """Return a power of two near ``sqrt(columns) / 2``, at least 64."""
    block = 64
    while 4 * block * block < columns:
        block *= 2
    return block


def _allocate(columns: int, block: int) -> _Blocks:
    """Return uninitialized blocks for up to ``columns`` counts."""
    size = -(-columns // block)
    return _Blocks(
        falls=np.empty(size * block, np.float64),
        state=np.empty(size, np.int64),
        lower_bound=np.empty(size, np.float64),
        updated_row=np.empty(size, np.int64),
        offset_sum=np.empty(size, np.float64),
        gap_sums=np.empty(size * block, np.float64),
    )


def _too_large(lists: TwoLists, ranking: int, memory_limit: int) -> str:
    positives, negatives = lists.positive_counts()[ranking], lists.negative_counts()[ranking]
    return (
        f"the negative update needs more than {memory_limit / 2**30:.1f} GiB for a ranking of {positives:,} positives and "
        f"{negatives:,} negatives. Use update='positive', which needs no table, or smaller batches or groups."
    )


@kernel
def _solve_rankings(lists, at_or_above, metric_weight, block, patience, blocks, prefer_least, chosen, max_words, counts):
    """Write the least or greatest optimum of the ``chosen`` rankings to ``counts``.

    Args:
        lists: the samples of R rankings, read.
        at_or_above: upper bounds of the counts, int64 ``(positives,)``, read.
        metric_weight: minus the loss weight, positive, float64 ``(R,)``, read.
        block: counts per block.
        patience: as in :func:`augment_average_precision_down`.
        blocks: workspace for the largest ranking, overwritten.
        prefer_least: whether to write the least optimum.
        chosen: bool ``(R,)``, read.
        max_words: the most words of 64 bits that the history of a ranking may take.
        counts: int64 ``(positives,)``, written in the chosen rankings.

    Returns:
        Which rankings may have several optima, bool ``(R,)``, and the first ranking that needs more words, or -1.
    """
    tied = np.zeros(len(metric_weight), np.bool_)
    history = np.empty(min(1 << 12, max_words), np.uint64)
    for r in range(len(metric_weight)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        if chosen[r] and rows.start < rows.stop:
            upper = at_or_above[rows]
            s, t = scores_of(lists, r)
            t = t[: upper[-1]]
            _reset(t, block, blocks)
            row_start = np.empty(len(s) + 1, np.int64)
            history, tied[r] = _fill(
                s, t, upper, metric_weight[r], block, patience, blocks, prefer_least, max_words, history, row_start
            )
            if len(history) == 0:
                return tied, r
            _backtrack(upper, block, blocks.state, history, row_start, counts[rows])
    return tied, -1


@kernel
def _reset(t, block, blocks):
    """Set the state below the last row, where every fall is zero, and the sums of score gaps."""
    blocks.falls[: len(t)] = 0.0
    blocks.state[: -(-len(t) // block)] = _FLAT
    for begin in range(0, len(t), block):
        total = 0.0
        for j in range(begin, min(begin + block, len(t))):
            total += t[begin] - t[j]
            blocks.gap_sums[j] = total


@kernel
def _fill(s, t, upper, metric_weight, block, patience, blocks, prefer_least, max_words, history, row_start):
    """Compute the table of one ranking and record the marks.

    For each row from the last to the first, and for each block that is computed cell by cell from the right to the left, the
    history gets a record: one word ``4 k + state`` with the block k and its state before, then one bit per cell. Blocks
    without a record keep their state.

    Args:
        s: scores of the positives, descending, float64 ``(P,)``, read.
        t: scores of the negatives up to the largest count, float64, read.
        upper: upper bounds of the counts, int64 ``(P,)``, read.
        metric_weight: minus the loss weight.
        block: counts per block.
        patience: as in :func:`augment_average_precision_down`.
        blocks: the state after :func:`_reset`, overwritten with the state after the first row.
        prefer_least: whether a cell with ``y = 0`` is marked.
        max_words: the most words that the history may take.
        history: uint64, written; replaced by a longer copy when it is full.
        row_start: where the records of each row begin (at ``row + 1``) and end (at ``row``), int64 ``(P + 1,)``, written.

    Returns:
        The history, empty if it would be too long, and whether some y was zero.
    """
    record_words = 1 + ((block + 63) >> 6)
    rises = np.empty(block, np.float64)
    used = 0
    tied = False
    for row in range(len(s) - 1, -1, -1):
        row_start[row + 1] = used
        debt = 0.0
        for k in range(-(-upper[row] // block) - 1, -1, -1):
            begin, end = k * block, min((k + 1) * block, upper[row])
            state = blocks.state[k]
            if state == _FALLING:
                if _defer_row(s, t, row, metric_weight, k, begin, end, block, debt, blocks):
                    debt = 0.0
                    continue
                _catch_up(s, t, row, metric_weight, k, begin, end, blocks)
            elif state == _FLAT and _stays_flat(s, t, row, metric_weight, begin, end, debt):
                debt += _flat_debt(s, t, row, metric_weight, begin, end, blocks.gap_sums)
                continue
            if used + record_words > len(history):
                if used + record_words > max_words:
                    return history[:0], tied
                history = _grow(history, min(2 * (used + record_words), max_words))
            history[used] = np.uint64(4 * k + state)
            marks = history[used + 1 : used + record_words]
            debt, tie = _update_cells(s, t, row, metric_weight, k, begin, end, debt, patience, blocks, rises, prefer_least, marks)
            tied |= tie
            used += record_words
    row_start[0] = used
    return history, tied


@allocating_kernel
def _grow(history, length):
    """Return a copy of the history with more capacity."""
    result = np.empty(length, np.uint64)
    for i in range(len(history)):
        result[i] = history[i]
    return result


@inner_kernel
def _least_rise(s, t, row, metric_weight, begin, end):
    """Return a lower bound of the rises of a row within a block."""
    return (s[row] - t[begin]) + metric_weight * row_drop(AVERAGE_PRECISION, row + 1, end - 1)


@inner_kernel
def _defer_row(s, t, row, metric_weight, k, begin, end, block, debt, blocks):
    """Defer one row of a falling block and return True, if it certainly stays falling; its last cell then pays the debt."""
    lower_bound = blocks.lower_bound[k] + (_least_rise(s, t, row, metric_weight, begin, end) - debt)
    if lower_bound > 0.0:
        blocks.lower_bound[k] = lower_bound
        blocks.offset_sum[k] += s[row] - s[blocks.updated_row[k]]
        blocks.falls[begin + block - 1] -= debt
        return True
    return False


@kernel
def _catch_up(s, t, row, metric_weight, k, begin, end, blocks):
    """Add the rises of the deferred rows, those between ``row`` and ``updated_row``, to the falls of a falling block."""
    updated_row = blocks.updated_row[k]
    rows = updated_row - row - 1
    for c in range(begin, end):
        score_part = rows * (s[updated_row] - t[c]) + blocks.offset_sum[k]
        rises = score_part + metric_weight * drop(AVERAGE_PRECISION, row + 2, updated_row, c)
        # Positive by the lower bound, but for rounding.
        blocks.falls[c] = max(blocks.falls[c] + rises, 0.0)


@inner_kernel
def _stays_flat(s, t, row, metric_weight, begin, end, debt):
    """Return whether a flat block certainly stays flat in this row, given the debt from the block above."""
    greatest_rise = (s[row] - t[end - 1]) + metric_weight * row_drop(AVERAGE_PRECISION, row + 1, begin)
    return greatest_rise < 0.0 or (end - begin) * greatest_rise < debt


@inner_kernel
def _flat_debt(s, t, row, metric_weight, begin, end, gap_sums):
    """Return ``-sum r(c)`` over a block: the sum of ``t - s``, less the drop of the metric from the block's begin to its end."""
    width = end - begin
    i = np.float64(row + 1)
    return width * (t[begin] - s[row]) - gap_sums[end - 1] - metric_weight * (i * width / ((i + begin) * (i + end)))


@allocating_kernel
def _update_cells(s, t, row, metric_weight, k, begin, end, debt, patience, blocks, rises, prefer_least, marks):
    """Compute one row of the table in one block, cell by cell from the right.

    Args:
        s: scores of the positives, read.
        t: scores of the negatives, read.
        row: the row of the table, from 0.
        metric_weight: minus the loss weight.
        k: the block, with the counts ``begin`` to ``end - 1``.
        begin: see there.
        end: see there.
        debt: the debt of the block above.
        patience: as in :func:`augment_average_precision_down`.
        blocks: falls and state of block k are overwritten.
        rises: workspace of one block, overwritten.
        prefer_least: whether a cell with ``y = 0`` is marked.
        marks: one bit per cell, uint64, written.

    Returns:
        The debt of the cell ``begin``, and whether some y was zero.
    """
    score, falls = s[row], blocks.falls
    for c in range(begin, end):
        rises[c - begin] = (score - t[c]) + metric_weight * row_drop(AVERAGE_PRECISION, row + 1, c)
    marked = 0
    tied = False
    for word in range((end - begin - 1) >> 6, -1, -1):
        bits = np.uint64(0)
        first = begin + (word << 6)
        for c in range(min(first + 64, end) - 1, first - 1, -1):
            minus_y = debt - (falls[c] + rises[c - begin])
            equal = minus_y == 0.0
            mark = (minus_y < 0.0) | (equal & prefer_least)
            bits |= np.uint64(mark) << np.uint64(c - first)
            marked += mark
            tied |= equal
            falls[c] = -minus_y if minus_y < 0.0 else 0.0
            debt = minus_y if minus_y > 0.0 else 0.0
        marks[word] = bits
    blocks.state[k] = _FLAT if marked == 0 else _MIXED
    if marked == end - begin:
        lower_bound = falls[begin:end].min()
        if lower_bound + patience * min(_least_rise(s, t, row, metric_weight, begin, end), 0.0) > 0.0:
            blocks.state[k] = _FALLING
            blocks.lower_bound[k] = lower_bound
            blocks.updated_row[k] = row
            blocks.offset_sum[k] = 0.0
    return debt, tied


@inner_kernel
def _backtrack(upper, block, state, history, row_start, counts):
    """Write the optimum of one ranking to ``counts``: in each row the first marked cell at or above the count before.

    Rows are read from the first (recorded last) to the last. ``state`` is that of the blocks after the first row; it is set
    back row by row.
    """
    record_words = 1 + ((block + 63) >> 6)
    c = 0
    for row in range(len(upper)):
        record = row_start[row] - record_words
        while c < upper[row]:
            k = c // block
            # Records of a row are ordered from right to left, so reading backward meets the blocks from left to right.
            while record >= row_start[row + 1] and np.int64(history[record] >> np.uint64(2)) < k:
                record -= record_words
            if record >= row_start[row + 1] and np.int64(history[record] >> np.uint64(2)) == k:
                end = min((k + 1) * block, upper[row])
                c = _next_mark(history, record + 1, k * block, c, end)
                if c < end:
                    break
            elif state[k] == _FALLING:
                break
            else:
                c = min((k + 1) * block, upper[row])
        counts[row] = c
        for record in range(row_start[row + 1], row_start[row], record_words):
            state[np.int64(history[record] >> np.uint64(2))] = history[record] & np.uint64(3)


@inner_kernel
def _next_mark(history, first_word, begin, c, end):
    """Return the first marked cell from ``c`` on, or ``end``; ``first_word`` has the marks of the cells from ``begin`` on."""
    while c < end and (history[first_word + ((c - begin) >> 6)] >> np.uint64((c - begin) & 63)) & np.uint64(1) == 0:
        c += 1
    return c
