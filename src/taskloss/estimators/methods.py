"""The methods: the table of the losses that networks are trained with, trees by LightGBM, and what ``"auto"`` blends.

An entry of the table is a function of the task and epsilon that returns a criterion, ``(scores, target, groups=None,
weight=None) -> loss``. To add a loss, add a line to ``LOSSES_BY_METHOD``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from taskloss import _checks, tasks
from taskloss.direct import DirectLoss, StructuredHingeLoss
from taskloss.training import Criterion


class CrossEntropy(nn.Module):
    """Cross-entropy of logits.

    It is a softmax for class indices and, with ``exclusive``, for targets of one column per class; else a sigmoid per score.
    """

    def __init__(self, exclusive: bool = False) -> None:
        super().__init__()
        self.exclusive = exclusive

    def forward(self, scores: Tensor, target: Tensor, groups: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """Return the mean over the samples; ``weight`` has one entry per sample, or per query where there are ``groups``."""
        if weight is None:
            return self._entropy(scores, target, "mean")
        if groups is not None:
            weight = weight[groups.unique(return_inverse=True)[1]]
        each = self._entropy(scores, target, "none").reshape(len(scores), -1).mean(1)
        return (each * weight.to(each.dtype)).sum() / weight.sum().to(each.dtype)

    def _entropy(self, scores: Tensor, target: Tensor, reduction: str) -> Tensor:
        if scores.shape != target.shape:
            return nn.functional.cross_entropy(scores, target, reduction=reduction)
        if self.exclusive:
            return nn.functional.cross_entropy(scores, target.argmax(1), reduction=reduction)
        # Graded relevance counts as relevant or not.
        relevant = (target > 0).to(scores.dtype)
        return nn.functional.binary_cross_entropy_with_logits(scores, relevant, reduction=reduction)

    def extra_repr(self) -> str:
        return f"exclusive={self.exclusive}"


def _linear_program(task: tasks.Task, epsilon: float) -> Criterion:
    """Return the loss of :mod:`taskloss.lp` for this metric."""
    from taskloss import lp  # Importing the solvers takes time that the other methods do not need.

    losses: dict[type[tasks.Task], Callable[[Any], Criterion]] = {
        tasks.ROCAUC: lambda task: lp.AUCLoss(),
        tasks.FScore: lambda task: lp.FScoreLoss(beta=task.beta),
        tasks.Dice: lambda task: lp.FScoreLoss(beta=1.0),
        tasks.Jaccard: lambda task: lp.JaccardLoss(),
        tasks.PrecisionAtRecall: lambda task: lp.PrecisionAtRecallLoss(recall=task.recall),
        tasks.RecallAtPrecision: lambda task: lp.RecallAtPrecisionLoss(precision=task.precision),
    }
    if type(task) not in losses:
        known = "roc_auc, f_score, dice, jaccard, precision_at_recall and recall_at_precision"
        raise ValueError(f"method='lp' has no loss for {type(task).__name__}; the metrics with one are {known}")
    return losses[type(task)](task)


LOSSES_BY_METHOD: dict[str, Callable[[tasks.Task, float], Criterion]] = {
    "direct": lambda task, epsilon: DirectLoss(task, epsilon=epsilon),
    "direct_positive": lambda task, epsilon: DirectLoss(task, epsilon=epsilon, update="positive"),
    "direct_negative": lambda task, epsilon: DirectLoss(task, epsilon=epsilon, update="negative"),
    "direct_central": lambda task, epsilon: DirectLoss(task, epsilon=epsilon, update="central"),
    "hinge": lambda task, epsilon: StructuredHingeLoss(task),
    "cross_entropy": lambda task, epsilon: CrossEntropy(),
    "lp": _linear_program,
}

LIGHTGBM, RANDOM_FOREST = "lightgbm", "random_forest"
TREE_METHODS = (LIGHTGBM, RANDOM_FOREST)
"""Methods that grow trees by an objective of LightGBM instead of training networks: boosted ones, or a random forest."""
AUTO = "auto"
"""The method that blends those of ``AUTO_METHODS``."""
AUTO_METHODS = ("cross_entropy", "direct", "hinge", *TREE_METHODS)


def read_methods(method: str | Sequence[str]) -> tuple[str, ...]:
    """Return the methods that a setting names: one, several, or those of ``"auto"``; raise unless each is known.

    >>> read_methods("direct"), read_methods(["hinge", "lightgbm"]), len(read_methods("auto"))
    (('direct',), ('hinge', 'lightgbm'), 5)
    """
    known = (*LOSSES_BY_METHOD, *TREE_METHODS)
    if isinstance(method, str):
        _checks.check_choice("method", method, (AUTO, *known))
        return AUTO_METHODS if method == AUTO else (method,)
    names = tuple(method)
    for name in names:
        _checks.check_choice("method", name, known)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"method is one method or names each of those to blend once, got {method!r}")
    return names


def lightgbm_is_installed() -> bool:
    """Whether LightGBM can be imported."""
    return importlib.util.find_spec("lightgbm") is not None
