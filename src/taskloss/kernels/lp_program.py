"""A linear program as the compiled solvers see it, and the matrix of their Newton steps.

Every program is ``min cost'x`` with limits on ``n`` columns (variables) and ``m`` rows (``A x``); a *line* is a row or a
column: lines ``0..m-1`` are the rows, lines ``m..m+n-1`` the columns, and ``low[i] <= value[i] <= high[i]`` for every line. An
equation or a fixed variable is a line with ``low == high``. A quadratic term ``1/2 sum_j quadratic_j x_j^2`` may be present.

All Newton steps solve one system, with weights that depend on the method,

    [ diag(column weights)   A'                 ] [ dx ]   [ right side of columns ]
    [ A                      -diag(row weights) ] [ dy ] = [ right side of rows    ]

in an order of lines that keeps its factor sparse (``kernels.sparse_ldl``).

Several programs with the same nonzeros may be worked on side by side, one a *lane*; arrays of numbers then have a last axis of
lanes. What needs many decisions of its own for each program works on one at a time, and its vectors have no such axis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._lanes import in_all, load, store
from taskloss.kernels._numba import inlined_kernel, inner_kernel, plain_kernel
from taskloss.kernels.sparse_ldl import Refinement, factorize, make_refinement, solve_refined, write_weights
from taskloss.kernels.sparse_structure import Structure


class Pattern(NamedTuple):
    """Where the nonzeros are: shared by all the programs of a batch.

    ``row_start``, ``columns``: A by rows. ``structure``: of the system in elimination order. ``at_entry``, ``at_column``,
    ``at_row``: where A's entries and the two diagonals stand in its upper triangle. ``column_place``, ``row_place``: the position
    of each unknown in the order. ``lanes``: a tuple with one number a lane, whatever it is; its length is known to the compiler.
    """

    row_start: np.ndarray
    columns: np.ndarray
    structure: Structure
    at_entry: np.ndarray
    at_column: np.ndarray
    at_row: np.ndarray
    column_place: np.ndarray
    row_place: np.ndarray
    lanes: tuple[int, ...] = (0,)


class Program(NamedTuple):
    """The numbers of one program, or of one a lane; ``low`` and ``high`` are of lines, rows first."""

    entries: np.ndarray
    cost: np.ndarray
    quadratic: np.ndarray
    low: np.ndarray
    high: np.ndarray


class System(NamedTuple):
    """Room for the matrix of a Newton step, its factor and its solution. ``shift`` is of the unknowns in elimination order.

    All have an axis of lanes.
    """

    matrix: np.ndarray
    shift: np.ndarray
    weight: np.ndarray
    factor: np.ndarray
    pivots: np.ndarray
    right_side: np.ndarray
    solution: np.ndarray
    row: np.ndarray
    refinement: Refinement


@inner_kernel
def make_system(pattern):
    """Empty room for ``pattern``."""
    size = len(pattern.structure.sign)
    width = len(pattern.lanes)
    return System(
        np.zeros((len(pattern.structure.row_numbers), width)),
        np.zeros((size, width)),
        np.zeros((size, width)),
        np.empty((len(pattern.structure.factor_index), width)),
        np.empty((size, width)),
        np.zeros((size, width)),
        np.zeros((size, width)),
        np.zeros((size, width)),
        make_refinement(size, pattern.lanes),
    )


@inlined_kernel
def in_lane(vector):
    """A vector of one program as an array with one lane; they share their memory."""
    return vector.reshape((len(vector), 1))


@inner_kernel
def program_in_lane(program):
    """A program of one as one with a lane."""
    return Program(
        in_lane(program.entries),
        in_lane(program.cost),
        in_lane(program.quadratic),
        in_lane(program.low),
        in_lane(program.high),
    )


@plain_kernel
def write_values(pattern, entries, x, values):
    """``values`` of all the lines at ``x``: ``A x``, then ``x``. In lanes."""
    m = len(pattern.row_start) - 1
    for row in range(m):
        total = in_all(0.0, pattern.lanes)
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            total = total + load(entries, entry, pattern.lanes) * load(x, pattern.columns[entry], pattern.lanes)
        store(values, row, total)
    for column in range(len(x)):
        store(values, m + column, load(x, column, pattern.lanes))


@inner_kernel
def write_values_of_one(pattern, entries, x, values):
    """``write_values`` for one program."""
    write_values(pattern, in_lane(entries), in_lane(x), in_lane(values))


@plain_kernel
def write_stationarity(pattern, program, x, multipliers, gradient):
    """``gradient = cost + quadratic x + A' y + z`` with ``multipliers = (y, z)`` of the lines. In lanes."""
    m = len(pattern.row_start) - 1
    lanes = pattern.lanes
    for column in range(len(gradient)):
        curved = load(program.quadratic, column, lanes) * load(x, column, lanes)
        store(gradient, column, load(program.cost, column, lanes) + curved + load(multipliers, m + column, lanes))
    for row in range(m):
        if len(lanes) == 1 and multipliers[row, 0] == 0.0:
            continue
        multiplier = load(multipliers, row, lanes)
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            column = pattern.columns[entry]
            store(gradient, column, load(gradient, column, lanes) + load(program.entries, entry, lanes) * multiplier)


@inner_kernel
def write_stationarity_of_one(pattern, program, x, multipliers, gradient):
    """``write_stationarity`` for one program."""
    write_stationarity(pattern, program_in_lane(program), in_lane(x), in_lane(multipliers), in_lane(gradient))


@plain_kernel
def largest(vector):
    """The largest magnitude; infinite when anything is undefined."""
    worst = 0.0
    for value in vector:
        if not abs(value) <= worst:
            worst = abs(value)
            if not worst < np.inf:
                return np.inf
    return worst


@plain_kernel
def factorize_system(pattern, system):
    """Factorize the matrix that was written into ``system``."""
    structure, lanes = pattern.structure, pattern.lanes
    write_weights(structure, lanes, system.matrix, system.weight)
    factorize(structure, lanes, system.matrix, system.factor, system.pivots, system.row)


@plain_kernel
def solve_system(pattern, system, right_columns, right_rows, columns, rows, enough, rounds):
    """Write the solution to ``columns`` and ``rows``, in lanes.

    The relative error that remains after refinement is in ``system.refinement.error``. ``rounds``: a number of numpy's, because
    each number of Python's would be a type of its own to the compiler, and the solver compiled once for every such number.
    """
    n = len(columns)
    m = len(rows)
    lanes = pattern.lanes
    for column in range(n):
        store(system.right_side, pattern.column_place[column], load(right_columns, column, lanes))
    for row in range(m):
        store(system.right_side, pattern.row_place[row], load(right_rows, row, lanes))
    solve_refined(
        pattern.structure,
        lanes,
        system.matrix,
        system.shift,
        system.weight,
        system.factor,
        system.pivots,
        system.right_side,
        system.solution,
        system.refinement,
        enough,
        rounds,
    )
    for column in range(n):
        store(columns, column, load(system.solution, pattern.column_place[column], lanes))
    for row in range(m):
        store(rows, row, load(system.solution, pattern.row_place[row], lanes))


@inner_kernel
def solve_system_of_one(pattern, system, right_columns, right_rows, columns, rows, enough, rounds):
    """``solve_system`` for one program."""
    vectors = in_lane(right_columns), in_lane(right_rows), in_lane(columns), in_lane(rows)
    solve_system(pattern, system, *vectors, enough, rounds)
