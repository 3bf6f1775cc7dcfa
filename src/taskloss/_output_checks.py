"""Checks of class scores and indices, cost matrices and the answers of solvers, with their messages; no mathematics."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from taskloss._checks import check_weight_values, first_index


def check_class_shapes(scores_shape: tuple[int, ...], target_shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Check that the target has the shape of the scores without the axis of the classes."""
    if target_shape == expected:
        return
    advice = ""
    if target_shape == scores_shape:
        advice = ". One-hot targets become indices with target.argmax(1)"
    elif target_shape == (*expected, 1):
        advice = ". Drop the last axis of the target: target.squeeze(-1)"
    elif len(scores_shape) > 2 and target_shape == scores_shape[:-1]:
        advice = ". If the classes are the last axis of the scores, pass scores.movedim(-1, 1)"
    raise ValueError(
        f"scores has shape {scores_shape} and target has shape {target_shape}; expected class indices of shape {expected}, "
        f"that of the scores without the axis of the classes (axis 1, or the only one){advice}"
    )


def check_class_dtype(target: np.ndarray, classes: int) -> None:
    """Check that class indices are integers."""
    if not (np.issubdtype(target.dtype, np.integer) or target.dtype == np.bool_):
        raise TypeError(
            f"target has the shape of the scores without the axis of the classes, so it must hold class indices, integers from 0 "
            f"to {classes - 1}; got {target.dtype}. Pass target.long() for indices stored as floats, target.argmax(1) for class "
            "probabilities"
        )


def check_class_indices(target: np.ndarray, classes: int, ignored: np.ndarray | None) -> None:
    """Check that class indices are between 0 and K - 1, except where ignored."""
    bad = (target < 0) | (target >= classes)
    if ignored is not None:
        bad &= ~ignored
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(
            f"target[{text}] is {target[index]}; expected class indices from 0 to {classes - 1}, since the scores have {classes} "
            f"classes. To leave such samples out, pass ignore_index={target[index]}"
        )


def check_class_axis(scores: np.ndarray) -> None:
    """Check that there are at least two classes along axis 1."""
    if scores.ndim < 2 or scores.shape[1] < 2:
        raise ValueError(
            f"scores has shape {scores.shape}; expected one score per class along axis 1, (n, C) or (B, C, ...). For a single "
            "class use jaccard_score"
        )


def refuse_ambiguous_volume(shape: tuple[int, ...]) -> None:
    """Raise for four axes in scores and target, which may be images with classes, or volumes."""
    raise ValueError(
        f"scores and target have shape {shape}: axis 1 may hold classes or be an axis of a volume. Pass dim=(2, 3) for one "
        "labeling per image and class, dim=(1, 2, 3) for one per volume, dim=(0, 2, 3) for one per class, pooled over the batch"
    )


def check_answer_size(k: int, classes: int) -> None:
    """Check that an answer holds no more classes than there are."""
    if k > classes:
        raise ValueError(
            f"the answer holds k={k} classes, but the scores have only {classes} along their class axis; choose k below"
        )


def check_sample_weight(weight: np.ndarray, shape: tuple[int, ...], classes: int) -> None:
    """Check that each sample has a finite weight of at least zero."""
    if weight.shape != shape:
        advice = ". For class weights pass weight=class_weight[target]" if weight.shape == (classes,) else ""
        raise ValueError(f"weight has shape {weight.shape}; expected one weight per sample, shape {shape}{advice}")
    check_weight_values(weight)


def check_instance_weight(weight: np.ndarray, shape: tuple[int, ...]) -> None:
    """Check that each instance of the batch has a finite weight of at least zero."""
    if weight.shape != shape:
        raise ValueError(f"weight has shape {weight.shape}; expected one weight per instance, shape {shape}")
    check_weight_values(weight)


def as_cost_matrix(cost: Any) -> np.ndarray:
    """Return costs as float64 if they are square, finite, not negative, and zero on the diagonal."""
    if isinstance(cost, torch.Tensor):
        cost = cost.cpu().double().numpy(force=True)
    try:
        matrix = np.array(cost, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"cost must be a square matrix of numbers, got {type(cost).__name__}: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"cost has shape {matrix.shape}; expected a square matrix, cost[target, predicted]")
    matrix += 0.0  # -0.0 becomes 0.0: equal matrices have equal bytes
    for bad, rule in (
        (~np.isfinite(matrix), "costs must be finite"),
        (matrix < 0, "costs must not be negative"),
        (np.eye(len(matrix), dtype=bool) & (matrix != 0), "the right class must cost nothing; subtract it from its row"),
    ):
        if bad.any():
            index, text = first_index(bad)
            raise ValueError(f"cost[{text}] is {matrix[index]}: {rule}")
    return matrix


def check_cost_fits(cost: np.ndarray, classes: int) -> None:
    """Check that a cost matrix has one row per class."""
    if len(cost) != classes:
        raise ValueError(f"cost is {len(cost)} x {len(cost)}, but the scores have {classes} classes; expected one row per class")


def check_all_classes(counts: np.ndarray) -> None:
    """Raise if a class has no sample, or there are fewer than two classes (``on_one_class="raise"``)."""
    if len(counts) < 2:
        raise ValueError(f"the scores have {len(counts)} class, so no area is defined; expected at least 2 classes")
    if (counts == 0).any():
        raise ValueError(
            f"class {int((counts == 0).argmax())} has no sample in the target, so its areas are undefined; use larger or "
            "stratified samples, or on_one_class='skip'"
        )


def check_grid_shape(shape: tuple[int, ...]) -> None:
    """Check that the last two axes, rows and columns, are not empty."""
    if len(shape) < 2 or 0 in shape[-2:]:
        raise ValueError(f"scores has shape {shape}; expected rows and columns as the last two axes, none of them empty")


COSTS_ABOVE_ZERO = (
    "Predicted costs are lowered by augmented inference, by up to epsilon with loss='hamming' and by epsilon times the true "
    "costs with others (SPO+: half of the true costs), and by noise. Let the network give costs that stay above zero: "
    "scores = -(epsilon + softplus(output)), or more for high true costs; or use loss='regret' with update='negative', which "
    "only raises costs"
)
"""What to do where a solver of shortest paths got negative costs in training."""
CLIP_COSTS = "or negative_costs='clip' with on_worse='ignore', which is not exact"


def check_path_costs(costs: np.ndarray) -> None:
    """Check that costs are at least zero, as Dijkstra's algorithm needs them."""
    bad = costs < 0
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(
            f"the cost at [{text}] is {costs[index]}: shortest paths need costs (minus the scores) of at least zero. "
            f"{COSTS_ABOVE_ZERO}; or use MonotoneGridPath, which takes any scores; {CLIP_COSTS}"
        )


def as_vertex(name: str, vertex: tuple[int, int], size: tuple[int, ...]) -> tuple[int, int]:
    """Return row and column counted from the front, if they are inside the grid."""
    if len(vertex) != 2 or not all(-n <= k < n for k, n in zip(vertex, size, strict=True)):
        raise ValueError(f"{name}={vertex} is no vertex of a grid of {size[0]} x {size[1]}")
    return vertex[0] % size[0], vertex[1] % size[1]


def check_instances(scores_shape: tuple[int, ...], target_shape: tuple[int, ...], batch_dims: int) -> None:
    """Check that scores and target have the same shape: batch axes, then at least one axis of an instance."""
    if len(scores_shape) <= batch_dims:
        raise ValueError(
            f"scores has shape {scores_shape}; expected {batch_dims} batch axes (batch_dims) and then the axes of one instance. "
            "For a single instance add an axis, scores[None], or set batch_dims=0"
        )
    if scores_shape != target_shape:
        raise ValueError(f"scores has shape {scores_shape} and target has shape {target_shape}; expected the same shape")


def check_true_features(target: np.ndarray) -> None:
    """Check that the features of the truth are 0 and 1."""
    bad = (target != 0) & (target != 1)
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(
            f"target[{text}] is {target[index]}; expected the feature psi of the true answer, entries 0 and 1. For true costs "
            "use loss='cost' or loss='regret'"
        )


def check_true_costs(target: np.ndarray) -> None:
    """Check that true costs are finite."""
    bad = ~np.isfinite(target)
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(f"target[{text}] is {target[index]}; expected finite true costs")


def as_features(answer: Any, shape: tuple[int, ...], unit_interval: bool) -> np.ndarray:
    """Return the answer of a solver as float64, if it has the shape of the scores that the solver got."""
    if isinstance(answer, torch.Tensor):
        answer = answer.cpu().numpy(force=True)
    if not isinstance(answer, (np.ndarray, list, tuple)):
        raise TypeError(f"the solver returned {type(answer).__name__}; expected psi, an array of shape {shape}")
    try:
        features = np.array(answer, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the solver returned a {type(answer).__name__} that is no array of numbers; expected psi alone, an array of shape "
            f"{shape}. A solver that returns (psi, value) needs [0]"
        ) from error
    if features.shape != shape:
        raise ValueError(
            f"the solver returned psi of shape {features.shape} for scores of shape {shape}; expected the same shape. A solver "
            "that takes one instance at a time needs batched=False, one that takes the whole batch batched=True"
        )
    if not np.isfinite(features).all():
        index, text = first_index(~np.isfinite(features))
        raise ValueError(f"the solver returned psi[{text}] = {features[index]}; expected finite numbers")
    bad = (features < 0) | (features > 1)
    if unit_interval and bad.any():
        index, text = first_index(bad)
        raise ValueError(
            f"the solver returned psi[{text}] = {features[index]}; the Hamming loss needs entries from 0 to 1. For other "
            "features use loss='cost' or loss='regret'"
        )
    return features


def worse_than_other(instance: int, gap: float, other: str) -> str:
    """Return the message for an answer that scores lower than another one, such as the truth."""
    return (
        f"the solver's answer to instance {instance} scores lower than {other}, by {gap:.3g}. A solver must maximize "
        "<scores, psi>: call one that minimizes costs with -scores. If the solver is approximate (as negative_costs='clip' is), "
        "or the truth is no answer that it could give, set on_worse='warn' or 'ignore'"
    )
