"""Checks of what the user's functions of :class:`~taskloss.Structured` are and return, with their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from taskloss._checks import check_callable, check_choice, first_index
from taskloss._warn import warn_caller

LINEAR_LOSSES = ("hamming", "cost", "regret")


def check_loss_and_augment(loss: Any, augment: Any) -> None:
    """Check that ``loss`` is a name, or a function with an augmented solver of its own."""
    if isinstance(loss, str):
        check_choice("loss", loss, LINEAR_LOSSES)
        if augment is not None:
            raise ValueError(
                f"augment= was given with loss={loss!r}, whose augmented answer is the solver's own at shifted scores; leave it "
                "out, or give the loss as a function of (psi, target)"
            )
        return
    check_callable("loss", loss, f"(psi, target), or one of {', '.join(map(repr, LINEAR_LOSSES))}")
    if augment is not None:
        check_callable("augment", augment, "(scores, target, weight)")


def check_batch_axes(scores_shape: tuple[int, ...], target_shape: tuple[int, ...], batch_dims: int) -> None:
    """Check that a target of any other shape has the batch axes of the scores."""
    if len(scores_shape) <= batch_dims:
        raise ValueError(
            f"scores has shape {scores_shape}; expected {batch_dims} batch axes (batch_dims) and then the axes of one instance. "
            "For a single instance add an axis, scores[None], or set batch_dims=0"
        )
    if scores_shape[:batch_dims] != target_shape[:batch_dims]:
        raise ValueError(
            f"scores has shape {scores_shape} and target has shape {target_shape}; expected the same {batch_dims} batch axes, "
            f"{scores_shape[:batch_dims]}: one target per instance"
        )


def as_losses(result: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return what the user's loss gave as float64, if it is finite and has one value per instance."""
    if isinstance(result, torch.Tensor):
        result = result.cpu().numpy(force=True)
    try:
        values = np.asarray(result, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"loss(psi, target) returned {type(result).__name__}; expected numbers of shape {shape}") from error
    if values.shape != shape:
        advice = " Called with a whole batch, since batched=True, it returns one value per instance" if shape else ""
        raise ValueError(f"loss(psi, target) returned values of shape {values.shape}; expected shape {shape}.{advice}")
    bad = ~np.isfinite(values)
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(f"loss(psi, target) returned {values[index]}{f' at [{text}]' if text else ''}; expected finite numbers")
    return values


def warn_of_idle_truth(costs: np.ndarray, truth: np.ndarray) -> None:
    """Warn where doing nothing is the best answer to every instance and no true cost is below zero: they are probably values."""
    if len(truth) > 1 and costs.any() and costs.min() >= 0 and not truth.any():
        warn_caller(
            "no true cost of this call is below zero, and the best answer to each instance is to choose nothing (psi = 0). True "
            "costs are minimized: for values to be maximized, as in a knapsack, the target is minus the values, and the scores "
            "are the predicted values (SPOPlusLoss and the other losses of predicted costs take minus both)"
        )


def refuse_without_augment() -> None:
    """Raise where a task without augmented solver is asked for an augmented answer, or for the best one."""
    raise ValueError(
        "this needs the answer that maximizes <scores, psi> + weight * loss(psi, target), and the task has none: give "
        "Structured(..., augment=), a function of (scores, target, weight). Without it, a loss given as a function can be "
        "evaluated, and trained by taskloss.decisions.PerturbedOptimizerLoss"
    )


def worse_than_other(instance: int, gap: float, weight: float, other: str) -> str:
    """Return the message for an augmented answer that is worse than another one in what it should maximize."""
    return (
        f"augment's answer to instance {instance} is lower in <scores, psi> + weight * loss(psi, target) than {other}, by "
        f"{gap:.3g} at weight={weight:g}. It must maximize this sum, for any scores and for weights of either sign. If it is "
        "approximate, set on_worse='warn' or 'ignore'"
    )
