"""Exact ranking metrics, ties included. Order of the arguments everywhere: ``(scores, target)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import numpy as np

from taskloss import _checks
from taskloss.layout import Layout, Rankings, ranking_weights, read_rankings, to_numpy
from taskloss.metrics import graded, of_rankings, separable, term_checks
from taskloss.metrics.reduction import as_optional_array, as_scores, reduce_values

__all__ = [
    "average_precision_score",
    "graded_ndcg_score",
    "ndcg_score",
    "partial_auc_score",
    "precision_at_k_score",
    "precision_at_recall_score",
    "recall_at_fpr_score",
    "recall_at_k_score",
    "recall_at_precision_score",
    "reciprocal_rank_score",
    "roc_auc_score",
    "separable_score",
]


class MetricOptions(TypedDict, total=False):
    """How the input is divided into rankings and the values are reduced; see :mod:`taskloss.layout`."""

    dim: int | tuple[int, ...] | None
    """The axis that is ranked, or several (default 0)."""
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
    scores: Any, target: Any, *, at: int | None = None, num_relevant: Any = None, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    r"""Return the average precision, the mean precision at the thresholds of the positives.

    .. math:: \mathrm{AP} = \frac{1}{R} \sum_{i : y_i = 1} \frac{\#\{k : y_k = 1, s_k \ge s_i\}}{\#\{k : s_k \ge s_i\}}

    Equal to scikit-learn's ``average_precision_score``; a tied group is retrieved together.

    Args:
        scores: floats of any shape, array or tensor.
        target: 0/1 or bool, same shape.
        at: count only the positives within the first ``at`` ranks, divided by ``min(R, at)``.
        num_relevant: number R of relevant items of each ranking, those never retrieved included (default: the positives).
        options: see :class:`MetricOptions`.

    Returns:
        One float for ``"mean"`` and ``"sum"``, else an array with one value per ranking.

    >>> round(average_precision_score([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0]), 6)
    0.833333
    """
    _checks.check_optional_count("at", at)
    return _score(lambda rankings: of_rankings.average_precision(rankings, at), scores, target, num_relevant, **options)


def roc_auc_score(scores: Any, target: Any, **options: Unpack[MetricOptions]) -> float | np.ndarray:
    r"""Return the area under the ROC curve: the share of (positive, negative) pairs in the right order, ties counting half.

    .. math:: \mathrm{AUC} = \frac{1}{PN} \sum_{i,j} [s_i > t_j] + \tfrac12 [s_i = t_j]

    Equal to scikit-learn's ``roc_auc_score``. Arguments as for :func:`average_precision_score`.

    >>> roc_auc_score([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0])
    0.75
    """
    return partial_auc_score(scores, target, max_fpr=1.0, **options)


def partial_auc_score(
    scores: Any,
    target: Any,
    *,
    max_fpr: float,
    min_fpr: float = 0.0,
    standardize: bool = False,
    **options: Unpack[MetricOptions],
) -> float | np.ndarray:
    r"""Return the area under the ROC curve between two false positive rates, divided by the width of the band.

    With ``standardize`` the area A is rescaled so that random order gives 1/2 (McClish 1989), as scikit-learn's
    ``roc_auc_score(max_fpr=...)`` does: ``(1 + (A - a) / (A_max - a)) / 2`` with a the area under the diagonal.

    >>> partial_auc_score([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0], max_fpr=0.5)
    0.5
    """
    _checks.check_band(min_fpr, max_fpr)

    def values(rankings: Rankings) -> np.ndarray:
        share = of_rankings.band_auc(rankings, *of_rankings.false_positive_band(rankings, min_fpr, max_fpr))
        chance = (min_fpr + max_fpr) / 2
        return (1.0 + (share - chance) / (1.0 - chance)) / 2 if standardize else share

    return _score(values, scores, target, None, **options)


def recall_at_fpr_score(
    scores: Any, target: Any, *, fpr: float, num_relevant: Any = None, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    """Return the largest recall of a threshold with a false positive rate of at most ``fpr`` (sensitivity at a specificity).

    >>> recall_at_fpr_score([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0], fpr=0.4)
    0.5
    """
    _checks.check_fraction("fpr", fpr)
    return _score(lambda rankings: of_rankings.recall_at_fpr(rankings, fpr), scores, target, num_relevant, **options)


def ndcg_score(
    scores: Any, target: Any, *, at: int | None = None, num_relevant: Any = None, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    r"""Return the normalized discounted cumulative gain of binary relevance; mean over the orders of ties.

    Equal to scikit-learn's ``ndcg_score`` for 0/1 relevance.

    >>> round(ndcg_score([0.9, 0.8, 0.7], [0, 1, 1]), 4)
    0.6934
    """
    _checks.check_optional_count("at", at)
    return _score(lambda rankings: of_rankings.ndcg(rankings, at), scores, target, num_relevant, **options)


def graded_ndcg_score(
    scores: Any, target: Any, *, gain: str = graded.GAINS[0], at: int | None = None, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    r"""Return the normalized discounted cumulative gain of graded relevance (0, 1, 2, ...); mean over the orders of ties.

    .. math:: \mathrm{NDCG} = \frac{1}{Z} \sum_i \frac{g_i}{\log_2(1 + \mathrm{rank}_i)}

    with Z the sum of the ideal order. With the linear gain equal to scikit-learn's ``ndcg_score``. A ranking whose gains are all
    equal is undefined.

    Args:
        scores: floats of any shape, array or tensor.
        target: grades of at least 0, same shape.
        gain: ``"exponential"``, ``2**relevance - 1``, or ``"linear"``, the relevance itself.
        at: count only the first ``at`` ranks.
        options: see :class:`MetricOptions`.

    >>> round(graded_ndcg_score([0.9, 0.8, 0.7], [0, 2, 1]), 4)
    0.659
    """
    _checks.check_choice("gain", gain, graded.GAINS)
    _checks.check_optional_count("at", at)

    def read(scores: np.ndarray, target: np.ndarray, **call: Any) -> tuple[Layout, np.ndarray, np.ndarray]:
        rankings = graded.read_graded(scores, target, gain=gain, at=at, **call)
        return rankings.layout, ~rankings.defined, graded.ndcg(rankings)

    return _values(read, scores, target, **options)


def reciprocal_rank_score(
    scores: Any, target: Any, *, num_relevant: Any = None, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    """Return one over the rank of the first positive, ties in their worst order; the mean over queries is the MRR.

    >>> reciprocal_rank_score([0.9, 0.8, 0.7], [0, 1, 1])
    0.5
    """
    return _score(of_rankings.reciprocal_rank, scores, target, num_relevant, **options)


def precision_at_recall_score(
    scores: Any, target: Any, *, recall: float, num_relevant: Any = None, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    """Return the precision of the highest threshold that reaches ``recall``.

    >>> precision_at_recall_score([0.9, 0.8, 0.7, 0.6], [0, 1, 1, 0], recall=0.5)
    0.5
    """
    _checks.check_fraction("recall", recall)
    return _score(lambda rankings: of_rankings.precision_at_recall(rankings, recall), scores, target, num_relevant, **options)


def recall_at_precision_score(
    scores: Any, target: Any, *, precision: float, num_relevant: Any = None, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    """Return the largest recall of a threshold that has at least this precision; zero when none has.

    >>> recall_at_precision_score([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0], precision=0.6)
    1.0
    """
    _checks.check_fraction("precision", precision)
    return _score(lambda rankings: of_rankings.recall_at_precision(rankings, precision), scores, target, num_relevant, **options)


def precision_at_k_score(scores: Any, target: Any, *, k: float, **options: Unpack[MetricOptions]) -> float | np.ndarray:
    """Return the positives among the first k samples divided by k (a count, or a fraction of the list); mean over ties' orders.

    >>> precision_at_k_score([0.9, 0.8, 0.7], [0, 1, 1], k=2)
    0.5
    """
    _checks.check_k(k)

    def values(rankings: Rankings) -> np.ndarray:
        top = of_rankings.top(rankings, k)
        return of_rankings.share_in_top(rankings, top, top)

    return _score(values, scores, target, None, **options)


def recall_at_k_score(
    scores: Any, target: Any, *, k: float, num_relevant: Any = None, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    """Return the share of the relevant items among the first k samples; k and ties as for :func:`precision_at_k_score`.

    >>> recall_at_k_score([0.9, 0.8, 0.7], [0, 1, 1], k=2)
    0.5
    """
    _checks.check_k(k)

    def values(rankings: Rankings) -> np.ndarray:
        return of_rankings.share_in_top(rankings, of_rankings.top(rankings, k), rankings.relevant)

    return _score(values, scores, target, num_relevant, **options)


def separable_score(
    scores: Any,
    target: Any,
    m: separable.TermFunction,
    *,
    normalize: bool = True,
    ties: str = separable.TIES[0],
    num_relevant: Any = None,
    **options: Unpack[MetricOptions],
) -> float | np.ndarray:
    """Return a metric of your own, a sum of terms ``m(i, c)``: one minus the loss of :class:`taskloss.SeparableMetric`.

    >>> round(separable_score([0.9, 0.8, 0.7], [0, 1, 1], lambda i, c: 1 / np.sqrt(i + c)), 4)
    0.7524
    """
    term_checks.check_term_function(m, separable.SIZES)
    _checks.check_choice("ties", ties, separable.TIES)
    return _score(lambda rankings: separable.of_prediction(m, rankings, normalize, ties), scores, target, num_relevant, **options)


def _score(
    values_of: Callable[[Rankings], np.ndarray], scores: Any, target: Any, num_relevant: Any, **options: Unpack[MetricOptions]
) -> float | np.ndarray:
    """Compute a metric of binary relevance."""
    relevant = as_optional_array(num_relevant)

    def read(scores: np.ndarray, target: np.ndarray, **call: Any) -> tuple[Layout, np.ndarray, np.ndarray]:
        layout, rankings = read_rankings(scores, target, num_relevant=relevant, **call)
        return layout, rankings.undefined, values_of(rankings)

    return _values(read, scores, target, **options)


def _values(
    read: Callable[..., tuple[Layout, np.ndarray, np.ndarray]],
    scores: Any,
    target: Any,
    *,
    dim: int | tuple[int, ...] | None = None,
    groups: Any = None,
    ignore_index: int | None = None,
    weight: Any = None,
    reduction: str = "mean",
    on_one_class: str = "skip",
) -> float | np.ndarray:
    """Read the input and reduce the values; ``read`` returns the layout, which rankings are undefined, and their values."""
    _checks.check_choice("on_one_class", on_one_class, ("skip", "raise"))
    layout, undefined, values = read(
        as_scores(scores),
        to_numpy(target),
        dims=_checks.as_dims(dim),
        groups=as_optional_array(groups),
        ignore_index=ignore_index,
    )
    if on_one_class == "raise":
        _checks.check_two_classes(undefined)
    weights = ranking_weights(layout, as_optional_array(weight))
    return reduce_values(np.where(undefined, np.nan, values), weights, layout.values_shape, reduction)
