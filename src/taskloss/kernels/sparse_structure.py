"""Where the numbers of a sparse factorization ``K = L D L'`` stand (``kernels.sparse_ldl``), found once for a pattern.

The elimination tree (Davis 2005) gives the nonzeros of ``L``; the factorization then follows lists. ``K`` is given by its upper
triangle in columns: column ``k`` has the rows ``row_numbers[start[k]:start[k + 1]]``, in ascending order, the diagonal last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import kernel

SHORT = 16
"""Right-looking elimination stops at the first column of ``L`` with more entries."""


class Structure(NamedTuple):
    """Where the numbers stand. Indices in inner loops are unsigned: numba then does not look for negative ones.

    ``start``, ``row_numbers``: K. ``at_factor``: where the entries of K go in L (diagonal entries: unused). ``factor_start``,
    ``factor_index``: L below the diagonal, by columns. ``short``: how many columns are eliminated right-looking; ``targets``: the
    places in L that they change, column by column, pair by pair. ``row_start``, ``row_nodes``, ``row_places``: the entries
    of the other rows of L in the other columns: which column, and where in L. ``sign``: of the pivots.
    """

    start: np.ndarray
    row_numbers: np.ndarray
    at_factor: np.ndarray
    factor_start: np.ndarray
    factor_index: np.ndarray
    short: int
    targets: np.ndarray
    row_start: np.ndarray
    row_nodes: np.ndarray
    row_places: np.ndarray
    sign: np.ndarray


@kernel
def _elimination_tree(start, index):
    """Parent of each column in the elimination tree (-1 at a root), and where each column of ``L`` starts."""
    size = len(start) - 1
    parent = np.full(size, -1, np.int64)
    visited = np.empty(size, np.int64)
    factor_start = np.zeros(size + 1, np.int64)
    for column in range(size):
        visited[column] = column
        for entry in range(start[column], start[column + 1]):
            node = index[entry]
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
def _factor_entries(start, index, parent, factor_start):
    """Row numbers of ``L`` by columns, and where the entries of ``K`` stand in it."""
    size = len(start) - 1
    visited = np.empty(size, np.int64)
    filled = factor_start.copy()
    factor_index = np.empty(factor_start[size], np.uint32)
    at_factor = np.zeros(len(index), np.uint32)
    for column in range(size):
        visited[column] = column
        for entry in range(start[column], start[column + 1]):
            node = index[entry]
            while visited[node] != column:
                factor_index[filled[node]] = column
                filled[node] += 1
                visited[node] = column
                node = parent[node]
        for entry in range(start[column], start[column + 1] - 1):
            at_factor[entry] = filled[index[entry]] - 1
    return factor_index, at_factor


@kernel
def _short_columns(factor_start):
    """How many columns from the first on have at most ``SHORT`` entries, and how many pairs of entries they have."""
    pairs = 0
    size = len(factor_start) - 1
    for column in range(size):
        length = factor_start[column + 1] - factor_start[column]
        if length > SHORT:
            return column, pairs
        pairs += length * (length - 1) // 2
    return size, pairs


@kernel
def _targets(factor_start, factor_index, short, pairs):
    """Where the product of two entries of a short column belongs: column of the first, row of the second."""
    targets = np.empty(pairs, np.uint32)
    filled = 0
    for column in range(short):
        end = factor_start[column + 1]
        for first in range(factor_start[column], end):
            place = factor_start[factor_index[first]]
            for second in range(first + 1, end):
                while factor_index[place] != factor_index[second]:
                    place += 1
                targets[filled] = place
                filled += 1
    return targets


@kernel
def _tail_rows(factor_start, factor_index, short):
    """The rows of ``L`` in the columns that are not short: starts, columns, places."""
    size = len(factor_start) - 1
    row_start = np.zeros(size + 1, np.int64)
    for entry in range(factor_start[short], factor_start[size]):
        row_start[factor_index[entry] + 1] += 1
    for row in range(size):
        row_start[row + 1] += row_start[row]
    filled = row_start.copy()
    nodes = np.empty(row_start[size], np.uint32)
    places = np.empty(row_start[size], np.uint32)
    for column in range(short, size):
        for entry in range(factor_start[column], factor_start[column + 1]):
            row = factor_index[entry]
            nodes[filled[row]] = column
            places[filled[row]] = entry
            filled[row] += 1
    return row_start, nodes, places


def analyse(start: np.ndarray, index: np.ndarray, sign: np.ndarray) -> Structure:
    """All that the factorization needs to know of the nonzeros of ``K``.

    >>> structure = analyse(np.array([0, 1, 2, 5]), np.array([0, 1, 0, 1, 2]), np.ones(3))
    >>> structure.factor_index.tolist(), int(structure.short)
    ([2, 2], 3)
    """
    parent, factor_start = _elimination_tree(start, index)
    factor_index, at_factor = _factor_entries(start, index, parent, factor_start)
    short, pairs = _short_columns(factor_start)
    row_start, row_nodes, row_places = _tail_rows(factor_start, factor_index, short)
    return Structure(
        start=start,
        row_numbers=index.astype(np.uint32),
        at_factor=at_factor,
        factor_start=factor_start,
        factor_index=factor_index,
        short=short,
        targets=_targets(factor_start, factor_index, short, pairs),
        row_start=row_start,
        row_nodes=row_nodes,
        row_places=row_places,
        sign=sign,
    )
