"""Metrics in scikit-learn's form: functions ``(y_true, y_score)`` for ``make_scorer``, and scorers for ``scoring=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import type_of_target

from taskloss._positive import find_positive, index_of_label
from taskloss.estimators.decisions import is_thresholded
from taskloss.estimators.weights import count_rows, read_weights
from taskloss.tasks import Task
from taskloss.tasks.registry import as_task


@dataclass(frozen=True)
class SklearnMetric:
    """A metric as a function ``(y_true, y_score)``, the order of scikit-learn; higher is better.

    Use it in :func:`sklearn.metrics.make_scorer` with ``response_method=("decision_function", "predict_proba")`` for metrics of
    rankings and ``response_method="predict"`` for metrics of labels. :func:`scorer` returns such a scorer.

    Args:
        metric: a task of rankings or of labels, or its registered name.

    >>> ap = SklearnMetric("average_precision")
    >>> round(ap([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.6]), 4)
    0.8333
    >>> ap(["yes", "no", "yes", "no"], [0.9, 0.8, 0.7, 0.6], pos_label="no")
    0.5
    """

    metric: str | Task

    @property
    def __name__(self) -> str:
        """The name of the metric, which scikit-learn shows."""
        return self.metric if isinstance(self.metric, str) else type(self.metric).__name__

    def __call__(self, y_true: Any, y_score: Any, *, pos_label: Any = None, sample_weight: Any = None) -> float:
        """Return the metric.

        Args:
            y_true: two classes, shape ``(n,)``, or 0/1 labels, shape ``(n, C)``.
            y_score: scores of the positive class, or of each label. For a metric of labels: predicted classes or labels.
            pos_label: the positive class, needed where the classes are not 0 and 1, -1 and 1, or False and True.
            sample_weight: how often each sample counts, a whole number; a metric of the whole list has no other weights.
        """
        task = as_task(self.metric)
        if task.target_kind not in ("binary", "labels"):
            raise ValueError(f"{type(task).__name__} is no metric of rankings or of 0/1 labels; use taskloss.estimators.scorer")
        truth, scores = _dense(y_true), _dense(y_score)
        if type_of_target(truth) == "multilabel-indicator":
            return evaluate(task, scores, truth, sample_weight)
        truth, scores = column_or_1d(truth), column_or_1d(scores)
        positive = _positive_label(np.unique(truth).tolist(), pos_label)
        if is_thresholded(task):
            if type_of_target(scores).startswith("continuous"):
                raise ValueError(
                    f"{type(task).__name__} judges decisions, and y_score holds scores; pass predicted classes "
                    "(response_method='predict' of make_scorer)"
                )
            scores = scores == positive
        return evaluate(task, scores, truth == positive, sample_weight)


@dataclass(frozen=True)
class TaskScorer:
    """A scorer, called as ``(estimator, X, y)`` by everything in scikit-learn that takes ``scoring=``; see :func:`scorer`."""

    metric: str | Task
    pos_label: Any = None

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        task, truth = as_task(self.metric), _dense(y)
        classes = np.asarray(getattr(estimator, "classes_", np.arange(2)))
        if truth.ndim == 2:
            return evaluate(task, estimator.predict(X) if is_thresholded(task) else _scores(estimator, X), truth, sample_weight)
        if task.target_kind == "class":
            return _evaluate_classes(task, estimator, X, truth, sample_weight)
        if len(classes) > 2:
            scores = estimator.predict(X)[:, None] == classes if is_thresholded(task) else _scores(estimator, X)
            return evaluate(task, scores, truth[:, None] == classes, sample_weight)
        known = self.pos_label if self.pos_label is not None else _pos_label_of(estimator)
        positive = _positive_label(classes.tolist(), known)
        if is_thresholded(task):
            scores = estimator.predict(X) == positive
        else:
            scores = _scores(estimator, X)
            scores = scores[:, 1] if scores.ndim == 2 else scores
            scores = scores if classes[1] == positive else -scores
        return evaluate(task, scores, truth == positive, sample_weight)


def scorer(metric: str | Task, *, pos_label: Any = None) -> TaskScorer:
    """Return a scorer of the metric, exact and higher for better, for ``scoring=`` in scikit-learn.

    Metrics of rankings use ``decision_function`` or the probabilities, metrics of labels and classes use ``predict``. With
    several classes, the metric is the mean over the classes, each against the rest. The positive one of two classes is
    ``pos_label``, or the ``pos_label_`` of the estimator (of the last step of a pipeline, of the best estimator of a search), or
    1 of the classes 0 and 1, -1 and 1, False and True.

    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = make_classification(200, weights=[0.8], class_sep=2.0, random_state=0)
    >>> bool(cross_val_score(LogisticRegression(), X, y, scoring=scorer("average_precision")).mean() > 0.8)
    True
    """
    as_task(metric)
    return TaskScorer(metric, pos_label)


def evaluate(task: Task, scores: np.ndarray, target: np.ndarray, sample_weight: Any = None) -> float:
    """Return the metric of scores, or of 0/1 decisions for a metric of labels, and a 0/1 target of the same shape."""
    scores = np.where(scores, 1.0, -1.0) if is_thresholded(task) else np.asarray(scores, np.float64)
    weights = read_weights(sample_weight, target)
    rows = slice(None) if weights is None else np.repeat(np.arange(len(target)), count_rows(weights, task))
    return float(task.score(scores[rows], np.asarray(target, np.int64)[rows]))


def _evaluate_classes(task: Task, estimator: Any, X: Any, truth: np.ndarray, sample_weight: Any) -> float:
    """Return the metric of a task on class indices; the predicted class counts, for the top-k error the scores."""
    classes = np.asarray(estimator.classes_)
    unknown = np.setdiff1d(truth, classes)
    if len(unknown):
        raise ValueError(
            f"y holds {unknown.tolist()[0]!r}, which the estimator has not seen in training; it knows {classes.tolist()[:8]}"
        )
    target = np.searchsorted(classes, truth)
    if hasattr(task, "cost"):
        scores = (np.asarray(estimator.predict(X))[:, None] == classes).astype(np.float64)
    else:
        scores = _scores(estimator, X)
        scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    return float(task.score(scores, target, weight=read_weights(sample_weight, target)))


def _scores(estimator: Any, X: Any) -> np.ndarray:
    method = getattr(estimator, "decision_function", None) or getattr(estimator, "predict_proba", None)
    if method is None:
        raise ValueError(f"{type(estimator).__name__} has neither decision_function nor predict_proba, so it ranks nothing")
    scores = method(X)
    # Some estimators return the probabilities of labels as a list, one array per label.
    return np.column_stack([each[:, 1] for each in scores]) if isinstance(scores, list) else np.asarray(scores)


def _positive_label(labels: list[Any], pos_label: Any) -> Any:
    """Return the positive one of two labels; raise if neither the caller nor the labels say which one it is."""
    if pos_label is not None:
        if len(labels) > 1:
            index_of_label(labels, pos_label)
        return pos_label
    if set(labels) <= {0, 1} or set(labels) <= {-1, 1}:
        return 1
    index, reason = find_positive(labels, [1, 1]) if len(labels) == 2 else (0, "unknown")
    if reason:
        raise ValueError(f"the classes are {', '.join(map(repr, labels[:8]))}; pass pos_label= to say which one is positive")
    return labels[index]


def _pos_label_of(estimator: Any) -> Any:
    """Return the ``pos_label_`` of a fitted estimator, also inside of a search or a pipeline; None if there is none."""
    inner = getattr(estimator, "best_estimator_", estimator)
    if hasattr(inner, "steps"):
        inner = inner.steps[-1][1]
    return getattr(inner, "pos_label_", None)


def _dense(values: Any) -> np.ndarray:
    return values.toarray() if scipy.sparse.issparse(values) else np.asarray(values)
