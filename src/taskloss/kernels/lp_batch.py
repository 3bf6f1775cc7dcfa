"""The stages of solving, each over the items of a batch: compiled entries of the linear-program kernels.

The arrays of a batch have one row an item: ``entries`` (of A), ``cost``, ``quadratic``, ``low``, ``high`` (of lines, rows
first), ``x``, ``multipliers`` (of lines). ``items`` says which rows a stage works on; all that a stage finds is written in
place. The stages are joined in Python: one compiled function that held them all would take minutes to compile.

Scaling, interior method, polish and finish work on as many items at once as the pattern has lanes. The others need one lane.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.lp_certificates import proves_infeasible, proves_unbounded
from taskloss.kernels.lp_groups import group_of, load_program, load_rows, make_program, program_of, store_rows
from taskloss.kernels.lp_interior import interior_method
from taskloss.kernels.lp_multipliers import multiplier_method
from taskloss.kernels.lp_optimality import check_one, check_pair, make_check
from taskloss.kernels.lp_polish import (
    SHIFT,
    factorize_active,
    find_active,
    make_polish,
    polish_dual,
    polish_primal,
    write_determined,
)
from taskloss.kernels.lp_program import Program, make_system, write_values_of_one
from taskloss.kernels.lp_scaling import equilibrate, make_scaling, scale_program
from taskloss.kernels.lp_step import make_progress, make_room

UNLIMITED = 1e20
"""A limit beyond this counts as none."""


@kernel
def make_sound(entries, cost, low, high):
    """Limits beyond 1e20 become infinite.

    Are entries and cost finite, and is no limit undefined, infinite on the wrong side, or on the wrong side of the other?
    """
    # Undefined or infinite if anything is.
    sound = np.isfinite(entries.sum() + cost.sum())
    for item in range(len(low)):
        for line in range(low.shape[1]):
            lower = low[item, line]
            upper = high[item, line]
            sound &= lower < np.inf and upper > -np.inf and lower <= upper
            if lower <= -UNLIMITED:
                low[item, line] = -np.inf
            if upper >= UNLIMITED:
                high[item, line] = np.inf
    return sound


@kernel
def scale_many(pattern, entries, cost, quadratic, low, high, items, row_scale, column_scale, limit_scale, cost_scale):
    """Equilibrate ``items`` in place; the scales are written."""
    program = make_program(pattern, entries, cost, low)
    scaling = make_scaling(pattern)
    width = len(pattern.lanes)
    for begin in range(0, len(items), width):
        group = group_of(items, begin, pattern.lanes)
        load_program(entries, cost, quadratic, low, high, group, program)
        equilibrate(pattern, program.entries, scaling)
        scale_program(pattern, program, scaling)
        store_rows(program.entries, group, entries)
        store_rows(program.cost, group, cost)
        store_rows(program.low, group, low)
        store_rows(program.high, group, high)
        store_rows(scaling.rows, group, row_scale)
        store_rows(scaling.columns, group, column_scale)
        for lane in range(width):
            limit_scale[group[lane]] = scaling.limit[lane]
            cost_scale[group[lane]] = scaling.cost[lane]


@kernel
def interior_many(
    pattern,
    entries,
    cost,
    quadratic,
    low,
    high,
    x,
    multipliers,
    items,
    softness,
    smallest_shift,
    enough,
    tolerance,
    max_steps,
    trace,
    error,
    steps,
):
    """The interior method for ``items``; ``error`` is overwritten, ``steps`` added to."""
    width = len(pattern.lanes)
    system = make_system(pattern)
    room = make_room(pattern)
    progress = make_progress(width)
    program = make_program(pattern, entries, cost, low)
    lane_x = np.empty((cost.shape[1], width))
    lane_multipliers = np.empty((low.shape[1], width))
    for begin in range(0, len(items), width):
        group = group_of(items, begin, pattern.lanes)
        load_program(entries, cost, quadratic, low, high, group, program)
        load_rows(multipliers, group, lane_multipliers)
        interior_method(
            pattern,
            program,
            system,
            room,
            progress,
            lane_x,
            lane_multipliers,
            softness,
            smallest_shift,
            enough,
            tolerance,
            max_steps,
            trace,
            group,
            steps,
        )
        store_rows(lane_x, group, x)
        store_rows(lane_multipliers, group, multipliers)
        for lane in range(min(width, len(items) - begin)):
            error[group[lane]] = progress.best[lane]
            steps[group[lane]] += progress.steps[lane]


@kernel
def multipliers_many(
    pattern,
    entries,
    cost,
    quadratic,
    low,
    high,
    x,
    multipliers,
    items,
    sigma,
    updates,
    tolerance,
    max_steps,
    trace,
    steps,
    error,
):
    """The multiplier method for ``items`` from their ``x`` and ``multipliers``, which have an ``error`` (infinite: unknown).

    At most ``updates`` updates of the multipliers; ``steps`` is added to. An item that gets worse, and is not within the
    tolerance then, stays as it was.
    """
    system = make_system(pattern)
    check = make_check(pattern)
    for item in items:
        program = program_of(entries, cost, quadratic, low, high, item)
        old_x = x[item].copy()
        old_multipliers = multipliers[item].copy()
        steps[item] += multiplier_method(
            pattern,
            program,
            system,
            x[item],
            multipliers[item],
            sigma,
            updates,
            tolerance,
            max_steps,
            trace[item, steps[item] :],
        )
        reached = check_one(pattern, program, x[item], multipliers[item], check)
        if reached > max(error[item], tolerance):
            x[item] = old_x
            multipliers[item] = old_multipliers
        else:
            error[item] = reached


@kernel
def polish_many(pattern, entries, cost, quadratic, low, high, x, multipliers, items, guess, determined, error):
    """Solve the equations of the active lines. ``determined`` tells which items have no other solution, ``error`` how good it is.

    Active are the lines with a multiplier; with ``guess``, those whose multiplier exceeds the distance from the limit, as they do
    near a solution. The other multipliers then become zero.
    """
    width = len(pattern.lanes)
    system = make_system(pattern)
    program = make_program(pattern, entries, cost, low)
    room = make_polish(pattern)
    check = make_check(pattern)
    lane_x = np.empty((cost.shape[1], width))
    lane_multipliers = np.empty((low.shape[1], width))
    for begin in range(0, len(items), width):
        group = group_of(items, begin, pattern.lanes)
        load_program(entries, cost, quadratic, low, high, group, program)
        load_rows(x, group, lane_x)
        load_rows(multipliers, group, lane_multipliers)
        find_active(pattern, program, lane_x, lane_multipliers, guess, room)
        factorize_active(pattern, program.entries, system, room.active, SHIFT)
        polish_primal(pattern, program, system, lane_x, room)
        polish_dual(pattern, program, system, lane_x, lane_multipliers, room)
        write_determined(pattern, system, room)
        check_pair(pattern, program, lane_x, lane_multipliers, check)
        store_rows(lane_x, group, x)
        store_rows(lane_multipliers, group, multipliers)
        for lane in range(width):
            determined[group[lane]] = room.judged[lane] < 1e-6
            error[group[lane]] = check.error[lane]


@kernel
def errors_many(pattern, entries, cost, quadratic, low, high, x, multipliers, items, error):
    """How far each item is from optimal."""
    check = make_check(pattern)
    for item in items:
        program = program_of(entries, cost, quadratic, low, high, item)
        error[item] = check_one(pattern, program, x[item], multipliers[item], check)


@kernel
def finish_many(
    pattern,
    entries,
    cost,
    quadratic,
    low,
    high,
    scaled_x,
    scaled_multipliers,
    row_scale,
    column_scale,
    limit_scale,
    cost_scale,
    items,
    x,
    multipliers,
    tight,
    at_low,
    at_high,
    error,
    gap,
):
    """Scale the solutions back, and say what there is to say of them: lines at a limit, error and gap.

    A line of a scaled program is at a limit when it is nearer than ``tight`` or has a multiplier; an equation or a fixed
    variable counts as at the upper one. ``error`` is that of the scaled program; that of the program as given, if it is larger,
    takes its place.
    """
    width = len(pattern.lanes)
    n = cost.shape[1]
    m = row_scale.shape[1]
    program = make_program(pattern, entries, cost, low)
    check = make_check(pattern)
    lane_x = np.empty((n, width))
    lane_multipliers = np.empty((m + n, width))
    for begin in range(0, len(items), width):
        group = group_of(items, begin, pattern.lanes)
        for item in group:
            for column in range(n):
                x[item, column] = scaled_x[item, column] * (column_scale[item, column] / limit_scale[item])
            for line in range(m + n):
                scale = row_scale[item, line] if line < m else 1.0 / column_scale[item, line - m]
                multipliers[item, line] = scaled_multipliers[item, line] * (scale / cost_scale[item])
        load_program(entries, cost, quadratic, low, high, group, program)
        load_rows(x, group, lane_x)
        load_rows(multipliers, group, lane_multipliers)
        check_pair(pattern, program, lane_x, lane_multipliers, check)
        for lane in range(width):
            item = group[lane]
            error[item] = max(error[item], check.error[lane])
            gap[item] = check.gap[lane]
            for line in range(m + n):
                scale = row_scale[item, line] if line < m else 1.0 / column_scale[item, line - m]
                near = tight / (scale * limit_scale[item])
                multiplier = multipliers[item, line]
                lower = low[item, line]
                upper = high[item, line]
                value = check.values[line, lane]
                at_high[item, line] = abs(upper - value) <= near or multiplier > 0.0 or lower == upper
                at_low[item, line] = (abs(value - lower) <= near or multiplier < 0.0) and not at_high[item, line]


@kernel
def values_many(pattern, entries, x, values):
    """The values of all the lines of all the items."""
    for item in range(len(x)):
        write_values_of_one(pattern, entries[item], x[item], values[item])


@kernel
def check_proof(pattern, entries, cost, low, high, y, size_of_x):
    """Does ``y`` prove one program infeasible? See ``proves_infeasible``."""
    return proves_infeasible(pattern, Program(entries, cost, np.zeros(len(cost)), low, high), y, size_of_x)


@kernel
def check_ray(pattern, entries, cost, low, high, direction):
    """Does ``direction`` prove one program unbounded, if it is feasible? See ``proves_unbounded``."""
    return proves_unbounded(pattern, Program(entries, cost, np.zeros(len(cost)), low, high), direction)
