r"""Mehrotra's predictor-corrector interior-point method (1992), for linear programs; a quadratic term is allowed.

With the notation of ``variables`` Newton's method is applied to the optimality conditions with ``s z = mu`` instead of ``s z =
0``, mu falling. Per bound, with the residual ``r`` of its slack and the aim ``t`` for the change of ``s z``,

    ds = r +- d(activity),   dz = (t - z ds) / s            (+ at a lower bound, - at an upper one)

Eliminating ds and dz leaves, with ``theta = z_l / s_l + z_u / s_u`` and ``e = (t_u - z_u r_u) / s_u - (t_l - z_l r_l) / s_l`` per
constraint, the KKT system

    (q_j + theta_j) dx_j + (A' dy)_j = -stationarity_j - e_j for a variable j (dx_j = 0 for a fixed one)
    (A dx)_i - dy_i / theta_i  = -e_i / theta_i              for a row i with bounds (a row without takes no part)
    (A dx)_i                   = b_i - (A x)_i               for an equation

plus regularization on the diagonal. One iteration computes the *affine* direction, which aims at ``s z = 0``, derives from how
far it gets the *target* for mu, takes the *combined* direction toward that target with the second-order terms of the affine
one, and moves as far along it as slacks and duals stay positive (``step_length``), times a factor below 1.

The iterate with the least error is returned. It need not be a vertex, which is why the equations of its active set are solved
next (``active_set``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.lp.interior_point.data import copy_values, largest_magnitude, program_of, write_activity
from taskloss.lp.interior_point.kkt import factorize_kkt, make_kkt, solve_kkt, write_constraint_matrix, write_diagonal
from taskloss.lp.interior_point.starting_point import initialize
from taskloss.lp.interior_point.termination import smallest_gap_scale
from taskloss.lp.interior_point.variables import (
    Bounds,
    Residuals,
    Scaling,
    Variables,
    average_complementarity,
    iterate_error,
    make_bounds,
    make_residuals,
    make_scaling,
    make_variables,
    set_bounds,
    step_length,
    take_step,
    update_residuals,
    update_scaling,
)

PATIENCE = 25
"""Stop after this many iterations without progress."""
MAX_REFINEMENTS = np.int64(10)
"""Of a direction; badly conditioned programs need more than two."""
MAX_FACTORIZATIONS = 6
"""Per iteration, each with more regularization than the one before."""
MORE_REGULARIZATION = 30.0
"""Factor of the regularization where a direction could not be solved."""
LESS_REGULARIZATION = 0.3
"""Factor of the regularization after each iteration."""
WORST_RESIDUAL = 0.1
"""Relative residual above which a direction counts as not solved."""
LEAST_FRACTION, LARGEST_FRACTION = 0.9, 0.9995
"""Range of the factor of the step length."""
SMALLEST_CENTERING = 1e-8
"""The target for mu is at least this fraction of mu."""


class Workspace(NamedTuple):
    """All arrays of the method, made once per batch; ``N = m + n`` constraints."""

    bounds: Bounds
    variables: Variables
    residuals: Residuals
    scaling: Scaling
    affine: Variables
    """The affine direction."""
    step: Variables
    """The combined direction."""
    complementarity: np.ndarray
    """Right-hand side of ``s dz + z ds``, ``(2N,)``."""
    terms: np.ndarray
    """The terms e of the constraints, ``(N,)``."""
    activity_change: np.ndarray
    """Change of the activities along a direction, ``(N,)``."""
    rhs_x: np.ndarray
    """``(n,)``."""
    rhs_y: np.ndarray
    """``(m,)``."""


@allocating_kernel
def make_workspace(n, m):
    """Return a workspace for programs with n variables and m rows."""
    return Workspace(
        bounds=make_bounds(m + n),
        variables=make_variables(n, m),
        residuals=make_residuals(n, m),
        scaling=make_scaling(n, m),
        affine=make_variables(n, m),
        step=make_variables(n, m),
        complementarity=np.empty(2 * (m + n), np.float64),
        terms=np.empty(m + n, np.float64),
        activity_change=np.empty(m + n, np.float64),
        rhs_x=np.empty(n, np.float64),
        rhs_y=np.empty(m, np.float64),
    )


@kernel
def interior_point_batch(
    programs,
    items,
    relaxation,
    min_regularization,
    residual_tolerance,
    tolerance,
    max_iterations,
    x,
    multipliers,
    error,
    iterations,
    trace,
):
    """Solve some programs of a batch approximately, from a start of the method's own.

    Args:
        programs: a batch, equilibrated; read.
        items: indices of the programs to solve.
        relaxation: above zero, rows may miss their bounds at a quadratic price: ``min c'x + |e|^2 / (2 relaxation)`` with
            ``A x - e`` within the bounds, where e is the relaxation times the row multipliers.
        min_regularization: of the KKT matrix.
        residual_tolerance: relative residual at which the refinement of a direction ends.
        tolerance: error at which to stop.
        max_iterations: per program.
        x: ``(B, n)``; written: the best iterate.
        multipliers: ``(B, m + n)``; written: its multipliers.
        error: ``(B,)``; written: its error.
        iterations: ``(B,)``; added to.
        trace: ``(B, T, n)``; the iterate after the k-th iteration goes to row ``iterations[item] + k - 1``, if that is below T.
    """
    kkt = make_kkt(programs.sparsity)
    workspace = make_workspace(programs.cost.shape[1], len(programs.sparsity.row_start) - 1)
    for item in items:
        error[item], used = _follow_central_path(
            program_of(programs, item),
            kkt,
            workspace,
            relaxation,
            min_regularization,
            residual_tolerance,
            tolerance,
            max_iterations,
            x[item],
            multipliers[item],
            trace[item, iterations[item] :],
        )
        iterations[item] += used


@inner_kernel
def _follow_central_path(
    program,
    kkt,
    workspace,
    relaxation,
    min_regularization,
    residual_tolerance,
    tolerance,
    max_iterations,
    best_x,
    best_multipliers,
    trace,
):
    """Iterate until optimal or stalled; return the error of the best iterate, and the iterations."""
    bounds, variables, residuals, scaling = workspace.bounds, workspace.variables, workspace.residuals, workspace.scaling
    affine, step = workspace.affine, workspace.step
    num_bounds = set_bounds(program, bounds)
    cost_scale = 1.0 + largest_magnitude(program.cost)
    # A relaxed or quadratic program has another dual objective; mu takes the part of the gap there.
    is_linear = relaxation == 0.0 and largest_magnitude(program.quadratic) == 0.0
    gap_scale = smallest_gap_scale(program) if is_linear else np.inf
    write_constraint_matrix(program, bounds, kkt)
    initialize(program, kkt, workspace)
    regularization = 10.0 * min_regularization
    best_error = np.inf
    smallest_mu = np.inf
    last_progress = 0
    iteration = 0
    while True:
        update_residuals(program, bounds, variables, relaxation, residuals)
        mu = average_complementarity(bounds, variables, num_bounds)
        error = iterate_error(program, bounds, variables, residuals, cost_scale, gap_scale)
        if not is_linear:
            error = max(error, mu)
        if mu < 0.9 * smallest_mu:
            # Early on the error may rise while the path is followed.
            smallest_mu = mu
            last_progress = iteration
        if error < best_error:
            best_error = error
            last_progress = iteration
            copy_values(variables.x, best_x)
            copy_values(residuals.multipliers, best_multipliers)
        if 0 < iteration <= len(trace):
            copy_values(variables.x if error < np.inf else best_x, trace[iteration - 1])
        diverged = error == np.inf or (error > 1e3 * best_error and best_error < 1e-4)
        stalled = iteration - last_progress > PATIENCE
        if best_error <= tolerance or diverged or stalled or iteration >= max_iterations:
            return best_error, iteration
        update_scaling(bounds, variables, scaling)
        for _ in range(MAX_FACTORIZATIONS):
            write_diagonal(program, bounds, scaling, relaxation, regularization, kkt)
            factorize_kkt(program.sparsity, kkt)
            _write_affine_complementarity(variables, workspace.complementarity)
            # The affine direction only tells how far the combined one may aim, so it is not refined.
            _solve_direction(program, kkt, workspace, relaxation, np.inf, affine)
            target = _centering_target(variables, affine, scaling, mu, num_bounds)
            _write_combined_complementarity(variables, affine, target, workspace.complementarity)
            residual = _solve_direction(program, kkt, workspace, relaxation, residual_tolerance, step)
            if residual <= WORST_RESIDUAL:
                break
            # After the last try a poor direction is taken all the same; a bad iterate ends the method by its error.
            regularization *= MORE_REGULARIZATION
        # Stay inside the bounds; the nearer the solution, the closer the step may go to them.
        fraction = min(max(LEAST_FRACTION, 1.0 - mu), LARGEST_FRACTION)
        primal_length = fraction * step_length(step.s, scaling.inverse_s)
        dual_length = fraction * step_length(step.z, scaling.inverse_z)
        if not is_linear:
            # Stationarity depends on x and the multipliers together.
            primal_length = dual_length = min(primal_length, dual_length)
        take_step(bounds, variables, step, primal_length, dual_length)
        regularization = max(LESS_REGULARIZATION * regularization, min_regularization)
        iteration += 1


@inner_kernel
def _write_affine_complementarity(variables, complementarity):
    """Write ``-s z``."""
    for k in range(len(complementarity)):
        complementarity[k] = -variables.s[k] * variables.z[k]


@inner_kernel
def _write_combined_complementarity(variables, affine, target, complementarity):
    """Write ``target - s z - ds dz`` with the affine direction ``(ds, dz)``."""
    for k in range(len(complementarity)):
        complementarity[k] = target - variables.s[k] * variables.z[k] - affine.s[k] * affine.z[k]


@inner_kernel
def _solve_direction(program, kkt, workspace, relaxation, residual_tolerance, direction):
    """Write the direction for ``workspace.complementarity``; return the relative residual of its KKT system."""
    bounds, variables, residuals, scaling = workspace.bounds, workspace.variables, workspace.residuals, workspace.scaling
    complementarity, terms, change = workspace.complementarity, workspace.terms, workspace.activity_change
    n = len(direction.x)
    m = len(direction.y)
    size = m + n
    for k in range(2 * size):
        # Until the end this holds what each bound contributes to e.
        direction.z[k] = (complementarity[k] - variables.z[k] * residuals.slack[k]) * scaling.inverse_s[k]
    for i in range(size):
        terms[i] = direction.z[size + i] - direction.z[i]
    # Both terms of rhs_x are zero for fixed variables, and inverse_theta is zero for equations.
    for column in range(n):
        workspace.rhs_x[column] = -residuals.stationarity[column] - terms[m + column]
    for row in range(m):
        residual = bounds.equality[row] * (bounds.value[row] - residuals.activity[row])
        workspace.rhs_y[row] = residual - terms[row] * scaling.inverse_theta[row]
    rhs = workspace.rhs_x, workspace.rhs_y
    error = solve_kkt(program.sparsity, kkt, *rhs, direction.x, direction.y, residual_tolerance, MAX_REFINEMENTS)
    write_activity(program, direction.x, change)
    for row in range(m):
        # The change of a row follows from its dual where theta is large and from x where it is small: each is accurate there.
        by_x = change[row] - relaxation * direction.y[row]
        by_dual = (direction.y[row] - terms[row]) * scaling.inverse_theta[row]
        change[row] = by_x if scaling.theta[row] < 1.0 else by_dual
    for i in range(size):
        direction.s[i] = residuals.slack[i] + bounds.present[i] * change[i]
    for i in range(size):
        direction.s[size + i] = residuals.slack[size + i] - bounds.present[size + i] * change[i]
    for k in range(2 * size):
        direction.z[k] = (complementarity[k] - variables.z[k] * direction.s[k]) * scaling.inverse_s[k]
    return error


@inner_kernel
def _centering_target(variables, affine, scaling, mu, num_bounds):
    """Return the complementarity to aim at: ``mu (mu_affine / mu)^3``, with mu_affine where the affine direction gets.

    With the affine step ``(ds, dz)`` and lengths a, b it would reach ``sum (s + a ds) (z + b dz)``. Since ``s dz + z ds = -s z``
    this is ``(1 - b) sum s z + (a - b) sum z ds + a b sum ds dz``.
    """
    a = step_length(affine.s, scaling.inverse_s)
    b = step_length(affine.z, scaling.inverse_z)
    by_slack = 0.0
    by_both = 0.0
    for k in range(len(variables.z)):
        by_slack += variables.z[k] * affine.s[k]
        by_both += affine.z[k] * affine.s[k]
    if not mu > 0.0:
        return 0.0
    mu_affine = (1.0 - b) * mu + ((a - b) * by_slack + a * b * by_both) / num_bounds
    share = mu_affine / mu
    return mu * min(max(share * share * share, SMALLEST_CENTERING), 1.0)
