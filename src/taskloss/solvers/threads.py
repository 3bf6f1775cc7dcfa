"""A batch in threads: kernels and HiGHS work without the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

WORK_PER_THREAD = 2_000_000
"""Elementary steps of a kernel, about a millisecond, that are worth starting another thread."""


def solve_in_threads(solve: Callable[[np.ndarray], np.ndarray], batch: np.ndarray, work: float) -> np.ndarray:
    """Return ``solve(batch)``, computed in parts by up to ``torch.get_num_threads()`` threads.

    ``work`` is that of one instance, in elementary steps. The instances are independent, so the result does not depend on the
    number of threads.
    """
    parts = int(min(len(batch), 1 + len(batch) * work // WORK_PER_THREAD))
    threads = min(parts, torch.get_num_threads())
    if threads <= 1:
        return solve(batch)
    # A few parts per thread, since instances differ in difficulty.
    with ThreadPoolExecutor(threads, thread_name_prefix="taskloss-solver") as pool:
        return np.concatenate(list(pool.map(solve, np.array_split(batch, min(parts, 4 * threads)))))
