r"""Optimality of a primal-dual pair: feasibility, stationarity and the duality gap.

The *error* of a pair ``(x, multipliers)`` is the worst of

- the violation of a bound, relative to 1, the largest bound and the terms of its row;
- stationarity ``|c + q x + A'y + z|``, relative to ``1 + |c|``;
- the duality gap, relative to the terms of either objective.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel
from taskloss.lp.interior_point.data import (
    largest_finite,
    largest_magnitude,
    program_of,
    write_activity,
    write_stationarity,
)


@inner_kernel
def largest_violation(program, activity):
    """Return by how much the worst constraint violates its bounds."""
    worst = 0.0
    for i in range(len(activity)):
        worst = max(worst, max(program.lower[i] - activity[i], activity[i] - program.upper[i]))
    return worst


@inner_kernel
def smallest_gap_scale(program):
    """Return what a duality gap is compared with at least: a fraction of the largest cost times the largest bound.

    Either counts 1 if it is zero. Where the optimal value is zero because x is, the terms of the objective vanish too.
    """
    cost = largest_magnitude(program.cost)
    bound = max(largest_finite(program.lower, len(program.lower)), largest_finite(program.upper, len(program.upper)))
    return 1e-4 * (cost if cost > 0.0 else 1.0) * (bound if bound > 0.0 else 1.0)


@inner_kernel
def relative_gap(program, x, multipliers):
    """Return the primal minus the dual objective of a linear program, relative to the terms of either.

    The dual objective is the least value of the Lagrangian within the bounds, for multipliers that are stationary.
    """
    primal = 0.0
    terms = 0.0
    for column in range(len(x)):
        term = program.cost[column] * x[column]
        primal += term
        terms += abs(term)
    dual = 0.0
    for i in range(len(multipliers)):
        if multipliers[i] != 0.0:
            dual -= multipliers[i] * (program.upper[i] if multipliers[i] > 0.0 else program.lower[i])
    scale = max(max(terms, abs(dual)), smallest_gap_scale(program))
    gap = abs(primal - dual) / scale
    return gap if np.isfinite(gap) else np.inf


@inner_kernel
def optimality(program, x, multipliers, activity, gradient):
    """Return the error and the relative gap of a pair; infinity if anything is NaN.

    Args:
        program: one program.
        x: ``(n,)``; read.
        multipliers: ``(m + n,)``; read.
        activity: ``(m + n,)``; written.
        gradient: ``(n,)``; written: the residual of stationarity.
    """
    row_start, columns = program.sparsity.row_start, program.sparsity.columns
    m = len(row_start) - 1
    write_activity(program, x, activity)
    write_stationarity(program, x, multipliers, gradient)
    error = largest_magnitude(gradient) / (1.0 + largest_magnitude(program.cost))
    row_scale = 1.0 + max(largest_finite(program.lower, m), largest_finite(program.upper, m))
    column_scale = 1.0 + largest_magnitude(x)
    total = 0.0
    for i in range(len(activity)):
        scale = column_scale
        if i < m:
            scale = row_scale
            for entry in range(row_start[i], row_start[i + 1]):
                scale += abs(program.entries[entry] * x[columns[entry]])
        total += activity[i]
        violation = max(program.lower[i] - activity[i], activity[i] - program.upper[i])
        error = max(error, violation / scale)
    gap = relative_gap(program, x, multipliers)
    error = max(error, gap)
    return error if np.isfinite(error + total) else np.inf, gap


@kernel
def errors_batch(programs, items, x, multipliers, error):
    """Write the error of the pairs of some programs, ``error (B,)``."""
    activity, gradient = np.empty(programs.lower.shape[1]), np.empty(programs.cost.shape[1])
    for item in items:
        error[item], _ = optimality(program_of(programs, item), x[item], multipliers[item], activity, gradient)


@kernel
def unscale_batch(programs, equilibration, x, multipliers, at_bound_distance, at_lower, at_upper, error, gap):
    """Undo the equilibration of all pairs, and report on them in the units of the programs as given.

    Args:
        programs: the batch as given, not scaled; read.
        equilibration: the scales of the equilibration; read.
        x: ``(B, n)``; scaled values on entry, unscaled ones on return.
        multipliers: ``(B, m + n)``; likewise.
        at_bound_distance: a constraint of a scaled program is at a bound when it is nearer than this, or has a multiplier.
        at_lower: bool ``(B, m + n)``; written.
        at_upper: bool ``(B, m + n)``; written. An equation or a fixed variable counts as at its upper bound.
        error: ``(B,)``; that of the scaled pair on entry, the larger of it and that of the unscaled pair on return.
        gap: ``(B,)``; written.
    """
    m = equilibration.rows.shape[1]
    activity, gradient = np.empty(programs.lower.shape[1]), np.empty(programs.cost.shape[1])
    for item in range(len(x)):
        program = program_of(programs, item)
        for column in range(x.shape[1]):
            x[item, column] *= equilibration.columns[item, column] / equilibration.bounds[item]
        for i in range(multipliers.shape[1]):
            scale = equilibration.rows[item, i] if i < m else 1.0 / equilibration.columns[item, i - m]
            multipliers[item, i] *= scale / equilibration.cost[item]
        unscaled_error, gap[item] = optimality(program, x[item], multipliers[item], activity, gradient)
        error[item] = max(error[item], unscaled_error)
        for i in range(multipliers.shape[1]):
            scale = equilibration.rows[item, i] if i < m else 1.0 / equilibration.columns[item, i - m]
            near = at_bound_distance / (scale * equilibration.bounds[item])
            lower, upper, multiplier = program.lower[i], program.upper[i], multipliers[item, i]
            at_upper[item, i] = abs(upper - activity[i]) <= near or multiplier > 0.0 or lower == upper
            at_lower[item, i] = (abs(activity[i] - lower) <= near or multiplier < 0.0) and not at_upper[item, i]
