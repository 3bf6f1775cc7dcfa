"""Thresholds that are best on the given samples. No guarantee: on new data they tend to be worse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taskloss import _checks
from taskloss.thresholds.point import Counts, OperatingPoint, found_point
from taskloss.thresholds.samples import just_above, just_below, ranked, read_samples


def for_f_score(scores: Any, target: Any, *, beta: float = 1.0) -> OperatingPoint:
    """The threshold with the highest F-score of the given samples. No guarantee: the F-score of new data tends to be lower.

    >>> point = for_f_score([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0])
    >>> point.threshold, point.recall
    (1.5, 1.0)
    """
    weight = _checks.check_positive("beta", beta) ** 2

    def f_score(counts: Counts) -> np.ndarray:
        tp, fp, fn, _ = counts
        with np.errstate(invalid="ignore"):
            return np.nan_to_num((1 + weight) * tp / ((1 + weight) * tp + fp + weight * fn), nan=1.0)

    return for_value(scores, target, f_score, requirement=f"best F-score, beta {beta:g}")


def for_cost(scores: Any, target: Any, *, false_positive: float, false_negative: float) -> OperatingPoint:
    """The threshold with the lowest total cost of the given samples. No guarantee.

    >>> for_cost([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0], false_positive=1, false_negative=5).threshold
    1.5
    >>> for_cost([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0], false_positive=5, false_negative=1).threshold
    3.5
    """
    alarm, miss = (
        _checks.check_positive("false_positive", false_positive),
        _checks.check_positive("false_negative", false_negative),
    )
    return for_value(
        scores,
        target,
        lambda counts: -(alarm * counts.false_positives + miss * counts.false_negatives),
        requirement=f"lowest cost, {alarm:g} a false positive, {miss:g} a false negative",
    )


def for_value(
    scores: Any, target: Any, value: Callable[[Counts], np.ndarray], *, requirement: str = "highest value"
) -> OperatingPoint:
    """The threshold with the highest value of the confusion counts; of several, the highest. No guarantee.

    Args:
        scores: one a sample.
        target: 0/1.
        value: takes :class:`Counts` of float64 arrays, one entry a threshold, and returns an array.
        requirement: what the value is, for the reader.

    The threshold lies halfway between two scores. With the highest score below it there is no alert, with the lowest above it
    there are only alerts.
    """
    values, labels = read_samples(scores, target)
    falling, hits = ranked(values, labels)
    # The number of alerts of each threshold between different scores, all and none included.
    alerts = np.append(0, np.flatnonzero(np.append(falling[1:] != falling[:-1], True)) + 1)
    found = np.append(0, hits)[alerts].astype(np.float64)
    counts = Counts(found, alerts - found, hits[-1] - found, len(falling) - hits[-1] - (alerts - found))
    best = int(np.argmax(value(counts)))
    threshold = (
        just_above(values, float(falling[0])) if alerts[best] == 0 else just_below(values, float(falling[alerts[best] - 1]))
    )
    return found_point(threshold, requirement, values, labels, None, None)
