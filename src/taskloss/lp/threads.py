"""Compiled stages over parts of a batch at once; they release the interpreter lock."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def in_threads(items: np.ndarray, stage: Callable[[np.ndarray], Any]) -> None:
    """Run a stage, which releases the interpreter lock, over parts of the batch at once."""
    workers = min(len(items), torch.get_num_threads(), os.cpu_count() or 1)
    if workers <= 1:
        if len(items):
            stage(items)
        return
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for result in [pool.submit(stage, part) for part in np.array_split(items, workers)]:
            result.result()
