"""Slacks and duals of the limits of every line: the state of the interior method, and how a step changes it.

See ``kernels.lp_interior`` for the method and its equations. A *side* is a limit of a line: sides ``0 .. lines - 1`` are the
lower limits, sides ``lines .. 2 lines - 1`` the upper ones. A side that a line does not have has slack and dual 1 and stays so.

All arrays have a last axis of lanes. Loops over sides have one result each and no decisions, and go over all numbers at once
where no number of a lane takes part: so the compiler makes vector instructions of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._lanes import in_all, larger, load, size_of, smaller, store, where_positive
from taskloss.kernels._numba import inner_kernel, plain_kernel


class Limits(NamedTuple):
    """Of sides: is there such a limit (1 or 0), and the limit (0 if there is none).

    ``equation``: of lines (1 or 0); an equation has no sides, but its right side stands at both. ``number``: of a lane's sides.
    """

    present: np.ndarray
    limit: np.ndarray
    equation: np.ndarray
    number: np.ndarray


class Sides(NamedTuple):
    """Slack and dual of every side, or a change of them."""

    slack: np.ndarray
    dual: np.ndarray


class Terms(NamedTuple):
    """What the equations of a step contain, of sides.

    ``missing``: what the slack lacks to be the distance from the limit. ``inverse_slack`` and ``inverse_dual``: zero where there
    is no such limit. ``wanted``: the change of the product of slack and dual that a step aims at. ``pull``: of that, and of what
    is missing, on the line.
    """

    missing: np.ndarray
    inverse_slack: np.ndarray
    inverse_dual: np.ndarray
    wanted: np.ndarray
    pull: np.ndarray


@inner_kernel
def make_limits(lines, width):
    """Empty room."""
    shape = (2 * lines, width)
    return Limits(np.empty(shape), np.empty(shape), np.empty((lines, width)), np.empty(width))


@plain_kernel
def write_limits(program, limits):
    """Those of the programs of all lanes."""
    lines, width = program.low.shape
    for lane in range(width):
        limits.number[lane] = 0.0
    for line in range(lines):
        for lane in range(width):
            low = program.low[line, lane]
            high = program.high[line, lane]
            equation = 1.0 if low == high else 0.0
            limits.equation[line, lane] = equation
            limits.limit[line, lane] = low if low > -np.inf else 0.0
            limits.limit[lines + line, lane] = high if high < np.inf else 0.0
            limits.present[line, lane] = 1.0 - equation if low > -np.inf else 0.0
            limits.present[lines + line, lane] = 1.0 - equation if high < np.inf else 0.0
            limits.number[lane] += limits.present[line, lane] + limits.present[lines + line, lane]


@inner_kernel
def make_sides(lines, width):
    """Slacks and duals of zero."""
    shape = (2 * lines, width)
    return Sides(np.zeros(shape), np.zeros(shape))


@inner_kernel
def make_terms(lines, width):
    """Empty room."""
    shape = (2 * lines, width)
    return Terms(np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape))


@plain_kernel
def complementarity(lanes, limits, sides):
    """The mean product of slack and dual, of each lane."""
    total = in_all(0.0, lanes)
    for side in range(len(sides.slack)):
        total = total + load(limits.present, side, lanes) * load(sides.slack, side, lanes) * load(sides.dual, side, lanes)
    return total / larger(load(limits.number, 0, lanes), in_all(1.0, lanes))


@plain_kernel
def write_terms(lanes, limits, sides, values, terms, theta):
    """What depends on the point alone, and ``theta = dual / slack``, summed over the sides of a line."""
    lines = len(values)
    for line in range(lines):
        distance = load(values, line, lanes) - load(limits.limit, line, lanes)
        store(terms.missing, line, load(limits.present, line, lanes) * (distance - load(sides.slack, line, lanes)))
    for line in range(lines):
        side = lines + line
        distance = load(limits.limit, side, lanes) - load(values, line, lanes)
        store(terms.missing, side, load(limits.present, side, lanes) * (distance - load(sides.slack, side, lanes)))
    present = limits.present.reshape(-1)
    slack = sides.slack.reshape(-1)
    dual = sides.dual.reshape(-1)
    inverse_dual = terms.inverse_dual.reshape(-1)
    inverse_slack = terms.inverse_slack.reshape(-1)
    # One division for both.
    for place in range(len(dual)):
        inverse_slack[place] = present[place] / (slack[place] * dual[place])
    for place in range(len(dual)):
        inverse_dual[place] = inverse_slack[place] * slack[place]
    for place in range(len(dual)):
        inverse_slack[place] *= dual[place]
    weight = theta.reshape(-1)
    other = len(weight)
    for place in range(len(weight)):
        weight[place] = dual[place] * inverse_slack[place] + dual[other + place] * inverse_slack[other + place]


@plain_kernel
def primal_error(lanes, limits, terms, values):
    """By how much the values, their limits and the slacks disagree at most, in each lane."""
    worst = in_all(0.0, lanes)
    for side in range(len(terms.missing)):
        worst = larger(size_of(load(terms.missing, side, lanes)), worst)
    for line in range(len(values)):
        missing = size_of(load(values, line, lanes) - load(limits.limit, line, lanes))
        worst = larger(load(limits.equation, line, lanes) * missing, worst)
    return worst


@plain_kernel
def write_pull(lanes, sides, terms, target, before, collected):
    """``collected``: the terms e of the lines, for a step toward complementarity ``target``.

    The products of the predictor step ``before`` are taken into account.
    """
    aim = load(target, 0, lanes)
    for side in range(len(terms.wanted)):
        product = load(sides.slack, side, lanes) * load(sides.dual, side, lanes)
        second = load(before.slack, side, lanes) * load(before.dual, side, lanes)
        store(terms.wanted, side, aim - product - second)
    dual = sides.dual.reshape(-1)
    wanted = terms.wanted.reshape(-1)
    missing = terms.missing.reshape(-1)
    inverse_slack = terms.inverse_slack.reshape(-1)
    pull = terms.pull.reshape(-1)
    for place in range(len(pull)):
        pull[place] = (wanted[place] - dual[place] * missing[place]) * inverse_slack[place]
    total = collected.reshape(-1)
    other = len(total)
    for place in range(len(total)):
        total[place] = pull[other + place] - pull[place]


@plain_kernel
def write_right_side(lanes, limits, values, gradient, inverse_theta, collected, right_columns, right_rows):
    """Right side of a step's equations."""
    n = len(gradient)
    m = len(values) - n
    zero = in_all(0.0, lanes)
    for column in range(n):
        right = zero - load(gradient, column, lanes) - load(collected, m + column, lanes)
        store(right_columns, column, where_positive(load(limits.equation, m + column, lanes), zero, right))
    for row in range(m):
        missing = load(limits.limit, row, lanes) - load(values, row, lanes)
        right = zero - load(collected, row, lanes) * load(inverse_theta, row, lanes)
        store(right_rows, row, where_positive(load(limits.equation, row, lanes), missing, right))


@plain_kernel
def write_step(lanes, limits, sides, terms, change, step):
    """The changes of slacks and duals that go with ``change`` of the values of the lines."""
    lines = len(change)
    for line in range(lines):
        moved = load(limits.present, line, lanes) * load(change, line, lanes)
        store(step.slack, line, load(terms.missing, line, lanes) + moved)
    for line in range(lines):
        side = lines + line
        moved = load(limits.present, side, lanes) * load(change, line, lanes)
        store(step.slack, side, load(terms.missing, side, lanes) - moved)
    wanted = terms.wanted.reshape(-1)
    dual = sides.dual.reshape(-1)
    moved = step.slack.reshape(-1)
    inverse_slack = terms.inverse_slack.reshape(-1)
    turned = step.dual.reshape(-1)
    for place in range(len(turned)):
        turned[place] = (wanted[place] - dual[place] * moved[place]) * inverse_slack[place]


@plain_kernel
def longest(lanes, change, inverse):
    """The longest step, at most 1, at which no number of a lane passes zero; ``inverse``: one over the numbers."""
    worst = in_all(1.0, lanes)
    minus = in_all(-1.0, lanes)
    for side in range(len(change)):
        worst = larger(minus * load(change, side, lanes) * load(inverse, side, lanes), worst)
    return in_all(1.0, lanes) / worst


@plain_kernel
def target_of(lanes, limits, sides, step, primal, dual, mu):
    """The complementarity to aim at: far below ``mu`` if the first direction gets there (Mehrotra's rule).

    With the step ``(ds, dl)`` from slack s and dual l it would reach ``sum (s + primal ds) (l + dual dl)``. The first direction
    aims at zero, ``s dl + l ds = -s l``, so this is ``(1 - dual) sum s l + (primal - dual) sum l ds + primal dual sum ds dl``.
    """
    one = in_all(1.0, lanes)
    by_slack = in_all(0.0, lanes)
    by_both = in_all(0.0, lanes)
    for side in range(len(sides.slack)):
        change = load(step.slack, side, lanes)
        by_slack = by_slack + load(sides.dual, side, lanes) * change
        by_both = by_both + load(step.dual, side, lanes) * change
    number = larger(load(limits.number, 0, lanes), one)
    reached = (one - dual) * mu + ((primal - dual) * by_slack + primal * dual * by_both) / number
    share = reached / mu
    share = smaller(larger(share * share * share, in_all(1e-8, lanes)), one)
    return where_positive(mu, mu * share, in_all(0.0, lanes))


@plain_kernel
def move(lanes, numbers, change, length):
    """Add a step of the given length, one a lane."""
    factor = load(length, 0, lanes)
    for place in range(len(numbers)):
        store(numbers, place, load(numbers, place, lanes) + factor * load(change, place, lanes))
