"""Equilibration: rows, columns, limits and cost of linear programs brought near 1 by powers of two, which costs no rounding.

In lanes, one a program; each ends when it is done.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from taskloss.kernels._lanes import in_all, larger, load, root_of, size_of, smaller, store, where_positive
from taskloss.kernels._numba import inner_kernel, plain_kernel
from taskloss.kernels.lane_rows import fill, largest_finite
from taskloss.kernels.lp_optimality import largest_limit

ROUNDS = 10


class Scaling(NamedTuple):
    """The scales of rows and columns, and of a lane those of all limits and of the cost; room for the sizes of entries."""

    rows: np.ndarray
    columns: np.ndarray
    limit: np.ndarray
    cost: np.ndarray
    row_sizes: np.ndarray
    column_sizes: np.ndarray
    busy: np.ndarray


@inner_kernel
def make_scaling(pattern):
    """Empty room."""
    n = len(pattern.at_column)
    m = len(pattern.at_row)
    width = len(pattern.lanes)
    return Scaling(
        np.empty((m, width)),
        np.empty((n, width)),
        np.empty(width),
        np.empty(width),
        np.empty((m, width)),
        np.empty((n, width)),
        np.empty(width),
    )


@plain_kernel
def _power_of_two(value):
    """The nearest power of two, by ratio: scaling by it costs no rounding."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent if fraction * fraction >= 0.5 else exponent - 1)


@plain_kernel
def _round_all(numbers):
    for row in range(len(numbers)):
        for lane in range(numbers.shape[1]):
            numbers[row, lane] = _power_of_two(numbers[row, lane])


@plain_kernel
def _write_sizes(pattern, entries, scaling):
    """The largest scaled entry of every row and column."""
    lanes = pattern.lanes
    fill(lanes, scaling.column_sizes, 0.0)
    for row in range(len(pattern.at_row)):
        scale = load(scaling.rows, row, lanes)
        largest = in_all(0.0, lanes)
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            column = pattern.columns[entry]
            size = size_of(load(entries, entry, lanes)) * scale * load(scaling.columns, column, lanes)
            largest = larger(size, largest)
            store(scaling.column_sizes, column, larger(size, load(scaling.column_sizes, column, lanes)))
        store(scaling.row_sizes, row, largest)


@plain_kernel
def _divide(lanes, scales, sizes, busy):
    """Divide the scales of the lanes that are not done by the roots of the sizes.

    Returns the least and the largest size, at most and at least 1.
    """
    one = in_all(1.0, lanes)
    working = load(busy, 0, lanes)
    least = one
    most = one
    for row in range(len(scales)):
        size = load(sizes, row, lanes)
        size = where_positive(size, size, one)
        least = smaller(size, least)
        most = larger(size, most)
        store(scales, row, load(scales, row, lanes) / where_positive(working, root_of(size), one))
    return least, most


@plain_kernel
def equilibrate(pattern, entries, scaling):
    """Scales that bring the largest entry of every row and column near 1 (Ruiz 2001)."""
    lanes = pattern.lanes
    one = in_all(1.0, lanes)
    zero = in_all(0.0, lanes)
    fill(lanes, scaling.rows, 1.0)
    fill(lanes, scaling.columns, 1.0)
    store(scaling.busy, 0, one)
    for _ in range(ROUNDS):
        _write_sizes(pattern, entries, scaling)
        least, most = _divide(lanes, scaling.rows, scaling.row_sizes, scaling.busy)
        least_column, most_column = _divide(lanes, scaling.columns, scaling.column_sizes, scaling.busy)
        # The scales are rounded to powers of two, so no more is needed.
        far = larger(larger(most, most_column) - in_all(1.25, lanes), in_all(0.8, lanes) - smaller(least, least_column))
        store(scaling.busy, 0, where_positive(far, load(scaling.busy, 0, lanes), zero))
        left = 0.0
        for lane in range(len(lanes)):
            left += scaling.busy[lane]
        if left == 0.0:
            break
    _round_all(scaling.rows)
    _round_all(scaling.columns)


@plain_kernel
def _unit(largest):
    """A power of two that brings the largest magnitude near 1."""
    return 1.0 / _power_of_two(largest) if largest > 0.0 else 1.0


@plain_kernel
def _multiply(lanes, numbers, factor):
    for row in range(len(numbers)):
        store(numbers, row, load(numbers, row, lanes) * factor)


@plain_kernel
def scale_program(pattern, program, scaling):
    """Scale the programs in place by the scales of rows and columns, then the limits and the cost as a whole."""
    lanes = pattern.lanes
    one = in_all(1.0, lanes)
    m = len(pattern.at_row)
    for row in range(m):
        scale = load(scaling.rows, row, lanes)
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            factor = scale * load(scaling.columns, pattern.columns[entry], lanes)
            store(program.entries, entry, load(program.entries, entry, lanes) * factor)
        store(program.low, row, load(program.low, row, lanes) * scale)
        store(program.high, row, load(program.high, row, lanes) * scale)
    for column in range(len(pattern.at_column)):
        scale = load(scaling.columns, column, lanes)
        store(program.low, m + column, load(program.low, m + column, lanes) * (one / scale))
        store(program.high, m + column, load(program.high, m + column, lanes) * (one / scale))
        store(program.cost, column, load(program.cost, column, lanes) * scale)
    store(scaling.limit, 0, largest_limit(lanes, program, len(program.low)))
    store(scaling.cost, 0, largest_finite(lanes, program.cost, len(program.cost)))
    for lane in range(len(lanes)):
        scaling.limit[lane] = _unit(scaling.limit[lane])
        scaling.cost[lane] = _unit(scaling.cost[lane])
    _multiply(lanes, program.low, load(scaling.limit, 0, lanes))
    _multiply(lanes, program.high, load(scaling.limit, 0, lanes))
    _multiply(lanes, program.cost, load(scaling.cost, 0, lanes))
