"""The starting point of the interior-point method, after Mehrotra (1992).

Two least-squares problems with one matrix give x near the middle of all bounds and multipliers that are nearly stationary. Slacks
and duals near these are then pushed inside, so that all are positive.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel
from taskloss.lp.interior_point.data import write_activity
from taskloss.lp.interior_point.kkt import NO_REFINEMENT, factorize_kkt, solve_kkt, write_diagonal
from taskloss.lp.interior_point.variables import invert_theta

START_REGULARIZATION = 1e-6
"""Of the least-squares problems that give the start."""
START_DISTANCE = 1e-2
"""Least slack and dual of the start."""


@inner_kernel
def initialize(program, kkt, workspace):
    """Write the start to the variables of the workspace of ``predictor_corrector``; its other arrays are scratch."""
    sparsity = program.sparsity
    bounds, variables, scaling = workspace.bounds, workspace.variables, workspace.scaling
    x, y = variables.x, variables.y
    n = len(x)
    m = len(y)
    size = m + n
    middle = workspace.terms
    for i in range(size):
        num_bounds = bounds.present[i] + bounds.present[size + i]
        total = bounds.value[i] * bounds.present[i] + bounds.value[size + i] * bounds.present[size + i]
        equality = bounds.equality[i] > 0.0
        middle[i] = bounds.value[i] if equality else total / max(num_bounds, 1.0)
        scaling.theta[i] = 1.0 if num_bounds > 0.0 else 0.0 if equality else 1e-6
    invert_theta(scaling)
    write_diagonal(program, bounds, scaling, 0.0, START_REGULARIZATION, kkt)
    factorize_kkt(sparsity, kkt)
    # x near the middle of all bounds; fixed variables stand at theirs.
    activity = workspace.residuals.activity
    for column in range(n):
        x[column] = middle[m + column] if bounds.equality[m + column] > 0.0 else 0.0
    write_activity(program, x, activity)
    for row in range(m):
        workspace.rhs_y[row] = middle[row] - activity[row]
    solve_kkt(sparsity, kkt, middle[m:], workspace.rhs_y, x, y, np.inf, NO_REFINEMENT)
    write_activity(program, x, activity)
    # Least-norm multipliers of stationarity.
    multipliers = workspace.residuals.multipliers
    for column in range(n):
        workspace.rhs_x[column] = -program.cost[column]
    for row in range(m):
        workspace.rhs_y[row] = 0.0
    solve_kkt(sparsity, kkt, workspace.rhs_x, workspace.rhs_y, multipliers[m:], multipliers[:m], np.inf, NO_REFINEMENT)
    _push_inside(bounds, activity, multipliers, variables)
    for row in range(m):
        y[row] = multipliers[row] if bounds.equality[row] > 0.0 else 0.0


@inner_kernel
def _push_inside(bounds, activity, multipliers, variables):
    """Write positive slacks and duals that are near the activities and multipliers."""
    size = len(activity)
    violation = 0.0
    wrong_sign = 0.0
    for own, opposite, sign in ((0, size, 1.0), (size, 0, -1.0)):
        for i in range(size):
            if bounds.present[own + i] > 0.0:
                violation = max(violation, sign * (bounds.value[own + i] - activity[i]))
                if bounds.present[opposite + i] == 0.0:
                    wrong_sign = max(wrong_sign, sign * multipliers[i])
    primal_shift = max(1.5 * violation, START_DISTANCE)
    dual_shift = max(1.5 * wrong_sign, START_DISTANCE)
    for own, opposite, sign in ((0, size, 1.0), (size, 0, -1.0)):
        for i in range(size):
            variables.s[own + i] = 1.0
            variables.z[own + i] = 1.0
            if bounds.present[own + i] > 0.0:
                slack = max(sign * (activity[i] - bounds.value[own + i]), 0.0) + primal_shift
                if bounds.present[opposite + i] > 0.0:
                    slack = min(slack, sign * (bounds.value[opposite + i] - bounds.value[own + i]))
                variables.s[own + i] = slack
                variables.z[own + i] = max(-sign * multipliers[i], 0.0) + dual_shift
