r"""Optimality of a primal-dual pair: feasibility, stationarity and the duality gap.

The *error* of a pair ``(x, multipliers)`` is the worst of

- the violation of a bound, relative to 1 plus the largest bound and the terms of its row, or for a variable to ``1 + |x|``;
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
    """Return the least denominator of a relative gap: a fraction of the largest cost times the largest bound.

    Either counts 1 if it is zero. Where the optimal value is zero because x is, the terms of the objective vanish too.
    """
    cost = largest_magnitude(program.cost)
    bound = max(largest_finite(program.lower, len(program.lower)), largest_finite(program.upper, len(program.upper)))
    return 1e-4 * (cost if cost > 0.0 else 1.0) * (bound if bound > 0.0 else 1.0)


@inner_kernel
def relative_gap(program, x, multipliers):
    """Return the distance of the primal from the dual objective of a linear program, relative to the terms of either.

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
def optimality_batch(programs, items, x, multipliers, activity, error, gap):
    """Write the activity ``(B, m + n)``, the error ``(B,)`` and the relative gap ``(B,)`` of the pairs of some programs."""
    gradient = np.empty(programs.cost.shape[1], np.float64)
    for item in items:
        error[item], gap[item] = optimality(program_of(programs, item), x[item], multipliers[item], activity[item], gradient)
