"""Counting of what is compiled, and the announcement of a compilation that takes long."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_SECONDS = 1.0
"""Compilation that goes on for longer than this is announced."""


class _Compilation:
    """What this process has compiled so far; numba's lock lets one thread compile at a time."""

    kernels = 0
    """Number of kernels."""
    seconds = 0.0
    """Total time."""
    depth = 0
    """Kernels that are being compiled: one calls another."""
    announced = False


compilation = _Compilation()


def announced(dispatcher: Any) -> Any:
    """Return a compiled function whose compilations are counted, and announced once where they take long.

    Code that is loaded from disk does not count.
    """
    compiler = dispatcher._compiler
    compile_now = compiler.compile

    def compile_and_count(*arguments: Any) -> Any:
        if compilation.seconds > PATIENCE_SECONDS and not compilation.announced:
            compilation.announced = True
            logging.getLogger("taskloss").warning(
                "compiling kernels for this machine; this takes some seconds, once, since the machine code is kept on disk. "
                "`taskloss compile` or taskloss.precompile.compile_kernels() does it ahead of time"
            )
        started = time.perf_counter()
        compilation.kernels += 1
        compilation.depth += 1
        try:
            with _garbage_collection_paused():
                return compile_now(*arguments)
        finally:
            compilation.depth -= 1
            if not compilation.depth:
                compilation.seconds += time.perf_counter() - started

    compiler.compile = compile_and_count
    return dispatcher


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Pause the garbage collector: it would look through all of torch time and again, for a tenth of the time of compilation."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
