"""The stages of solving, each over the items of a batch: compiled entries of the linear-program kernels.

The arrays of a batch have one row an item: ``entries`` (of A), ``cost``, ``quadratic``, ``low``, ``high`` (of lines, rows
first), ``x``, ``multipliers`` (of lines). ``items`` says which rows a stage works on; all that a stage finds is written in
place. The stages are joined in Python: one compiled function that held them all would take minutes to compile.

The interior method and the polish work on as many items at once as the pattern has lanes. The others need one lane.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.lp_certificates import proves_infeasible, proves_unbounded
from taskloss.kernels.lp_groups import group_of, load_program, load_rows, make_program, program_of, store_rows
from taskloss.kernels.lp_interior import interior_method
from taskloss.kernels.lp_multipliers import multiplier_method
from taskloss.kernels.lp_polish import drop_small_multipliers, factorize_active, polish_dual, polish_primal, write_determined
from taskloss.kernels.lp_program import (
    Program,
    make_system,
    optimality_error,
    relative_gap,
    write_values,
    write_values_of_one,
)
from taskloss.kernels.lp_scaling import equilibrate, scale_program
from taskloss.kernels.lp_step import make_room

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
def scale_many(pattern, entries, cost, low, high, row_scale, column_scale, limit_scale, cost_scale):
    """Equilibrate all the items in place; the scales are written."""
    for item in range(len(cost)):
        equilibrate(pattern, entries[item], row_scale[item], column_scale[item])
        limit_scale[item], cost_scale[item] = scale_program(
            pattern, entries[item], cost[item], low[item], high[item], row_scale[item], column_scale[item]
        )


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
    program = make_program(pattern, entries, cost, low)
    lane_x = np.empty((cost.shape[1], width))
    lane_multipliers = np.empty((low.shape[1], width))
    for begin in range(0, len(items), width):
        group = group_of(items, begin, pattern.lanes)
        load_program(entries, cost, quadratic, low, high, group, program)
        load_rows(multipliers, group, lane_multipliers)
        errors, used = interior_method(
            pattern,
            program,
            system,
            room,
            lane_x,
            lane_multipliers,
            softness,
            smallest_shift,
            enough,
            tolerance,
            max_steps,
            trace,
            group,
            steps[group],
        )
        store_rows(lane_x, group, x)
        store_rows(lane_multipliers, group, multipliers)
        for lane in range(min(width, len(items) - begin)):
            error[group[lane]] = errors[lane]
            steps[group[lane]] += used[lane]


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
        reached = optimality_error(pattern, program, x[item], multipliers[item])
        if reached > max(error[item], tolerance):
            x[item] = old_x
            multipliers[item] = old_multipliers
        else:
            error[item] = reached


@kernel
def polish_many(pattern, entries, cost, quadratic, low, high, x, multipliers, items, guess, determined):
    """Solve the equations of the active lines; ``determined`` tells which items have no other solution.

    Active are the lines with a multiplier; with ``guess``, those whose multiplier exceeds the distance from the limit, as they do
    near a solution. The other multipliers then become zero.
    """
    width = len(pattern.lanes)
    lines = low.shape[1]
    system = make_system(pattern)
    program = make_program(pattern, entries, cost, low)
    lane_x = np.empty((cost.shape[1], width))
    lane_multipliers = np.empty((lines, width))
    values = np.empty((lines, width))
    active = np.empty((lines, width), np.bool_)
    lane_determined = np.empty(width, np.bool_)
    for begin in range(0, len(items), width):
        group = group_of(items, begin, pattern.lanes)
        load_program(entries, cost, quadratic, low, high, group, program)
        load_rows(x, group, lane_x)
        load_rows(multipliers, group, lane_multipliers)
        if guess:
            write_values(pattern, program.entries, lane_x, values)
            drop_small_multipliers(program, values, lane_multipliers)
        for line in range(lines):
            for lane in range(width):
                fixed = program.low[line, lane] == program.high[line, lane]
                active[line, lane] = lane_multipliers[line, lane] != 0.0 or fixed
        factorize_active(pattern, program.entries, system, active)
        polish_primal(pattern, program, system, lane_x, lane_multipliers, active)
        polish_dual(pattern, program, system, lane_x, lane_multipliers, active)
        write_determined(pattern, system, active, lane_determined)
        store_rows(lane_x, group, x)
        store_rows(lane_multipliers, group, multipliers)
        determined[group] = lane_determined


@kernel
def errors_many(pattern, entries, cost, quadratic, low, high, x, multipliers, items, error):
    """How far each item is from optimal."""
    for item in items:
        error[item] = optimality_error(pattern, program_of(entries, cost, quadratic, low, high, item), x[item], multipliers[item])


@kernel
def finish_many(
    pattern,
    entries,
    cost,
    quadratic,
    low,
    high,
    scaled_entries,
    scaled_low,
    scaled_high,
    scaled_x,
    scaled_multipliers,
    row_scale,
    column_scale,
    limit_scale,
    cost_scale,
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
    lines = low.shape[1]
    m = row_scale.shape[1]
    values = np.empty(lines)
    for item in range(len(x)):
        x[item] = scaled_x[item] * (column_scale[item] / limit_scale[item])
        multipliers[item, :m] = scaled_multipliers[item, :m] * (row_scale[item] / cost_scale[item])
        multipliers[item, m:] = scaled_multipliers[item, m:] / (column_scale[item] * cost_scale[item])
        write_values_of_one(pattern, scaled_entries[item], scaled_x[item], values)
        for line in range(lines):
            multiplier = scaled_multipliers[item, line]
            lower = scaled_low[item, line]
            upper = scaled_high[item, line]
            at_high[item, line] = abs(upper - values[line]) <= tight or multiplier > 0.0 or lower == upper
            at_low[item, line] = (abs(values[line] - lower) <= tight or multiplier < 0.0) and not at_high[item, line]
        program = program_of(entries, cost, quadratic, low, high, item)
        gap[item] = relative_gap(program, x[item], multipliers[item])
        error[item] = max(error[item], optimality_error(pattern, program, x[item], multipliers[item]))


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
