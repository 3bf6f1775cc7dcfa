"""Slacks and duals of the limits of every line: the state of the interior method, and how a step changes it.

See ``kernels.lp_interior`` for the method and its equations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inner_kernel


class Sides(NamedTuple):
    """Slack and dual of both limits of every line, or a change of them. Where a line has no such limit they are unused."""

    low_slack: np.ndarray
    high_slack: np.ndarray
    low_dual: np.ndarray
    high_dual: np.ndarray


class Kinds(NamedTuple):
    """Which limits every line has."""

    equation: np.ndarray
    has_low: np.ndarray
    has_high: np.ndarray


@inner_kernel
def make_sides(lines):
    """Slacks of one and duals of zero."""
    return Sides(np.ones(lines), np.ones(lines), np.zeros(lines), np.zeros(lines))


@inner_kernel
def kinds_of(program):
    """Of a program."""
    equation = program.low == program.high
    return Kinds(equation, (program.low > -np.inf) & ~equation, (program.high < np.inf) & ~equation)


@inner_kernel
def complementarity(kinds, sides):
    """The mean product of slack and dual."""
    total = 0.0
    count = 0
    for line in range(len(sides.low_slack)):
        if kinds.has_low[line]:
            total += sides.low_slack[line] * sides.low_dual[line]
            count += 1
        if kinds.has_high[line]:
            total += sides.high_slack[line] * sides.high_dual[line]
            count += 1
    return total / max(count, 1)


@inner_kernel
def primal_error(program, kinds, values, sides):
    """By how much the values, their limits and the slacks disagree at most."""
    worst = 0.0
    for line in range(len(values)):
        if kinds.equation[line]:
            worst = max(worst, abs(values[line] - program.low[line]))
        if kinds.has_low[line]:
            worst = max(worst, abs(values[line] - program.low[line] - sides.low_slack[line]))
        if kinds.has_high[line]:
            worst = max(worst, abs(program.high[line] - values[line] - sides.high_slack[line]))
    return worst


@inner_kernel
def write_weights_of_lines(kinds, sides, theta):
    """``theta = dual / slack``, summed over the two limits."""
    for line in range(len(theta)):
        weight = 0.0
        if kinds.has_low[line]:
            weight += sides.low_dual[line] / sides.low_slack[line]
        if kinds.has_high[line]:
            weight += sides.high_dual[line] / sides.high_slack[line]
        theta[line] = weight


@inner_kernel
def write_right_side(program, kinds, values, sides, gradient, theta, target, before, collected, right_columns, right_rows):
    """Right side of a step toward complementarity ``target``, less the products of the predictor step ``before``."""
    n = len(gradient)
    m = len(values) - n
    for line in range(len(values)):
        total = 0.0
        if kinds.has_low[line]:
            slack = sides.low_slack[line]
            wanted = target - slack * sides.low_dual[line] - before.low_slack[line] * before.low_dual[line]
            total -= (wanted - sides.low_dual[line] * (values[line] - program.low[line] - slack)) / slack
        if kinds.has_high[line]:
            slack = sides.high_slack[line]
            wanted = target - slack * sides.high_dual[line] - before.high_slack[line] * before.high_dual[line]
            total += (wanted - sides.high_dual[line] * (program.high[line] - values[line] - slack)) / slack
        collected[line] = total
    for column in range(n):
        right_columns[column] = 0.0 if kinds.equation[m + column] else -gradient[column] - collected[m + column]
    for row in range(m):
        if kinds.equation[row]:
            right_rows[row] = program.low[row] - values[row]
        else:
            right_rows[row] = -collected[row] / theta[row] if theta[row] > 0.0 else 0.0


@inner_kernel
def write_step(program, kinds, values, sides, change, target, before, step):
    """Slack and dual changes that go with ``change`` of the values.

    Returns the longest primal and dual steps that stay inside.
    """
    primal = 1.0
    dual = 1.0
    for line in range(len(values)):
        if kinds.has_low[line]:
            slack = sides.low_slack[line]
            moved = change[line] + (values[line] - program.low[line] - slack)
            wanted = target - slack * sides.low_dual[line] - before.low_slack[line] * before.low_dual[line]
            turned = (wanted - sides.low_dual[line] * moved) / slack
            step.low_slack[line] = moved
            step.low_dual[line] = turned
            if moved < 0.0:
                primal = min(primal, -slack / moved)
            if turned < 0.0:
                dual = min(dual, -sides.low_dual[line] / turned)
        if kinds.has_high[line]:
            slack = sides.high_slack[line]
            moved = (program.high[line] - values[line] - slack) - change[line]
            wanted = target - slack * sides.high_dual[line] - before.high_slack[line] * before.high_dual[line]
            turned = (wanted - sides.high_dual[line] * moved) / slack
            step.high_slack[line] = moved
            step.high_dual[line] = turned
            if moved < 0.0:
                primal = min(primal, -slack / moved)
            if turned < 0.0:
                dual = min(dual, -sides.high_dual[line] / turned)
    return primal, dual


@inner_kernel
def target_of(kinds, sides, step, primal, dual, mu):
    """The complementarity to aim at: far below ``mu`` if the first direction gets there (Mehrotra's rule)."""
    reached = 0.0
    count = 0
    for line in range(len(sides.low_slack)):
        if kinds.has_low[line]:
            slack = sides.low_slack[line] + primal * step.low_slack[line]
            reached += slack * (sides.low_dual[line] + dual * step.low_dual[line])
            count += 1
        if kinds.has_high[line]:
            slack = sides.high_slack[line] + primal * step.high_slack[line]
            reached += slack * (sides.high_dual[line] + dual * step.high_dual[line])
            count += 1
    if count == 0 or not mu > 0.0:
        return 0.0
    return mu * min(max((reached / count / mu) ** 3, 1e-8), 1.0)


@inner_kernel
def move(kinds, sides, step, primal, dual):
    """Add a step of the given lengths."""
    for line in range(len(sides.low_slack)):
        if kinds.has_low[line]:
            sides.low_slack[line] += primal * step.low_slack[line]
            sides.low_dual[line] += dual * step.low_dual[line]
        if kinds.has_high[line]:
            sides.high_slack[line] += primal * step.high_slack[line]
            sides.high_dual[line] += dual * step.high_dual[line]
