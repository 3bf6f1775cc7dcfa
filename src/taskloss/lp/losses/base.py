"""Parts that all losses share: options, the module, and the two ways to a value.

A loss describes its metric as a :class:`~taskloss.tasks.task.Task`. The task reads a batch, in any calling form, into a
:class:`ProgramObjective`: R items (rankings or labelings), each with a value and a gradient. ``solver="exact"`` asks for
``values`` and ``gradient``, which sort or use a closed form; ``solver="lp"`` asks for ``solve_programs``.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from taskloss import _checks, distributed
from taskloss._advice import Advice
from taskloss.direct import task_loss
from taskloss.layout import Layout, Rankings, to_numpy
from taskloss.lp.formulations.ratio import Phi
from taskloss.lp.layer import differentiable_solve
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import Solution
from taskloss.tasks.registry import handle_of
from taskloss.tasks.task import Call, Objective, Task

SOLVERS = ("exact", "lp")
SOFT_MARGIN = 0.25
"""Default margin of the losses of soft labels."""
TOLERANCE = 1e-10
"""Relative error that the solver is asked for."""
ACCEPTED_ERROR = 1e-8
"""Relative error that is accepted from the solver."""

IndicesAndLabels = tuple[np.ndarray, np.ndarray]
"""The samples of one item: their indices in the flattened scores, and whether each is positive."""


class ProgramLossOptions(distributed.SyncOptions, total=False):
    """Options of a loss, in its constructor or in the call."""

    dim: int | tuple[int, ...] | None
    """The axis or axes of the samples of one ranking or labeling, as for :class:`taskloss.DirectLoss`."""
    ignore_index: int | None
    """Samples whose target has this value take no part and get a zero gradient."""
    reduction: str
    """``"mean"`` over the items that are defined (default), ``"sum"`` or ``"none"``."""


class ProgramCallOptions(ProgramLossOptions, total=False):
    """Options of one call."""

    groups: Any
    """Query id of each sample: one ranking or labeling per query."""
    weight: Any
    """One weight per ranking or labeling."""


class ProgramLoss(nn.Module):
    """Base of the losses: a task and settings, without parameters or state."""

    def __init__(self, task: Task, solver: str, phi: Phi | None, settings: ProgramLossOptions) -> None:
        super().__init__()
        self.task = task
        self.solver = _checks.check_choice("solver", solver, SOLVERS)
        self.phi = phi
        unknown = settings.keys() - ProgramLossOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"unknown setting {sorted(unknown)[0]!r}; expected {', '.join(ProgramLossOptions.__annotations__)}")
        _checks.check_reduction(settings.get("reduction", "mean"))
        distributed.check_settings(settings)
        self.settings: dict[str, Any] = dict(settings)
        self._advice = Advice()

    def forward(self, scores: Tensor, target: Tensor, **options: Unpack[ProgramCallOptions]) -> Tensor:
        return program_loss(self.task, scores, target, self.solver, self.phi, self._advice, **{**self.settings, **options})

    def extra_repr(self) -> str:
        phi = "" if self.phi is None else f", phi={self.phi!r}"
        return ", ".join([repr(self.task) + phi, f"solver={self.solver!r}", *(f"{k}={v!r}" for k, v in self.settings.items())])


class ProgramObjective(Objective):
    """A batch of R items that can be evaluated exactly, or by solving one linear program per item."""

    @abstractmethod
    def solve_programs(self, scores: Tensor) -> Tensor:
        """Return the loss of each item, ``(R,)``, from its program; ``scores`` are float64 and flat.

        Items that are undefined may have any value.
        """


def program_loss(
    task: Task,
    scores: Tensor,
    target: Tensor,
    solver: str,
    phi: Phi | None = None,
    advice: Advice | None = None,
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Compute the loss of a batch in any calling form.

    The task gets ``phi(scores)`` if ``phi`` is given; ``advice`` is that of the module.
    """
    if distributed.wants_union(options.get("sync"), options.get("process_group")):
        loss = functools.partial(program_loss, task, solver=solver, phi=phi, advice=advice)
        return distributed.loss_of_union(loss, task, scores, target, options, solver=solver, phi=phi)
    if phi is not None:
        _checks.check_tensors(scores, target)
        scores = phi(scores.to(torch.promote_types(scores.dtype, torch.float32)))
    if _checks.check_choice("solver", solver, SOLVERS) == "exact":
        return task_loss(scores, target, handle_of(task), "own", 1.0, advice, **options)
    return _loss_by_programs(task, scores, target, **distributed.without_sync(options))


def _loss_by_programs(
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
    call = Call(
        dims=_checks.as_dims(dim),
        groups=None if groups is None else to_numpy(groups),
        ignore_index=ignore_index,
        weight=None if weight is None else to_numpy(weight),
    )
    objective: ProgramObjective = task.read(to_numpy(scores), to_numpy(target), call)
    share = torch.from_numpy(np.where(objective.defined, objective.weights, 0.0)).to(scores.device)
    if reduction == "mean" and bool(share.any()):
        share = share / share.sum()
    values = objective.solve_programs(scores.reshape(-1).double()) * share
    result = values.reshape(objective.values_shape) if reduction == "none" else values.sum()
    return result.to(torch.promote_types(scores.dtype, torch.float32))


def solve_program(program: LinearProgram, *, gradient: str = "value") -> Solution:
    """Solve a program that has a solution, and raise if the solver finds none.

    The solver is asked for more digits than it must deliver, since near a degenerate vertex it may not reach them.
    """
    solution = differentiable_solve(program, gradient=gradient, tolerance=TOLERANCE)
    return solution if float(solution.error) <= ACCEPTED_ERROR else solution.check()


def optimal_value(program: LinearProgram) -> Tensor:
    """Return the optimal value of a program, a scalar with its gradient."""
    return solve_program(program).objective.reshape(())


def value_per_item(
    scores: Tensor, items: Iterator[IndicesAndLabels], defined: np.ndarray, value: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return ``value(scores, positive)`` of the samples of each item, ``(R,)``; zero where the item is undefined."""
    values = []
    for (indices, positive), is_defined in zip(items, defined, strict=True):
        own = scores[torch.from_numpy(indices).to(scores.device)]
        mask = torch.from_numpy(positive).to(scores.device)
        # An undefined item still reaches the graph.
        values.append(value(own, mask) if is_defined else (own * 0.0).sum())
    return torch.stack(values) if values else scores.new_zeros(0) + (scores[:0] * 0.0).sum()


def samples_of_rankings(rankings: Rankings) -> Iterator[IndicesAndLabels]:
    """Yield the samples of each ranking."""
    lists = rankings.lists
    for r in range(len(rankings.positives)):
        positive = lists.positive_index[lists.positive_start[r] : lists.positive_start[r + 1]]
        negative = lists.negative_index[lists.negative_start[r] : lists.negative_start[r + 1]]
        yield np.concatenate([positive, negative]), np.arange(len(positive) + len(negative)) < len(positive)


def samples_of_labelings(layout: Layout, labels: np.ndarray) -> Iterator[IndicesAndLabels]:
    """Yield the samples of each labeling."""
    owner = layout.full_owner()
    kept = np.flatnonzero(labels <= 1)
    for r in range(layout.rankings):
        indices = kept[owner[kept] == r]
        yield indices, labels[indices] == 1


def check_phi(phi: Phi | None) -> bool:
    """Check that ``phi`` can be called; return whether it was left out, so that the kernels take the tanh themselves."""
    if phi is not None:
        _checks.check_callable("phi", phi, "the scores")
    return phi is None


def check_phi_range(phi_of_scores: np.ndarray, kept: np.ndarray) -> None:
    """Raise unless the values of phi are within [-1, 1] wherever ``kept``."""
    bad = (np.abs(phi_of_scores) > 1.0) & kept.reshape(phi_of_scores.shape)
    if bad.any():
        index, text = _checks.first_index(bad)
        raise ValueError(
            f"phi(scores)[{text}] is {phi_of_scores[index]}; expected phi to map scores to [-1, 1], 0 at the decision: "
            "leave phi out (tanh), or use lambda s: 2 * torch.sigmoid(s) - 1"
        )
