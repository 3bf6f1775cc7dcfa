"""From scores to labels: thresholds and offsets that are best for the metric on held-out samples.

A metric of labels is its own criterion. A metric of rankings has no threshold; each has a decision that belongs to it:

=====================================================  ====================================================================
metric                                                 threshold
=====================================================  ====================================================================
ROC AUC, partial AUC                                   the best balanced accuracy
precision at a recall                                  the best precision among those with this recall
recall at a precision                                  the best recall among those with this precision, or else the best precision
recall at a false positive rate                        the best recall among those with this rate
precision or recall at a share k of the list           alerts for this share
all others (average precision, NDCG ...)               the best F1
=====================================================  ====================================================================

These are the best of the held-out samples, without a guarantee; for one see :mod:`taskloss.thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskloss import tasks
from taskloss.tasks.labeling import LabelingTask
from taskloss.thresholds import Counts, for_value

Value = Callable[[Counts], np.ndarray]

OFFSETS = np.linspace(-3.0, 3.0, 25)
"""Tried for each class, in units of log-odds."""
SWEEPS = 2


def is_thresholded(task: tasks.Task) -> bool:
    """Whether the metric itself is one of labels, ``score > threshold``."""
    return isinstance(task, LabelingTask)


def count_value(task: tasks.Task, positives: int, negatives: int) -> Value:
    """What a threshold is worth for this task, as a function of the confusion counts."""
    if isinstance(task, LabelingTask):
        return _of_labels(task, positives, negatives)
    if isinstance(task, tasks.MultiClass):
        cost = np.array([[0.0, 1.0], [1.0, 0.0]]) if task.cost is None else task.cost.values
        return lambda c: -(cost[0, 1] * c.false_positives + cost[1, 0] * c.false_negatives)
    if isinstance(task, (tasks.ROCAUC, tasks.PartialAUC)):
        return _of_labels(tasks.BalancedError(), positives, negatives)
    if isinstance(task, tasks.PrecisionAtRecall):
        return lambda c: _where(c.true_positives >= task.recall * positives, _precision(c), c.true_positives)
    if isinstance(task, tasks.RecallAtPrecision):
        return lambda c: _where(_precision(c) >= task.precision, c.true_positives, _precision(c))
    if isinstance(task, tasks.RecallAtFPR):
        return lambda c: _where(c.false_positives <= task.fpr * negatives, c.true_positives, -c.false_positives)
    if isinstance(task, (tasks.PrecisionAtK, tasks.RecallAtK)) and isinstance(task.k, float):
        budget = task.k * (positives + negatives)
        return lambda c: _where(_alerts(c) <= budget, _alerts(c), -_alerts(c))
    return _of_labels(tasks.FScore(), positives, negatives)


def choose_threshold(task: tasks.Task, scores: np.ndarray, target: np.ndarray) -> float:
    """The threshold that is worth most for the task, for scores and 0/1 labels of shape ``(n,)``."""
    return for_value(scores, target, count_value(task, int((target == 1).sum()), int((target == 0).sum()))).threshold


def choose_offsets(task: tasks.Task, logits: np.ndarray, target: np.ndarray) -> np.ndarray:
    """What to add to the log-odds ``(n, K)`` of classes so that the class with the highest sum is best for the task.

    For a metric of labels, the mean over the classes, each against the rest; for costs of classes, their mean. By coordinate
    ascent from zero, which stays where nothing is better. Zero for metrics of rankings, and for top-k errors.
    """
    classes = logits.shape[1]
    offsets = np.zeros(classes)
    if not (is_thresholded(task) or isinstance(task, tasks.MultiClass)):
        return offsets

    def value(trial: np.ndarray) -> float:
        return _value_of_classes(task, np.argmax(logits + trial, axis=1), target, classes)

    best = value(offsets)
    for column in np.tile(np.arange(classes), SWEEPS):
        for offset in OFFSETS:
            trial = offsets.copy()
            trial[column] = offset
            reached = value(trial)
            if reached > best:
                best, offsets = reached, trial
    return offsets


def _value_of_classes(task: tasks.Task, chosen: np.ndarray, target: np.ndarray, classes: int) -> float:
    confusion = np.bincount(target * classes + chosen, minlength=classes**2).reshape(classes, classes)
    if isinstance(task, LabelingTask):
        found, size = np.diag(confusion), confusion.sum(1)
        return float(-task.loss_of_counts(found, confusion.sum(0) - found, size, len(target) - size).mean())
    # The tasks of classes that are no labelings have costs.
    return -float((confusion * task.cost_values(classes)).sum() if task.cost is not None else len(target) - np.trace(confusion))  # type: ignore[attr-defined]


def _of_labels(task: LabelingTask, positives: int, negatives: int) -> Value:
    def value(counts: Counts) -> np.ndarray:
        found, alarms = (np.asarray(count).astype(np.int64) for count in counts[:2])
        return 1.0 - task.loss_of_counts(found, alarms, np.full_like(found, positives), np.full_like(found, negatives))

    return value


def _where(met: np.ndarray, value: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """``value`` where the requirement is met; anywhere else less, by ``fallback``."""
    scale = 1.0 + np.abs(fallback).max() + np.abs(value).max()
    return np.where(met, value, np.asarray(fallback, np.float64) / scale - 2.0 * scale)


def _alerts(counts: Counts) -> np.ndarray:
    return np.asarray(counts.true_positives + counts.false_positives, np.float64)


def _precision(counts: Counts) -> np.ndarray:
    return np.asarray(counts.true_positives) / np.maximum(_alerts(counts), 1.0)
