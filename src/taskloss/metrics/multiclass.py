"""Exact metrics of class scores, ties included. Order of the arguments everywhere: ``(scores, target)``.

Scores and targets have the shapes of :mod:`taskloss.class_layout`: ``(n, K)`` with ``(n,)``, ``(B, K, H, W)`` with ``(B, H, W)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import numpy as np

from taskloss import _checks, _output_checks
from taskloss.class_layout import ClassBatch, read_classes
from taskloss.kernels import choices
from taskloss.layout import to_numpy
from taskloss.metrics.reduction import as_optional_array, as_scores, reduce_values

__all__ = [
    "auc_mu_score",
    "expected_cost_loss",
    "hand_till_auc_score",
    "multiclass_accuracy_score",
    "one_vs_rest_auc_score",
    "top_k_error_loss",
]

AVERAGES = ("macro", "weighted", "none")


class ClassMetricOptions(TypedDict, total=False):
    """Which samples count, and how their values are reduced."""

    ignore_index: int | None
    """Samples whose target has this value are left out."""
    weight: Any
    """Weight of each sample in the mean or sum."""
    reduction: str
    """``"mean"``, ``"sum"`` or ``"none"``: one value per sample, NaN for those left out."""


class ClassAreaOptions(TypedDict, total=False):
    """How the areas of several classes are averaged."""

    average: str
    """``"macro"``, the plain mean; ``"weighted"``, by how many samples take part; ``"none"``, all of them."""
    ignore_index: int | None
    """Samples whose target has this value are left out."""
    on_one_class: str
    """``"skip"``: areas that lack a class are NaN and left out of means; ``"raise"``: an error."""


def expected_cost_loss(
    scores: Any, target: Any, *, cost: Any = None, **options: Unpack[ClassMetricOptions]
) -> float | np.ndarray:
    """Return the mean of ``cost[target, predicted]``, predicted being the highest-scoring class; lower is better.

    Several classes with the highest score count alike, by the mean of their costs.

    Args:
        scores: floats, array or tensor.
        target: class indices.
        cost: square, finite, not negative, zero on the diagonal (default: 1 off the diagonal, the error rate).
        options: see :class:`ClassMetricOptions`.

    >>> expected_cost_loss([[2.0, 1.0], [3.0, 0.0]], [0, 1], cost=[[0, 1], [5, 0]])
    2.5
    """
    matrix = np.empty((0, 0)) if cost is None else _output_checks.as_cost_matrix(cost)
    return _of_choices(scores, target, matrix, 1, **options)


def multiclass_accuracy_score(scores: Any, target: Any, **options: Unpack[ClassMetricOptions]) -> float | np.ndarray:
    """Return the share of samples whose highest-scoring class is the target; of m classes that share it, each counts 1/m.

    For 0/1 labels, ``scores > 0``, use :func:`accuracy_score`.

    >>> multiclass_accuracy_score([[2.0, 1.0], [3.0, 0.0], [1.0, 1.0]], [0, 1, 1])
    0.5
    """
    return _of_choices(scores, target, np.empty((0, 0)), 1, complement=True, **options)


def top_k_error_loss(scores: Any, target: Any, *, k: int, **options: Unpack[ClassMetricOptions]) -> float | np.ndarray:
    """Return the share of samples whose target is not among the k highest-scoring classes; mean over the orders of ties.

    >>> top_k_error_loss([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], [1, 2], k=2)
    0.5
    """
    return _of_choices(scores, target, np.empty((0, 0)), _checks.check_count("k", k), **options)


def one_vs_rest_auc_score(scores: Any, target: Any, **options: Unpack[ClassAreaOptions]) -> float | np.ndarray:
    """Return the area under the ROC curve of each class's score against all the other classes; ties count half.

    Equal to scikit-learn's ``roc_auc_score(multi_class="ovr")``, which weights by the size of the class. ``average="none"``
    gives ``(K,)``.

    >>> one_vs_rest_auc_score([[0.8, 0.1, 0.1], [0.3, 0.4, 0.3], [0.1, 0.5, 0.4]], [0, 1, 2])
    0.8333333333333334
    """

    def areas(rows: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
        members = [labels == k for k in range(classes)]
        values = [_area(rows[member, k], rows[~member, k]) for k, member in enumerate(members)]
        return np.array(values), np.array([member.sum() for member in members], np.float64)

    return _of_areas(areas, scores, target, **options)


def hand_till_auc_score(scores: Any, target: Any, **options: Unpack[ClassAreaOptions]) -> float | np.ndarray:
    """Return the mean area over pairs of classes; a pair's area is the mean over its two classes' scores (one against one).

    Hand and Till, *A simple generalisation of the area under the ROC curve for multiple class classification problems*, 2001.
    Equal to scikit-learn's ``roc_auc_score(multi_class="ovo")``, which weights by the samples of the pair. ``average="none"``
    gives ``(K, K)``, symmetric, NaN on the diagonal.

    >>> hand_till_auc_score([[0.8, 0.1, 0.1], [0.3, 0.4, 0.3], [0.1, 0.5, 0.4]], [0, 1, 2])
    0.8333333333333334
    """

    def pair(first: np.ndarray, second: np.ndarray, a: int, b: int) -> float:
        return (_area(first[:, a], second[:, a]) + _area(second[:, b], first[:, b])) / 2

    return _of_pairs(pair, scores, target, **options)


def auc_mu_score(scores: Any, target: Any, *, cost: Any = None, **options: Unpack[ClassAreaOptions]) -> float | np.ndarray:
    r"""Return AUC-mu: the mean area over pairs of classes along the direction in which a cost matrix separates the two.

    Read the scores f of a sample as weights of the classes. Deciding for class a then costs
    :math:`\sum_t f_t\,\mathrm{cost}[t, a]`, so a is preferred to b in the measure of
    :math:`\sum_t f_t (\mathrm{cost}[t, b] - \mathrm{cost}[t, a])`. The pair's area is that of this number over the samples of the
    two classes, a positive; AUC-mu is the mean over pairs, ties counting half. With 0/1 costs the number is ``f_a - f_b``. The
    transpose of ``cost`` is the partition matrix of the paper.

    Kleiman and Page, *AUC-mu: a performance metric for multi-class machine learning models*, ICML 2019. ``average`` as for
    :func:`hand_till_auc_score`; the paper's is the default.

    >>> auc_mu_score([[0.8, 0.1, 0.1], [0.3, 0.4, 0.3], [0.1, 0.5, 0.4]], [0, 1, 2])
    1.0
    """
    matrix = None if cost is None else _output_checks.as_cost_matrix(cost)

    def pair(first: np.ndarray, second: np.ndarray, a: int, b: int) -> float:
        if matrix is None:
            return _area(first[:, a] - first[:, b], second[:, a] - second[:, b])
        _output_checks.check_cost_fits(matrix, first.shape[1])
        direction = matrix[:, b] - matrix[:, a]
        return _area(first @ direction, second @ direction)

    return _of_pairs(pair, scores, target, **options)


def _of_choices(
    scores: Any,
    target: Any,
    cost: np.ndarray,
    answer_size: int,
    *,
    complement: bool = False,
    ignore_index: int | None = None,
    weight: Any = None,
    reduction: str = "mean",
) -> float | np.ndarray:
    batch = _read(scores, target, ignore_index)
    _output_checks.check_answer_size(answer_size, batch.classes)
    if len(cost):
        _output_checks.check_cost_fits(cost, batch.classes)
    weights = batch.weights(as_optional_array(weight))
    samples = choices.ClassSamples(batch.scores, batch.target, cost, np.zeros(batch.target.shape))
    values = choices.losses(samples, choices.choose(samples, answer_size, 0.0)).reshape(-1)
    values = 1.0 - values if complement else values
    return reduce_values(np.where(batch.kept, values, np.nan), weights, batch.values_shape, reduction)


def _read(scores: Any, target: Any, ignore_index: int | None) -> ClassBatch:
    _checks.check_ignore_index(ignore_index)
    return read_classes(as_scores(scores), to_numpy(target), ignore_index)


def _area(positives: np.ndarray, negatives: np.ndarray) -> float:
    """Return the share of pairs in the right order, ties counting half, from exact counts; NaN without pairs. O(n log n)."""
    if not len(positives) or not len(negatives):
        return float("nan")
    positives, negatives = np.sort(positives), np.sort(negatives)
    below = sum(int(np.searchsorted(negatives, positives, side).sum()) for side in ("left", "right"))
    return below / (2 * len(positives) * len(negatives))


def _of_pairs(
    pair: Callable[[np.ndarray, np.ndarray, int, int], float], scores: Any, target: Any, **options: Unpack[ClassAreaOptions]
) -> float | np.ndarray:
    """Return the areas of all the pairs of classes, ``pair(samples of a, samples of b, a, b)``."""

    def areas(rows: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
        members = [rows[labels == k] for k in range(classes)]
        values, sizes = np.full((classes, classes), np.nan), np.zeros((classes, classes))
        for a in range(classes):
            for b in range(a + 1, classes):
                values[a, b] = values[b, a] = pair(members[a], members[b], a, b)
                sizes[a, b] = sizes[b, a] = len(members[a]) + len(members[b])
        return values, sizes

    return _of_areas(areas, scores, target, **options)


def _of_areas(
    areas: Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]],
    scores: Any,
    target: Any,
    *,
    average: str = "macro",
    ignore_index: int | None = None,
    on_one_class: str = "skip",
) -> float | np.ndarray:
    _checks.check_choice("average", average, AVERAGES)
    _checks.check_choice("on_one_class", on_one_class, ("skip", "raise"))
    batch = _read(scores, target, ignore_index)
    rows, labels = batch.rows()
    if on_one_class == "raise":
        _output_checks.check_all_classes(np.bincount(labels, minlength=batch.classes))
    values, sizes = areas(rows, labels, batch.classes)
    if average == "none":
        return values
    defined = ~np.isnan(values)
    if not defined.any():
        return float("nan")
    return float(np.average(values[defined], weights=sizes[defined] if average == "weighted" else None))
