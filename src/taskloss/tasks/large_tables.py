"""A warning about tables that are filled by a slow function of the user."""

from __future__ import annotations

import weakref
from typing import Any

from taskloss._warn import warn_caller

SLOW_CELLS = 10**8
"""A table of this size takes some seconds with a numpy function."""

_said: weakref.WeakSet[Any] = weakref.WeakSet()


def say_slow(task: Any, cells: int, arguments: str) -> None:
    """Warn, once per task, if a numpy function has so many values to give in every step that it takes seconds."""
    if cells > SLOW_CELLS and task not in _said:
        _said.add(task)
        warn_caller(
            f"{type(task).__name__} asks your numpy function for {cells:,} values in every step, which takes some "
            f"{max(1, round(3e-8 * cells)):,} s or more. Compile it with numba.njit (it is then called with {arguments}), or "
            "train on batches of at most 10,000 samples"
        )
