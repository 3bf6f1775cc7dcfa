"""The sparsity of a batch of programs, analysed once and kept.

Networks solve programs of one shape again and again, so the order of elimination and the elimination tree are remembered by
the positions of A's nonzeros.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from taskloss.kernels.lp_program import Pattern
from taskloss.kernels.sparse_structure import analyse

_REMEMBERED = 16
_lock = threading.Lock()
_patterns: OrderedDict[tuple[int, bytes, bytes], Pattern] = OrderedDict()


def pattern_of(row_start: np.ndarray, columns: np.ndarray, num_columns: int) -> Pattern:
    """The pattern of a matrix by rows: ``columns[row_start[i]:row_start[i + 1]]`` are the columns of row i.

    >>> pattern = pattern_of(np.array([0, 2, 3]), np.array([0, 1, 1]), 2)
    >>> sorted([*pattern.column_place.tolist(), *pattern.row_place.tolist()])
    [0, 1, 2, 3]
    """
    key = (num_columns, row_start.tobytes(), columns.tobytes())
    with _lock:
        if key in _patterns:
            _patterns.move_to_end(key)
            return _patterns[key]
    pattern = _analyse(row_start.astype(np.int64), columns.astype(np.int64), num_columns)
    with _lock:
        _patterns[key] = pattern
        while len(_patterns) > _REMEMBERED:
            _patterns.popitem(last=False)
    return pattern


def _analyse(row_start: np.ndarray, columns: np.ndarray, num_columns: int) -> Pattern:
    m, n, entries = len(row_start) - 1, num_columns, len(columns)
    # The unknowns are the columns, then the rows. Numbering the nonzeros of the lower triangle tells later where each went.
    rows = np.repeat(np.arange(m), np.diff(row_start))
    diagonal = np.arange(n + m)
    lower_row = np.concatenate([n + rows, diagonal])
    lower_column = np.concatenate([columns, diagonal])
    unknown = _order(lower_row[:entries], lower_column[:entries], n + m)
    place = np.empty(n + m, np.int64)
    place[unknown] = diagonal
    one, other = place[lower_row], place[lower_column]
    upper_row, upper_column = np.minimum(one, other), np.maximum(one, other)
    sorted_by_column = np.lexsort((upper_row, upper_column))
    position = np.empty(len(lower_row), np.int64)
    position[sorted_by_column] = np.arange(len(lower_row))
    start = np.concatenate([[0], np.cumsum(np.bincount(upper_column, minlength=n + m))])
    row_numbers = upper_row[sorted_by_column]
    index = np.uint32
    return Pattern(
        row_start=row_start,
        columns=columns.astype(index),
        structure=analyse(start, row_numbers, np.where(unknown < n, 1.0, -1.0)),
        at_entry=position[:entries].astype(index),
        at_column=position[entries : entries + n].astype(index),
        at_row=position[entries + n :].astype(index),
        column_place=place[:n].astype(index),
        row_place=place[n:].astype(index),
    )


def _order(rows: np.ndarray, columns: np.ndarray, size: int) -> np.ndarray:
    """An order of elimination with little fill: minimum degree, and last the few unknowns that meet almost all the others.

    The order comes from SuperLU, since scipy offers none by itself; the matrix that it is given has the right pattern and
    a dominant diagonal, so that its own factorization is harmless.
    """
    degree = np.bincount(rows, minlength=size) + np.bincount(columns, minlength=size)
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
