r"""Iterate of the interior-point method: variables, bounds, residuals, scaling and step length.

Let N be the number of constraints. Index ``i < N`` of an array ``(2N,)`` belongs to the lower bound of constraint i, index ``N
+ i`` to its upper bound. Every present bound has a slack ``s > 0``, which tends to the distance of the activity from the bound,
and a dual ``z > 0``. A bound that is absent has slack and dual 1, and its terms vanish because ``present`` is 0.

Loops over bounds compute one result each and have no branches, so that the compiler makes vector instructions of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel
from taskloss.lp.interior_point.data import largest_magnitude, write_activity, write_stationarity


class Bounds(NamedTuple):
    """Bounds of one program with N constraints."""

    present: np.ndarray
    """``(2N,)``: 1 where there is an inequality bound, else 0."""
    value: np.ndarray
    """``(2N,)``: the bound, 0 if there is none; the right-hand side of an equality stands in both halves."""
    equality: np.ndarray
    """``(N,)``: 1 where lower and upper bound are equal; such a constraint has no inequality bounds."""


class Variables(NamedTuple):
    """Primal and dual variables, or a step of them."""

    x: np.ndarray
    """``(n,)``."""
    y: np.ndarray
    """Multipliers of the equality rows, ``(m,)``; zero for inequality rows, whose multipliers follow from ``z``.

    Of a step only the entries of equality rows count."""
    s: np.ndarray
    """Slacks of the bounds, ``(2N,)``."""
    z: np.ndarray
    """Duals of the bounds, ``(2N,)``."""


class Residuals(NamedTuple):
    """What an iterate lacks to satisfy the optimality conditions, and what that is computed from."""

    activity: np.ndarray
    """``(N,)``; of a relaxed program, that of the rows minus the relaxation times their multipliers."""
    multipliers: np.ndarray
    """Multipliers of all constraints, ``(N,)``: dual of the upper bound minus dual of the lower bound, or ``y``."""
    stationarity: np.ndarray
    """``c`` plus the multipliers of the variables plus A' times those of the rows, ``(n,)``; zero for fixed variables, whose
    multipliers are chosen so."""
    slack: np.ndarray
    """Distance of the activity from each bound, minus its slack, ``(2N,)``: the residual of the slack's definition."""


class Scaling(NamedTuple):
    """What the KKT matrix is made from: ratios of duals and slacks."""

    inverse_s: np.ndarray
    """``1 / s``, ``(2N,)``; 0 where there is no bound."""
    inverse_z: np.ndarray
    """``1 / z``, ``(2N,)``; 0 where there is no bound."""
    theta: np.ndarray
    """``z / s``, summed over the two bounds of each constraint, ``(N,)``."""
    inverse_theta: np.ndarray
    """Of the rows, ``(m,)``; 0 for equations and rows without a bound."""


@allocating_kernel
def make_bounds(num_constraints):
    """Return empty bounds."""
    return Bounds(
        present=np.empty(2 * num_constraints, np.float64),
        value=np.empty(2 * num_constraints, np.float64),
        equality=np.empty(num_constraints, np.float64),
    )


@allocating_kernel
def make_variables(n, m):
    """Return variables of zero."""
    return Variables(
        x=np.zeros(n, np.float64),
        y=np.zeros(m, np.float64),
        s=np.zeros(2 * (m + n), np.float64),
        z=np.zeros(2 * (m + n), np.float64),
    )


@allocating_kernel
def make_residuals(n, m):
    """Return empty residuals."""
    return Residuals(
        activity=np.empty(m + n, np.float64),
        multipliers=np.empty(m + n, np.float64),
        stationarity=np.empty(n, np.float64),
        slack=np.empty(2 * (m + n), np.float64),
    )


@allocating_kernel
def make_scaling(n, m):
    """Return an empty scaling."""
    return Scaling(
        inverse_s=np.empty(2 * (m + n), np.float64),
        inverse_z=np.empty(2 * (m + n), np.float64),
        theta=np.empty(m + n, np.float64),
        inverse_theta=np.empty(m, np.float64),
    )


@inner_kernel
def set_bounds(program, bounds):
    """Fill ``bounds`` and return how many inequality bounds there are, at least 1."""
    size = len(program.lower)
    count = 0.0
    for i in range(size):
        lower = program.lower[i]
        upper = program.upper[i]
        equality = 1.0 if lower == upper else 0.0
        bounds.equality[i] = equality
        bounds.value[i] = lower if lower > -np.inf else 0.0
        bounds.value[size + i] = upper if upper < np.inf else 0.0
        bounds.present[i] = 1.0 - equality if lower > -np.inf else 0.0
        bounds.present[size + i] = 1.0 - equality if upper < np.inf else 0.0
        count += bounds.present[i] + bounds.present[size + i]
    return max(count, 1.0)


@inner_kernel
def update_residuals(program, bounds, variables, relaxation, residuals):
    """Compute activity, multipliers and residuals of the iterate.

    ``relaxation`` above zero lets row i miss its bounds by ``relaxation * multiplier_i``.
    """
    x, s, z = variables.x, variables.s, variables.z
    n = len(x)
    m = len(variables.y)
    size = m + n
    activity, multipliers, stationarity = residuals.activity, residuals.multipliers, residuals.stationarity
    write_activity(program, x, activity)
    for i in range(size):
        multipliers[i] = bounds.present[size + i] * z[size + i] - bounds.present[i] * z[i]
    for row in range(m):
        multipliers[row] += variables.y[row]
    write_stationarity(program, x, multipliers, stationarity)
    for column in range(n):
        if bounds.equality[m + column] > 0.0:
            multipliers[m + column] = -stationarity[column]
            stationarity[column] = 0.0
    if relaxation > 0.0:
        for row in range(m):
            activity[row] -= relaxation * multipliers[row]
    for i in range(size):
        residuals.slack[i] = bounds.present[i] * ((activity[i] - bounds.value[i]) - s[i])
    for i in range(size):
        residuals.slack[size + i] = bounds.present[size + i] * ((bounds.value[size + i] - activity[i]) - s[size + i])


@inner_kernel
def update_scaling(bounds, variables, scaling):
    """Compute the scaling at the iterate."""
    s, z, inverse_s, inverse_z = variables.s, variables.z, scaling.inverse_s, scaling.inverse_z
    for k in range(len(s)):
        # One division for both.
        inverse = bounds.present[k] / (s[k] * z[k])
        inverse_z[k] = inverse * s[k]
        inverse_s[k] = inverse * z[k]
    size = len(scaling.theta)
    for i in range(size):
        scaling.theta[i] = z[i] * inverse_s[i] + z[size + i] * inverse_s[size + i]
    invert_theta(scaling)


@inner_kernel
def invert_theta(scaling):
    """Fill ``inverse_theta``."""
    for row in range(len(scaling.inverse_theta)):
        scaling.inverse_theta[row] = 1.0 / scaling.theta[row] if scaling.theta[row] > 0.0 else 0.0


@inner_kernel
def average_complementarity(bounds, variables, num_bounds):
    """Return mu, the mean product of slack and dual."""
    total = 0.0
    for k in range(len(variables.s)):
        total += bounds.present[k] * variables.s[k] * variables.z[k]
    return total / num_bounds


@inner_kernel
def iterate_error(program, bounds, variables, residuals, cost_scale, gap_scale):
    """Return the worst of infeasibility, stationarity and relative gap at an iterate; infinity if anything is NaN.

    Unlike ``termination.optimality`` it measures infeasibility absolutely and with the slacks, as the path is followed with them.
    ``gap_scale`` is the least denominator of the gap; if it is infinite, the gap does not count.
    """
    size = len(residuals.activity)
    infeasibility = largest_magnitude(residuals.slack)
    dual = 0.0
    total = 0.0
    for i in range(size):
        activity, multiplier = residuals.activity[i], residuals.multipliers[i]
        infeasibility = max(infeasibility, bounds.equality[i] * abs(activity - bounds.value[i]))
        dual -= multiplier * (bounds.value[size + i] if multiplier > 0.0 else bounds.value[i])
        total += activity + multiplier
    primal = 0.0
    terms = 0.0
    for column in range(len(variables.x)):
        term = program.cost[column] * variables.x[column]
        primal += term
        terms += abs(term)
    gap = abs(primal - dual) / max(max(terms, abs(dual)), gap_scale)
    error = max(max(infeasibility, largest_magnitude(residuals.stationarity) / cost_scale), gap)
    return error if np.isfinite(error + total + gap) else np.inf


@inner_kernel
def step_length(change, inverse):
    """Return the longest step, at most 1, at which no value becomes negative; ``inverse`` is one over the values."""
    steepest = 1.0
    for k in range(len(change)):
        steepest = max(steepest, -change[k] * inverse[k])
    return 1.0 / steepest


@inner_kernel
def take_step(bounds, variables, step, primal_length, dual_length):
    """Move the variables along a step, primal and dual ones by lengths of their own."""
    for k in range(len(variables.s)):
        variables.s[k] += primal_length * step.s[k]
    for k in range(len(variables.z)):
        variables.z[k] += dual_length * step.z[k]
    for column in range(len(variables.x)):
        variables.x[column] += primal_length * step.x[column]
    for row in range(len(variables.y)):
        variables.y[row] += dual_length * (step.y[row] * bounds.equality[row])
