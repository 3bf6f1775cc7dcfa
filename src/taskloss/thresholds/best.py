"""Thresholds that are best on the given samples. They carry no guarantee: on new data they tend to be worse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taskloss import _checks
from taskloss.metrics.reduction import as_scores
from taskloss.thresholds.point import Counts, OperatingPoint, found_point
from taskloss.thresholds.samples import just_above, just_below, read_samples


def for_f_score(scores: Any, target: Any, *, beta: float = 1.0, pos_label: Any = None) -> OperatingPoint:
    """Return the threshold with the highest F-score on the given samples.

    It carries no guarantee: the F-score of new data tends to be lower. Arguments as for :func:`for_value`.

    >>> point = for_f_score([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0])
    >>> point.threshold, point.recall
    (1.5, 1.0)
    """
    weight = _checks.check_positive("beta", beta) ** 2

    def f_score(counts: Counts) -> np.ndarray:
        tp, fp, fn, _ = counts
        with np.errstate(invalid="ignore"):
            return np.nan_to_num((1 + weight) * tp / ((1 + weight) * tp + fp + weight * fn), nan=1.0)

    values, labels = read_samples(scores, target, pos_label)
    return _best(values, labels, f_score, f"best F-score, beta {beta:g}")


def for_cost(scores: Any, target: Any, *, false_positive: float, false_negative: float, pos_label: Any = None) -> OperatingPoint:
    """Return the threshold with the lowest total cost on the given samples, without a guarantee.

    Arguments as for :func:`for_value`.

    >>> for_cost([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0], false_positive=1, false_negative=5).threshold
    1.5
    >>> for_cost([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0], false_positive=5, false_negative=1).threshold
    3.5
    """
    alarm, miss = (
        _checks.check_positive("false_positive", false_positive),
        _checks.check_positive("false_negative", false_negative),
    )
    values, labels = read_samples(scores, target, pos_label)
    requirement = f"lowest cost, {alarm:g} per false positive, {miss:g} per false negative"
    return _best(values, labels, lambda counts: -(alarm * counts.false_positives + miss * counts.false_negatives), requirement)


def for_value(
    scores: Any,
    target: Any,
    value: Callable[[Counts], np.ndarray],
    *,
    requirement: str = "highest value",
    pos_label: Any = None,
    sample_weight: Any = None,
) -> OperatingPoint:
    """Return the threshold whose confusion counts have the highest value; the highest one of several. There is no guarantee.

    Args:
        scores: one score per sample, shape ``(n,)``.
        target: labels of the same shape: 0 and 1, or any two labels.
        value: function of :class:`Counts` that hold float64 arrays with one entry per threshold; it returns such an array.
        requirement: description of the value, for messages.
        pos_label: the positive label, as for :func:`~taskloss.thresholds.for_precision`.
        sample_weight: weight of each sample in the counts that ``value`` is given; 1 by default.

    The threshold lies halfway between two scores, or above all of them (no alerts), or below all of them (only alerts).
    """
    values, labels = read_samples(scores, target, pos_label)
    weights = None if sample_weight is None else as_scores(sample_weight).astype(np.float64)
    if weights is not None:
        _checks.check_shapes(values, weights)
        _checks.check_weight_values(weights)
    return _best(values, labels, value, requirement, weights)


def _best(
    values: np.ndarray,
    labels: np.ndarray,
    value: Callable[[Counts], np.ndarray],
    requirement: str,
    weights: np.ndarray | None = None,
) -> OperatingPoint:
    order = np.argsort(-values, kind="stable")
    descending = values[order]
    each = np.ones(len(values)) if weights is None else weights[order]
    # The number of alerts of each threshold between different scores, from none to all.
    alerts = np.append(0, np.flatnonzero(np.append(descending[1:] != descending[:-1], True)) + 1)
    tp, fp = (np.append(0.0, np.cumsum(np.where(labels[order] == positive, each, 0.0)))[alerts] for positive in (True, False))
    best = int(np.argmax(value(Counts(tp, fp, tp[-1] - tp, fp[-1] - fp))))
    threshold = (
        just_above(values, float(descending[0])) if alerts[best] == 0 else just_below(values, float(descending[alerts[best] - 1]))
    )
    return found_point(threshold, requirement, values, labels, None, None)
