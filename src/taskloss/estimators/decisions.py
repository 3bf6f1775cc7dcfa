"""Decisions from scores: the thresholds and class offsets that are best for the metric on held-out samples.

For a metric of labels, the best threshold maximizes the metric itself. A metric of rankings has no threshold, so each is given a
rule that suits it:

=====================================================  ====================================================================
metric                                                 threshold
=====================================================  ====================================================================
ROC AUC, partial AUC                                   the best balanced accuracy
precision at a recall                                  the best precision at this recall
recall at a precision                                  the best recall at this precision, or the best precision
recall at a false positive rate                        the best recall at this rate
precision or recall at a share k of the list           alerts for this share of the samples
all others (average precision, NDCG ...)               the best F1
=====================================================  ====================================================================

These choices are best on the held-out samples and carry no guarantee for new ones; :mod:`taskloss.thresholds` has thresholds that
do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taskloss import tasks
from taskloss.tasks.labeling import LabelingTask
from taskloss.thresholds import Counts, for_value

Value = Callable[[Counts], np.ndarray]

OFFSETS = np.linspace(-3.0, 3.0, 25)
"""Candidates for the offset of each class, in units of log-odds."""
SYMMETRIC = (tasks.ROCAUC, tasks.ZeroOne, tasks.BalancedError, tasks.GMean, tasks.MCC)
"""Metrics of two classes that do not depend on which one is positive."""
SWEEPS = 2
"""Passes over the classes in the coordinate ascent of :func:`choose_offsets`."""


def is_thresholded(task: tasks.Task) -> bool:
    """Whether the metric is defined on labels, ``score > threshold``, rather than on a ranking."""
    return isinstance(task, LabelingTask)


def is_symmetric(task: tasks.Task) -> bool:
    """Whether the metric stays the same when the two classes change places and the scores their sign."""
    return task.target_kind == "class" or type(task) in SYMMETRIC


class ThresholdRule(NamedTuple):
    """What the threshold for a metric is best for."""

    words: str
    value: Value
    """The quantity to maximize, as a function of the confusion counts."""


def threshold_rule(task: tasks.Task) -> ThresholdRule:
    """Return what the threshold of :func:`choose_threshold` is best for.

    >>> threshold_rule(tasks.AveragePrecision()).words, threshold_rule(tasks.PrecisionAtRecall(0.9)).words
    ('F1', 'precision at a recall of 0.9')
    """
    if isinstance(task, LabelingTask):
        # Only registered tasks have a label.
        return ThresholdRule(getattr(task, "label", type(task).__name__), _metric_of_labels(task))
    if isinstance(task, tasks.MultiClass):
        cost = np.array([[0.0, 1.0], [1.0, 0.0]]) if task.cost is None else task.cost.values
        return ThresholdRule("the costs", lambda c: -(cost[0, 1] * c.false_positives + cost[1, 0] * c.false_negatives))
    if isinstance(task, (tasks.ROCAUC, tasks.PartialAUC)):
        return ThresholdRule("balanced accuracy", _metric_of_labels(tasks.BalancedError()))
    if isinstance(task, tasks.PrecisionAtRecall):
        return ThresholdRule(
            f"precision at a recall of {task.recall:g}",
            lambda c: _value_where(c.true_positives >= task.recall * _positives(c), _precision(c), c.true_positives),
        )
    if isinstance(task, tasks.RecallAtPrecision):
        return ThresholdRule(
            f"recall at a precision of {task.precision:g}",
            lambda c: _value_where(_precision(c) >= task.precision, c.true_positives, _precision(c)),
        )
    if isinstance(task, tasks.RecallAtFPR):
        return ThresholdRule(
            f"recall at a false positive rate of {task.fpr:g}",
            lambda c: _value_where(c.false_positives <= task.fpr * _negatives(c), c.true_positives, -c.false_positives),
        )
    if isinstance(task, (tasks.PrecisionAtK, tasks.RecallAtK)) and isinstance(task.k, float):
        return ThresholdRule(
            f"alerts for {task.k:.3g} of the rows",
            lambda c: _value_where(_alerts(c) <= task.k * (_positives(c) + _negatives(c)), _alerts(c), -_alerts(c)),
        )
    return ThresholdRule("F1", _metric_of_labels(tasks.FScore()))


def choose_threshold(task: tasks.Task, scores: np.ndarray, target: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the threshold with the highest value for the task, given scores and 0/1 labels of shape ``(n,)``.

    Only costs of classes, which are means over the samples, have a use for the weights of the samples.
    """
    value = threshold_rule(task).value
    return for_value(scores, target, value, sample_weight=weights if isinstance(task, tasks.MultiClass) else None).threshold


def choose_offsets(task: tasks.Task, logits: np.ndarray, target: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return offsets ``(K,)`` to add to the log-odds ``(n, K)``, so that predicting the highest sum is best for the task.

    A metric of labels counts as its mean over the classes, each against the rest; costs of classes count as their mean. The
    search is a coordinate ascent from zero, which stays at zero where nothing is better. Metrics of rankings and top-k errors
    get zero offsets. Weights are used as in :func:`choose_threshold`.
    """
    classes = logits.shape[1]
    offsets = np.zeros(classes)
    if not (is_thresholded(task) or isinstance(task, tasks.MultiClass)):
        return offsets

    def value(trial: np.ndarray) -> float:
        return _value_of_classes(task, np.argmax(logits + trial, axis=1), target, classes, weights)

    best = value(offsets)
    for column in np.tile(np.arange(classes), SWEEPS):
        for offset in OFFSETS:
            trial = offsets.copy()
            trial[column] = offset
            reached = value(trial)
            if reached > best:
                best, offsets = reached, trial
    return offsets


def _value_of_classes(
    task: tasks.Task, chosen: np.ndarray, target: np.ndarray, classes: int, weights: np.ndarray | None
) -> float:
    """Return the value of predicting the classes ``chosen``, up to a constant."""
    pairs = target * classes + chosen
    if isinstance(task, LabelingTask):
        confusion = np.bincount(pairs, minlength=classes**2).reshape(classes, classes)
        hits, positives = np.diag(confusion), confusion.sum(1)
        return float(-task.loss_of_counts(hits, confusion.sum(0) - hits, positives, len(target) - positives).mean())
    confusion = np.bincount(pairs, weights, minlength=classes**2).reshape(classes, classes)
    # A task on classes that is not a labeling task has costs.
    cost = 1.0 - np.eye(classes) if task.cost is None else task.cost_values(classes)  # type: ignore[attr-defined]
    return -float((confusion * cost).sum())


def _metric_of_labels(task: LabelingTask) -> Value:
    """Return the metric as a function of the confusion counts."""

    def value(counts: Counts) -> np.ndarray:
        cells = counts.true_positives, counts.false_positives, _positives(counts), _negatives(counts)
        return 1.0 - task.loss_of_counts(*(np.asarray(cell).astype(np.int64) for cell in cells))

    return value


def _value_where(met: np.ndarray, value: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """Return ``value`` where the requirement is met; elsewhere something lower than all of these, ordered by ``fallback``."""
    scale = 1.0 + np.abs(fallback).max() + np.abs(value).max()
    return np.where(met, value, np.asarray(fallback, np.float64) / scale - 2.0 * scale)


def _positives(counts: Counts) -> np.ndarray:
    return np.asarray(counts.true_positives + counts.false_negatives)


def _negatives(counts: Counts) -> np.ndarray:
    return np.asarray(counts.false_positives + counts.true_negatives)


def _alerts(counts: Counts) -> np.ndarray:
    return np.asarray(counts.true_positives + counts.false_positives, np.float64)


def _precision(counts: Counts) -> np.ndarray:
    return np.asarray(counts.true_positives) / np.maximum(_alerts(counts), 1.0)
