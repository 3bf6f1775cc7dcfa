r"""Newton's method on the exterior penalty of a linear program (the paper's), and multiplier updates around it.

The augmented Lagrangian of multipliers ``u`` and penalty ``sigma`` (Mangasarian 2004 has ``u = 0`` and ``sigma = 1 / epsilon``)
is

    phi(x) = c'x + 1/2 q x^2 + sigma/2 sum_i dist(activity_i(x) + u_i / sigma, [lower_i, upper_i])^2 .

It is convex and piecewise quadratic. A generalized Newton step solves, with the *active* constraints (those outside their
bounds, and all equalities) each of weight sigma,

    (sigma A' D_rows A + sigma D_variables + q + damping) dx = -gradient ,

here as the sparse system of ``kkt`` with ``1 / sigma`` on active rows. The step length along ``dx`` is exact: the slope of phi is
piecewise linear, with a kink where a constraint enters or leaves its bounds. Near the minimum one full step lands on it.

Then ``u_i <- sigma (activity_i + u_i / sigma - its projection)``: the augmented Lagrangian method, which is the proximal point
method on the dual and ends after finitely many updates for a linear program (Rockafellar 1976; Bertsekas 1975). So sigma stays
moderate and the result is exact to rounding.

``lp.newton`` has the minimization of phi once more, in plain torch for any device.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.lp.interior_point.data import copy_values, largest_magnitude, program_of, write_activity, write_stationarity
from taskloss.lp.interior_point.kkt import FULL_ACCURACY, factorize_kkt, make_kkt, solve_kkt
from taskloss.lp.interior_point.termination import largest_violation, optimality, relative_gap

LARGEST_SIGMA = 1e8
"""Beyond this the Newton systems lose too many digits."""
SIGMA_GROWTH = 4.0
"""Factor of sigma where an update did not reduce the violation to a quarter."""
NEWTON_STEPS_PER_UPDATE = 60
"""Newton steps on one penalty function before the multipliers are updated anyway."""
MAX_REFINEMENTS = np.int64(2)
"""Of a Newton step."""
GRADIENT_REFINEMENTS = np.int64(10)
"""Of a gradient, which nothing corrects later."""
SMALLEST_DAMPING = 1e-12
"""Of the Newton matrix, relative to sigma: keeps it invertible where phi is flat."""


@kernel
def augmented_lagrangian_batch(
    programs, items, sigma, max_updates, tolerance, max_iterations, x, multipliers, error, iterations, trace
):
    """Minimize and update the multipliers of some programs of a batch until they are optimal.

    If the result is worse than the start and misses the tolerance, the start is kept.

    Args:
        programs: a batch; read.
        items: indices of the programs.
        sigma: penalty to start with.
        max_updates: updates of the multipliers; with 1 this is the minimization of one penalty function.
        tolerance: of feasibility, stationarity and gap.
        max_iterations: Newton steps per program.
        x: ``(B, n)``; the start on entry, the result on return.
        multipliers: ``(B, m + n)``; likewise.
        error: ``(B,)``; error of the start on entry (infinite: unknown), of the result on return.
        iterations: ``(B,)``; added to.
        trace: ``(B, T, n)``; the iterate after the k-th iteration goes to row ``iterations[item] + k - 1``, if that is below T.
    """
    kkt = make_kkt(programs.sparsity)
    activity, gradient = np.empty(programs.lower.shape[1], np.float64), np.empty(programs.cost.shape[1], np.float64)
    for item in items:
        program = program_of(programs, item)
        old_x = x[item].copy()
        old_multipliers = multipliers[item].copy()
        iterations[item] += _augmented_lagrangian(
            program,
            kkt,
            x[item],
            multipliers[item],
            sigma,
            max_updates,
            tolerance,
            max_iterations,
            trace[item, iterations[item] :],
        )
        reached, _ = optimality(program, x[item], multipliers[item], activity, gradient)
        if reached > max(error[item], tolerance):
            x[item] = old_x
            multipliers[item] = old_multipliers
        else:
            error[item] = reached


@allocating_kernel
def _augmented_lagrangian(program, kkt, x, multipliers, sigma, max_updates, tolerance, max_iterations, trace):
    """Overwrite ``x`` and ``multipliers``; return the number of Newton steps.

    With a quadratic term "optimal" means feasible and stationary; the multipliers are complementary by construction.
    """
    updated = np.empty(len(multipliers), np.float64)
    activity = np.empty(len(multipliers), np.float64)
    iterations = 0
    violation_before = np.inf
    is_linear = largest_magnitude(program.quadratic) == 0.0
    for _ in range(max_updates):
        budget = min(NEWTON_STEPS_PER_UPDATE, max_iterations - iterations) if max_updates > 1 else max_iterations
        used, residual = _minimize_penalty(program, kkt, x, multipliers, sigma, tolerance, budget, updated, trace[iterations:])
        iterations += used
        if residual == np.inf:
            break
        copy_values(updated, multipliers)
        write_activity(program, x, activity)
        violation = largest_violation(program, activity)
        gap = relative_gap(program, x, multipliers) if is_linear else 0.0
        if violation <= tolerance and residual <= 10.0 * tolerance and gap <= tolerance:
            break
        stuck = used == 0 and sigma >= LARGEST_SIGMA and violation > 0.9 * violation_before
        if stuck or iterations >= max_iterations:
            break
        if violation > 0.25 * violation_before:
            sigma = min(SIGMA_GROWTH * sigma, LARGEST_SIGMA)
        violation_before = violation
    return iterations


@allocating_kernel
def _minimize_penalty(program, kkt, x, multipliers, sigma, tolerance, max_iterations, updated, trace):
    """Minimize phi from ``x`` by Newton's method; return the steps and the gradient that remains (infinite: unbounded below).

    Where no constraint enters or leaves the active set phi is quadratic, so a step that does not help there has met rounding, and
    the method ends.

    Args:
        program: one program.
        kkt: workspace.
        x: ``(n,)``; overwritten.
        multipliers: u, ``(m + n,)``; read.
        sigma: the penalty.
        tolerance: of the gradient.
        max_iterations: Newton steps.
        updated: ``(m + n,)``; written: the updated multipliers at the final x.
        trace: ``(T, n)``; the first T iterates are written.
    """
    n = len(x)
    size = len(multipliers)
    activity = np.empty(size, np.float64)
    change = np.empty(size, np.float64)
    gradient = np.empty(n, np.float64)
    direction = np.empty(n, np.float64)
    row_direction = np.empty(size - n, np.float64)
    zero_rows = np.zeros(size - n, np.float64)
    kinks = np.empty(2 * size, np.float64)
    bends = np.empty(2 * size, np.float64)
    active, active_before = np.empty(size, np.bool_), np.zeros(size, np.bool_)
    iterations = 0
    residual_before = np.inf
    while True:
        write_activity(program, x, activity)
        _update_multipliers(program, activity, multipliers, sigma, updated, active)
        write_stationarity(program, x, updated, gradient)
        residual = largest_magnitude(gradient)
        if residual <= tolerance or iterations >= max_iterations or residual == np.inf:
            return iterations, residual
        if residual > 0.5 * residual_before and _equal(active, active_before):
            return iterations, residual
        residual_before = residual
        copy_values(active, active_before)
        damping = sigma * max(SMALLEST_DAMPING, min(1e-4, residual))
        _write_newton_matrix(program, active, sigma, damping, kkt)
        factorize_kkt(program.sparsity, kkt)
        solve_kkt(program.sparsity, kkt, -gradient, zero_rows, direction, row_direction, FULL_ACCURACY, MAX_REFINEMENTS)
        slope = np.dot(gradient, direction)
        if not slope < 0.0:
            copy_values(-gradient, direction)
            slope = -np.dot(gradient, gradient)
        write_activity(program, direction, change)
        for i in range(size):
            activity[i] += multipliers[i] / sigma
        curvature = np.dot(program.quadratic * direction, direction)
        length = _exact_step_length(program, activity, change, slope, curvature, sigma, kinks, bends)
        if length == np.inf:
            return iterations, np.inf
        x += length * direction
        if iterations < len(trace):
            trace[iterations] = x
        iterations += 1


@inner_kernel
def _update_multipliers(program, activity, multipliers, sigma, updated, active):
    """Write the updated multipliers at ``activity``, and which constraints are active."""
    for i in range(len(activity)):
        lower, upper = program.lower[i], program.upper[i]
        shifted = activity[i] + multipliers[i] / sigma
        above = lower == upper or shifted > upper
        active[i] = above or shifted < lower
        updated[i] = multipliers[i] + sigma * (activity[i] - (upper if above else lower)) if active[i] else 0.0


@inner_kernel
def _write_newton_matrix(program, active, sigma, damping, kkt):
    """Assemble the matrix of a Newton step with these active constraints."""
    sparsity = program.sparsity
    m = len(sparsity.row_position)
    for column in range(len(program.cost)):
        weight = program.quadratic[column] + damping
        kkt.diagonal[sparsity.column_position[column]] = weight + sigma if active[m + column] else weight
    for row in range(m):
        for entry in range(sparsity.row_start[row], sparsity.row_start[row + 1]):
            kkt.off_diagonal[sparsity.kkt_entry[entry]] = program.entries[entry] if active[row] else 0.0
        kkt.diagonal[sparsity.row_position[row]] = -1.0 / sigma if active[row] else -1.0
    for k in range(len(kkt.regularization)):
        kkt.regularization[k] = 0.0


@allocating_kernel
def _exact_step_length(program, shifted, change, slope, curvature, sigma, kinks, bends):
    """Return the step length that minimizes phi along a direction; infinity if phi falls forever.

    Args:
        program: one program.
        shifted: activities plus ``u / sigma``, ``(m + n,)``; read.
        change: their change along the direction, ``(m + n,)``; read.
        slope: of phi at zero.
        curvature: of the quadratic term along the direction.
        sigma: the penalty.
        kinks: ``(2 (m + n),)``; workspace: where the slope has a kink.
        bends: ``(2 (m + n),)``; workspace: how the curvature changes there.
    """
    count = 0
    bend = 0.0
    for i in range(len(shifted)):
        rate = change[i]
        if rate == 0.0:
            continue
        value = shifted[i]
        lower = program.lower[i]
        upper = program.upper[i]
        square = rate * rate
        if lower == upper:
            bend += square
            continue
        if value > upper or value < lower:
            bend += square
            to_bound = (upper if value > upper else lower) - value
            if to_bound * rate > 0.0:
                kinks[count] = to_bound / rate
                bends[count] = -square
                count += 1
        ahead = upper if rate > 0.0 else lower
        if abs(ahead) < np.inf and (ahead - value) * rate >= 0.0:
            kinks[count] = (ahead - value) / rate
            bends[count] = square
            count += 1
    step = 0.0
    total = curvature + sigma * bend
    for k in np.argsort(kinks[:count]):
        if total > 0.0 and slope + total * (kinks[k] - step) >= 0.0:
            return step - slope / total
        slope += total * (kinks[k] - step)
        step = kinks[k]
        total = max(total + sigma * bends[k], curvature)
    return step - slope / total if total > 1e-300 else np.inf


@inner_kernel
def _equal(one, other):
    different = 0
    for i in range(len(one)):
        different += one[i] != other[i]
    return different == 0


@kernel
def solve_hessian_batch(programs, items, active, sigma, rhs, solution):
    """Write ``H^{-1} rhs`` to ``solution (B, n)`` for some programs, H the Hessian of phi with these active constraints.

    ``active`` is bool ``(B, m + n)``, ``rhs`` ``(B, n)``.
    """
    sparsity = programs.sparsity
    kkt = make_kkt(sparsity)
    zero_rows, row_solution = np.zeros(len(sparsity.row_position), np.float64), np.empty(len(sparsity.row_position), np.float64)
    for item in items:
        _write_newton_matrix(program_of(programs, item), active[item], sigma, sigma * SMALLEST_DAMPING, kkt)
        factorize_kkt(sparsity, kkt)
        solve_kkt(sparsity, kkt, rhs[item], zero_rows, solution[item], row_solution, FULL_ACCURACY, GRADIENT_REFINEMENTS)
