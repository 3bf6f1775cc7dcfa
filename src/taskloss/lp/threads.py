"""Compiled stages over parts of a batch at once; they release the interpreter lock."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

WORTH = 20_000
"""Numbers to work on that are worth waking another thread."""

_pool: concurrent.futures.ThreadPoolExecutor | None = None


def in_threads(items: np.ndarray, stage: Callable[[np.ndarray], Any], work: int) -> None:
    """Run a stage over parts of the batch at once, one of them here. ``work``: of an item."""
    if not len(items):
        return
    workers = min(len(items), torch.get_num_threads(), os.cpu_count() or 1, 1 + len(items) * work // WORTH)
    parts = np.array_split(items, workers) if workers > 1 else [items]
    waiting = [_threads().submit(stage, part) for part in parts[1:]]
    stage(parts[0])
    for result in waiting:
        result.result()


def _threads() -> concurrent.futures.ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="taskloss-lp")
    return _pool


def _forget() -> None:
    """A forked process has none of its parent's threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
