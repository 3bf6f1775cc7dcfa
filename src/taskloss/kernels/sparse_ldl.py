"""Sparse factorization ``K = L D L'`` of a symmetric quasi-definite matrix, without pivoting.

The matrix of every Newton step for a linear program is quasi-definite: one block positive definite, the other negative definite.
Such a matrix has the factorization for *any* symmetric order of its rows (Vanderbei 1995), so the order is chosen once, to keep
``L`` sparse, and only the numbers change from step to step; where they stand is found once (``kernels.sparse_structure``).

- The first columns, as long as they are short, are eliminated *right-looking*: a column with entries ``v`` and pivot ``d``
  subtracts ``v_p v_q / d`` from the entry ``(p, q)`` of those to come; where that stands is in a list. Programs with few entries
  a row, such as those of metrics, consist of nothing else.
- The others are done row by row, *up-looking*: row ``k`` of ``L`` is a triangular solve with the rows above.

Several matrices of one structure are worked on side by side, one a *lane*: every array of numbers has a last axis of lanes, which
the processor takes in one instruction (``kernels._lanes``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._lanes import in_all, larger, load, size_of, store, where_positive
from taskloss.kernels._numba import inlined_kernel, inner_kernel, merged_kernel, plain_kernel
from taskloss.kernels.lane_rows import copy, fill

ENOUGH = 1e-13
"""Refinement ends at this relative error."""


@plain_kernel
def factorize(structure, lanes, matrix, factor, pivots, row):
    """Write ``L`` and one over ``D``. ``row`` is room, zero before and after.

    In exact arithmetic pivot ``k`` has the sign ``sign[k]``. Where rounding destroyed it, the pivot is replaced by
    one of the right sign, which perturbs the matrix; iterative refinement repairs the solution.
    """
    start = structure.start
    size = len(start) - 1
    fill(lanes, factor, 0.0)
    for k in range(size):
        diagonal = start[k + 1] - 1
        store(pivots, k, load(matrix, diagonal, lanes))
        for entry in range(start[k], diagonal):
            place = structure.at_factor[entry]
            store(factor, place, load(factor, place, lanes) + load(matrix, entry, lanes))
    _eliminate_short(structure, lanes, factor, pivots)
    for k in range(structure.short, size):
        _eliminate_row(structure, lanes, factor, pivots, row, k)


@inlined_kernel
def _inverse(pivot, sign, lanes):
    size = pivot * in_all(sign, lanes)
    return in_all(1.0, lanes) / where_positive(size - in_all(1e-14, lanes), pivot, in_all(sign * 1e-6, lanes))


@plain_kernel
def _eliminate_short(structure, lanes, factor, pivots):
    factor_start = structure.factor_start
    factor_index = structure.factor_index
    targets = structure.targets
    used = 0
    for k in range(structure.short):
        inverse = _inverse(load(pivots, k, lanes), structure.sign[k], lanes)
        store(pivots, k, inverse)
        end = factor_start[k + 1]
        for first in range(factor_start[k], end):
            value = load(factor, first, lanes)
            quotient = value * inverse
            row = factor_index[first]
            store(pivots, row, load(pivots, row, lanes) - quotient * value)
            for second in range(first + 1, end):
                target = targets[used]
                used += 1
                store(factor, target, load(factor, target, lanes) - quotient * load(factor, second, lanes))
            store(factor, first, quotient)


@plain_kernel
def _eliminate_row(structure, lanes, factor, pivots, row, k):
    factor_start = structure.factor_start
    factor_index = structure.factor_index
    first = structure.row_start[k]
    last = structure.row_start[k + 1]
    for position in range(first, last):
        store(row, structure.row_nodes[position], load(factor, structure.row_places[position], lanes))
    pivot = load(pivots, k, lanes)
    for position in range(first, last):
        node = structure.row_nodes[position]
        place = structure.row_places[position]
        if len(lanes) == 1 and row[node, 0] == 0.0:
            # Entries may cancel.
            factor[place, 0] = 0.0
            continue
        value = load(row, node, lanes)
        store(row, node, in_all(0.0, lanes))
        for entry in range(factor_start[node], place):
            target = factor_index[entry]
            store(row, target, load(row, target, lanes) - load(factor, entry, lanes) * value)
        quotient = value * load(pivots, node, lanes)
        pivot = pivot - quotient * value
        store(factor, place, quotient)
    store(pivots, k, _inverse(pivot, structure.sign[k], lanes))


@plain_kernel
def solve_factorized(structure, lanes, factor, pivots, vector):
    """Overwrite ``vector`` with the solution of ``L D L' x = vector``."""
    factor_start = structure.factor_start
    factor_index = structure.factor_index
    size = len(pivots)
    for column in range(size):
        if len(lanes) == 1 and vector[column, 0] == 0.0:
            continue
        value = load(vector, column, lanes)
        for entry in range(factor_start[column], factor_start[column + 1]):
            row = factor_index[entry]
            store(vector, row, load(vector, row, lanes) - load(factor, entry, lanes) * value)
    for column in range(size - 1, -1, -1):
        value = load(vector, column, lanes) * load(pivots, column, lanes)
        for entry in range(factor_start[column], factor_start[column + 1]):
            value = value - load(factor, entry, lanes) * load(vector, factor_index[entry], lanes)
        store(vector, column, value)


@plain_kernel
def write_residual(structure, lanes, matrix, shift, weight, right_side, solution, residual, error):
    """``residual = right_side - (K - diag(shift)) solution``; ``error``: of a lane, its largest entry, each times its weight.

    ``shift`` is what was added to the diagonal to keep the factorization stable. An infinite or undefined entry gives infinity.
    """
    start = structure.start
    index = structure.row_numbers
    size = len(start) - 1
    for k in range(size):
        store(residual, k, load(right_side, k, lanes) + load(shift, k, lanes) * load(solution, k, lanes))
    for k in range(size):
        value = load(solution, k, lanes)
        diagonal = start[k + 1] - 1
        collected = load(matrix, diagonal, lanes) * value
        for entry in range(start[k], diagonal):
            row = index[entry]
            number = load(matrix, entry, lanes)
            store(residual, row, load(residual, row, lanes) - number * value)
            collected = collected + number * load(solution, row, lanes)
        store(residual, k, load(residual, k, lanes) - collected)
    total = in_all(0.0, lanes)
    for k in range(size):
        total = total + load(residual, k, lanes)
    # Zero, or undefined if anything was.
    store(error, 0, total - total + _largest_weighted(residual, weight, lanes))
    for lane in range(len(lanes)):
        if not error[lane] < np.inf:
            error[lane] = np.inf


@plain_kernel
def _largest_weighted(vector, weight, lanes):
    largest = in_all(0.0, lanes)
    for k in range(len(vector)):
        largest = larger(size_of(load(vector, k, lanes)) * load(weight, k, lanes), largest)
    return largest


@plain_kernel
def write_weights(structure, lanes, matrix, weight):
    """What an error of each equation counts: less where the diagonal entry is large."""
    one = in_all(1.0, lanes)
    for k in range(len(weight)):
        store(weight, k, one / larger(size_of(load(matrix, structure.start[k + 1] - 1, lanes)), one))


class Refinement(NamedTuple):
    """Room of ``solve_refined``. Of a lane: error, that of the next round, scale of the right side, busy and failed (1 or 0)."""

    residual: np.ndarray
    step: np.ndarray
    error: np.ndarray
    refined: np.ndarray
    scale: np.ndarray
    busy: np.ndarray
    failed: np.ndarray


@inner_kernel
def make_refinement(size, lanes):
    """Empty room."""
    width = len(lanes)
    return Refinement(
        np.empty((size, width)),
        np.empty((size, width)),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
    )


@merged_kernel
def solve_refined(structure, lanes, matrix, shift, weight, factor, pivots, right_side, solution, room, enough, rounds):
    """Solve ``(K - diag(shift)) solution = right_side`` by refinement, until the relative error is ``enough``.

    The relative error that remains is in ``room.error``. With ``enough`` infinite it is not looked at.
    """
    copy(lanes, right_side, solution)
    solve_factorized(structure, lanes, factor, pivots, solution)
    if enough == np.inf:
        store(room.error, 0, in_all(0.0, lanes))
        return
    write_residual(structure, lanes, matrix, shift, weight, right_side, solution, room.residual, room.error)
    store(room.scale, 0, larger(_largest_weighted(right_side, weight, lanes), in_all(1e-300, lanes)))
    store(room.busy, 0, in_all(1.0, lanes))
    for _ in range(rounds):
        if not _any_busy(lanes, room, enough):
            break
        copy(lanes, room.residual, room.step)
        solve_factorized(structure, lanes, factor, pivots, room.step)
        _add_where(lanes, room.busy, in_all(1.0, lanes), room.step, solution)
        write_residual(structure, lanes, matrix, shift, weight, right_side, solution, room.residual, room.refined)
        if _any_failed(lanes, room):
            _add_where(lanes, room.failed, in_all(-1.0, lanes), room.step, solution)
    store(room.error, 0, load(room.error, 0, lanes) / load(room.scale, 0, lanes))


@plain_kernel
def _add_where(lanes, condition, factor, step, solution):
    """``solution += factor step`` in the lanes where the condition is 1."""
    where = load(condition, 0, lanes)
    zero = in_all(0.0, lanes)
    for k in range(len(solution)):
        store(solution, k, load(solution, k, lanes) + where_positive(where, load(step, k, lanes) * factor, zero))


@plain_kernel
def _any_busy(lanes, room, enough):
    """Is there a lane whose error is worth another round?"""
    count = 0.0
    for lane in range(len(lanes)):
        if not enough * room.scale[lane] < room.error[lane] < np.inf:
            room.busy[lane] = 0.0
        count += room.busy[lane]
    return count > 0.0


@plain_kernel
def _any_failed(lanes, room):
    """Is there a lane that the last round did not help? It, and one that it hardly helped, are done."""
    count = 0.0
    for lane in range(len(lanes)):
        helped = room.refined[lane] < room.error[lane]
        room.failed[lane] = 0.0 if helped else room.busy[lane]
        count += room.failed[lane]
        if room.busy[lane] and helped:
            room.busy[lane] = 1.0 if room.refined[lane] <= 0.5 * room.error[lane] else 0.0
            room.error[lane] = room.refined[lane]
        else:
            room.busy[lane] = 0.0
    return count > 0.0
