"""A primal-dual interior-point method: from a start that needs to satisfy nothing to a point near the solution.

Each line with a lower limit has a slack ``p > 0`` that tends to ``value - low`` and a dual ``l > 0``; with an upper limit, ``q
> 0`` tends to ``high - value`` and has a dual ``h > 0``. Newton's method is applied to ``p l = q h = mu`` with mu falling
(Mehrotra's predictor and corrector, 1992). With ``theta = l/p + h/q`` and ``y = h - l``, a step solves

    dx_j (theta_j) + (A' dy)_j = -stationarity_j - e_j          for a column j
    (A dx)_i - dy_i / theta_i  = -e_i / theta_i                 for a row i with a limit
    (A dx)_i                   = low_i - (A x)_i                for an equation

where ``e`` collects the complementarity terms. A diagonal shift keeps the factorization stable, refinement removes its effect,
and a step whose system cannot be solved is tried again with a larger shift. The point with the least error is returned: it
need not be a vertex, which is why others follow (``lp.run``).

Several programs are followed side by side, one a lane. Each has its own step lengths, shift and end; one that has ended waits
for the others, and its numbers are not used any more.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._lanes import in_all, larger, load, size_of, store, where_positive
from taskloss.kernels._numba import merged_kernel, plain_kernel
from taskloss.kernels.lane_rows import copy, copy_where, defined, fill, largest_in_lanes
from taskloss.kernels.lp_program import factorize_system, solve_system, write_stationarity, write_values
from taskloss.kernels.lp_slacks import complementarity, move, primal_error, write_limits, write_terms
from taskloss.kernels.lp_step import ROUNDS, find_step, reset_progress, write_diagonal, write_entries, write_inverse_theta

PATIENCE = 25
"""So many steps without progress are enough."""


@plain_kernel
def _start(pattern, program, system, x, room, progress):
    """A start near the middle of the limits: two least-squares problems, then slacks and duals pushed inside (Mehrotra 1992)."""
    n = len(x)
    lines = len(program.low)
    m = lines - n
    width = len(pattern.lanes)
    limits, middle, theta, values, dual = room.limits, room.change, room.theta, room.values, room.duals
    for line in range(lines):
        for lane in range(width):
            sides_of_line = limits.present[line, lane] + limits.present[lines + line, lane]
            total = limits.limit[line, lane] * limits.present[line, lane]
            total += limits.limit[lines + line, lane] * limits.present[lines + line, lane]
            equation = limits.equation[line, lane] > 0.0
            middle[line, lane] = limits.limit[line, lane] if equation else total / max(sides_of_line, 1.0)
            theta[line, lane] = 1.0 if sides_of_line > 0.0 else 0.0 if equation else 1e-6
    write_inverse_theta(pattern.lanes, theta, room.inverse_theta)
    write_diagonal(pattern, system, limits, theta, room.inverse_theta, 0.0, progress.shift)
    fill(pattern.lanes, system.shift, 0.0)
    factorize_system(pattern, system)
    fixed = room.column_change
    for column in range(n):
        for lane in range(width):
            fixed[column, lane] = middle[m + column, lane] if limits.equation[m + column, lane] else 0.0
    write_values(pattern, program.entries, fixed, values)
    for row in range(m):
        store(middle, row, load(middle, row, pattern.lanes) - load(values, row, pattern.lanes))
    solve_system(pattern, system, middle[m:], middle[:m], x, room.dual_change, np.inf, ROUNDS)
    for column in range(n):
        for lane in range(width):
            if limits.equation[m + column, lane]:
                x[column, lane] = fixed[column, lane]
    write_values(pattern, program.entries, x, values)
    zero = in_all(0.0, pattern.lanes)
    for column in range(n):
        store(room.right_columns, column, zero - load(program.cost, column, pattern.lanes))
    fill(pattern.lanes, room.right_rows, 0.0)
    solve_system(pattern, system, room.right_columns, room.right_rows, dual[m:], dual[:m], np.inf, ROUNDS)
    for lane in range(width):
        _push_inside(limits, values, dual, room.sides, lane)
        for row in range(m):
            room.equation_dual[row, lane] = dual[row, lane] if limits.equation[row, lane] else 0.0


@plain_kernel
def _push_inside(limits, values, dual, sides, lane):
    """Slacks and duals of a lane that are near ``values`` and ``dual``, and positive."""
    lines = len(values)
    outside = 0.0
    wrong = 0.0
    for side in range(2 * lines):
        if limits.present[side, lane]:
            line = side % lines
            other = (side + lines) % (2 * lines)
            sign = 1.0 if side < lines else -1.0
            outside = max(outside, sign * (limits.limit[side, lane] - values[line, lane]))
            if not limits.present[other, lane]:
                wrong = max(wrong, sign * dual[line, lane])
    outside = max(1.5 * outside, 1e-2)
    wrong = max(1.5 * wrong, 1e-2)
    for side in range(2 * lines):
        if limits.present[side, lane]:
            line = side % lines
            other = (side + lines) % (2 * lines)
            sign = 1.0 if side < lines else -1.0
            slack = max(sign * (values[line, lane] - limits.limit[side, lane]), 0.0) + outside
            if limits.present[other, lane]:
                slack = min(slack, sign * (limits.limit[other, lane] - limits.limit[side, lane]))
            sides.slack[side, lane] = slack
            sides.dual[side, lane] = max(-sign * dual[line, lane], 0.0) + wrong


@plain_kernel
def _write_duals(pattern, program, x, room):
    """Multipliers of all the lines, and what stationarity lacks. A fixed column takes whatever multiplier makes it stationary."""
    lanes = pattern.lanes
    limits, sides, multipliers, gradient = room.limits, room.sides, room.duals, room.gradient
    n = len(x)
    m = len(multipliers) - n
    other = len(multipliers)
    for line in range(len(multipliers)):
        low = load(limits.present, line, lanes) * load(sides.dual, line, lanes)
        store(multipliers, line, load(limits.present, other + line, lanes) * load(sides.dual, other + line, lanes) - low)
    for row in range(m):
        store(multipliers, row, load(multipliers, row, lanes) + load(room.equation_dual, row, lanes))
    write_stationarity(pattern, program, x, multipliers, gradient)
    zero = in_all(0.0, lanes)
    for column in range(n):
        fixed = load(limits.equation, m + column, lanes)
        missing = load(gradient, column, lanes)
        store(multipliers, m + column, where_positive(fixed, zero - missing, load(multipliers, m + column, lanes)))
        store(gradient, column, where_positive(fixed, zero, missing))


@plain_kernel
def _judge(pattern, program, x, room, softness, progress):
    """Complementarity and error of every lane."""
    lanes = pattern.lanes
    limits = room.limits
    store(progress.mu, 0, complementarity(lanes, limits, room.sides))
    total = in_all(0.0, lanes)
    for line in range(len(room.values)):
        total = total + load(room.values, line, lanes) + load(room.duals, line, lanes)
    primal = in_all(0.0, lanes)
    size = in_all(0.0, lanes)
    for column in range(len(x)):
        term = load(program.cost, column, lanes) * load(x, column, lanes)
        primal = primal + term
        size = size + size_of(term)
    dual = in_all(0.0, lanes)
    other = len(room.duals)
    for line in range(len(room.duals)):
        multiplier = load(room.duals, line, lanes)
        limit = where_positive(multiplier, load(limits.limit, other + line, lanes), load(limits.limit, line, lanes))
        dual = dual - multiplier * limit
    unit = larger(larger(size, size_of(dual)), load(progress.gap_floor, 0, lanes))
    gap = size_of(primal - dual) / unit if softness == 0.0 else load(progress.mu, 0, lanes)
    stationarity = largest_in_lanes(lanes, room.gradient) / load(progress.cost_scale, 0, lanes)
    error = larger(primal_error(lanes, limits, room.terms, room.values), stationarity)
    store(progress.error, 0, defined(lanes, larger(error, gap), total + gap))


@plain_kernel
def _take_note(progress, lane, step, tolerance, max_steps):
    """Is this the best point of a lane? Whether the lane has ended is noted too."""
    mu, error = progress.mu[lane], progress.error[lane]
    if mu < 0.9 * progress.least_mu[lane]:
        # Early on the error may rise while the path is followed.
        progress.least_mu[lane] = mu
        progress.last_gain[lane] = step
    progress.better[lane] = 0.0
    if error < progress.best[lane]:
        progress.better[lane] = 1.0
        progress.best[lane] = error
        progress.last_gain[lane] = step
    best = progress.best[lane]
    lost = error == np.inf or (error > 1e3 * best and best < 1e-4) or step - progress.last_gain[lane] > PATIENCE
    progress.steps[lane] = step
    progress.running[lane] = not (best <= tolerance or lost or step >= max_steps)


@plain_kernel
def _soften(lanes, softness, room):
    """Take from the values of the rows by how much they may miss their limits."""
    factor = in_all(softness, lanes)
    for row in range(len(room.dual_change)):
        store(room.values, row, load(room.values, row, lanes) - factor * load(room.duals, row, lanes))


@plain_kernel
def _keep_equations(lanes, limits, dual_change):
    """Of the changes of the row duals; those of the other rows are in their sides."""
    for row in range(len(dual_change)):
        store(dual_change, row, load(dual_change, row, lanes) * load(limits.equation, row, lanes))


@plain_kernel
def _write_trace(x, lane, place):
    for column in range(len(place)):
        place[column] = x[column, lane]


@merged_kernel
def interior_method(
    pattern,
    program,
    system,
    room,
    progress,
    x,
    multipliers,
    softness,
    smallest_shift,
    enough,
    tolerance,
    max_steps,
    traces,
    items,
    done,
):
    """Follow the central paths; ``x`` and ``multipliers`` receive the best points met, ``progress.best`` their errors.

    ``softness`` above zero lets the rows miss their limits at a quadratic price: ``min cost'x + |e|^2 / (2 softness)`` with
    ``A x - e`` within the limits, where ``e`` is softness times the row multipliers. ``enough``: the relative error of a step's
    system that is not refined further. ``traces``: of all items of a batch, ``(items, steps, n)``, which have ``done`` so
    many steps before; ``items``: those in the lanes.
    """
    width = len(pattern.lanes)
    limits, sides, step = room.limits, room.sides, room.step
    write_limits(program, limits)
    fill(pattern.lanes, sides.slack, 1.0)
    fill(pattern.lanes, sides.dual, 1.0)
    write_entries(pattern, program, system, limits)
    reset_progress(pattern.lanes, program, 1e-6, progress)
    _start(pattern, program, system, x, room, progress)
    store(progress.shift, 0, in_all(10.0 * smallest_shift, pattern.lanes))
    copy(pattern.lanes, x, room.best_x)
    for count in range(max_steps + 1):
        write_values(pattern, program.entries, x, room.values)
        _write_duals(pattern, program, x, room)
        if softness > 0.0:
            _soften(pattern.lanes, softness, room)
        write_terms(pattern.lanes, limits, sides, room.values, room.terms, room.theta)
        _judge(pattern, program, x, room, softness, progress)
        running = 0
        for lane in range(width):
            if progress.running[lane]:
                _take_note(progress, lane, count, tolerance, max_steps)
                item = items[lane]
                if done[item] + count < traces.shape[1]:
                    _write_trace(x, lane, traces[item, done[item] + count])
                running += progress.running[lane]
            else:
                progress.better[lane] = 0.0
        better = load(progress.better, 0, pattern.lanes)
        copy_where(pattern.lanes, better, x, room.best_x)
        copy_where(pattern.lanes, better, room.duals, multipliers)
        if running == 0:
            break
        write_inverse_theta(pattern.lanes, room.theta, room.inverse_theta)
        find_step(pattern, program, system, softness, enough, room, progress)
        for lane in range(width):
            inside = min(max(0.9, 1.0 - progress.mu[lane]), 0.9995)
            progress.primal[lane] = min(1.0, inside * progress.primal[lane])
            progress.dual[lane] = min(1.0, inside * progress.dual[lane])
            progress.shift[lane] = max(0.3 * progress.shift[lane], smallest_shift)
        move(pattern.lanes, sides.slack, step.slack, progress.primal)
        move(pattern.lanes, sides.dual, step.dual, progress.dual)
        move(pattern.lanes, x, room.column_change, progress.primal)
        _keep_equations(pattern.lanes, limits, room.dual_change)
        move(pattern.lanes, room.equation_dual, room.dual_change, progress.dual)
    copy(pattern.lanes, room.best_x, x)
