"""A primal-dual interior-point method: from a start that needs to satisfy nothing to a point near the solution.

Each line with a lower limit has a slack ``p > 0`` that tends to ``value - low`` and a dual ``l > 0``; with an upper limit, ``q
> 0`` tends to ``high - value`` and has a dual ``h > 0``. Newton's method is applied to ``p l = q h = mu`` with mu falling
(Mehrotra's predictor and corrector, 1992). With ``theta = l/p + h/q`` and ``y = h - l``, a step solves

    dx_j (theta_j) + (A' dy)_j = -stationarity_j - e_j          for a column j
    (A dx)_i - dy_i / theta_i  = -e_i / theta_i                 for a row i with a limit
    (A dx)_i                   = low_i - (A x)_i                for an equation

where ``e`` collects the complementarity terms. A diagonal shift keeps the factorization stable, refinement removes its effect,
and a step whose system cannot be solved is tried again with a larger shift. The point with the least error is returned: it
need not be a vertex, which is why the multiplier method follows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inner_kernel
from taskloss.kernels.lp_program import (
    factorize_system,
    largest,
    relative_gap,
    solve_system,
    write_stationarity,
    write_values,
)
from taskloss.kernels.lp_slacks import (
    complementarity,
    kinds_of,
    make_sides,
    move,
    primal_error,
    target_of,
    write_right_side,
    write_step,
    write_weights_of_lines,
)
from taskloss.kernels.sparse_ldl import ENOUGH

ROUNDS = 10
"""At most so many rounds of refinement a step; two lose accuracy on badly conditioned programs."""
LARGER = 30.0
"""The factor of a shift that was too small."""


class Room(NamedTuple):
    """Vectors of one step. Of lines: ``values``, their ``change``, ``theta``, ``collected`` (the terms e), ``duals``."""

    values: np.ndarray
    change: np.ndarray
    theta: np.ndarray
    collected: np.ndarray
    duals: np.ndarray
    gradient: np.ndarray
    dual_change: np.ndarray
    right_columns: np.ndarray
    right_rows: np.ndarray


@inner_kernel
def _make_room(n, lines):
    m = lines - n
    return Room(
        np.empty(lines),
        np.empty(lines),
        np.empty(lines),
        np.empty(lines),
        np.empty(lines),
        np.empty(n),
        np.empty(m),
        np.empty(n),
        np.empty(m),
    )


@inner_kernel
def _write_entries(pattern, program, system, kinds):
    """The part of the system that stays: A. A fixed column is taken out: its entries are zero."""
    m = len(program.low) - len(program.cost)
    for entry in range(len(program.entries)):
        fixed = kinds.equation[m + pattern.columns[entry]]
        system.matrix[pattern.at_entry[entry]] = 0.0 if fixed else program.entries[entry]


@inner_kernel
def _write_diagonal(pattern, program, system, kinds, theta, softness, shift):
    """The part with the weights theta."""
    n = len(program.cost)
    m = len(program.low) - n
    for column in range(n):
        fixed = kinds.equation[m + column]
        system.shift[pattern.column_place[column]] = 0.0 if fixed else shift
        system.matrix[pattern.at_column[column]] = 1.0 if fixed else theta[m + column] + shift
    for row in range(m):
        system.shift[pattern.row_place[row]] = -shift
        weight = 1e20
        if kinds.equation[row]:
            weight = softness + shift
        elif theta[row] > 0.0:
            weight = 1.0 / theta[row] + softness + shift
        system.matrix[pattern.at_row[row]] = -weight


@inner_kernel
def _start(pattern, program, system, kinds, x, sides, equation_dual):
    """A start near the middle of the limits: two least-squares problems, then slacks and duals pushed inside (Mehrotra 1992)."""
    n = len(x)
    lines = len(program.low)
    m = lines - n
    theta = np.where(kinds.has_low | kinds.has_high, 1.0, 1e-6)
    for row in range(m):
        if kinds.equation[row]:
            theta[row] = 1e6
    _write_diagonal(pattern, program, system, kinds, theta, 0.0, 1e-6)
    system.shift[:] = 0.0
    factorize_system(pattern, system)
    middle = np.zeros(lines)
    for line in range(lines):
        if kinds.has_low[line] and kinds.has_high[line]:
            middle[line] = 0.5 * (program.low[line] + program.high[line])
        elif kinds.has_low[line] or kinds.equation[line]:
            middle[line] = program.low[line]
        elif kinds.has_high[line]:
            middle[line] = program.high[line]
    rows = np.empty(m)
    values = np.empty(lines)
    fixed = np.zeros(n)
    for column in range(n):
        if kinds.equation[m + column]:
            fixed[column] = middle[m + column]
    write_values(pattern, program.entries, fixed, values)
    solve_system(pattern, system, middle[m:], middle[:m] - values[:m], x, rows, ENOUGH, 1)
    for column in range(n):
        if kinds.equation[m + column]:
            x[column] = fixed[column]
    write_values(pattern, program.entries, x, values)
    dual = np.empty(lines)
    solve_system(pattern, system, -program.cost, np.zeros(m), dual[m:], dual[:m], ENOUGH, 1)
    outside = 0.0
    wrong = 0.0
    for line in range(lines):
        if kinds.has_low[line]:
            outside = max(outside, program.low[line] - values[line])
            if not kinds.has_high[line]:
                wrong = max(wrong, dual[line])
        if kinds.has_high[line]:
            outside = max(outside, values[line] - program.high[line])
            if not kinds.has_low[line]:
                wrong = max(wrong, -dual[line])
    outside = max(1.5 * outside, 1e-2)
    wrong = max(1.5 * wrong, 1e-2)
    for line in range(lines):
        equation_dual[line] = dual[line] if kinds.equation[line] and line < m else 0.0
        width = program.high[line] - program.low[line]
        if kinds.has_low[line]:
            sides.low_slack[line] = min(max(values[line] - program.low[line], 0.0) + outside, width)
            sides.low_dual[line] = max(-dual[line], 0.0) + wrong
        if kinds.has_high[line]:
            sides.high_slack[line] = min(max(program.high[line] - values[line], 0.0) + outside, width)
            sides.high_dual[line] = max(dual[line], 0.0) + wrong


@inner_kernel
def _write_duals(pattern, program, kinds, x, sides, equation_dual, multipliers, gradient):
    """Multipliers of all the lines, and what stationarity lacks. A fixed column takes whatever multiplier makes it stationary."""
    n = len(x)
    m = len(multipliers) - n
    for line in range(len(multipliers)):
        if kinds.equation[line]:
            multipliers[line] = equation_dual[line] if line < m else 0.0
        else:
            multipliers[line] = sides.high_dual[line] - sides.low_dual[line]
    write_stationarity(pattern, program, x, multipliers, gradient)
    for column in range(n):
        if kinds.equation[m + column]:
            multipliers[m + column] = -gradient[column]
            gradient[column] = 0.0


@inner_kernel
def _solve_direction(pattern, program, system, kinds, sides, softness, target, before, room, enough):
    """Change of the values and of the row duals toward complementarity ``target``; returns the error of the system.

    The change of a row follows from its dual where theta is large and from the columns where it is small: each is the accurate
    one there.
    """
    change, theta = room.change, room.theta
    m = len(room.dual_change)
    write_right_side(
        program,
        kinds,
        room.values,
        sides,
        room.gradient,
        theta,
        target,
        before,
        room.collected,
        room.right_columns,
        room.right_rows,
    )
    error = solve_system(pattern, system, room.right_columns, room.right_rows, change[m:], room.dual_change, enough, ROUNDS)
    write_values(pattern, program.entries, change[m:].copy(), change)
    for row in range(m):
        if not kinds.equation[row] and theta[row] >= 1.0:
            change[row] = (room.dual_change[row] - room.collected[row]) / theta[row]
        else:
            change[row] -= softness * room.dual_change[row]
    return error


@inner_kernel
def _find_step(pattern, program, system, kinds, sides, softness, mu, shift, enough, nothing, room, step):
    """Predictor and corrector; returns the longest primal and dual steps that stay inside, and the shift that was needed."""
    target = 0.0
    for _ in range(6):
        _write_diagonal(pattern, program, system, kinds, room.theta, softness, shift)
        factorize_system(pattern, system)
        # The first direction only tells how far the second may aim, so it is not refined.
        _solve_direction(pattern, program, system, kinds, sides, softness, 0.0, nothing, room, np.inf)
        primal, dual = write_step(program, kinds, room.values, sides, room.change, 0.0, nothing, step)
        target = target_of(kinds, sides, step, primal, dual, mu)
        unsolved = _solve_direction(pattern, program, system, kinds, sides, softness, target, step, room, enough)
        if unsolved <= 0.1:
            break
        shift *= LARGER
    primal, dual = write_step(program, kinds, room.values, sides, room.change, target, step, step)
    return primal, dual, shift


@inner_kernel
def interior_method(pattern, program, system, x, multipliers, softness, smallest_shift, enough, tolerance, max_steps, trace):
    """Follow the central path; ``x`` and ``multipliers`` receive the best point met. Returns (its error, steps).

    ``softness`` above zero lets the rows miss their limits at a quadratic price: ``min cost'x + |e|^2 / (2 softness)`` with
    ``A x - e`` within the limits, where ``e`` is softness times the row multipliers. ``enough``: the relative error of a step's
    system that is not refined further.
    """
    n = len(x)
    lines = len(program.low)
    m = lines - n
    kinds = kinds_of(program)
    sides = make_sides(lines)
    step = make_sides(lines)
    nothing = make_sides(lines)
    room = _make_room(n, lines)
    equation_dual = np.zeros(lines)
    _write_entries(pattern, program, system, kinds)
    _start(pattern, program, system, kinds, x, sides, equation_dual)
    best_x = x.copy()
    cost_scale = 1.0 + largest(program.cost)
    best = np.inf
    least_mu = np.inf
    progress_step = 0
    shift = 10.0 * smallest_shift
    steps = 0
    while True:
        write_values(pattern, program.entries, x, room.values)
        _write_duals(pattern, program, kinds, x, sides, equation_dual, room.duals, room.gradient)
        for row in range(m):
            room.values[row] -= softness * room.duals[row]
        mu = complementarity(kinds, sides)
        error = max(primal_error(program, kinds, room.values, sides), largest(room.gradient) / cost_scale)
        gap = relative_gap(program, x, room.duals) if softness == 0.0 else mu
        error = max(error, gap) if error < np.inf else np.inf
        if mu < 0.9 * least_mu:
            # Early on the error may rise while the path is followed.
            least_mu = mu
            progress_step = steps
        if error < best:
            best = error
            progress_step = steps
            best_x[:] = x
            multipliers[:] = room.duals
        if steps < len(trace):
            trace[steps] = x
        lost = error == np.inf or (error > 1e3 * best and best < 1e-4) or steps - progress_step > 25
        if best <= tolerance or lost or steps >= max_steps:
            break
        steps += 1
        write_weights_of_lines(kinds, sides, room.theta)
        primal, dual, shift = _find_step(pattern, program, system, kinds, sides, softness, mu, shift, enough, nothing, room, step)
        inside = min(max(0.9, 1.0 - mu), 0.9995)
        primal = min(1.0, inside * primal)
        dual = min(1.0, inside * dual)
        move(kinds, sides, step, primal, dual)
        x += primal * room.change[m:]
        for row in range(m):
            if kinds.equation[row]:
                equation_dual[row] += dual * room.dual_change[row]
        shift = max(0.3 * shift, smallest_shift)
    x[:] = best_x
    return best, steps
