"""Threads for the parts of a batch; the compiled stages release the interpreter lock."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch

CORES = os.cpu_count() or 1
WORK_PER_THREAD = 20_000
"""Nonzeros to work on that are worth waking another thread."""

T = TypeVar("T")

_pool: concurrent.futures.ThreadPoolExecutor | None = None


def in_threads(count: int, stage: Callable[[np.ndarray], T], work: int) -> list[T]:
    """Run ``stage`` over parts of the items ``0 .. count - 1``, several at once; return the results in order.

    ``work`` is that of one item, in nonzeros. A part that no other thread has begun when this one is ready is done here, since
    torch's threads may keep a core busy for milliseconds after their work.
    """
    workers = min(count, torch.get_num_threads(), CORES, 1 + count * work // WORK_PER_THREAD)
    if workers <= 1:
        return [stage(np.arange(count))]
    parts = np.array_split(np.arange(count), workers)
    results: dict[int, T] = {}
    part_numbers: Iterator[int] = itertools.count()

    def take_parts() -> None:
        while (number := next(part_numbers)) < len(parts):
            results[number] = stage(parts[number])

    helpers = [_threads().submit(take_parts) for _ in range(workers - 1)]
    try:
        take_parts()
    except BaseException:
        # The others must not begin anything new.
        part_numbers = itertools.repeat(len(parts))
        raise
    for helper in helpers:
        if not helper.cancel():
            helper.result()
    return [results[number] for number in range(len(parts))]


def _threads() -> concurrent.futures.ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = concurrent.futures.ThreadPoolExecutor(CORES, thread_name_prefix="taskloss-lp")
    return _pool


def _forget_threads() -> None:
    """Forget the pool: a forked process has none of its parent's threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
