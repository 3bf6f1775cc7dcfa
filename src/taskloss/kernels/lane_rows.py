"""Whole arrays ``(rows, lanes)`` at once. Assignments of slices do the same, but take the compiler much longer."""

from __future__ import annotations

from taskloss.kernels._lanes import in_all, load, store
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
