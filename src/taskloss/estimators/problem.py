"""What is to be learned: the task, the form of its target, the loss to train on and the exact metric to stop by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from taskloss import _checks, tasks
from taskloss.estimators.decisions import count_value, is_thresholded
from taskloss.estimators.methods import METHODS, CrossEntropy
from taskloss.layout import to_numpy
from taskloss.metrics.reduction import reduce_values
from taskloss.tasks import Call, Task
from taskloss.tasks.ranking import ConvexRankingTask
from taskloss.thresholds import for_value
from taskloss.training import Criterion


@dataclass(frozen=True)
class Problem:
    """A task and how its target is laid out.

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
    epsilon: float
    outputs: int | None = None
    exclusive: bool = False
    """Whether the columns are classes of which a sample has one."""

    @property
    def chooses_class(self) -> bool:
        """Whether the task compares the scores of the classes, so that the columns share one scale."""
        return self.task.target_kind == "class"

    def criterion(self) -> Criterion:
        _checks.check_choice("method", self.method, tuple(METHODS))
        if self.method == "cross_entropy":
            return self.warm_up_criterion()
        return METHODS[self.method](self.task, self.epsilon)

    def warm_up_criterion(self) -> CrossEntropy:
        return CrossEntropy(self.exclusive)

    @property
    def needs_warm_up(self) -> bool:
        """Where an answer is already the worst, the positive update has no gradient: labels, classes, single points of a curve.

        The metrics that every pair of samples moves need none.
        """
        always_moving = (ConvexRankingTask, tasks.ROCAUC, tasks.PartialAUC, tasks.GradedNDCG)
        return self.method != "cross_entropy" and not isinstance(self.task, always_moving)

    def metric(self, scores: Tensor, target: Tensor, groups: Tensor | None = None) -> float:
        """The exact metric, higher is better; of a metric of labels, that of the best threshold. NaN where it is undefined."""
        if is_thresholded(self.task):
            columns = (to_numpy(part).reshape(len(scores), -1).T for part in (scores, target))
            return float(np.mean([best_value(self.task, *pair) for pair in zip(*columns, strict=True)]))
        call = Call(groups=None if groups is None else to_numpy(groups))
        inference = self.task.read(to_numpy(scores), to_numpy(target), call)
        values = np.where(inference.defined, 1.0 - inference.loss(inference.predict()), np.nan)
        return float(reduce_values(values, inference.weights, inference.values_shape, "mean"))


def best_value(task: Task, scores: np.ndarray, target: np.ndarray) -> float:
    """The highest value that a threshold of the scores reaches."""
    value = count_value(task, int((target == 1).sum()), int((target == 0).sum()))
    counts: Any = for_value(scores, target, value).counts
    return float(value(type(counts)(*(np.array([float(count)]) for count in counts)))[0])
