"""A stack of searches that wait in a divide and conquer: an int64 array with one search of four numbers per row."""

from __future__ import annotations

from taskloss.kernels._numba import inlined_kernel


@inlined_kernel
def push(stack, waiting, begin, end, low, high):
    """Write a range of rows and the bounds of its solutions on top of ``waiting`` others; return how many wait then."""
    stack[waiting, 0], stack[waiting, 1], stack[waiting, 2], stack[waiting, 3] = begin, end, low, high
    return waiting + 1
