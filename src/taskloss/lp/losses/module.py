"""What the losses share: settings, calls, and the map from scores to positions."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss.lp.formulations.ratio import Phi
from taskloss.lp.objectives.objective import SOLVERS, program_loss
from taskloss.tasks.task import Task

SOFT_MARGIN = 0.25
"""Of the losses with soft labels."""


class ProgramLossOptions(TypedDict, total=False):
    """What the losses take, in their constructor or in the call."""

    dim: int | tuple[int, ...] | None
    """The axis or axes of the samples of one ranking or labeling, as for :class:`taskloss.DirectLoss`."""
    ignore_index: int | None
    """Samples whose target has this value take no part and get a zero gradient."""
    reduction: str
    """``"mean"`` over the items that are defined (default), ``"sum"`` or ``"none"``."""


class ProgramCallOptions(ProgramLossOptions, total=False):
    """The options of one call."""

    groups: Any
    """Query id of each sample: one ranking or labeling a query."""
    weight: Any
    """One weight a ranking or labeling."""


class ProgramLoss(nn.Module):
    """Holds a task and settings; no parameters, no state."""

    def __init__(self, task: Task, solver: str, phi: Phi | None, settings: ProgramLossOptions) -> None:
        super().__init__()
        self.task = task
        self.solver = _checks.check_choice("solver", solver, SOLVERS)
        self.phi = phi
        unknown = settings.keys() - ProgramLossOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"unknown setting {sorted(unknown)[0]!r}; expected {', '.join(ProgramLossOptions.__annotations__)}")
        _checks.check_reduction(settings.get("reduction", "mean"))
        self.settings: dict[str, Any] = dict(settings)

    def forward(self, scores: Tensor, target: Tensor, **options: Unpack[ProgramCallOptions]) -> Tensor:
        return evaluate(self.task, self.solver, self.phi, scores, target, {**self.settings, **options})

    def extra_repr(self) -> str:
        phi = "" if self.phi is None else f", phi={self.phi!r}"
        return ", ".join([repr(self.task) + phi, f"solver={self.solver!r}", *(f"{k}={v!r}" for k, v in self.settings.items())])


def evaluate(task: Task, solver: str, phi: Phi | None, scores: Tensor, target: Tensor, options: dict[str, Any]) -> Tensor:
    """The loss of one call: positions by ``phi`` if there is one."""
    if phi is not None:
        _checks.check_tensors(scores, target)
        scores = phi(scores.to(torch.promote_types(scores.dtype, torch.float32)))
    return program_loss(task, solver, scores, target, **options)
