"""What the contract tests run over: every task, every loss, inputs by the kind of target a task takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import taskloss as tl

LOSSES: dict[str, Callable[..., torch.nn.Module]] = {
    "direct positive": lambda task, **settings: tl.DirectLoss(task, epsilon=0.5, update="positive", **settings),
    "direct negative": lambda task, **settings: tl.DirectLoss(task, epsilon=0.5, update="negative", **settings),
    "direct central": lambda task, **settings: tl.DirectLoss(task, epsilon=0.5, update="central", **settings),
    "hinge": lambda task, **settings: tl.StructuredHingeLoss(task, margin=0.7, **settings),
    "perceptron": tl.PerceptronLoss,
}


def root_discount(i, c):
    return 1 / np.sqrt(i + c)


def first_page(i, c, num_relevant):
    return np.where(i + c <= 10, 1.0, 0.2) / num_relevant


def informedness(tp, fp, fn, tn):
    """Youden's J."""
    return tp / (tp + fn) - fp / (fp + tn)


# Tasks without a name, since they have settings without a default, and settings that deserve the contract by themselves.
SETTINGS: dict[str, tl.Task] = {
    "separable": tl.SeparableMetric(first_page, normalize=False),
    "separable, convex": tl.SeparableMetric(root_discount, convex=True),
    "confusion": tl.ConfusionMetric(informedness),
    "multi_class with costs": tl.MultiClass([[abs(i - j) / 2 for j in range(6)] for i in range(6)]),
    "structured": tl.Structured(tl.solvers.Assignment()),
    "structured batched": tl.Structured(tl.solvers.MonotoneGridPath(), batched=True, on_worse="ignore"),
    "structured regret": tl.Structured(tl.solvers.Assignment(), loss="regret", batched=True),
}
TASKS: dict[str, tl.Task] = {**{name: cls() for name, cls in tl.tasks.registered().items()}, **SETTINGS}
# Kinds of target whose samples have several scores: the axes of one sample.
SAMPLE_AXES: dict[str, tuple[int, ...]] = {"class": (6,), "structure": (3, 3)}


def tasks_that(*, take: tuple[str, ...] = (), kinds: tuple[str, ...] = (), one_score: bool = False) -> pytest.MarkDecorator:
    """Run a test for the tasks that take these options of a call, with these kinds of target, with one score per sample.

    Tasks to which a test cannot apply are left out, not skipped; that they refuse the options is tested.
    """
    chosen = {
        name: task
        for name, task in TASKS.items()
        if task.options.issuperset(take)
        and (not kinds or task.target_kind in kinds)
        and not (one_score and task.target_kind in SAMPLE_AXES)
    }
    return pytest.mark.parametrize("task", [pytest.param(task, id=name) for name, task in chosen.items()])


every_task = tasks_that()
every_labeling_task = tasks_that(kinds=("labels",))
every_item_task = tasks_that(kinds=tuple(SAMPLE_AXES))
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
    "class": lambda shape, generator: torch.randint(shape[1], shape[:1], generator=generator),
    "structure": lambda shape, generator: torch.eye(shape[2])[torch.rand(shape[:2], generator=generator).argsort(-1)],
}


def scores_shape(task: tl.Task, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape itself; with several scores a sample, one axis of samples (none if ``shape`` is empty) and the sample's axes."""
    axes = SAMPLE_AXES.get(task.target_kind)
    return shape if axes is None else (0 if 0 in shape else shape[0], *axes)


def example(
    task: tl.Task, shape: tuple[int, ...] = (30,), seed: int = 0, ties: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float64 scores and a target that the task takes."""
    generator = torch.Generator().manual_seed(seed)
    shape = scores_shape(task, shape)
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
