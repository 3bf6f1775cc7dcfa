"""Every input check and its message: what was given, what was expected, what to do. No mathematics."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """``value`` itself when it is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not known; expected one of {', '.join(map(repr, choices))}")
    return value


def check_positive(name: str, value: Any) -> float:
    """``value`` as a float when it is a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number above zero, got {type(value).__name__}")
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be finite and above zero, got {value!r}")
    return number


def check_dim(dim: Any, ndim: int) -> int:
    """``dim`` counted from the front, for an array of ``ndim`` axes."""
    if isinstance(dim, bool) or not isinstance(dim, numbers.Integral):
        raise TypeError(f"dim must be an integer, got {type(dim).__name__}")
    axis = int(dim)
    if not -ndim <= axis < ndim:
        raise ValueError(f"dim={dim} is out of range for scores with {ndim} axes; expected {-ndim} <= dim < {ndim}")
    return axis % ndim


def check_tensors(scores: Any, target: Any) -> None:
    """The losses take tensors: floating-point scores, and a target on the same footing."""
    if not isinstance(scores, torch.Tensor):
        raise TypeError(f"scores must be a torch.Tensor, got {type(scores).__name__}; use torch.as_tensor(scores)")
    if not isinstance(target, torch.Tensor):
        raise TypeError(f"target must be a torch.Tensor, got {type(target).__name__}; use torch.as_tensor(target)")
    if not scores.dtype.is_floating_point:
        raise TypeError(
            f"scores must be floating point, got {scores.dtype}; are scores and target swapped? The order is (scores, target)"
        )
    if target.requires_grad:
        raise ValueError(
            "target requires a gradient, but no loss has one with respect to the target; are scores and target swapped?"
        )


def check_shapes(scores: np.ndarray, target: np.ndarray) -> None:
    """Same shape, at least one axis."""
    if scores.ndim == 0:
        raise ValueError("scores has no axis; expected one score a sample, shape (n,) or more axes")
    if scores.shape != target.shape:
        raise ValueError(
            f"scores has shape {scores.shape} and target has shape {target.shape}; expected the same shape"
            + _squeeze_advice(scores.shape, target.shape)
        )


def _squeeze_advice(scores_shape: tuple[int, ...], target_shape: tuple[int, ...]) -> str:
    if scores_shape == (*target_shape, 1):
        return ". Drop the last axis of the scores: scores.squeeze(-1)"
    return ""


def check_finite(scores: np.ndarray, kept: np.ndarray | None) -> None:
    """No NaN, no infinity, except where ``kept`` is False."""
    finite = np.isfinite(scores)
    if finite.all():
        return
    bad = ~finite if kept is None else ~finite & kept
    if bad.any():
        index = _first(bad)
        raise ValueError(
            f"scores[{index}] is {scores[_as_tuple(bad)]}: scores must be finite ({int(bad.sum())} of {bad.size} are not). "
            "Lower the learning rate or clip gradients if training diverged; mark padding with ignore_index in the target"
        )


def check_binary(target: np.ndarray, known: np.ndarray) -> None:
    """Only 0 and 1 (``known``), apart from ignored samples."""
    if known.all():
        return
    value = target[_as_tuple(~known)]
    advice = "Map your classes to 0 and 1"
    if value == -1:
        advice = "For labels -1/+1 pass (target > 0); for padding marked -1 pass ignore_index=-1"
    elif not np.issubdtype(target.dtype, np.floating) and value > 1:
        advice = "This task takes binary relevance: threshold graded relevance, or use one column a class"
    raise ValueError(f"target[{_first(~known)}] is {value}; expected only 0 and 1. {advice}")


def check_groups(groups: np.ndarray, samples: int) -> None:
    """One integer id a sample."""
    if groups.ndim != 1 or len(groups) != samples:
        raise ValueError(
            f"groups has shape {groups.shape}, but there are {samples} samples along dim; expected one query id a sample, "
            f"shape ({samples},). If these are group sizes (as LightGBM takes them), pass "
            "torch.repeat_interleave(torch.arange(len(sizes)), sizes)"
        )
    if not (np.issubdtype(groups.dtype, np.integer) or groups.dtype == np.bool_):
        raise TypeError(
            f"groups must be integers, got {groups.dtype}; number your query ids, e.g. numpy.unique(ids, return_inverse=True)[1]"
        )


def check_num_relevant(num_relevant: np.ndarray, retrieved: np.ndarray) -> None:
    """A count a ranking, no smaller than the positives that are there."""
    if np.issubdtype(num_relevant.dtype, np.floating) and not (num_relevant == np.floor(num_relevant)).all():
        raise ValueError("num_relevant must be whole numbers: how many relevant items exist for each ranking, retrieved or not")
    short = num_relevant < retrieved
    if short.any():
        ranking = int(short.argmax())
        raise ValueError(
            f"num_relevant is {num_relevant[ranking]} for ranking {ranking}, which has {retrieved[ranking]} positives; "
            "it counts all the relevant items, retrieved ones included"
        )


def check_weight(weight: np.ndarray, shape: tuple[int, ...], samples: int) -> None:
    """A finite weight of at least zero for each ranking."""
    if weight.shape != shape:
        reason = ""
        if weight.ndim == 1 and len(weight) == samples:
            reason = (
                ". A weight for each sample has no meaning here: the metric belongs to a whole ranking, it is no sum over samples"
            )
        raise ValueError(f"weight has shape {weight.shape}; expected one weight a ranking, shape {shape}{reason}")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("weight must be finite and not negative")


def _as_tuple(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))


def _first(mask: np.ndarray) -> str:
    return ", ".join(map(str, _as_tuple(mask)))


def check_two_classes(undefined: np.ndarray) -> None:
    """For those who want an error: every ranking has a positive and a negative."""
    if undefined.any():
        raise ValueError(
            f"ranking {int(undefined.argmax())} has one class only, so its metric is undefined ({int(undefined.sum())} of "
            f"{undefined.size} rankings); use larger or stratified batches, or on_one_class='skip'"
        )


def as_optional_tensor(name: str, value: Any) -> torch.Tensor | None:
    """Per-sample or per-ranking data given as a tensor, an array, a sequence or a number."""
    if value is None:
        return None
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a tensor or an array of numbers, got {type(value).__name__}: {error}") from error
    if tensor.requires_grad:
        raise ValueError(f"{name} requires a gradient, but the loss has none with respect to it; pass {name}.detach()")
    return tensor
