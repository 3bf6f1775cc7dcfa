"""Whole arrays ``(rows, lanes)`` at once. Assignments of slices do the same, but take the compiler much longer."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._lanes import in_all, larger, load, size_of, store, where_positive
from taskloss.kernels._numba import plain_kernel


@plain_kernel
def fill(lanes, target, number):
    """Write one number everywhere."""
    value = in_all(number, lanes)
    for row in range(len(target)):
        store(target, row, value)


@plain_kernel
def copy(lanes, source, target):
    """Write ``source`` over ``target``."""
    for row in range(len(target)):
        store(target, row, load(source, row, lanes))


@plain_kernel
def copy_where(lanes, condition, source, target):
    """Write ``source`` over ``target`` in the lanes where the condition is positive."""
    for row in range(len(target)):
        store(target, row, where_positive(condition, load(source, row, lanes), load(target, row, lanes)))


@plain_kernel
def largest_in_lanes(lanes, numbers):
    """The largest magnitude; infinite when anything is undefined."""
    worst = in_all(0.0, lanes)
    total = in_all(0.0, lanes)
    for row in range(len(numbers)):
        value = load(numbers, row, lanes)
        total = total + value
        worst = larger(size_of(value), worst)
    return defined(lanes, worst, total)


@plain_kernel
def defined(lanes, value, total):
    """``value``, infinite where it or ``total`` is not finite."""
    limit = in_all(np.inf, lanes)
    # Undefined, so not positive, where either is infinite or undefined.
    finite = in_all(1.0, lanes) + (value - value) + (total - total)
    return where_positive(finite, value, limit)


@plain_kernel
def largest_finite(lanes, numbers, count):
    """The largest finite magnitude in the first ``count`` rows."""
    worst = in_all(0.0, lanes)
    zero = in_all(0.0, lanes)
    unlimited = in_all(1e300, lanes)
    for row in range(count):
        size = size_of(load(numbers, row, lanes))
        worst = larger(where_positive(unlimited - size, size, zero), worst)
    return worst
