"""Exact metrics of confusion counts. Order of the arguments everywhere: ``(scores, target)``.

A score above 0 is predicted 1, any other 0. For probabilities pass ``scores - 0.5``.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict, Unpack

import numpy as np

from taskloss import _checks, _output_checks
from taskloss.kernels.labeling import confusion
from taskloss.labelings import read_labelings
from taskloss.layout import ranking_weights, to_numpy
from taskloss.metrics.reduction import as_optional_array, as_scores, reduce_values

__all__ = [
    "accuracy_score",
    "balanced_accuracy_score",
    "fbeta_score",
    "g_mean_score",
    "jaccard_score",
    "mcc_score",
    "mean_iou_score",
]


class ConfusionOptions(TypedDict, total=False):
    """How the input is divided into labelings and the values are reduced; see :mod:`taskloss.labelings`."""

    dim: int | tuple[int, ...] | None
    """The axis or axes of one labeling; by default 0 for up to two axes, else the pixels of an image."""
    groups: Any
    """Group id of each sample, integers in any order."""
    ignore_index: int | None
    """Samples whose target has this value are left out."""
    weight: Any
    """Weight of each labeling in the mean or sum."""
    reduction: str
    """``"mean"`` (over the labelings that have samples), ``"sum"`` or ``"none"``."""


def accuracy_score(scores: Any, target: Any, **options: Unpack[ConfusionOptions]) -> float | np.ndarray:
    """Return the share of samples with the right label; equal to scikit-learn's ``accuracy_score``.

    Class indices give one value per class, each against the rest; if the prediction is the highest-scoring class, use
    :func:`multiclass_accuracy_score`.

    Args:
        scores: floats of any shape, array or tensor.
        target: 0/1 or bool of the same shape, or class indices: the shape of the scores without axis 1.
        options: see :class:`ConfusionOptions`.

    Returns:
        One float for ``"mean"`` and ``"sum"``, else an array with one value per labeling.

    >>> accuracy_score([0.3, -0.2, 0.1, -0.4], [1, 1, 0, 0])
    0.5
    """
    return _score(confusion.ACCURACY, scores, target, **options)


def balanced_accuracy_score(scores: Any, target: Any, **options: Unpack[ConfusionOptions]) -> float | np.ndarray:
    """Return the mean of sensitivity and specificity; if a class is missing, the rate of the other one.

    Equal to scikit-learn's ``balanced_accuracy_score``. Arguments as for :func:`accuracy_score`.

    >>> balanced_accuracy_score([0.3, 0.2, -0.1], [1, 0, 0])
    0.75
    """
    return _score(confusion.BALANCED_ACCURACY, scores, target, **options)


def fbeta_score(
    scores: Any, target: Any, *, beta: float = 1.0, zero_division: float = 1.0, **options: Unpack[ConfusionOptions]
) -> float | np.ndarray:
    r"""Return the F-score, ``(1 + beta^2) TP / ((1 + beta^2) TP + FP + beta^2 FN)``; with beta 1 the Dice coefficient.

    Equal to scikit-learn's ``fbeta_score``. ``zero_division`` is its value where there is neither a positive nor a predicted one;
    NaN leaves it out of means. Other arguments as for :func:`accuracy_score`.

    >>> fbeta_score([0.3, 0.2, -0.1, -0.4], [1, 0, 1, 0])
    0.5
    """
    beta = _checks.check_positive("beta", beta)
    return _score(confusion.F_BETA, scores, target, beta2=beta**2, zero_division=zero_division, **options)


def jaccard_score(
    scores: Any, target: Any, *, zero_division: float = 1.0, **options: Unpack[ConfusionOptions]
) -> float | np.ndarray:
    """Return the intersection over union, ``TP / (TP + FP + FN)``; equal to scikit-learn's ``jaccard_score``.

    >>> round(jaccard_score([0.3, 0.2, -0.1, -0.4], [1, 0, 1, 0]), 4)
    0.3333
    """
    return _score(confusion.JACCARD, scores, target, zero_division=zero_division, **options)


def g_mean_score(
    scores: Any, target: Any, *, zero_division: float = 1.0, **options: Unpack[ConfusionOptions]
) -> float | np.ndarray:
    """Return the geometric mean of sensitivity and specificity; the rate of a missing class is ``zero_division``.

    >>> g_mean_score([0.3, 0.2, -0.1, -0.4], [1, 0, 1, 0])
    0.5
    """
    return _score(confusion.G_MEAN, scores, target, zero_division=zero_division, **options)


def mcc_score(scores: Any, target: Any, *, zero_division: float = 1.0, **options: Unpack[ConfusionOptions]) -> float | np.ndarray:
    """Return Matthews' correlation coefficient, from -1 to 1; 0 where it is 0/0, as scikit-learn's ``matthews_corrcoef``.

    Only a target of one class that is predicted without an error counts ``zero_division`` (0 for scikit-learn's value).

    >>> mcc_score([0.3, 0.2, -0.1, -0.4], [1, 0, 0, 0])
    0.5773502691896258
    """
    return _score(confusion.MCC, scores, target, zero_division=zero_division, **options)


def mean_iou_score(
    scores: Any, target: Any, *, zero_division: float = math.nan, **options: Unpack[ConfusionOptions]
) -> float | np.ndarray:
    """Return the mean intersection over union of a segmentation; each sample gets its highest-scoring class (axis 1).

    The counts of a class are pooled over all samples, as benchmarks report it (``dim=(2, 3)``: one value per image and class). A
    class that is neither there nor predicted is left out of the mean. Equal to scikit-learn's
    ``jaccard_score(average="macro")`` of the predicted classes. ``reduction="none"`` gives the value of each class.

    Args:
        scores: ``(B, C, ...)``, one score per class.
        target: class indices ``(B, ...)``, or 0/1 of the shape of the scores.
        zero_division: the value of a class that is neither there nor predicted, by default none (NaN).
        options: see :class:`ConfusionOptions`.

    >>> mean_iou_score([[2.0, 1.0], [0.3, 0.4], [0.2, 0.1], [0.5, 0.6]], [0, 1, 1, 1], reduction="none").round(4).tolist()
    [0.5, 0.6667]
    """
    array = as_scores(scores)
    _output_checks.check_class_axis(array)
    chosen = np.full(array.shape, -1.0, np.float32)
    np.put_along_axis(chosen, array.argmax(1, keepdims=True), 1.0, 1)
    # Scores that are not finite stay so, and are refused unless they are ignored.
    chosen[~np.isfinite(array)] = np.nan
    if options.get("dim") is None:
        options = {**options, "dim": tuple(axis for axis in range(array.ndim) if axis != 1)}
    return _score(confusion.JACCARD, chosen, target, zero_division=zero_division, **options)


def _score(
    metric: int,
    scores: Any,
    target: Any,
    *,
    beta2: float = 1.0,
    zero_division: float = 1.0,
    dim: int | tuple[int, ...] | None = None,
    groups: Any = None,
    ignore_index: int | None = None,
    weight: Any = None,
    reduction: str = "mean",
) -> float | np.ndarray:
    _checks.check_zero_division(zero_division, or_nan=True)
    layout, labelings = read_labelings(
        as_scores(scores),
        to_numpy(target),
        dims=_checks.as_dims(dim),
        groups=as_optional_array(groups),
        ignore_index=ignore_index,
    )
    tallies = labelings.tallies
    values = confusion.metric_values(
        metric,
        tallies.positives_above,
        tallies.negatives_above,
        tallies.positives,
        tallies.negatives,
        beta2,
        float(zero_division),
    )
    weights = ranking_weights(layout, as_optional_array(weight))
    return reduce_values(np.where(labelings.sizes > 0, values, np.nan), weights, layout.values_shape, reduction)
