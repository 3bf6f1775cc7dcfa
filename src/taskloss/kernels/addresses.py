"""Numbers at an address: for batches so small that making arrays of their tensors would take most of the time.

The caller answers for the address: contiguous numbers of the kind that it names, as many as the kernel will read or write.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.np.numpy_support import carray

from taskloss.kernels._numba import inlined_kernel, intrinsic

FLOAT32, FLOAT64, INT64, BYTE = range(4)
"""Kinds of numbers."""


@intrinsic
def _pointer(_, address):
    """An address as ``carray`` takes it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.uintp), generate


@inlined_kernel
def number_at(address, kind, place):
    """The number at a place, counted in numbers of its kind, as float64."""
    pointer = _pointer(address)
    if kind == FLOAT32:
        return np.float64(carray(pointer, place + 1, np.float32)[place])
    if kind == FLOAT64:
        return carray(pointer, place + 1, np.float64)[place]
    if kind == INT64:
        return np.float64(carray(pointer, place + 1, np.int64)[place])
    return np.float64(carray(pointer, place + 1, np.uint8)[place])


@inlined_kernel
def write_number_at(address, kind, place, number):
    """Write a number of the kind ``FLOAT32`` or ``FLOAT64``."""
    pointer = _pointer(address)
    if kind == FLOAT32:
        carray(pointer, place + 1, np.float32)[place] = number
    else:
        carray(pointer, place + 1, np.float64)[place] = number
