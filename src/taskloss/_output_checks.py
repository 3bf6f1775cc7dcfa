"""Checks of class scores and indices, cost matrices and the answers of solvers, with their messages. No mathematics."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from taskloss._checks import check_weight_values, first_place


def check_class_shapes(scores_shape: tuple[int, ...], target_shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """The target has the shape of the scores without the axis of the classes."""
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
    """Class indices are integers."""
    if not (np.issubdtype(target.dtype, np.integer) or target.dtype == np.bool_):
        raise TypeError(
            f"target has the shape of the scores without the axis of the classes, so it must hold class indices, integers from 0 "
            f"to {classes - 1}; got {target.dtype}. Pass target.long() for indices stored as floats, target.argmax(1) for class "
            "probabilities"
        )


def check_class_indices(target: np.ndarray, classes: int, ignored: np.ndarray | None) -> None:
    """Whole numbers from 0 to K - 1, apart from ignored samples."""
    bad = (target < 0) | (target >= classes)
    if ignored is not None:
        bad &= ~ignored
    if bad.any():
        place, text = first_place(bad)
        raise ValueError(
            f"target[{text}] is {target[place]}; expected class indices from 0 to {classes - 1}, since the scores have {classes} "
            f"classes. To leave such samples out, pass ignore_index={target[place]}"
        )


def check_class_axis(scores: np.ndarray) -> None:
    """At least two classes along axis 1."""
    if scores.ndim < 2 or scores.shape[1] < 2:
        raise ValueError(
            f"scores has shape {scores.shape}; expected one score a class along axis 1, (n, C) or (B, C, ...). For a single "
            "class use jaccard_score"
        )


def refuse_ambiguous_volume(shape: tuple[int, ...]) -> None:
    """Four axes in scores and target: images with classes, or volumes."""
    raise ValueError(
        f"scores and target have shape {shape}: axis 1 may hold classes or be an axis of a volume. Pass dim=(2, 3) for one "
        "labeling an image and class, dim=(1, 2, 3) for one a volume, dim=(0, 2, 3) for one a class, pooled over the batch"
    )


def check_places(k: int, classes: int) -> None:
    """No more places than classes."""
    if k > classes:
        raise ValueError(
            f"the answer holds k={k} classes, but the scores have only {classes} along their class axis; choose k below"
        )


def check_sample_weight(weight: np.ndarray, shape: tuple[int, ...], classes: int) -> None:
    """A finite weight of at least zero for each sample."""
    if weight.shape != shape:
        advice = ". For a weight a class pass weight=class_weight[target]" if weight.shape == (classes,) else ""
        raise ValueError(f"weight has shape {weight.shape}; expected one weight a sample, shape {shape}{advice}")
    check_weight_values(weight)


def check_instance_weight(weight: np.ndarray, shape: tuple[int, ...]) -> None:
    """A finite weight of at least zero for each instance of the batch."""
    if weight.shape != shape:
        raise ValueError(f"weight has shape {weight.shape}; expected one weight an instance, shape {shape}")
    check_weight_values(weight)


def as_cost_matrix(cost: Any) -> np.ndarray:
    """Costs as float64: square, finite, not negative, zero on the diagonal."""
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
            place, text = first_place(bad)
            raise ValueError(f"cost[{text}] is {matrix[place]}: {rule}")
    return matrix


def check_cost_fits(cost: np.ndarray, classes: int) -> None:
    """As many rows as the scores have classes."""
    if len(cost) != classes:
        raise ValueError(f"cost is {len(cost)} x {len(cost)}, but the scores have {classes} classes; expected one row a class")


def check_all_classes(counts: np.ndarray) -> None:
    """For those who want an error: every class has a sample, and there are at least two."""
    if len(counts) < 2:
        raise ValueError(f"the scores have {len(counts)} class, so no area is defined; expected at least 2 classes")
    if (counts == 0).any():
        raise ValueError(
            f"class {int((counts == 0).argmax())} has no sample in the target, so its areas are undefined; use larger or "
            "stratified samples, or on_one_class='skip'"
        )


def check_grid_shape(shape: tuple[int, ...]) -> None:
    """Two axes that are not empty, after any batch axes."""
    if len(shape) < 2 or 0 in shape[-2:]:
        raise ValueError(f"scores has shape {shape}; expected rows and columns as the last two axes, none of them empty")


def check_path_costs(costs: np.ndarray) -> None:
    """Dijkstra's algorithm needs costs of at least zero."""
    bad = costs < 0
    if bad.any():
        place, text = first_place(bad)
        raise ValueError(
            f"the cost at [{text}] is {costs[place]}: shortest paths need costs (minus the scores) of at least zero, and "
            "augmented inference shifts the predicted costs by up to epsilon (1 for the hinge). Let the network give costs of at "
            "least epsilon: scores = -(epsilon + softplus(output)); or use MonotoneGridPath, which takes any scores; or "
            "negative_costs='clip', which is not exact"
        )


def as_vertex(name: str, vertex: tuple[int, int], size: tuple[int, ...]) -> tuple[int, int]:
    """Row and column counted from the front, inside the grid."""
    if len(vertex) != 2 or not all(-n <= k < n for k, n in zip(vertex, size, strict=True)):
        raise ValueError(f"{name}={vertex} is no vertex of a grid of {size[0]} x {size[1]}")
    return vertex[0] % size[0], vertex[1] % size[1]


def check_instances(scores_shape: tuple[int, ...], target_shape: tuple[int, ...], batch_dims: int) -> None:
    """Scores and target of one shape: batch axes, then at least one axis of an instance."""
    if len(scores_shape) <= batch_dims:
        raise ValueError(
            f"scores has shape {scores_shape}; expected {batch_dims} batch axes (batch_dims) and then the axes of one instance. "
            "For a single instance add an axis, scores[None], or set batch_dims=0"
        )
    if scores_shape != target_shape:
        raise ValueError(f"scores has shape {scores_shape} and target has shape {target_shape}; expected the same shape")


def check_true_features(target: np.ndarray) -> None:
    """0 and 1 only."""
    bad = (target != 0) & (target != 1)
    if bad.any():
        place, text = first_place(bad)
        raise ValueError(
            f"target[{text}] is {target[place]}; expected the feature psi of the true answer, entries 0 and 1. For true costs "
            "use loss='cost' or loss='regret'"
        )


def check_true_costs(target: np.ndarray) -> None:
    """Finite numbers."""
    bad = ~np.isfinite(target)
    if bad.any():
        place, text = first_place(bad)
        raise ValueError(f"target[{text}] is {target[place]}; expected finite true costs")


def as_features(answer: Any, shape: tuple[int, ...], unit_interval: bool) -> np.ndarray:
    """What a solver returned, as float64 of the shape of the scores it was given."""
    if isinstance(answer, torch.Tensor):
        answer = answer.cpu().numpy(force=True)
    if not isinstance(answer, (np.ndarray, list, tuple)):
        raise TypeError(f"the solver returned {type(answer).__name__}; expected psi, an array of shape {shape}")
    features = np.array(answer, np.float64)
    if features.shape != shape:
        raise ValueError(
            f"the solver returned psi of shape {features.shape} for scores of shape {shape}; expected the same shape. A solver "
            "that takes one instance at a time needs batched=False, one that takes the whole batch batched=True"
        )
    if not np.isfinite(features).all():
        place, text = first_place(~np.isfinite(features))
        raise ValueError(f"the solver returned psi[{text}] = {features[place]}; expected finite numbers")
    bad = (features < 0) | (features > 1)
    if unit_interval and bad.any():
        place, text = first_place(bad)
        raise ValueError(
            f"the solver returned psi[{text}] = {features[place]}; the Hamming loss needs entries from 0 to 1. For other "
            "features use loss='cost' or loss='regret'"
        )
    return features


def worse_than_truth(instance: int, gap: float) -> str:
    """What a solver's failure means and what to do."""
    return (
        f"the solver's answer to instance {instance} scores lower than the truth, by {gap:.3g}. A solver must maximize "
        "<scores, psi>: give a solver of costs -scores. If the solver is approximate, or the truth is no answer that it could "
        "give, set on_worse='warn' or 'ignore'"
    )
