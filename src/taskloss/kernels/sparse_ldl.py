"""Sparse factorization ``K = L D L'`` of a symmetric quasi-definite matrix, without pivoting.

The matrix of every Newton step for a linear program is quasi-definite: one block positive definite, the other negative definite.
Such a matrix has the factorization for *any* symmetric order of its rows (Vanderbei 1995), so the order is chosen once, to keep
``L`` sparse, and only the numbers change from step to step. So does the place of every number: the elimination tree (Davis
2005) gives the nonzeros of ``L`` once, and the factorization follows lists.

- The first columns, as long as they are short, are eliminated *right-looking*: a column with entries ``v`` and pivot ``d``
  subtracts ``v_p v_q / d`` from the entry ``(p, q)`` of those to come; where that stands is in a list. Programs with few entries
  a row, such as those of metrics, consist of nothing else.
- The others are done row by row, *up-looking*: row ``k`` of ``L`` is a triangular solve with the rows above.

``K`` is given by its upper triangle in columns: column ``k`` has the rows ``row_numbers[start[k]:start[k + 1]]``, in ascending
order, the diagonal entry last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel, reduction_kernel

ENOUGH = 1e-13
"""Refinement ends at this relative error."""
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


@inner_kernel
def factorize(structure, matrix, factor, pivots, row):
    """Write ``L`` and one over ``D``; returns how many pivots had to be replaced. ``row`` is room, zero before and after.

    In exact arithmetic pivot ``k`` has the sign ``sign[k]``. Where rounding destroyed it, the pivot is replaced by
    one of the right sign, which perturbs the matrix; iterative refinement repairs the solution.
    """
    start = structure.start
    size = len(start) - 1
    factor[:] = 0.0
    for k in range(size):
        diagonal = start[k + 1] - 1
        pivots[k] = matrix[diagonal]
        for entry in range(start[k], diagonal):
            factor[structure.at_factor[entry]] += matrix[entry]
    replaced = _eliminate_short(structure, factor, pivots)
    for k in range(structure.short, size):
        replaced += _eliminate_row(structure, factor, pivots, row, k)
    return replaced


@inner_kernel
def _eliminate_short(structure, factor, pivots):
    factor_start = structure.factor_start
    factor_index = structure.factor_index
    targets = structure.targets
    used = 0
    replaced = 0
    for k in range(structure.short):
        pivot = pivots[k]
        if not structure.sign[k] * pivot >= 1e-14:
            pivot = structure.sign[k] * 1e-6
            replaced += 1
        inverse = 1.0 / pivot
        pivots[k] = inverse
        end = factor_start[k + 1]
        for first in range(factor_start[k], end):
            value = factor[first]
            quotient = value * inverse
            pivots[factor_index[first]] -= quotient * value
            for second in range(first + 1, end):
                factor[targets[used]] -= quotient * factor[second]
                used += 1
            factor[first] = quotient
    return replaced


@inner_kernel
def _eliminate_row(structure, factor, pivots, row, k):
    factor_start = structure.factor_start
    factor_index = structure.factor_index
    first = structure.row_start[k]
    last = structure.row_start[k + 1]
    for position in range(first, last):
        row[structure.row_nodes[position]] = factor[structure.row_places[position]]
    pivot = pivots[k]
    for position in range(first, last):
        node = structure.row_nodes[position]
        place = structure.row_places[position]
        value = row[node]
        row[node] = 0.0
        quotient = 0.0
        if value != 0.0:
            for entry in range(factor_start[node], place):
                row[factor_index[entry]] -= factor[entry] * value
            quotient = value * pivots[node]
            pivot -= quotient * value
        factor[place] = quotient
    if structure.sign[k] * pivot >= 1e-14:
        pivots[k] = 1.0 / pivot
        return 0
    pivots[k] = structure.sign[k] * 1e6
    return 1


@inner_kernel
def solve_factorized(structure, factor, pivots, vector):
    """Overwrite ``vector`` with the solution of ``L D L' x = vector``."""
    factor_start = structure.factor_start
    factor_index = structure.factor_index
    size = len(pivots)
    for column in range(size):
        value = vector[column]
        if value != 0.0:
            for entry in range(factor_start[column], factor_start[column + 1]):
                vector[factor_index[entry]] -= factor[entry] * value
    for column in range(size - 1, -1, -1):
        value = vector[column] * pivots[column]
        for entry in range(factor_start[column], factor_start[column + 1]):
            value -= factor[entry] * vector[factor_index[entry]]
        vector[column] = value


@inner_kernel
def write_residual(structure, matrix, shift, weight, right_side, solution, residual):
    """``residual = right_side - (K - diag(shift)) solution``; returns its largest entry, each times its weight.

    ``shift`` is what was added to the diagonal to keep the factorization stable. An infinite or undefined entry gives infinity.
    """
    start = structure.start
    index = structure.row_numbers
    size = len(start) - 1
    for k in range(size):
        residual[k] = right_side[k] + shift[k] * solution[k]
    for k in range(size):
        value = solution[k]
        collected = 0.0
        diagonal = start[k + 1] - 1
        for entry in range(start[k], diagonal):
            residual[index[entry]] -= matrix[entry] * value
            collected += matrix[entry] * solution[index[entry]]
        residual[k] -= collected + matrix[diagonal] * value
    return _largest_weighted(residual, weight) if np.isfinite(_sum(residual)) else np.inf


@reduction_kernel
def _largest_weighted(vector, weight):
    worst = 0.0
    for k in range(len(vector)):
        worst = max(worst, abs(vector[k]) * weight[k])
    return worst


@inner_kernel
def _sum(vector):
    """In four parts, which need not wait for each other. NaN if anything is."""
    first = second = third = fourth = 0.0
    whole = len(vector) - len(vector) % 4
    for k in range(0, whole, 4):
        first += vector[k]
        second += vector[k + 1]
        third += vector[k + 2]
        fourth += vector[k + 3]
    for k in range(whole, len(vector)):
        first += vector[k]
    return (first + second) + (third + fourth)


@inner_kernel
def write_weights(structure, matrix, weight):
    """What an error of each equation counts: less where the diagonal entry is large."""
    for k in range(len(weight)):
        weight[k] = 1.0 / max(1.0, abs(matrix[structure.start[k + 1] - 1]))


@inner_kernel
def solve_refined(structure, matrix, shift, weight, factor, pivots, right_side, solution, residual, enough, rounds):
    """Solve ``(K - diag(shift)) solution = right_side`` by refinement, until the relative error is ``enough``.

    Returns the relative error that remains.
    """
    size = len(pivots)
    solution[:] = right_side
    solve_factorized(structure, factor, pivots, solution)
    scale = max(_largest_weighted(right_side, weight), 1e-300)
    error = write_residual(structure, matrix, shift, weight, right_side, solution, residual)
    for _ in range(rounds):
        if error <= enough * scale or error == np.inf:
            break
        solve_factorized(structure, factor, pivots, residual)
        step = residual.copy()
        for k in range(size):
            solution[k] += step[k]
        refined = write_residual(structure, matrix, shift, weight, right_side, solution, residual)
        if not refined < error:
            for k in range(size):
                solution[k] -= step[k]
            break
        slow = refined > 0.5 * error
        error = refined
        if slow:
            break
    return error / scale
