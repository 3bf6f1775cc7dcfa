"""The methods of Song et al. (2016) by the names of the paper.

Each has one weight in units of the scores: epsilon of the direct losses, the margin of the hinge, the temperature of the
cross-entropy. The perceptron has none and ignores it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

import taskloss as tl
from taskloss.training import Criterion


def _cross_entropy(temperature: float, *, ignore_index: int | None = None, reduction: str = "mean") -> Criterion:
    def criterion(scores: Tensor, target: Tensor) -> Tensor:
        """Return the mean over the samples of a column, and the sum or the mean over the columns."""
        known = torch.ones_like(scores) if ignore_index is None else (target != ignore_index).to(scores.dtype)
        losses = functional.binary_cross_entropy_with_logits(
            scores / temperature, target.clamp(min=0).to(scores.dtype), reduction="none"
        )
        of_columns = (losses * known).sum(0) / known.sum(0)
        return of_columns.sum() if reduction == "sum" else of_columns.mean()

    return criterion


def _of_task(suffix: str, task: str) -> dict[str, Callable[..., Criterion]]:
    return {
        f"pos-{suffix}": lambda weight, **settings: tl.DirectLoss(task, epsilon=weight, update="positive", **settings),
        f"neg-{suffix}": lambda weight, **settings: tl.DirectLoss(task, epsilon=weight, update="negative", **settings),
        f"hinge-{suffix}": lambda weight, **settings: tl.StructuredHingeLoss(task, margin=weight, **settings),
        f"per-{suffix}": lambda weight, **settings: tl.PerceptronLoss(task, **settings),
    }


METHODS: dict[str, Callable[..., Criterion]] = {
    **_of_task("AP", "average_precision"),
    **_of_task("01", "zero_one"),
    "x-ent": _cross_entropy,
}
"""Criteria by name, each made from its weight and, for several columns of scores, ``ignore_index`` and ``reduction``."""

DIRECT = ("pos-AP", "neg-AP", "pos-01", "neg-01")
"""The methods whose weight the paper tunes: it is their epsilon."""
