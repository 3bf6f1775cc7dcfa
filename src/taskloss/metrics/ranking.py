"""Exact ranking metrics, ties included. Order of the arguments everywhere: ``(scores, target)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import numpy as np

from taskloss import _checks
from taskloss.kernels import interleaving
from taskloss.kernels.sort import TwoLists
from taskloss.layout import Layout, one_class, ranking_weights, relevant_counts, to_numpy, two_lists


class MetricOptions(TypedDict, total=False):
    """How the input is divided into rankings and the values are put together; see :mod:`taskloss.layout`."""

    dim: int
    """The axis that is ranked; 0 unless told."""
    groups: Any
    """Query id of each sample, integers in any order."""
    ignore_index: int | None
    """Samples whose target has this value are left out."""
    weight: Any
    """Weight of each ranking in the mean or sum."""
    reduction: str
    """``"mean"`` (over the defined rankings), ``"sum"`` or ``"none"``."""
    on_one_class: str
    """``"skip"``: a ranking with one class only is NaN and is left out of means; ``"raise"``: it is an error."""


def average_precision_score(
    scores: Any, target: Any, *, num_relevant: Any = None, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    r"""Average precision, the mean precision at the thresholds of the positives.

    .. math:: \mathrm{AP} = \frac{1}{R} \sum_{i : y_i = 1} \frac{\#\{k : y_k = 1, s_k \ge s_i\}}{\#\{k : s_k \ge s_i\}}

    Equal to scikit-learn's ``average_precision_score``; a tied group is retrieved together.

    Args:
        scores: floats of any shape, array or tensor.
        target: 0/1 or bool, same shape.
        num_relevant: number R of relevant items of each ranking, those never retrieved included (default: the positives).
        options: see :class:`MetricOptions`.

    Returns:
        One float for ``"mean"`` and ``"sum"``, else an array with one value a ranking.

    >>> round(average_precision_score([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0]), 6)
    0.833333
    """

    def values(lists: TwoLists, relevant: np.ndarray) -> np.ndarray:
        return interleaving.average_precision(lists, interleaving.natural_counts(lists)[1]) / np.maximum(relevant, 1.0)

    return _score(values, scores, target, num_relevant, **options)


def roc_auc_score(scores: Any, target: Any, **options: Unpack[MetricOptions]) -> float | np.ndarray:
    r"""Area under the ROC curve: the share of (positive, negative) pairs in the right order, ties counting half.

    .. math:: \mathrm{AUC} = \frac{1}{PN} \sum_{i,j} [s_i > t_j] + \tfrac12 [s_i = t_j]

    Equal to scikit-learn's ``roc_auc_score``. Arguments as for :func:`average_precision_score`.

    >>> roc_auc_score([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0])
    0.75
    """

    def values(lists: TwoLists, relevant: np.ndarray) -> np.ndarray:
        return interleaving.roc_auc(lists, *interleaving.natural_counts(lists))

    return _score(values, scores, target, None, **options)


def _score(
    values_of: Callable[[TwoLists, np.ndarray], np.ndarray],
    scores: Any,
    target: Any,
    num_relevant: Any,
    *,
    dim: int = 0,
    groups: Any = None,
    ignore_index: int | None = None,
    weight: Any = None,
    reduction: str = "mean",
    on_one_class: str = "skip",
) -> float | np.ndarray:
    _checks.check_choice("reduction", reduction, ("mean", "sum", "none"))
    _checks.check_choice("on_one_class", on_one_class, ("skip", "raise"))
    scores = to_numpy(scores)
    if scores.dtype != np.float32:
        scores = scores.astype(np.float64)
    layout, lists = two_lists(
        scores, to_numpy(target), dim=dim, groups=None if groups is None else to_numpy(groups), ignore_index=ignore_index
    )
    relevant = relevant_counts(layout, lists, None if num_relevant is None else to_numpy(num_relevant))
    weights = ranking_weights(layout, None if weight is None else to_numpy(weight))
    undefined = one_class(lists, relevant)
    if on_one_class == "raise":
        _checks.check_two_classes(undefined)
    values = np.where(undefined, np.nan, values_of(lists, relevant))
    return _reduce(values, weights, ~undefined, layout, reduction)


def _reduce(values: np.ndarray, weights: np.ndarray, defined: np.ndarray, layout: Layout, reduction: str) -> float | np.ndarray:
    if reduction == "none":
        return (values * weights).reshape(layout.values_shape)
    total = float(np.dot(values[defined], weights[defined]))
    if reduction == "sum":
        return total
    mass = float(weights[defined].sum())
    return total / mass if mass > 0 else float("nan")
