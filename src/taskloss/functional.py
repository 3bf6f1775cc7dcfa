"""The losses as functions; each equals the module of the same name, with the same defaults."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from taskloss import _checks
from taskloss.direct import EPSILON, MARGIN, CallOptions, task_loss, update_of
from taskloss.tasks.registry import as_task, handle_of
from taskloss.tasks.task import Task


def direct_loss(
    scores: Tensor,
    target: Tensor,
    task: Task | str,
    *,
    epsilon: float = EPSILON,
    update: str | None = None,
    **options: Unpack[CallOptions],
) -> Tensor:
    """Compute the direct loss; the functional form of :class:`taskloss.DirectLoss`.

    >>> import torch
    >>> direct_loss(torch.tensor([0.2, 0.1]), torch.tensor([1, 0]), "average_precision").item()
    0.0
    """
    task = as_task(task)
    rule = update_of(task, update)
    return task_loss(scores, target, handle_of(task), rule, _checks.check_positive("epsilon", epsilon), **options)


def structured_hinge_loss(
    scores: Tensor, target: Tensor, task: Task | str, *, margin: float = MARGIN, **options: Unpack[CallOptions]
) -> Tensor:
    """Compute the structured hinge; the functional form of :class:`taskloss.StructuredHingeLoss`."""
    return task_loss(scores, target, handle_of(task), "hinge", _checks.check_positive("margin", margin), **options)


def perceptron_loss(scores: Tensor, target: Tensor, task: Task | str, **options: Unpack[CallOptions]) -> Tensor:
    """Compute the perceptron loss; the functional form of :class:`taskloss.PerceptronLoss`."""
    return task_loss(scores, target, handle_of(task), "perceptron", 1.0, **options)
