"""Work in several processes, and in one thread each, so that results do not depend on the number of cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def default_jobs() -> int:
    """Return the number of cores that this process may use, at most 4: each process holds a copy of the data."""
    return min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def run_in_processes(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], jobs: int) -> Iterator[Result]:
    """Yield the results of the calls, each given by its arguments, in the order in which they finish in ``jobs`` processes."""
    # Spawned, not forked: a fork of a process with threads (torch, Arrow) may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent, initargs=(os.getpid(),)) as pool:
        try:
            futures = [pool.submit(function, *arguments) for arguments in calls]
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _end_with_parent(parent: int) -> None:
    """Make this worker ignore Ctrl-C, which the parent handles, and exit if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def single_thread() -> Iterator[None]:
    """Run the block with one torch thread: results do not depend on the number of cores, and small networks train faster."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
