"""What the metric programs share: two ways to the same number, and the one entrance of their losses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taskloss import _checks
from taskloss.direct import task_loss
from taskloss.layout import Layout, Rankings, to_numpy
from taskloss.lp.layer import differentiable_solve
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import Solution
from taskloss.tasks.registry import handle_of
from taskloss.tasks.task import Call, Objective, Task

SOLVERS = ("exact", "newton")
TOLERANCE, ENOUGH = 1e-10, 1e-8
"""Of the solver, relative: what is asked for, and what is good enough."""


class ProgramObjective(Objective):
    """A batch whose items can be evaluated exactly, or by solving their linear programs."""

    @abstractmethod
    def solved(self, scores: Tensor) -> Tensor:
        """The loss of each item by its program, ``(R,)``; ``scores`` are float64 and flat. Undefined items may have any value."""


def program_loss(task: Task, solver: str, scores: Tensor, target: Tensor, **options: Any) -> Tensor:
    """The loss of a batch, in every calling form."""
    if _checks.check_choice("solver", solver, SOLVERS) == "exact":
        return task_loss(scores, target, handle_of(task), "own", 1.0, **options)
    return _solved_loss(task, scores, target, **options)


def _solved_loss(
    task: Task,
    scores: Tensor,
    target: Tensor,
    *,
    dim: int | tuple[int, ...] | None = None,
    groups: Any = None,
    weight: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    _checks.check_tensors(scores, target)
    _checks.check_reduction(reduction)
    _checks.check_ignore_index(ignore_index)
    arrays = [None if value is None else to_numpy(value) for value in (groups, weight)]
    call = Call(_checks.as_dims(dim), arrays[0], ignore_index, None, arrays[1])
    reading: ProgramObjective = task.read(to_numpy(scores), to_numpy(target), call)
    share = torch.from_numpy(np.where(reading.defined, reading.weights, 0.0)).to(scores.device)
    if reduction == "mean" and bool(share.any()):
        share = share / share.sum()
    values = reading.solved(scores.reshape(-1).double()) * share
    result = values.reshape(reading.values_shape) if reduction == "none" else values.sum()
    return result.to(torch.promote_types(scores.dtype, torch.float32))


def solve_program(program: LinearProgram, *, gradient: str = "value") -> Solution:
    """The solution of a program that has one, asked for more digits than it must have; an error where there is none."""
    solution = differentiable_solve(program, gradient=gradient, tolerance=TOLERANCE)
    return solution if float(solution.error) <= ENOUGH else solution.check()


def solve_value(program: LinearProgram) -> Tensor:
    """The optimal value, with its gradient."""
    return solve_program(program).objective.reshape(())


def solve_items(
    scores: Tensor,
    samples: Iterator[tuple[np.ndarray, np.ndarray]],
    defined: np.ndarray,
    value: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """``value(scores, positive)`` of each item, zero where it is undefined; ``samples`` are the places and labels of each."""
    values = []
    for (places, positive), is_defined in zip(samples, defined, strict=True):
        own = scores[torch.from_numpy(places).to(scores.device)]
        mask = torch.from_numpy(positive).to(scores.device)
        # An undefined item still reaches the graph.
        values.append(value(own, mask) if is_defined else (own * 0.0).sum())
    return torch.stack(values) if values else scores.new_zeros(0) + (scores[:0] * 0.0).sum()


def ranking_samples(rankings: Rankings) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places and labels of the samples of each ranking."""
    lists = rankings.lists
    for r in range(len(rankings.positives)):
        positive = lists.positive_index[lists.positive_start[r] : lists.positive_start[r + 1]]
        negative = lists.negative_index[lists.negative_start[r] : lists.negative_start[r + 1]]
        yield np.concatenate([positive, negative]), np.arange(len(positive) + len(negative)) < len(positive)


def labeling_samples(layout: Layout, labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places and labels of the samples of each labeling."""
    owner = layout.full_owner()
    kept = np.flatnonzero(labels <= 1)
    for r in range(layout.rankings):
        places = kept[owner[kept] == r]
        yield places, labels[places] == 1


def check_positions(scores: np.ndarray, kept: np.ndarray, squash: bool) -> None:
    """Positions that phi gave are within [-1, 1]."""
    if not squash:
        bad = (np.abs(scores) > 1.0) & kept.reshape(scores.shape)
        if bad.any():
            place, text = _checks.first_place(bad)
            raise ValueError(
                f"phi(scores)[{text}] is {scores[place]}; expected phi to map scores to [-1, 1], 0 at the decision: "
                "leave phi out (tanh), or use lambda s: 2 * torch.sigmoid(s) - 1"
            )
