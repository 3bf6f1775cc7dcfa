"""Newton's method on the exterior penalty of a linear program, and multiplier updates around it.

The penalty function of multipliers ``u`` and weight ``sigma`` (Mangasarian 2004 has ``u = 0`` and ``sigma = 1 / epsilon``) is

    phi(x) = cost'x + 1/2 quadratic x^2 + sigma/2 sum_i dist(value_i(x) + u_i / sigma, [low_i, high_i])^2 .

It is convex and piecewise quadratic. A generalized Newton step solves, with the *active* lines (those outside their limits,
and all equations) each of weight sigma,

    (A' D_rows A sigma + D_columns sigma + quadratic + damping) dx = -gradient ,

here as the sparse system of ``kernels.lp_program`` with ``1 / sigma`` on active rows. The best step length along ``dx`` is
exact: the slope is piecewise linear, with a kink where a line enters or leaves its limits. Near the minimum one full step
lands on it.

Then ``u_i <- sigma (value_i + u_i/sigma - its projection)``: the augmented Lagrangian method, which is the proximal point
method on the dual and ends after finitely many updates for a linear program (Rockafellar 1976; Bertsekas 1975), so sigma stays
moderate and the result is exact to rounding.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, plain_kernel
from taskloss.kernels.lp_optimality import relative_gap, violation_in_lanes
from taskloss.kernels.lp_program import (
    factorize_system,
    largest,
    solve_system_of_one,
    write_stationarity_of_one,
    write_values_of_one,
)
from taskloss.kernels.sparse_ldl import ENOUGH

LARGEST_SIGMA = 1e8
INNER_STEPS = 60
"""Newton steps on one penalty function before the multipliers are updated anyway."""
ROUNDS = np.int64(2)
"""Of refinement, at most."""


@plain_kernel
def write_multipliers(program, values, multipliers, sigma, updated, active):
    """The updated multipliers at ``values``, and which lines are active."""
    for line in range(len(values)):
        low = program.low[line]
        high = program.high[line]
        shifted = values[line] + multipliers[line] / sigma
        if low == high or shifted > high:
            updated[line] = multipliers[line] + sigma * (values[line] - high)
            active[line] = True
        elif shifted < low:
            updated[line] = multipliers[line] + sigma * (values[line] - low)
            active[line] = True
        else:
            updated[line] = 0.0
            active[line] = False


@plain_kernel
def write_penalty_matrix(pattern, program, system, active, sigma, damping):
    """The matrix of a Newton step with these active lines."""
    m = len(pattern.row_start) - 1
    for column in range(len(program.cost)):
        weight = program.quadratic[column] + damping
        system.matrix[pattern.at_column[column], 0] = weight + sigma if active[m + column] else weight
    for row in range(m):
        keep = active[row]
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            system.matrix[pattern.at_entry[entry], 0] = program.entries[entry] if keep else 0.0
        system.matrix[pattern.at_row[row], 0] = -1.0 / sigma if keep else -1.0
    system.shift[:] = 0.0


@inner_kernel
def exact_step(program, shifted, change, slope, curvature, sigma, kinks, bends):
    """The step that minimizes phi along a direction.

    ``shifted``: values of the lines plus ``u / sigma``; ``change``: their change along the direction; ``slope``: of phi at zero;
    ``curvature``: of the quadratic term. Infinity when phi falls forever.
    """
    count = 0
    bend = 0.0
    for line in range(len(shifted)):
        rate = change[line]
        if rate == 0.0:
            continue
        value = shifted[line]
        low = program.low[line]
        high = program.high[line]
        square = rate * rate
        if low == high:
            bend += square
            continue
        if value > high or value < low:
            bend += square
            leaves = (high if value > high else low) - value
            if leaves * rate > 0.0:
                kinks[count] = leaves / rate
                bends[count] = -square
                count += 1
        limit = high if rate > 0.0 else low
        if abs(limit) < np.inf and (limit - value) * rate >= 0.0:
            kinks[count] = (limit - value) / rate
            bends[count] = square
            count += 1
    order = np.argsort(kinks[:count])
    step = 0.0
    total = curvature + sigma * bend
    for position in order:
        if total > 0.0 and slope + total * (kinks[position] - step) >= 0.0:
            return step - slope / total
        slope += total * (kinks[position] - step)
        step = kinks[position]
        total += sigma * bends[position]
        if total < curvature:
            total = curvature
    return step - slope / total if total > 1e-300 else np.inf


@plain_kernel
def _same(one, other):
    differing = 0
    for line in range(len(one)):
        differing += one[line] != other[line]
    return differing == 0


@inner_kernel
def minimize_penalty(pattern, program, system, x, multipliers, sigma, tolerance, max_steps, updated, active, trace):
    """Minimize phi from ``x`` (overwritten).

    Returns the steps and the gradient that remains: infinite where phi falls forever.

    ``updated`` and ``active`` are filled for the final ``x``. ``trace`` has one row a Newton step, if any: the iterate. Where no
    line enters or leaves the active set phi is quadratic, so a step that does not help any more there has met rounding: the end.
    """
    n = len(x)
    lines = len(program.low)
    values = np.empty(lines)
    shifted = np.empty(lines)
    change = np.empty(lines)
    gradient = np.empty(n)
    direction = np.empty(n)
    ignored = np.empty(lines - n)
    no_rows = np.zeros(lines - n)
    kinks = np.empty(2 * lines)
    bends = np.empty(2 * lines)
    steps = 0
    before = np.inf
    active_before = np.zeros(lines, np.bool_)
    while True:
        write_values_of_one(pattern, program.entries, x, values)
        write_multipliers(program, values, multipliers, sigma, updated, active)
        write_stationarity_of_one(pattern, program, x, updated, gradient)
        remaining = largest(gradient)
        if remaining <= tolerance or steps >= max_steps or remaining == np.inf:
            return steps, remaining
        if remaining > 0.5 * before and _same(active, active_before):
            return steps, remaining
        before = remaining
        active_before[:] = active
        damping = sigma * max(1e-12, min(1e-4, remaining))
        write_penalty_matrix(pattern, program, system, active, sigma, damping)
        factorize_system(pattern, system)
        solve_system_of_one(pattern, system, -gradient, no_rows, direction, ignored, ENOUGH, ROUNDS)
        slope = np.dot(gradient, direction)
        if not slope < 0.0:
            direction[:] = -gradient
            slope = -np.dot(gradient, gradient)
        write_values_of_one(pattern, program.entries, direction, change)
        for line in range(lines):
            shifted[line] = values[line] + multipliers[line] / sigma
        curvature = np.dot(program.quadratic * direction, direction)
        step = exact_step(program, shifted, change, slope, curvature, sigma, kinks, bends)
        if step == np.inf:
            return steps, np.inf
        x += step * direction
        if steps < len(trace):
            trace[steps] = x
        steps += 1


@inner_kernel
def multiplier_method(pattern, program, system, x, multipliers, sigma, updates, tolerance, max_steps, trace):
    """Minimize and update until optimal, at most ``updates`` times; ``x`` and ``multipliers`` are overwritten.

    Returns the Newton steps. With a quadratic term "optimal" means feasible and stationary; the multipliers are complementary
    by construction.
    """
    lines = len(program.low)
    updated = np.empty(lines)
    values = np.empty(lines)
    active = np.empty(lines, np.bool_)
    steps = 0
    before = np.inf
    linear = largest(program.quadratic) == 0.0
    for _ in range(updates):
        budget = min(INNER_STEPS, max_steps - steps) if updates > 1 else max_steps
        used, remaining = minimize_penalty(
            pattern, program, system, x, multipliers, sigma, tolerance, budget, updated, active, trace[steps:]
        )
        steps += used
        if remaining == np.inf:
            break
        multipliers[:] = updated
        write_values_of_one(pattern, program.entries, x, values)
        missed = violation_in_lanes(pattern.lanes, program.low, program.high, values)
        stationary = remaining <= 10.0 * tolerance
        closed = not linear or relative_gap(pattern.lanes, program, x, multipliers) <= tolerance
        if missed <= tolerance and stationary and closed:
            break
        stuck = used == 0 and sigma >= LARGEST_SIGMA and missed > 0.9 * before
        if stuck or steps >= max_steps:
            break
        if missed > 0.25 * before:
            sigma = min(4.0 * sigma, LARGEST_SIGMA)
        before = missed
    return steps
