"""The stages of solving, each over the items of a batch: compiled entries of the linear-program kernels.

The arrays of a batch have one row an item: ``entries`` (of A), ``cost``, ``quadratic``, ``low``, ``high`` (of lines, rows
first), ``x``, ``multipliers`` (of lines). ``items`` says which rows a stage works on; all that a stage finds is written in
place. The stages are joined in Python: one compiled function that held them all would take minutes to compile.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel
from taskloss.kernels.lp_certificates import proves_infeasible, proves_unbounded
from taskloss.kernels.lp_interior import interior_method
from taskloss.kernels.lp_multipliers import multiplier_method, write_penalty_matrix
from taskloss.kernels.lp_polish import factorize_active, is_determined, polish_dual, polish_primal
from taskloss.kernels.lp_program import (
    Program,
    factorize_system,
    make_system,
    optimality_error,
    relative_gap,
    solve_system,
    write_values,
)
from taskloss.kernels.lp_scaling import equilibrate, scale_program
from taskloss.kernels.sparse_ldl import ENOUGH


@inner_kernel
def _program(entries, cost, quadratic, low, high, item):
    return Program(entries[item], cost[item], quadratic[item], low[item], high[item])


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
    system = make_system(pattern)
    for item in items:
        program = _program(entries, cost, quadratic, low, high, item)
        x[item] = 0.0
        error[item], used = interior_method(
            pattern,
            program,
            system,
            x[item],
            multipliers[item],
            softness,
            smallest_shift,
            enough,
            tolerance,
            max_steps,
            trace[item, steps[item] :],
        )
        steps[item] += used


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
):
    """The multiplier method for ``items`` from their ``x`` and ``multipliers``.

    At most ``updates`` updates of the multipliers; ``steps`` is added to.
    """
    system = make_system(pattern)
    for item in items:
        program = _program(entries, cost, quadratic, low, high, item)
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


@kernel
def polish_many(pattern, entries, cost, quadratic, low, high, x, multipliers, items, determined):
    """Solve the equations of the active lines; ``determined`` tells which items have no other solution."""
    system = make_system(pattern)
    active = np.empty(low.shape[1], np.bool_)
    for item in items:
        program = _program(entries, cost, quadratic, low, high, item)
        for line in range(len(active)):
            active[line] = multipliers[item, line] != 0.0 or low[item, line] == high[item, line]
        factorize_active(pattern, program.entries, system, active)
        polish_primal(pattern, program, system, x[item], multipliers[item], active)
        polish_dual(pattern, program, system, x[item], multipliers[item], active)
        determined[item] = is_determined(pattern, system, active)


@kernel
def errors_many(pattern, entries, cost, quadratic, low, high, x, multipliers, items, error):
    """How far each item is from optimal."""
    for item in items:
        error[item] = optimality_error(pattern, _program(entries, cost, quadratic, low, high, item), x[item], multipliers[item])


@kernel
def finish_many(
    pattern,
    entries,
    cost,
    quadratic,
    low,
    high,
    scaled_entries,
    scaled_cost,
    scaled_low,
    scaled_high,
    scaled_x,
    scaled_multipliers,
    x,
    multipliers,
    tight,
    at_low,
    at_high,
    error,
    gap,
):
    """What there is to say of a solution: lines at a limit, error and gap.

    A line of a scaled program is at a limit when it is nearer than ``tight`` or has a multiplier; an equation or a fixed
    variable counts as at the upper one. ``error`` is the larger of those of the program as given and as scaled.
    """
    lines = low.shape[1]
    values = np.empty(lines)
    for item in range(len(x)):
        write_values(pattern, scaled_entries[item], scaled_x[item], values)
        for line in range(lines):
            multiplier = scaled_multipliers[item, line]
            lower = scaled_low[item, line]
            upper = scaled_high[item, line]
            at_high[item, line] = abs(upper - values[line]) <= tight or multiplier > 0.0 or lower == upper
            at_low[item, line] = (abs(values[line] - lower) <= tight or multiplier < 0.0) and not at_high[item, line]
        program = _program(entries, cost, quadratic, low, high, item)
        gap[item] = relative_gap(program, x[item], multipliers[item])
        scaled = _program(scaled_entries, scaled_cost, quadratic, scaled_low, scaled_high, item)
        error[item] = max(
            optimality_error(pattern, program, x[item], multipliers[item]),
            optimality_error(pattern, scaled, scaled_x[item], scaled_multipliers[item]),
        )


@kernel
def values_many(pattern, entries, x, values):
    """The values of all the lines of all the items."""
    for item in range(len(x)):
        write_values(pattern, entries[item], x[item], values[item])


@kernel
def check_proof(pattern, entries, cost, low, high, y, size_of_x):
    """Does ``y`` prove one program infeasible? See ``proves_infeasible``."""
    return proves_infeasible(pattern, Program(entries, cost, np.zeros(len(cost)), low, high), y, size_of_x)


@kernel
def check_ray(pattern, entries, cost, low, high, direction):
    """Does ``direction`` prove one program unbounded, if it is feasible? See ``proves_unbounded``."""
    return proves_unbounded(pattern, Program(entries, cost, np.zeros(len(cost)), low, high), direction)


@kernel
def sensitivities_many(pattern, entries, active, right, items, unseen, duals, held):
    """``(I - B^+ B) right``, ``lam = B^{+T} right`` and ``A' lam`` of each item.

    B: its active rows at the variables that are not at a bound.

    The rows are scaled to a largest entry near 1 first, so that the shift of the factorization means the same for all; ``B^+``
    does not change where the rows of B are independent, and where they are not it weighs them equally.
    """
    system = make_system(pattern)
    m = len(pattern.at_row)
    scaled = np.empty(entries.shape[1])
    scale = np.empty(m)
    nothing = np.zeros(m)
    for item in items:
        for row in range(m):
            size = 0.0
            for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
                if not active[item, m + pattern.columns[entry]]:
                    size = max(size, abs(entries[item, entry]))
            scale[row] = 1.0 / size if size > 0.0 else 1.0
            for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
                scaled[entry] = entries[item, entry] * scale[row]
        factorize_active(pattern, scaled, system, active[item])
        solve_system(pattern, system, right[item], nothing, unseen[item], duals[item], ENOUGH, 5)
        for row in range(m):
            duals[item, row] = duals[item, row] * scale[row] if active[item, row] else 0.0
        held[item] = 0.0
        for row in range(m):
            if duals[item, row] != 0.0:
                for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
                    held[item, pattern.columns[entry]] += entries[item, entry] * duals[item, row]


@kernel
def penalty_solve_many(pattern, entries, cost, quadratic, low, high, active, sigma, right, items, solved):
    """``H^{-1} right`` of each item, H the Hessian of the penalty function with these active lines."""
    system = make_system(pattern)
    nothing = np.zeros(len(pattern.at_row))
    ignored = np.empty(len(pattern.at_row))
    for item in items:
        program = _program(entries, cost, quadratic, low, high, item)
        write_penalty_matrix(pattern, program, system, active[item], sigma, sigma * 1e-12)
        factorize_system(pattern, system)
        solve_system(pattern, system, right[item], nothing, solved[item], ignored, ENOUGH, 10)
