"""The learning problem: the task, the form of its target, the loss to train with and the exact metric to stop by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from taskloss import tasks
from taskloss.estimators.decisions import is_thresholded, threshold_rule
from taskloss.estimators.methods import LOSSES_BY_METHOD, TREE_METHODS, CrossEntropy
from taskloss.layout import to_numpy
from taskloss.metrics.reduction import reduce_values
from taskloss.tasks import Call, Task
from taskloss.tasks.ranking import ConvexRankingTask
from taskloss.thresholds import for_value
from taskloss.training import Criterion

MEANS_OF_SAMPLES = ("cross_entropy", *TREE_METHODS)
"""Methods whose loss is a mean over the samples, whatever the metric."""


@dataclass(frozen=True)
class Problem:
    """A task and the layout of its target.

    ===============================  ============================  =======================
    target                           scores                        outputs
    ===============================  ============================  =======================
    two classes, relevance           ``(n,)``                      None
    several classes, labels          ``(n, C)``, target the same   C
    classes for a task on classes    ``(n, K)``, target ``(n,)``   K
    ===============================  ============================  =======================
    """

    task: Task
    method: str
    """A loss of :data:`LOSSES_BY_METHOD`, one of :data:`TREE_METHODS`, or ``"auto"`` for a blend of several."""
    epsilon: float
    outputs: int | None = None
    exclusive: bool = False
    """Whether the columns are classes, of which each sample has exactly one."""

    @property
    def chooses_class(self) -> bool:
        """Whether the task compares the scores of the classes, so that the columns share one scale."""
        return self.task.target_kind == "class"

    @property
    def compares_classes(self) -> bool:
        """Whether the scores are trained to compare the classes of a sample, by a softmax or a task on classes.

        To them a constant per sample means nothing, so they compare the samples of a class only as log-probabilities.
        """
        return self.exclusive and (self.method in MEANS_OF_SAMPLES or self.chooses_class)

    def criterion(self) -> Criterion:
        """Return the loss of the method, if it trains networks."""
        if self.method == "cross_entropy":
            return self.warm_up_criterion()
        return LOSSES_BY_METHOD[self.method](self.task, self.epsilon)

    def warm_up_criterion(self) -> CrossEntropy:
        """Return the loss of the steps before the method's own; see :attr:`needs_warm_up`."""
        return CrossEntropy(self.exclusive)

    @property
    def needs_warm_up(self) -> bool:
        """Whether training starts with cross-entropy, because the loss may have no gradient at first.

        The positive update has no gradient where the prediction is already the worst answer, which is common for metrics of
        labels, of classes and of single points of a curve. Metrics that every pair of samples affects need no warm-up.
        """
        without_plateaus = (ConvexRankingTask, tasks.ROCAUC, tasks.PartialAUC, tasks.GradedNDCG)
        return self.method not in MEANS_OF_SAMPLES and not isinstance(self.task, without_plateaus)

    @property
    def takes_weights(self) -> bool:
        """Whether the loss is a mean over samples, so that each of them can have a weight of its own."""
        return self.method in MEANS_OF_SAMPLES or self.chooses_class

    def metric(self, scores: Tensor, target: Tensor, groups: Tensor | None = None, weight: Tensor | None = None) -> float:
        """Return the exact metric (higher is better), NaN where it is undefined; metrics of labels use their best threshold.

        ``weight`` has one entry per sample, or per query where there are groups. Metrics of one list or labeling ignore it: they
        count every sample once.
        """
        scores = scores.log_softmax(1) if self.compares_classes and not self.chooses_class else scores
        if is_thresholded(self.task):
            columns = (to_numpy(part).reshape(len(scores), -1).T for part in (scores, target))
            return float(np.mean([best_value(self.task, *pair) for pair in zip(*columns, strict=True)]))
        weighted = weight is not None and (self.chooses_class or groups is not None)
        call = Call(groups=None if groups is None else to_numpy(groups), weight=to_numpy(weight) if weighted else None)
        inference = self.task.read(to_numpy(scores), to_numpy(target), call)
        values = np.where(inference.defined, 1.0 - inference.loss(inference.predict()), np.nan)
        return float(reduce_values(values, inference.weights, inference.values_shape, "mean"))


def best_value(task: Task, scores: np.ndarray, target: np.ndarray) -> float:
    """Return the highest value of the task that a threshold of the scores reaches."""
    value = threshold_rule(task).value
    counts: Any = for_value(scores, target, value).counts
    return float(value(type(counts)(*(np.array([float(count)]) for count in counts)))[0])
