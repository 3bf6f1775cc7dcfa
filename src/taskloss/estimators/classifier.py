"""The classifier: two classes, several classes, or several labels per sample."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse
import torch
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from taskloss import _checks
from taskloss._positive import choose_positive
from taskloss._storage import tensors_under
from taskloss.estimators.base import FitData, TaskLossEstimator
from taskloss.estimators.calibration import BrokenLine, VectorScaling
from taskloss.estimators.decisions import choose_offsets, choose_threshold, is_symmetric, is_thresholded
from taskloss.estimators.folds import deal_folds, label_strata
from taskloss.estimators.methods import AUTO
from taskloss.estimators.problem import Problem
from taskloss.estimators.scoring import TaskScorer
from taskloss.estimators.weights import class_weights, count_rows, read_weights, refuse_class_weight
from taskloss.tasks import Task
from taskloss.tasks.registry import as_task

THRESHOLDS = ("metric", "probability")
NESTED_PARTS = 5
"""Number of parts of the held-out samples; the decisions about each part are chosen on the others."""


class HeldOut(NamedTuple):
    """The training samples that some member held out."""

    scores: np.ndarray
    """Scores by the members that did not train on the sample, in the shape of the scores of new samples."""
    labels: np.ndarray
    """0/1, one column per class or label."""
    weights: np.ndarray | None


class _Decided(NamedTuple):
    """Decisions that were made already, in the form of an estimator that a scorer can ask for them."""

    decision: np.ndarray
    predicted: np.ndarray
    classes_: np.ndarray
    pos_label_: Any

    def decision_function(self, X: Any) -> np.ndarray:
        return self.decision

    def predict(self, X: Any) -> np.ndarray:
        return self.predicted


@dataclass(eq=False, repr=False)
class TaskLossClassifier(ClassifierMixin, TaskLossEstimator):
    """A classifier that is trained on the metric you report.

    By default it is a blend of small networks, trained by cross-entropy, by the direct loss and by the hinge of the metric, with
    boosted trees and a random forest. Each member is trained on one part of the samples; networks and boosted trees are stopped
    by the exact metric on the rest. The held-out scores choose the threshold of ``predict`` and calibrate ``predict_proba``. With
    several classes or labels, each has its own column of scores, and the metric is the mean over the columns.

    Args:
        metric: a task or its registered name: ``"average_precision"``, ``"f_score"``, ``taskloss.PrecisionAtRecall(0.9)``.
        threshold: the rule of ``predict``. ``"metric"`` takes the threshold that is best for the metric on held-out samples;
            ``"probability"`` predicts the class whose calibrated probability is above one half (with several classes: the
            largest).
        pos_label: the positive one of two classes, for which the metric is trained. By default it is 1 of the classes 0 and 1, -1
            and 1, False and True; of other classes it is the rarer one if its share is below 40%, else the last one in sorted
            order, which a warning says.
        class_weight: weights of the classes, a dictionary or ``"balanced"`` as in scikit-learn, where the loss is a mean over
            samples: ``method="cross_entropy"``, trees or a metric of classes. The other metrics themselves say what each class is
            worth, so ``method="auto"`` leaves out the losses of such a metric.

    :class:`~taskloss.estimators.EstimatorSettings` describes the other arguments.

    Attributes:
        classes_: the classes, or the indices of the labels.
        pos_label_: the positive one of two classes. ``decision_function`` and ``predict_proba`` are ordered by ``classes_`` as in
            scikit-learn, so scores above zero mean ``classes_[1]``, whichever class is positive.
        threshold_: the best threshold of the scores for the metric (two classes: a float, for scores of the positive class;
            labels: one per label); it is the zero of ``decision_function``.
        left_out_: the reason for each method that ``"auto"`` left out, or that a blend dropped, a dictionary.
        history_: losses and metrics of each member.
        n_iter_: largest number of steps that a member took.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(300, weights=[0.9], class_sep=2.0, random_state=0)
    >>> model = TaskLossClassifier(members=2, max_iter=30, random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape
    (300, 2)
    """

    metric: str | Task = "average_precision"
    _: KW_ONLY
    threshold: str = THRESHOLDS[0]
    pos_label: Any = None
    class_weight: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the rows of X, dense or sparse, and classes y of shape ``(n,)`` or 0/1 labels of shape ``(n, C)``.

        ``sample_weight`` has any weights where the loss is a mean over samples (``method="cross_entropy"``, trees or a metric of
        classes). The other metrics belong to the whole list: they take whole numbers, which count a row several times.
        ``method="auto"`` leaves out the losses that the weights do not suit.
        """
        _checks.check_choice("threshold", self.threshold, THRESHOLDS)
        table, y = self._read_table(X, y, fitting=True, multi_output=True)
        weights = read_weights(sample_weight, table)
        if weights is not None:
            table, y, weights = table[weights > 0], y[weights > 0], weights[weights > 0]
        task, methods = as_task(self.metric), self._choose_methods()
        labels = self._read_target(y, task)
        problem = self._problem(task)
        target = torch.from_numpy(labels[:, self._positive_column(problem)].copy() if problem.outputs is None else labels)
        if problem.chooses_class:
            target = target.argmax(1)
        strata, counts = label_strata(labels), labels.sum(0)
        most_folds = int(np.minimum(counts, len(labels) - counts).max())
        methods, weights, rows = self._weigh(weights, y, problem, methods)
        samples = FitData(table, target, weights=weights)
        if rows is not None:
            samples, labels = FitData(table[rows], target[rows], units=rows), labels[rows]
        scores, known = self._fit_ensemble(problem, methods, samples, strata, most_folds)
        weights = None if samples.weights is None else samples.weights[known]
        self.held_out_ = HeldOut(self._one_score(scores)[known], labels[known], weights)
        self._choose_decisions(*self.held_out_)
        return self

    def held_out_metric(self) -> float | None:
        """Return the exact metric of the training samples, each scored by the members that did not train on it.

        Where the metric judges decisions, the threshold or the offsets that decide about a sample are chosen on other samples, in
        ``NESTED_PARTS`` turns. The value is still a little optimistic, because the same samples stopped the training, and a
        little pessimistic, because single members predict each sample, and not the whole ensemble. It is None if no samples were
        held out, or if the classifier was read from a file.
        """
        check_is_fitted(self)
        if not getattr(self, "holds_out_", False):
            return None
        scores, labels, weights = self.held_out_
        part = deal_folds(label_strata(labels), NESTED_PARTS, np.random.default_rng(0))
        decision = self._decide(scores)
        # A ranking has no decisions, and thresholds that differ between the parts would disturb it.
        for index in np.unique(part) if is_thresholded(self.problem_.task) or self.problem_.chooses_class else ():
            rest, own = part != index, part == index
            nested = copy.copy(self)
            nested._choose_decisions(scores[rest], labels[rest], None if weights is None else weights[rest])
            decision[own] = nested._decide(scores[own])
        truth = labels if self.kind_ == "labels" else self.classes_[labels.argmax(1)]
        judged = _Decided(decision, self._predicted(decision), self.classes_, getattr(self, "pos_label_", None))
        return TaskScorer(self.problem_.task)(judged, decision, truth, weights if self.problem_.chooses_class else None)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the exact metric that the classifier was trained on, not the accuracy; higher is better.

        Metrics of rankings judge ``decision_function``, all others judge ``predict``. With several classes, it is the mean over
        the classes, each against the rest; with labels, the mean over the labels.
        """
        check_is_fitted(self)
        return TaskScorer(self.problem_.task)(self, X, y, sample_weight)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return one score per sample for two classes, shape ``(n,)``; else one per class or label, shape ``(n, C)``.

        Of two classes, ``classes_[1]`` is predicted where the score is above zero; of several, the one with the highest score;
        of labels, those with scores above zero. The scores of several classes are log-probabilities if they are trained by
        cross-entropy, trees or a task on classes (plus the offsets of a metric of decisions); else each column is trained by
        itself.
        """
        return self._decide(self._one_score(self._scores(X)))

    def predict(self, X: Any) -> np.ndarray:
        """Return classes ``(n,)`` or 0/1 labels ``(n, C)``, by the rule of ``threshold``."""
        return self._predicted(self.decision_function(X))

    def _decide(self, scores: np.ndarray) -> np.ndarray:
        """Return the decision function of samples with these scores."""
        if self.kind_ == "classes":
            logits = self.calibration_[0].logits(scores)
            return (log_softmax(logits, axis=1) if self.problem_.compares_classes else logits) + self.offsets_
        decision = self._calibrate(scores, BrokenLine.logits) if self.threshold == "probability" else scores - self.threshold_
        return -decision if self.kind_ == "two" and self._positive_column(self.problem_) == 0 else decision

    def _predicted(self, decision: np.ndarray) -> np.ndarray:
        """Return the classes or labels that values of the decision function stand for."""
        if self.kind_ == "labels":
            return (decision > 0).astype(np.int64)
        return self.classes_[decision.argmax(1) if self.kind_ == "classes" else (decision > 0).astype(np.int64)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return calibrated probabilities ``(n, C)``; those of classes sum to 1, those of labels are independent."""
        scores = self._one_score(self._scores(X))
        if self.kind_ == "classes":
            return self.calibration_[0].probabilities(scores)
        positive = self._calibrate(scores, BrokenLine.probabilities)
        if self.kind_ == "labels":
            return positive
        return np.column_stack([1 - positive, positive][:: 1 if self._positive_column(self.problem_) == 1 else -1])

    # --- the target -----------------------------------------------------------------------------------------------------

    def _read_target(self, y: Any, task: Task) -> np.ndarray:
        """Return 0/1 labels with one column per class or label, and set ``classes_``, ``kind_`` and ``pos_label_``."""
        check_classification_targets(y)
        if type_of_target(y, input_name="y") == "multilabel-indicator":
            labels = y.toarray() if scipy.sparse.issparse(y) else np.asarray(y)
            self.kind_, self.classes_ = "labels", np.arange(labels.shape[1])
            self._refuse_pos_label()
            return (labels != 0).astype(np.int64)
        if y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(f"y has shape {y.shape}; expected classes (n,), or labels (n, C) of 0 and 1")
        classes, index = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y holds 1 class only, {classes[0]!r}; a classifier needs samples of at least two classes")
        self.kind_, self.classes_ = ("two" if len(classes) == 2 else "classes"), classes
        if self.kind_ == "two":
            counts = np.bincount(index).tolist()
            positive = choose_positive(classes.tolist(), counts, self.pos_label, stacklevel=3, quiet=is_symmetric(task))
            self.pos_label_ = classes[positive]
        else:
            self._refuse_pos_label()
        return np.eye(len(classes), dtype=np.int64)[index]

    def _weigh(
        self, weights: np.ndarray | None, y: np.ndarray, problem: Problem, methods: tuple[str, ...]
    ) -> tuple[tuple[str, ...], np.ndarray | None, np.ndarray | None]:
        """Apply the weights of samples and classes.

        Returns:
            The methods that these weights suit, the weight of each sample, and the rows to train on where the metric counts rows,
            so that a row with weight 2 becomes two.
        """
        if self.class_weight is not None and self.kind_ == "labels":
            raise ValueError("class_weight is for classes, of which each sample has one, and y holds labels; leave it out")
        of_classes = class_weights(self.class_weight, y)
        if of_classes is not None:
            weights = of_classes if weights is None else weights * of_classes
        strict = [method for method in methods if not replace(problem, method=method).takes_weights]
        if weights is None or not strict:
            return methods, weights, None
        try:
            if of_classes is not None:
                refuse_class_weight(problem.task)
            return methods, None, np.repeat(np.arange(len(weights)), count_rows(weights, problem.task))
        except ValueError as error:
            if self.method != AUTO:
                raise
            return self._leave_out(methods, strict, str(error)), weights, None

    def _refuse_pos_label(self) -> None:
        if self.pos_label is not None:
            raise ValueError(
                f"pos_label={self.pos_label!r} names the positive one of two classes, but y holds {len(self.classes_)} "
                f"{'labels' if self.kind_ == 'labels' else 'classes'}; leave it out, or pass y == {self.pos_label!r}"
            )
        if hasattr(self, "pos_label_"):
            del self.pos_label_

    def _positive_column(self, problem: Problem) -> int:
        """Return the index of the class that the scores of two classes are for."""
        # A task on classes knows them by their index, so its scores keep the order of the classes.
        return 1 if problem.chooses_class else int(self.classes_[1] == self.pos_label_)

    def _problem(self, task: Task) -> Problem:
        if task.target_kind not in ("binary", "labels", "class") or (task.target_kind == "class" and self.kind_ == "labels"):
            use = "TaskLossRanker" if task.target_kind == "graded" else "a metric of rankings or of 0/1 labels"
            target = "labels" if self.kind_ == "labels" else "classes"
            raise ValueError(f"the metric {type(task).__name__} does not apply to {target}; use {use}")
        outputs = len(self.classes_)
        if self.kind_ == "two" and task.target_kind != "class":
            return Problem(task, AUTO, self.epsilon)
        return Problem(task, AUTO, self.epsilon, outputs, exclusive=self.kind_ != "labels")

    def _one_score(self, scores: np.ndarray) -> np.ndarray:
        """Return one score per sample for two classes, the difference where each class has a score; else ``scores``."""
        return scores[:, 1] - scores[:, 0] if self.kind_ == "two" and scores.ndim == 2 else scores

    def _calibrate(self, scores: np.ndarray, function: Callable[[BrokenLine, np.ndarray], np.ndarray]) -> np.ndarray:
        """Apply ``function`` to each column of scores and the calibration of that column."""
        columns = scores.reshape(len(scores), -1).T
        values = [function(line, column) for line, column in zip(self.calibration_, columns, strict=True)]
        return np.stack(values, axis=1).reshape(scores.shape)

    # --- decisions from held-out scores ------------------------------------------------------------------------------------

    def _choose_decisions(self, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> None:
        """Fit the calibration, and the thresholds or the offsets of the classes, to held-out scores."""
        task = self.problem_.task
        weights = None if weights is None else weights / weights.mean()
        if self.kind_ == "classes":
            target = labels.argmax(1)
            self.calibration_: list[Any] = [VectorScaling.fit(scores, target, weights)]
            self.offsets_ = np.zeros(len(self.classes_))
            if self.threshold == "metric":
                self.offsets_ = choose_offsets(task, self.calibration_[0].logits(scores), target, weights)
            return
        pairs = (
            [(scores, labels[:, self._positive_column(self.problem_)])]
            if self.kind_ == "two"
            else list(zip(scores.T, labels.T, strict=True))
        )
        self.calibration_ = [BrokenLine.fit(column, truth, weights) for column, truth in pairs]
        thresholds = [choose_threshold(task, column, truth, weights) for column, truth in pairs]
        self.threshold_ = thresholds[0] if self.kind_ == "two" else np.array(thresholds)

    # --- files ------------------------------------------------------------------------------------------------------------

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the fitted tensors and facts that the ensemble does not hold."""
        tensors = {}
        for column, calibration in enumerate(self.calibration_):
            for name, value in vars(calibration).items():
                tensors[f"calibration.{column}.{name}"] = torch.as_tensor(np.asarray(value, np.float64))
        chosen = self.offsets_ if self.kind_ == "classes" else self.threshold_
        tensors["chosen"] = torch.as_tensor(np.asarray(chosen, np.float64))
        facts = {"kind": self.kind_, "classes": self.classes_.tolist(), "classes_type": self.classes_.dtype.str}
        if self.kind_ == "two":
            facts["positive"] = int(self.classes_[1] == self.pos_label_)
        return tensors, facts

    def _set_state(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Take over what :meth:`_state` returned."""
        self.kind_, self.classes_ = facts["kind"], np.array(facts["classes"], dtype=facts["classes_type"])
        if self.kind_ == "two":
            self.pos_label_ = self.classes_[facts["positive"]]
        chosen = tensors["chosen"].numpy()
        if self.kind_ == "classes":
            self.offsets_ = chosen
        else:
            self.threshold_ = float(chosen) if self.kind_ == "two" else chosen
        self.calibration_ = []
        for column in range(1 if self.kind_ != "labels" else len(self.classes_)):
            parts = {name: tensor.numpy() for name, tensor in tensors_under(tensors, f"calibration.{column}").items()}
            if self.kind_ == "classes":
                self.calibration_.append(VectorScaling(**parts))
            else:
                self.calibration_.append(BrokenLine(parts["knots"], parts["slopes"], float(parts["offset"])))
