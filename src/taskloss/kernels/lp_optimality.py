"""How far a pair of x and multipliers is from optimal: limits, stationarity, gap. In lanes, one a program."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._lanes import in_all, larger, load, size_of, store, where_positive
from taskloss.kernels._numba import inner_kernel, plain_kernel
from taskloss.kernels.lane_rows import defined, largest_finite, largest_in_lanes
from taskloss.kernels.lp_program import in_lane, program_in_lane, write_stationarity, write_values


class Check(NamedTuple):
    """Room for a check and its outcome: values of lines, ``gradient`` of columns, ``error`` and ``gap`` of the lanes."""

    values: np.ndarray
    gradient: np.ndarray
    error: np.ndarray
    gap: np.ndarray


@inner_kernel
def make_check(pattern):
    """Empty room."""
    n = len(pattern.at_column)
    width = len(pattern.lanes)
    return Check(np.empty((len(pattern.at_row) + n, width)), np.empty((n, width)), np.empty(width), np.empty(width))


@plain_kernel
def violation_in_lanes(lanes, low, high, values):
    """By how much the worst line misses its limits."""
    worst = in_all(0.0, lanes)
    for line in range(len(values)):
        value = load(values, line, lanes)
        worst = larger(larger(load(low, line, lanes) - value, value - load(high, line, lanes)), worst)
    return worst


@plain_kernel
def largest_limit(lanes, program, count):
    """The largest finite magnitude among the limits of the first lines."""
    return larger(largest_finite(lanes, program.low, count), largest_finite(lanes, program.high, count))


@plain_kernel
def smallest_gap_unit(lanes, program):
    """What a gap is compared with at least: a part of the largest cost times the largest limit (1 for either if it is zero).

    Where the optimal value is zero because x is, the terms of the objective vanish too.
    """
    one = in_all(1.0, lanes)
    cost = largest_in_lanes(lanes, program.cost)
    limit = largest_limit(lanes, program, len(program.low))
    return in_all(1e-4, lanes) * where_positive(cost, cost, one) * where_positive(limit, limit, one)


@plain_kernel
def relative_gap(lanes, program, x, multipliers):
    """Primal minus dual objective of a linear program, relative to the terms of either.

    The dual objective is the least of the Lagrangian over the limits, for multipliers that are stationary.
    """
    zero = in_all(0.0, lanes)
    primal = zero
    terms = zero
    for column in range(len(x)):
        term = load(program.cost, column, lanes) * load(x, column, lanes)
        primal = primal + term
        terms = terms + size_of(term)
    dual = zero
    for line in range(len(multipliers)):
        multiplier = load(multipliers, line, lanes)
        limit = where_positive(multiplier, load(program.high, line, lanes), load(program.low, line, lanes))
        dual = dual - where_positive(size_of(multiplier), multiplier * limit, zero)
    unit = larger(larger(terms, size_of(dual)), smallest_gap_unit(lanes, program))
    return defined(lanes, size_of(primal - dual) / unit, primal + dual)


@plain_kernel
def check_pair(pattern, program, x, multipliers, check):
    """Fill ``check``.

    The error is the worst of: a violated limit, against 1, the largest limit and the terms of its row; stationarity, against
    ``1 + |cost|``; the relative gap.
    """
    lanes = pattern.lanes
    n = len(x)
    m = len(program.low) - n
    values = check.values
    one = in_all(1.0, lanes)
    write_values(pattern, program.entries, x, values)
    write_stationarity(pattern, program, x, multipliers, check.gradient)
    error = largest_in_lanes(lanes, check.gradient) / (one + largest_in_lanes(lanes, program.cost))
    row_size = one + largest_limit(lanes, program, m)
    column_size = one + largest_in_lanes(lanes, x)
    total = in_all(0.0, lanes)
    for line in range(m + n):
        size = column_size
        if line < m:
            size = row_size
            for entry in range(pattern.row_start[line], pattern.row_start[line + 1]):
                term = load(program.entries, entry, lanes) * load(x, pattern.columns[entry], lanes)
                size = size + size_of(term)
        value = load(values, line, lanes)
        total = total + value
        missed = larger(load(program.low, line, lanes) - value, value - load(program.high, line, lanes))
        error = larger(missed / size, error)
    gap = relative_gap(lanes, program, x, multipliers)
    store(check.gap, 0, gap)
    store(check.error, 0, defined(lanes, larger(gap, error), total))


@inner_kernel
def check_one(pattern, program, x, multipliers, check):
    """``check_pair`` for one program; returns the error."""
    check_pair(pattern, program_in_lane(program), in_lane(x), in_lane(multipliers), check)
    return check.error[0]
