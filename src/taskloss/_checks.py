"""Every input check and its message: what was given, what was expected, what to do. No mathematics."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not known; expected one of {', '.join(map(repr, choices))}")
    return value


def check_reduction(reduction: str) -> None:
    """Check the name of a reduction."""
    if reduction not in ("mean", "sum", "none"):
        check_choice("reduction", reduction, ("mean", "sum", "none"))


def check_positive(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a finite number above zero."""
    # The first condition spares the usual case two slower ones.
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
        raise TypeError(f"{name} must be a number above zero, got {type(value).__name__}")
    number = float(value)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be finite and above zero, got {value!r}")
    return number


def check_count(name: str, value: Any) -> int:
    """Return ``value`` as an int if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def check_not_negative(name: str, value: Any) -> int:
    """Return ``value`` as an int if it is a whole number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 0:
        raise ValueError(f"{name} must be a whole number of at least 0, got {value!r}")
    return int(value)


def as_dims(dim: Any) -> tuple[int, ...] | None:
    """Return ``dim`` as a tuple of axes; None leaves the axes to the task."""
    if dim is None:
        return None
    axes = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    for axis in axes:
        if isinstance(axis, bool) or not isinstance(axis, numbers.Integral):
            raise TypeError(f"dim must be an integer or a tuple of integers, got {type(axis).__name__}")
    if not axes:
        raise ValueError("dim=() names no axis; leave dim out for the default")
    return tuple(int(axis) for axis in axes)


@functools.lru_cache(maxsize=64)
def check_dims(dims: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return ``dims`` counted from the front, in the order given, for an array of ``ndim`` axes."""
    for axis in dims:
        if not -ndim <= axis < ndim:
            raise ValueError(f"dim={axis} is out of range for scores with {ndim} axes; expected {-ndim} <= dim < {ndim}")
    axes = tuple(axis % ndim for axis in dims)
    if len(set(axes)) < len(axes):
        raise ValueError(f"dim={dims} names an axis twice; expected each axis once")
    return axes


def check_tensors(scores: Any, target: Any) -> None:
    """Check that a loss gets tensors: floating-point scores, and a target that needs no gradient."""
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
    """Check that scores and target have the same shape and at least one axis."""
    if scores.ndim == 0:
        raise ValueError("scores has no axis; expected one score per sample, shape (n,) or more axes")
    if scores.shape != target.shape:
        raise ValueError(
            f"scores has shape {scores.shape} and target has shape {target.shape}; expected the same shape"
            + _squeeze_advice(scores.shape, target.shape)
        )


def _squeeze_advice(scores_shape: tuple[int, ...], target_shape: tuple[int, ...]) -> str:
    for name, one, other in (("scores", scores_shape, target_shape), ("target", target_shape, scores_shape)):
        if one == (*other, 1):
            return f". Drop the last axis of the {name}: {name}.squeeze(-1)"
    return ""


def check_finite(scores: np.ndarray, kept: np.ndarray | None) -> None:
    """Check that no score is NaN or infinite, except where ``kept`` is False."""
    finite = np.isfinite(scores)
    if np.count_nonzero(finite) == finite.size:
        return
    bad = ~finite if kept is None else ~finite & kept
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(
            f"scores[{text}] is {scores[index]}: scores must be finite ({int(bad.sum())} of {bad.size} are not). "
            "Lower the learning rate or clip gradients if training diverged; mark padding with ignore_index in the target"
        )


def check_binary(target: np.ndarray, known: np.ndarray) -> None:
    """Check that every target is 0, 1 or ignored, as ``known`` says."""
    if known.all():
        return
    index, text = first_index(~known)
    value = target[index]
    advice = "Map your classes to 0 and 1"
    if value == -1:
        advice = "For labels -1/+1 pass (target > 0); for padding marked -1 pass ignore_index=-1"
    elif not np.issubdtype(target.dtype, np.floating) and value > 1:
        advice = "This task takes binary relevance: threshold graded relevance, or use one column per class"
    raise ValueError(f"target[{text}] is {value}; expected only 0 and 1. {advice}")


def check_groups(groups: np.ndarray, samples: int) -> None:
    """Check that there is one integer id per sample."""
    if groups.ndim != 1 or len(groups) != samples:
        raise ValueError(
            f"groups has shape {groups.shape}, but there are {samples} samples along dim; expected one query id per sample, "
            f"shape ({samples},). If these are group sizes (as LightGBM takes them), pass "
            "torch.repeat_interleave(torch.arange(len(sizes)), sizes)"
        )
    if not (np.issubdtype(groups.dtype, np.integer) or groups.dtype == np.bool_):
        raise TypeError(
            f"groups must be integers, got {groups.dtype}; number your query ids, e.g. numpy.unique(ids, return_inverse=True)[1]"
        )


def check_num_relevant(num_relevant: np.ndarray, retrieved: np.ndarray) -> None:
    """Check that each ranking has a whole number of relevant items, at least its positives."""
    if np.issubdtype(num_relevant.dtype, np.floating) and not (num_relevant == np.floor(num_relevant)).all():
        raise ValueError("num_relevant must be whole numbers: how many relevant items exist for each ranking, retrieved or not")
    short = num_relevant < retrieved
    if short.any():
        ranking = int(short.argmax())
        raise ValueError(
            f"num_relevant is {num_relevant[ranking]} for ranking {ranking}, which has {retrieved[ranking]} positives; "
            "it counts all the relevant items, retrieved ones included"
        )


def check_weight(weight: np.ndarray, shape: tuple[int, ...], scores_shape: tuple[int, ...], samples: int) -> None:
    """Check that each ranking or labeling has a finite weight of at least zero."""
    if weight.shape != shape:
        reason = ""
        if weight.shape in (scores_shape, (samples,)):
            reason = (
                ". A weight for each sample has no meaning here: the metric belongs to a whole ranking or labeling, it is no "
                "sum over samples"
            )
        raise ValueError(f"weight has shape {weight.shape}; expected one weight per ranking or labeling, shape {shape}{reason}")
    check_weight_values(weight)


def check_weight_values(weight: np.ndarray) -> None:
    """Check that weights are finite and at least zero."""
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("weight must be finite and not negative")


def first_index(mask: np.ndarray) -> tuple[tuple[int, ...], str]:
    """Return the index of the first True, and its text."""
    index = tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
    return index, ", ".join(map(str, index))


def check_two_classes(undefined: np.ndarray) -> None:
    """Raise if a ranking lacks a positive or a negative (``on_one_class="raise"``)."""
    if undefined.any():
        raise ValueError(
            f"ranking {int(undefined.argmax())} has one class only, so its metric is undefined ({int(undefined.sum())} of "
            f"{undefined.size} rankings); use larger or stratified batches, or on_one_class='skip'"
        )


def as_optional_tensor(name: str, value: Any) -> torch.Tensor | None:
    """Return data given as a tensor, an array, a sequence or a number as a tensor; None stays None."""
    if value is None:
        return None
    try:
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a tensor or an array of numbers, got {type(value).__name__}: {error}") from error
    if tensor.requires_grad:
        raise ValueError(f"{name} requires a gradient, but the loss has none with respect to it; pass {name}.detach()")
    return tensor


def check_fraction(name: str, value: Any) -> None:
    """Check that a number is above zero and at most one."""
    if check_positive(name, value) > 1:
        raise ValueError(f"{name} must be at most 1, got {value!r}; 5% is 0.05")


def check_soft_margin(value: Any) -> float:
    """Return a margin of soft labels if it is between 0 and 1/2."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"margin must be a number from 0 to 0.5, got {type(value).__name__}")
    if not 0.0 <= float(value) <= 0.5:
        raise ValueError(f"margin must be between 0 and 0.5, got {value!r}; at 0.5 a label is the sigmoid of twice the score")
    return float(value)


def check_coefficients(name: str, values: Any, *, least: float) -> tuple[float, float, float, float]:
    """Return the four coefficients of tp, fp, fn and tn if none is below ``least``."""
    numbers_given = tuple(values) if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) else ()
    if len(numbers_given) != 4 or not all(isinstance(x, numbers.Real) and math.isfinite(x) for x in numbers_given):
        raise ValueError(f"{name} must be four finite numbers, the coefficients of tp, fp, fn and tn; got {values!r}")
    if min(numbers_given) < least or (least == 0.0 and not any(numbers_given)):
        raise ValueError(
            f"{name} must have no coefficient below zero and one above it, so that the ratio is defined; got {values!r}"
        )
    tp, fp, fn, tn = (float(x) for x in numbers_given)
    return tp, fp, fn, tn


def check_band(low: Any, high: Any) -> None:
    """Check that ``0 <= min_fpr < max_fpr <= 1``."""
    check_fraction("max_fpr", high)
    if isinstance(low, bool) or not isinstance(low, numbers.Real) or not 0 <= float(low) < float(high):
        raise ValueError(f"min_fpr must be at least 0 and below max_fpr={high!r}, got {low!r}")


def check_k(k: Any) -> None:
    """Check that k is a count of at least 1, or a fraction of the list."""
    if isinstance(k, bool) or not isinstance(k, (int, float)):
        raise TypeError(f"k must be a count (an int) or a fraction of the list (a float up to 1), got {type(k).__name__}")
    if isinstance(k, int) and k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if isinstance(k, float):
        check_fraction("a fractional k", k)


def check_relevance(target: np.ndarray, ignored: np.ndarray, *, exponential: bool) -> None:
    """Check that grades are at least zero, and low enough for the exponential gain."""
    bad = ~(target >= 0) & ~ignored
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(f"target[{text}] is {target[index]}; expected relevance grades of at least 0")
    if exponential:
        bad = (target > 50) & ~ignored
        if bad.any():
            index, text = first_index(bad)
            raise ValueError(
                f"target[{text}] is {target[index]}: its gain 2**relevance - 1 drowns all others; "
                "expected small grades (0 to 4), or use gain='linear'"
            )


def check_ignore_index(ignore_index: Any) -> None:
    """Check that ``ignore_index`` is a whole number or None."""
    if ignore_index is not None and (isinstance(ignore_index, bool) or not isinstance(ignore_index, numbers.Integral)):
        raise TypeError(f"ignore_index must be an integer or None, got {type(ignore_index).__name__}")


def check_optional_count(name: str, value: Any) -> None:
    """Check that a value is a whole number of at least 1, or None."""
    if value is not None:
        check_count(name, value)


def check_zero_division(value: Any, *, or_nan: bool = False) -> None:
    """Check the value of 0/0: from 0 to 1, or NaN, which a score may leave out of means, if ``or_nan``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"zero_division must be a number from 0 to 1, got {type(value).__name__}")
    if or_nan and math.isnan(value):
        return
    if not 0.0 <= float(value) <= 1.0:
        raise ValueError(f"zero_division must be between 0 and 1, got {value!r}; it is what the metric counts where it is 0/0")


def check_callable(name: str, value: Any, arguments: str) -> None:
    """Check that a value can be called; ``arguments`` says with what."""
    if not callable(value):
        raise TypeError(f"{name} must be a function of {arguments}, got {type(value).__name__}")


def as_metric_values(result: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return what a user's metric gave for arrays of this shape, as float64."""
    try:
        values = np.broadcast_to(np.asarray(result, np.float64), shape)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"fn(tp, fp, fn, tn) must return one number for each element of its arrays, shape {shape}; got "
            f"{type(result).__name__} of shape {np.shape(result)}. Use numpy functions that work element by element (numpy.where "
            "instead of if)"
        ) from error
    if np.isinf(values).any():
        raise ValueError("fn(tp, fp, fn, tn) returned an infinite value; expected finite numbers, or NaN where it is 0/0")
    return values


def check_table_size(positives: np.ndarray, negatives: np.ndarray, limit: int) -> None:
    """Check that the table of all pairs of counts has at most ``limit`` cells."""
    cells = (positives + 1) * (negatives + 1)
    if cells.sum() > limit:
        largest = int(cells.argmax())
        raise ValueError(
            f"ConfusionMetric tries every pair of counts, {int(cells.sum()):,} in all (the largest labeling has "
            f"{int(positives[largest]):,} positives and {int(negatives[largest]):,} negatives); the limit is {limit:,}. Use a "
            "task with a solver of its own (FScore, Jaccard, MCC, GMean, BalancedError, ZeroOne), smaller batches, or groups="
        )


def check_flag(name: str, value: Any) -> None:
    """Check that a value is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
