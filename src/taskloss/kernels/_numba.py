"""How every kernel is compiled: once on a machine, without the interpreter lock, never with numba's own threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` with numba and keep the machine code on disk.

    ``nogil`` lets a data loader or a server thread run meanwhile. ``parallel=True`` is never used: a process forked after
    it dies, and concurrent calls abort. Where no folder can hold the compiled code (a read-only installation without
    a home), the kernel still works and is compiled again in each process.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        _warn_no_cache()
        return numba.njit(**options)(function)


_warned = False


def _warn_no_cache() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "taskloss found no writable folder for its compiled kernels, so each process compiles them again (a few "
            "seconds). Set NUMBA_CACHE_DIR to a writable folder to keep them.",
            RuntimeWarning,
            stacklevel=3,
        )
