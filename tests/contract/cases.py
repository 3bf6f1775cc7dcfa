"""What the contract tests run over: every task, every loss, inputs by the kind of target a task takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import taskloss as tl

LOSSES: dict[str, Callable[..., torch.nn.Module]] = {
    "direct positive": lambda task, **settings: tl.DirectLoss(task, epsilon=0.5, **settings),
    "direct negative": lambda task, **settings: tl.DirectLoss(task, epsilon=0.5, update="negative", **settings),
    "hinge": tl.StructuredHingeLoss,
    "perceptron": tl.PerceptronLoss,
}


def root_discount(i, c):
    return 1 / np.sqrt(i + c)


def first_page(i, c, num_relevant):
    return np.where(i + c <= 10, 1.0, 0.2) / num_relevant


def informedness(tp, fp, fn, tn):
    """Youden's J."""
    return tp / (tp + fn) - fp / (fp + tn)


TASKS: dict[str, tl.Task] = {
    **{name: cls() for name, cls in tl.tasks.registered().items()},
    # These have no name, since they need a function.
    "separable, convex": tl.SeparableMetric(root_discount, convex=True),
    "separable": tl.SeparableMetric(first_page, normalize=False),
    "confusion": tl.ConfusionMetric(informedness),
}
every_task = pytest.mark.parametrize("task", [pytest.param(task, id=name) for name, task in TASKS.items()])
every_labeling_task = pytest.mark.parametrize(
    "task", [pytest.param(task, id=name) for name, task in TASKS.items() if task.target_kind == "labels"]
)
every_loss = pytest.mark.parametrize("make_loss", [pytest.param(make, id=name) for name, make in LOSSES.items()])


def _binary_target(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    target = torch.rand(shape, generator=generator) < 0.4
    # Both classes in every column and row.
    target[0], target[-1] = True, False
    if len(shape) > 1:
        target[:, 0], target[:, -1] = True, False
        target[0, -1], target[-1, 0] = True, False
    return target


TARGETS: dict[str, Callable[[tuple[int, ...], torch.Generator], torch.Tensor]] = {
    "binary": _binary_target,
    "labels": _binary_target,
    "graded": lambda shape, generator: _binary_target(shape, generator) * torch.randint(1, 4, shape, generator=generator),
}


def example(
    task: tl.Task, shape: tuple[int, ...] = (30,), seed: int = 0, ties: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float64 scores and a target that the task takes."""
    generator = torch.Generator().manual_seed(seed)
    target = TARGETS[task.target_kind](shape, generator)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (scores.mul(2).round() if ties else scores), target


def value_and_gradient(
    loss: torch.nn.Module, scores: torch.Tensor, target: torch.Tensor, **options
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss at ``scores`` and its gradient there (of the sum, when it is not a scalar)."""
    leaf = scores.detach().clone().requires_grad_()
    value = loss(leaf, target, **options)
    value.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.shape == scores.shape
    return value.detach(), leaf.grad


def needs(task: tl.Task, *options: str) -> None:
    """Skip a form of call that this kind of task does not have; the refusal itself is tested."""
    for option in options:
        if option not in task.options:
            pytest.skip(f"{type(task).__name__} has no {option}")
