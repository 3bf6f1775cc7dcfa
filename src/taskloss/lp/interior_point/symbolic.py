"""The symbolic part of the sparse factorization, done once per sparsity pattern and remembered.

Every Newton system of the solver has the matrix

    K = [ diag   A'   ]
        [ A     -diag ]

with one fixed pattern. Here an elimination order with little fill is chosen, the elimination tree (Davis 2005) gives the nonzeros
of the factor ``L`` of ``K = L D L'``, and lists of indices are made that the numeric factorization (``ldl``) follows. Networks
solve programs of one shape again and again, so the result is kept for the last few patterns.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from taskloss.kernels._numba import kernel

SHORT_COLUMN = 16
"""Right-looking elimination stops at the first column of ``L`` with more entries than this."""
REMEMBERED_PATTERNS = 16


class SymbolicFactor(NamedTuple):
    """Indices for the factorization of a symmetric matrix K of size N, in elimination order.

    K is given by its strict upper triangle, column by column, and its diagonal. All index arrays are unsigned, so that numba need
    not look for negative ones; ``nnz`` are the entries of the triangle, ``fill`` those of ``L``.
    """

    start: np.ndarray
    """``(N + 1,)``: column k of the triangle has the entries ``start[k] .. start[k + 1] - 1``."""
    row: np.ndarray
    """``(nnz,)``: row of each entry of the triangle, ascending within a column; an entry may be given twice."""
    factor_entry: np.ndarray
    """``(nnz,)``: where each entry of the triangle goes in ``L``."""
    factor_start: np.ndarray
    """``(N + 1,)``: columns of ``L`` below the diagonal."""
    factor_row: np.ndarray
    """``(fill,)``: row of each entry of ``L``."""
    num_short: int
    """How many leading columns of ``L`` are eliminated right-looking."""
    short_targets: np.ndarray
    """``(pairs,)``: for each pair of entries of a short column, in order, the entry of ``L`` that their product updates."""
    tail_start: np.ndarray
    """``(N + 1,)``: rows of ``L`` restricted to the columns that are not short."""
    tail_column: np.ndarray
    """``(tail_start[N],)``: column of each entry of those rows."""
    tail_entry: np.ndarray
    """``(tail_start[N],)``: index in ``L`` of each entry of those rows."""
    sign: np.ndarray
    """``(N,)`` float64: sign of each pivot."""


class Sparsity(NamedTuple):
    """Nonzeros of A ``(m, n)``, shared by all programs of a batch, and where they stand in the KKT matrix."""

    row_start: np.ndarray
    """``(m + 1,)``: row i of A has the entries ``row_start[i] .. row_start[i + 1] - 1``."""
    columns: np.ndarray
    """``(nonzeros,)``: column of each entry."""
    kkt_entry: np.ndarray
    """``(nonzeros,)``: index of each entry of A among the off-diagonal entries of K."""
    column_position: np.ndarray
    """``(n,)``: position of each variable in the elimination order."""
    row_position: np.ndarray
    """``(m,)``: position of each row in the elimination order."""
    symbolic: SymbolicFactor


_lock = threading.Lock()
_remembered: OrderedDict[tuple[int, bytes, bytes], Sparsity] = OrderedDict()


def sparsity_of(row_start: np.ndarray, columns: np.ndarray, num_columns: int) -> Sparsity:
    """Return the sparsity of a matrix given by rows, from memory if the pattern is known.

    >>> sparsity = sparsity_of(np.array([0, 2, 3]), np.array([0, 1, 1]), 2)
    >>> sorted([*sparsity.column_position.tolist(), *sparsity.row_position.tolist()])
    [0, 1, 2, 3]
    """
    key = (num_columns, row_start.tobytes(), columns.tobytes())
    with _lock:
        if key in _remembered:
            _remembered.move_to_end(key)
            return _remembered[key]
    sparsity = _analyse_rows(row_start.astype(np.int64), columns.astype(np.int64), num_columns)
    with _lock:
        _remembered[key] = sparsity
        while len(_remembered) > REMEMBERED_PATTERNS:
            _remembered.popitem(last=False)
    return sparsity


def _analyse_rows(row_start: np.ndarray, columns: np.ndarray, n: int) -> Sparsity:
    """Order the unknowns of the KKT matrix (variables, then rows of A) and analyse its factorization."""
    m = len(row_start) - 1
    rows = np.repeat(np.arange(m), np.diff(row_start))
    order = _elimination_order(n + rows, columns, n + m)
    position = np.empty(n + m, np.int64)
    position[order] = np.arange(n + m)
    one, other = position[n + rows], position[columns]
    upper_row, upper_column = np.minimum(one, other), np.maximum(one, other)
    by_column = np.lexsort((upper_row, upper_column))
    kkt_entry = np.empty(len(columns), np.int64)
    kkt_entry[by_column] = np.arange(len(columns))
    start = np.concatenate([[0], np.cumsum(np.bincount(upper_column, minlength=n + m))])
    return Sparsity(
        row_start=row_start.astype(np.uint64),
        columns=columns.astype(np.uint32),
        kkt_entry=kkt_entry.astype(np.uint32),
        column_position=position[:n].astype(np.uint32),
        row_position=position[n:].astype(np.uint32),
        symbolic=analyse(start, upper_row[by_column], np.where(order < n, 1.0, -1.0)),
    )


def _elimination_order(rows: np.ndarray, columns: np.ndarray, size: int) -> np.ndarray:
    """Return an elimination order with little fill: minimum degree, then the few unknowns that meet almost all others.

    The order comes from SuperLU, since scipy offers none by itself; the matrix that it is given has the right pattern and a
    dominant diagonal, so that its own factorization is harmless.
    """
    degree = np.bincount(rows, minlength=size) + np.bincount(columns, minlength=size)
    # The rule of AMD (Amestoy, Davis, Duff 1996) for rows that are ordered last.
    dense = degree > max(16.0, 10.0 * np.sqrt(size))
    keep = ~(dense[rows] | dense[columns])
    small = np.full(np.count_nonzero(keep), 0.5 / (size + 1))
    lower = scipy.sparse.csc_matrix((small, (rows[keep], columns[keep])), shape=(size, size))
    matrix = (lower + lower.T + scipy.sparse.identity(size, format="csc")).tocsc()
    factorization = scipy.sparse.linalg.splu(
        matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    order = np.argsort(factorization.perm_c)
    return np.concatenate([order[~dense[order]], np.flatnonzero(dense)]).astype(np.int64)


def analyse(start: np.ndarray, row: np.ndarray, sign: np.ndarray) -> SymbolicFactor:
    """Analyse the factorization of a matrix given by its strict upper triangle, see :class:`SymbolicFactor`.

    >>> symbolic = analyse(np.array([0, 0, 0, 2]), np.array([0, 1]), np.ones(3))
    >>> symbolic.factor_row.tolist(), int(symbolic.num_short)
    ([2, 2], 3)
    """
    parent, factor_start = _elimination_tree(start, row)
    factor_row, factor_entry = _factor_entries(start, row, parent, factor_start)
    num_short, num_pairs = _short_columns(factor_start)
    tail_start, tail_column, tail_entry = _tail_rows(factor_start, factor_row, num_short)
    return SymbolicFactor(
        start=start.astype(np.uint64),
        row=row.astype(np.uint32),
        factor_entry=factor_entry,
        factor_start=factor_start.astype(np.uint64),
        factor_row=factor_row,
        num_short=num_short,
        short_targets=_short_targets(factor_start, factor_row, num_short, num_pairs),
        tail_start=tail_start.astype(np.uint64),
        tail_column=tail_column,
        tail_entry=tail_entry,
        sign=sign,
    )


@kernel
def _elimination_tree(start, row):
    """Return the parent of each column in the elimination tree (-1 at a root), and where each column of ``L`` starts."""
    size = len(start) - 1
    parent = np.full(size, -1, np.int64)
    visited = np.empty(size, np.int64)
    factor_start = np.zeros(size + 1, np.int64)
    for column in range(size):
        visited[column] = column
        for entry in range(start[column], start[column + 1]):
            node = row[entry]
            while visited[node] != column:
                if parent[node] == -1:
                    parent[node] = column
                factor_start[node + 1] += 1
                visited[node] = column
                node = parent[node]
    for column in range(size):
        factor_start[column + 1] += factor_start[column]
    return parent, factor_start


@kernel
def _factor_entries(start, row, parent, factor_start):
    """Return the rows of ``L``, column by column, and where the entries of K stand in it."""
    size = len(start) - 1
    visited = np.empty(size, np.int64)
    filled = factor_start.copy()
    factor_row = np.empty(factor_start[size], np.uint32)
    factor_entry = np.zeros(len(row), np.uint32)
    for column in range(size):
        visited[column] = column
        for entry in range(start[column], start[column + 1]):
            node = row[entry]
            while visited[node] != column:
                factor_row[filled[node]] = column
                filled[node] += 1
                visited[node] = column
                node = parent[node]
        for entry in range(start[column], start[column + 1]):
            factor_entry[entry] = filled[row[entry]] - 1
    return factor_row, factor_entry


@kernel
def _short_columns(factor_start):
    """Return how many leading columns have at most ``SHORT_COLUMN`` entries, and how many pairs of entries these have."""
    pairs = 0
    size = len(factor_start) - 1
    for column in range(size):
        length = factor_start[column + 1] - factor_start[column]
        if length > SHORT_COLUMN:
            return column, pairs
        pairs += length * (length - 1) // 2
    return size, pairs


@kernel
def _short_targets(factor_start, factor_row, num_short, num_pairs):
    """Return where the product of two entries of a short column belongs: column of the first, row of the second."""
    targets = np.empty(num_pairs, np.uint32)
    filled = 0
    for column in range(num_short):
        end = factor_start[column + 1]
        for first in range(factor_start[column], end):
            target = factor_start[factor_row[first]]
            for second in range(first + 1, end):
                while factor_row[target] != factor_row[second]:
                    target += 1
                targets[filled] = target
                filled += 1
    return targets


@kernel
def _tail_rows(factor_start, factor_row, num_short):
    """Return the rows of ``L`` in the columns that are not short: starts, columns, indices of the entries."""
    size = len(factor_start) - 1
    tail_start = np.zeros(size + 1, np.int64)
    for entry in range(factor_start[num_short], factor_start[size]):
        tail_start[factor_row[entry] + 1] += 1
    for row in range(size):
        tail_start[row + 1] += tail_start[row]
    filled = tail_start.copy()
    tail_column = np.empty(tail_start[size], np.uint32)
    tail_entry = np.empty(tail_start[size], np.uint32)
    for column in range(num_short, size):
        for entry in range(factor_start[column], factor_start[column + 1]):
            row = factor_row[entry]
            tail_column[filled[row]] = column
            tail_entry[filled[row]] = entry
            filled[row] += 1
    return tail_start, tail_column, tail_entry
