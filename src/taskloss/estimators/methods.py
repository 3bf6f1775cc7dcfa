"""The table of methods: from a metric to the loss that a network is trained on.

A method is a function of the task and epsilon that makes a criterion, ``(scores, target, groups=None) -> loss``. To add one, add
a line to ``METHODS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from taskloss import tasks
from taskloss.direct import DirectLoss, StructuredHingeLoss
from taskloss.training import Criterion

Method = Callable[[tasks.Task, float], Criterion]


class CrossEntropy(nn.Module):
    """Of logits: softmax for class indices and for one column a class (``exclusive``), else a sigmoid for each score."""

    def __init__(self, exclusive: bool = False) -> None:
        super().__init__()
        self.exclusive = exclusive

    def forward(self, scores: Tensor, target: Tensor, groups: Tensor | None = None) -> Tensor:
        if scores.shape != target.shape:
            return nn.functional.cross_entropy(scores, target)
        if self.exclusive:
            return nn.functional.cross_entropy(scores, target.argmax(1))
        # Of graded relevance: relevant or not.
        return nn.functional.binary_cross_entropy_with_logits(scores, (target > 0).to(scores.dtype))

    def extra_repr(self) -> str:
        return f"exclusive={self.exclusive}"


def _linear_program(task: tasks.Task, epsilon: float) -> Criterion:
    """The loss of :mod:`taskloss.lp` for this metric."""
    names: dict[type[tasks.Task], tuple[str, dict[str, Any]]] = {
        tasks.ROCAUC: ("AUCLoss", {}),
        tasks.FScore: ("FScoreLoss", {"beta": getattr(task, "beta", 1.0)}),
        tasks.Dice: ("FScoreLoss", {"beta": 1.0}),
        tasks.Jaccard: ("JaccardLoss", {}),
        tasks.PrecisionAtRecall: ("PrecisionAtRecallLoss", {"recall": getattr(task, "recall", None)}),
        tasks.RecallAtPrecision: ("RecallAtPrecisionLoss", {"precision": getattr(task, "precision", None)}),
    }
    if type(task) not in names:
        known = "roc_auc, f_score, dice, jaccard, precision_at_recall and recall_at_precision"
        raise ValueError(f"method='lp' has no loss for {type(task).__name__}; the metrics with one are {known}")
    from taskloss import lp

    name, settings = names[type(task)]
    if not hasattr(lp, name):
        raise ValueError(f"method='lp' needs taskloss.lp.{name}, which this version does not have; use method='direct'")
    return getattr(lp, name)(**settings)


METHODS: dict[str, Method] = {
    "direct": lambda task, epsilon: DirectLoss(task, epsilon=epsilon),
    "direct_negative": lambda task, epsilon: DirectLoss(task, epsilon=epsilon, update="negative"),
    "hinge": lambda task, epsilon: StructuredHingeLoss(task),
    "cross_entropy": lambda task, epsilon: CrossEntropy(),
    "lp": _linear_program,
}
