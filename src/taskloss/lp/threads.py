"""Compiled stages over parts of a batch at once; they release the interpreter lock."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

CORES = os.cpu_count() or 1
WORTH = 20_000
"""Numbers to work on that are worth waking another thread."""

Result = TypeVar("Result")

_pool: concurrent.futures.ThreadPoolExecutor | None = None


def in_threads(count: int, stage: Callable[[np.ndarray], Result], work: int) -> list[Result]:
    """Run a stage over parts of the items ``0 .. count - 1`` at once, one of them here; returns the results in order.

    ``work``: of an item, in numbers.
    """
    workers = min(count, torch.get_num_threads(), CORES, 1 + count * work // WORTH)
    if workers <= 1:
        return [stage(np.arange(count))]
    parts = np.array_split(np.arange(count), workers)
    waiting = [_threads().submit(stage, part) for part in parts[1:]]
    return [stage(parts[0]), *(result.result() for result in waiting)]


def _threads() -> concurrent.futures.ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = concurrent.futures.ThreadPoolExecutor(CORES, thread_name_prefix="taskloss-lp")
    return _pool


def _forget() -> None:
    """A forked process has none of its parent's threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
