"""Compilation of all kernels ahead of time, for images, clusters and impatient users.

A kernel is compiled for the types of its arguments when it is first called, and the machine code is kept on disk. So the way to
compile everything is to call everything once, on tiny data of the usual types.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from taskloss import lp
from taskloss.direct import UPDATES, DirectLoss, PerceptronLoss, StructuredHingeLoss
from taskloss.kernels.compilation import compilation
from taskloss.kernels.items import weigh_items
from taskloss.kernels.sort import MANY_SAMPLES
from taskloss.tasks.registry import registered
from taskloss.tasks.task import Task
from taskloss.trees import Forest

TARGET_DTYPES = (torch.bool, torch.int64, torch.float32)
"""Types of 0/1 targets; each has machine code of its own."""


class Compiled(NamedTuple):
    """What :func:`compile_kernels` has done."""

    kernels: int
    """Number of kernels that were compiled; those that were on disk already do not count."""
    seconds: float
    """How long that took."""


def compile_kernels(on_progress: Callable[[float, str], None] | None = None) -> Compiled:
    """Compile the kernels of all registered tasks, of linear programs and of trees, and keep them on disk.

    The machine code lies beside the package, or in ``NUMBA_CACHE_DIR`` if that is set. It is valid for this version of taskloss
    and of numba, and for processors like this one. Types of data that are rarely used are still compiled when they come.

    Args:
        on_progress: called before each step with the share that is done, from 0 to 1, and what comes next.
    """
    kernels, seconds = compilation.kernels, compilation.seconds
    announced, compilation.announced = compilation.announced, True
    steps = [*_task_steps(), *_program_steps(), ("trees", _run_trees)]
    try:
        for done, (name, step) in enumerate(steps):
            if on_progress is not None:
                on_progress(done / len(steps), name)
            step()
    finally:
        compilation.announced = announced
    if on_progress is not None:
        on_progress(1.0, "done")
    return Compiled(compilation.kernels - kernels, compilation.seconds - seconds)


def cache_folder() -> str:
    """Return the folder that the machine code is kept in: that of one kernel, where each kernel has its own."""
    kernel: Any = weigh_items
    return os.environ.get("NUMBA_CACHE_DIR") or str(kernel.stats.cache_path)


def _task_steps() -> Iterator[tuple[str, Callable[[], None]]]:
    for name, task in registered().items():
        if task.target_kind in ("binary", "graded", "labels", "class"):
            yield task.label, lambda name=name, task=task: _run_task(name, task)  # type: ignore[misc]  # mypy: lambdas in loops.


def _run_task(name: str, task: type[Task]) -> None:
    """Call every loss of a task on few and on many samples, single and in columns."""
    losses = [DirectLoss(name, update=update) for update in UPDATES] + [StructuredHingeLoss(name), PerceptronLoss(name)]
    dtypes = (torch.int64,) if task.target_kind in ("graded", "class") else TARGET_DTYPES
    shapes: list[tuple[int, ...]] = [(8, 8)] if task.target_kind == "class" else [(8,), (8, 2), (MANY_SAMPLES,)]
    for shape, dtype, scores_dtype in itertools.product(shapes, dtypes, (torch.float32, torch.float64)):
        target = (torch.arange(shape[0]) % 3 == 0).to(dtype)
        if len(shape) == 2 and task.target_kind != "class":
            target = target[:, None].expand(shape)
        scores = torch.linspace(-1.0, 1.0, target.shape[0] * (shape[1] if len(shape) == 2 else 1), dtype=scores_dtype)
        scores = scores.reshape(shape).requires_grad_()
        for loss in losses:
            loss(scores, target).backward()


def _program_steps() -> Iterator[tuple[str, Callable[[], None]]]:
    yield "linear programs", _run_programs
    target = (torch.arange(8) % 3 == 0).float()
    for make in (lp.AUCLoss, lp.FScoreLoss, lp.JaccardLoss, lp.PrecisionAtRecallLoss, lp.RecallAtPrecisionLoss):
        yield make.__name__, lambda make=make: _run_loss(make(), target)  # type: ignore[misc]  # mypy: lambdas in loops.
    yield lp.MultiClassAUCLoss.__name__, lambda: _run_loss(lp.MultiClassAUCLoss(), torch.arange(8) % 3, columns=3)


def _run_loss(loss: torch.nn.Module, target: torch.Tensor, columns: int | None = None) -> None:
    shape = (len(target),) if columns is None else (len(target), columns)
    for dtype in (torch.float32, torch.float64):
        scores = torch.linspace(-1.0, 1.0, target.numel() * (columns or 1), dtype=dtype).reshape(shape).requires_grad_()
        loss(scores, target).backward()


def _run_programs() -> None:
    """Solve programs of every kind, and differentiate them: with one solution, several, none, and without a bound."""
    one = torch.ones(1, dtype=torch.float64)
    unique, several = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([1.0, 1.0], dtype=torch.float64)
    matrix = torch.ones(1, 2, dtype=torch.float64, requires_grad=True)
    for gradient in ("active_set", "smoothed", "unrolled"):
        layer = lp.LPLayer(gradient=gradient)
        for cost in (unique, several):
            layer(cost, A_eq=matrix, b_eq=one, lower=0.0).x.sum().backward()
    lp.solve(unique, A_eq=matrix.detach(), b_eq=-one, lower=0.0)
    lp.solve(-unique, A_ub=-matrix.detach(), b_ub=one, lower=0.0)
    for method in ("augmented_lagrangian", "penalty"):
        lp.solve(unique, A_eq=matrix.detach(), b_eq=one, lower=0.0, method=method)


def _run_trees() -> None:
    """Evaluate one tree that is a leaf."""
    empty: dict[str, Any] = {
        "feature": np.empty(0, np.int32),
        "threshold": np.empty(0, np.float64),
        "zero_left": np.empty(0, np.uint8),
        "nan_left": np.empty(0, np.uint8),
        "children": np.empty((0, 2), np.int32),
        "category_bytes": np.empty(0, np.int32),
        "categories": np.empty(0, np.uint8),
    }
    Forest(features=1, splits=np.zeros((1, 1), np.int64), leaf_value=np.ones(1), **empty).raw_scores(np.zeros((1, 1)))
