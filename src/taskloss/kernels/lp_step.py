"""One step of the interior method, whose equations are in ``kernels.lp_interior``: arrays, matrix, predictor and corrector."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._lanes import in_all, load, store, where_positive
from taskloss.kernels._numba import inner_kernel, merged_kernel, plain_kernel
from taskloss.kernels.lane_rows import largest_in_lanes
from taskloss.kernels.lp_optimality import smallest_gap_unit
from taskloss.kernels.lp_program import factorize_system, solve_system, write_values
from taskloss.kernels.lp_slacks import (
    Limits,
    Sides,
    Terms,
    longest,
    make_limits,
    make_sides,
    make_terms,
    target_of,
    write_pull,
    write_right_side,
    write_step,
)

ROUNDS = np.int64(10)
"""Of refinement, at most; two lose accuracy on badly conditioned programs."""
LARGER = 30.0
"""The factor of a shift that was too small."""


class Room(NamedTuple):
    """All the arrays of the method, made once for a batch.

    ``sides``: of the point; ``first`` and ``step``: their changes by predictor and corrector; ``nothing``: no change. Of lines:
    values, their change, theta and one over it (of rows), ``collected`` (the terms e), duals. Of columns and rows: what a step
    solves for and its right side. ``equation_dual``: of rows.
    """

    limits: Limits
    terms: Terms
    sides: Sides
    nothing: Sides
    first: Sides
    step: Sides
    values: np.ndarray
    change: np.ndarray
    theta: np.ndarray
    inverse_theta: np.ndarray
    collected: np.ndarray
    duals: np.ndarray
    gradient: np.ndarray
    column_change: np.ndarray
    dual_change: np.ndarray
    right_columns: np.ndarray
    right_rows: np.ndarray
    equation_dual: np.ndarray
    best_x: np.ndarray


class Progress(NamedTuple):
    """One number a lane: of the program, the point, the step that leaves it, the best point met; is it still ``running``?

    ``zero``: what a step that only looks ahead aims at; ``last_gain``: the last step that brought something.
    """

    cost_scale: np.ndarray
    gap_floor: np.ndarray
    mu: np.ndarray
    error: np.ndarray
    shift: np.ndarray
    target: np.ndarray
    zero: np.ndarray
    primal: np.ndarray
    dual: np.ndarray
    best: np.ndarray
    better: np.ndarray
    least_mu: np.ndarray
    last_gain: np.ndarray
    steps: np.ndarray
    running: np.ndarray


@inner_kernel
def make_room(pattern):
    """Empty room for programs with a pattern."""
    n = len(pattern.at_column)
    m = len(pattern.at_row)
    width = len(pattern.lanes)
    lines = m + n
    return Room(
        make_limits(lines, width),
        make_terms(lines, width),
        make_sides(lines, width),
        make_sides(lines, width),
        make_sides(lines, width),
        make_sides(lines, width),
        np.empty((lines, width)),
        np.empty((lines, width)),
        np.empty((lines, width)),
        np.empty((m, width)),
        np.empty((lines, width)),
        np.empty((lines, width)),
        np.empty((n, width)),
        np.empty((n, width)),
        np.empty((m, width)),
        np.empty((n, width)),
        np.empty((m, width)),
        np.empty((m, width)),
        np.empty((n, width)),
    )


@inner_kernel
def make_progress(width):
    """Empty room for the numbers."""
    return Progress(
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.zeros(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width, np.int64),
        np.empty(width, np.int64),
        np.empty(width, np.bool_),
    )


@plain_kernel
def reset_progress(lanes, program, shift, progress):
    """The numbers before the first step."""
    store(progress.cost_scale, 0, in_all(1.0, lanes) + largest_in_lanes(lanes, program.cost))
    store(progress.gap_floor, 0, smallest_gap_unit(lanes, program))
    for lane in range(len(lanes)):
        progress.shift[lane] = shift
        progress.best[lane] = np.inf
        progress.least_mu[lane] = np.inf
        progress.last_gain[lane] = 0
        progress.steps[lane] = 0
        progress.running[lane] = True


@plain_kernel
def write_entries(pattern, program, system, limits):
    """The part of the system that stays: A. A fixed column is taken out: its entries are zero."""
    lanes = pattern.lanes
    m = len(program.low) - len(program.cost)
    zero = in_all(0.0, lanes)
    for entry in range(len(program.entries)):
        fixed = load(limits.equation, m + pattern.columns[entry], lanes)
        store(system.matrix, pattern.at_entry[entry], where_positive(fixed, zero, load(program.entries, entry, lanes)))


@plain_kernel
def write_diagonal(pattern, system, limits, theta, inverse_theta, softness, shift):
    """The part with the weights theta; ``shift``: one a lane."""
    lanes = pattern.lanes
    m = len(pattern.at_row)
    zero = in_all(0.0, lanes)
    added = load(shift, 0, lanes)
    for column in range(len(pattern.at_column)):
        fixed = load(limits.equation, m + column, lanes)
        store(system.shift, pattern.column_place[column], where_positive(fixed, zero, added))
        weight = where_positive(fixed, in_all(1.0, lanes), load(theta, m + column, lanes) + added)
        store(system.matrix, pattern.at_column[column], weight)
    soft = in_all(softness, lanes) + added
    for row in range(m):
        store(system.shift, pattern.row_place[row], zero - added)
        # An equation has no weight, and no inverse either.
        limited = load(theta, row, lanes) + load(limits.equation, row, lanes)
        weight = where_positive(limited, load(inverse_theta, row, lanes) + soft, in_all(1e20, lanes))
        store(system.matrix, pattern.at_row[row], zero - weight)


@plain_kernel
def write_inverse_theta(lanes, theta, inverse_theta):
    """Of rows; zero for equations and where there is no limit."""
    one = in_all(1.0, lanes)
    zero = in_all(0.0, lanes)
    for row in range(len(inverse_theta)):
        weight = load(theta, row, lanes)
        store(inverse_theta, row, where_positive(weight, one / weight, zero))


@plain_kernel
def _solve_direction(pattern, program, system, softness, target, before, room, enough):
    """Change of the values and of the row duals toward complementarity ``target``.

    The change of a row follows from its dual where theta is large and from the columns where it is small: each is the accurate
    one there.
    """
    lanes = pattern.lanes
    write_pull(lanes, room.sides, room.terms, target, before, room.collected)
    write_right_side(
        lanes,
        room.limits,
        room.values,
        room.gradient,
        room.inverse_theta,
        room.collected,
        room.right_columns,
        room.right_rows,
    )
    solve_system(pattern, system, room.right_columns, room.right_rows, room.column_change, room.dual_change, enough, ROUNDS)
    write_values(pattern, program.entries, room.column_change, room.change)
    soft = in_all(softness, lanes)
    for row in range(len(room.dual_change)):
        dual = load(room.dual_change, row, lanes)
        by_dual = (dual - load(room.collected, row, lanes)) * load(room.inverse_theta, row, lanes)
        by_columns = load(room.change, row, lanes) - soft * dual
        small = in_all(1.0, lanes) - load(room.theta, row, lanes)
        store(room.change, row, where_positive(small, by_columns, by_dual))


@merged_kernel
def find_step(pattern, program, system, softness, enough, room, progress):
    """Predictor and corrector: ``room.step``, the longest ones that stay inside, and the shifts that were needed."""
    width = len(pattern.lanes)
    limits, terms, sides, first, step = room.limits, room.terms, room.sides, room.first, room.step
    for _ in range(6):
        write_diagonal(pattern, system, limits, room.theta, room.inverse_theta, softness, progress.shift)
        factorize_system(pattern, system)
        # The first direction only tells how far the second may aim, so it is not refined.
        _solve_direction(pattern, program, system, softness, progress.zero, room.nothing, room, np.inf)
        write_step(pattern.lanes, limits, sides, terms, room.change, first)
        primal = longest(pattern.lanes, first.slack, terms.inverse_slack)
        dual = longest(pattern.lanes, first.dual, terms.inverse_dual)
        mu = load(progress.mu, 0, pattern.lanes)
        store(progress.target, 0, target_of(pattern.lanes, limits, sides, first, primal, dual, mu))
        _solve_direction(pattern, program, system, softness, progress.target, first, room, enough)
        unsolved = 0
        for lane in range(width):
            if progress.running[lane] and not system.refinement.error[lane] <= 0.1:
                unsolved += 1
                progress.shift[lane] *= LARGER
        if unsolved == 0:
            break
    write_step(pattern.lanes, limits, sides, terms, room.change, step)
    store(progress.primal, 0, longest(pattern.lanes, step.slack, terms.inverse_slack))
    store(progress.dual, 0, longest(pattern.lanes, step.dual, terms.inverse_dual))
