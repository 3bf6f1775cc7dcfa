"""The classifier: two classes, several, or labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from torch import Tensor, nn

from taskloss import _checks
from taskloss.estimators import base
from taskloss.estimators.calibration import BrokenLine, VectorScaling
from taskloss.estimators.decisions import choose_offsets, choose_threshold
from taskloss.estimators.files import below
from taskloss.estimators.problem import Problem
from taskloss.tasks import Task
from taskloss.tasks.registry import as_task
from taskloss.training import HIDDEN, Progress

THRESHOLDS = ("metric", "probability")


class TaskLossClassifier(ClassifierMixin, base.TaskLossEstimator):
    """A classifier that is trained on the metric you report.

    An ensemble of small networks, each trained full batch on one part of the samples and stopped by the exact metric on the
    rest; the held-out scores of all parts choose the threshold of ``predict`` and calibrate ``predict_proba``. Several classes
    and labels train one column of scores each, the mean over the columns being the metric.

    Args:
        metric: a task or its registered name: ``"average_precision"``, ``"f_score"``, ``taskloss.PrecisionAtRecall(0.9)``.
        method: ``"direct"``, ``"direct_negative"``, ``"hinge"``, ``"lp"``, or for comparison ``"cross_entropy"`` with the same
            network, stopping and threshold.
        hidden: widths of the hidden layers.
        module: ``module(n_features, n_outputs)`` builds a network of your own instead, ``(n, n_features) -> (n, n_outputs)``.
        epsilon: of the direct losses; larger is smoother.
        members: how many networks.
        folds: the samples are dealt into this many folds, and each member holds one out.
        max_iter: most steps of a member.
        patience: a member stops after this many steps without a better metric on its held-out fold.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        dropout: share of hidden units left out in each step.
        averaging: decay of a running mean of the weights, 0 for none.
        smoothing: steps are compared by the mean metric of so many steps.
        batch_size: up to this many samples a step sees all of them, of more it sees stratified batches.
        threshold: of ``predict``: ``"metric"``, what is best for the metric on held-out samples, or ``"probability"``, where the
            calibrated probability is above one half (of several classes: the most probable one).
        scaling: of the columns: ``"quantile"``, ``"standard"`` or ``"none"``. Missing values become the middle of their column.
        warm_start: go on from the networks of the last fit.
        checkpoint: a folder for the state of the training; a fit that was killed goes on from there.
        callback: called with the number of the member and a :class:`~taskloss.training.Progress` after each step.
        threads: of torch; with a fixed number, results do not depend on the machine's cores.
        random_state: of splits and initial weights.

    Attributes:
        classes_: the classes, or the numbers of the labels.
        threshold_: what the scores are compared to (two classes: a float; labels: one each), best for the metric; it is the zero
            of ``decision_function``.
        history_: losses and metrics of each member.
        n_iter_: most steps that a member took.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(300, weights=[0.9], class_sep=2.0, random_state=0)
    >>> model = TaskLossClassifier(members=2, max_iter=30, random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape
    (300, 2)
    """

    classes_: np.ndarray

    def __init__(
        self,
        metric: str | Task = "average_precision",
        *,
        method: str = "direct",
        hidden: Sequence[int] = HIDDEN,
        module: Callable[[int, int], nn.Module] | None = None,
        epsilon: float = base.EPSILON,
        members: int = base.MEMBERS,
        folds: int = base.FOLDS,
        max_iter: int = base.DEFAULT.iterations,
        patience: int = base.DEFAULT.patience,
        learning_rate: float = base.DEFAULT.learning_rate,
        weight_decay: float = base.DEFAULT.weight_decay,
        dropout: float = 0.0,
        averaging: float = base.DEFAULT.averaging,
        smoothing: int = base.DEFAULT.smoothing,
        batch_size: int = base.DEFAULT.batch_size,
        threshold: str = THRESHOLDS[0],
        scaling: str = "quantile",
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
        callback: Callable[[int, Progress], None] | None = None,
        threads: int = 1,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            metric,
            method=method,
            hidden=hidden,
            module=module,
            epsilon=epsilon,
            members=members,
            folds=folds,
            max_iter=max_iter,
            patience=patience,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            dropout=dropout,
            averaging=averaging,
            smoothing=smoothing,
            batch_size=batch_size,
            scaling=scaling,
            warm_start=warm_start,
            checkpoint=checkpoint,
            callback=callback,
            threads=threads,
            random_state=random_state,
        )
        self.threshold = threshold

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X, dense or sparse, and classes y ``(n,)`` or labels ``(n, C)`` of 0 and 1."""
        _checks.check_choice("threshold", self.threshold, THRESHOLDS)
        table, y = self._read_table(X, y, fitting=True, multi_output=True)
        labels = self._read_target(y)
        problem = self._problem(as_task(self.metric))
        target = torch.from_numpy(labels[:, 1].copy() if problem.outputs is None else labels)
        if problem.chooses_class:
            target = target.argmax(1)
        counts = labels.sum(0)
        most_folds = int(np.minimum(counts, len(labels) - counts).max())
        scores, known = self._fit_ensemble(table, problem, target, None, _kinds(labels), most_folds)
        self._choose(self._joined(scores)[known], labels[known])
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores whose zero is the threshold: ``(n,)`` for two classes, else ``(n, C)``; of classes the highest is predicted."""
        scores = self._joined(self._scores(X))
        if self.kind_ == "classes":
            return self.calibration_[0].logits(scores) + self.offsets_
        return self._of_columns(scores, BrokenLine.logits) if self.threshold == "probability" else scores - self.threshold_

    def predict(self, X: Any) -> np.ndarray:
        """Classes ``(n,)``, or labels ``(n, C)``, by the threshold that was best for the metric on held-out samples."""
        decision = self.decision_function(X)
        if self.kind_ == "labels":
            return (decision > 0).astype(np.int64)
        return self.classes_[decision.argmax(1) if self.kind_ == "classes" else (decision > 0).astype(np.int64)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated probabilities ``(n, C)``: of classes they sum to 1, of labels each is of its own."""
        scores = self._joined(self._scores(X))
        if self.kind_ == "classes":
            return self.calibration_[0].probabilities(scores)
        shares = self._of_columns(scores, BrokenLine.probabilities)
        return shares if self.kind_ == "labels" else np.column_stack([1 - shares, shares])

    # --- the target -----------------------------------------------------------------------------------------------------

    def _read_target(self, y: Any) -> np.ndarray:
        """0/1 of one column a class or label; sets ``classes_`` and ``kind_``."""
        check_classification_targets(y)
        if type_of_target(y, input_name="y") == "multilabel-indicator":
            labels = y.toarray() if scipy.sparse.issparse(y) else np.asarray(y)
            self.kind_, self.classes_ = "labels", np.arange(labels.shape[1])
            return (labels != 0).astype(np.int64)
        if y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(f"y has shape {y.shape}; expected classes (n,), or labels (n, C) of 0 and 1")
        classes, number = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y holds 1 class only, {classes[0]!r}; a classifier needs samples of at least two")
        self.kind_, self.classes_ = ("two" if len(classes) == 2 else "classes"), classes
        return np.eye(len(classes), dtype=np.int64)[number]

    def _problem(self, task: Task) -> Problem:
        if task.target_kind not in ("binary", "labels", "class") or (task.target_kind == "class" and self.kind_ == "labels"):
            use = "TaskLossRanker" if task.target_kind == "graded" else "a metric of rankings or of labels"
            target = "labels" if self.kind_ == "labels" else "classes"
            raise ValueError(f"the metric {type(task).__name__} does not apply to {target}; use {use}")
        outputs = len(self.classes_)
        if self.kind_ == "two" and task.target_kind != "class":
            return Problem(task, self.method, self.epsilon)
        return Problem(task, self.method, self.epsilon, outputs, exclusive=self.kind_ != "labels")

    def _joined(self, scores: np.ndarray) -> np.ndarray:
        """Of two classes that have a score each, the difference."""
        return scores[:, 1] - scores[:, 0] if self.kind_ == "two" and scores.ndim == 2 else scores

    def _of_columns(self, scores: np.ndarray, function: Callable[[BrokenLine, np.ndarray], np.ndarray]) -> np.ndarray:
        columns = scores.reshape(len(scores), -1).T
        values = [function(line, column) for line, column in zip(self.calibration_, columns, strict=True)]
        return np.stack(values, axis=1).reshape(scores.shape)

    # --- what the held-out scores choose ----------------------------------------------------------------------------------

    def _choose(self, scores: np.ndarray, labels: np.ndarray) -> None:
        task = self.problem_.task
        if self.kind_ == "classes":
            target = labels.argmax(1)
            self.calibration_: list[Any] = [VectorScaling.fit(scores, target)]
            self.offsets_ = np.zeros(len(self.classes_))
            if self.threshold == "metric":
                self.offsets_ = choose_offsets(task, self.calibration_[0].logits(scores), target)
            return
        pairs = [(scores, labels[:, 1])] if self.kind_ == "two" else list(zip(scores.T, labels.T, strict=True))
        self.calibration_ = [BrokenLine.fit(*pair) for pair in pairs]
        thresholds = [choose_threshold(task, *pair) for pair in pairs]
        self.threshold_ = thresholds[0] if self.kind_ == "two" else np.array(thresholds)

    # --- files ------------------------------------------------------------------------------------------------------------

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {}
        for number, calibration in enumerate(self.calibration_):
            for name, value in vars(calibration).items():
                tensors[f"calibration.{number}.{name}"] = torch.as_tensor(np.asarray(value, np.float64))
        chosen = self.offsets_ if self.kind_ == "classes" else self.threshold_
        tensors["chosen"] = torch.as_tensor(np.asarray(chosen, np.float64))
        facts = {"kind": self.kind_, "classes": self.classes_.tolist(), "classes_type": self.classes_.dtype.str}
        return tensors, facts

    def _set_state(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.kind_, self.classes_ = facts["kind"], np.array(facts["classes"], dtype=facts["classes_type"])
        chosen = tensors["chosen"].numpy()
        if self.kind_ == "classes":
            self.offsets_ = chosen
        else:
            self.threshold_ = float(chosen) if self.kind_ == "two" else chosen
        self.calibration_ = []
        for number in range(1 if self.kind_ != "labels" else len(self.classes_)):
            parts = {name: tensor.numpy() for name, tensor in below(tensors, f"calibration.{number}").items()}
            if self.kind_ == "classes":
                self.calibration_.append(VectorScaling(**parts))
            else:
                self.calibration_.append(BrokenLine(parts["knots"], parts["slopes"], float(parts["offset"])))


def _kinds(labels: np.ndarray) -> np.ndarray:
    """Numbers of the distinct rows of labels, sorted by the rarest label first, so that it is spread most evenly over folds."""
    return np.unique(labels[:, np.argsort(labels.sum(0))], axis=0, return_inverse=True)[1].reshape(-1)
