"""Tasks of class indices: the cost of a class and the top-k error. Every sample has an answer of its own.

The inference is in :mod:`taskloss.kernels.choices`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taskloss import _checks, _output_checks
from taskloss.class_layout import ClassBatch, class_values_shape, read_classes
from taskloss.kernels import choices
from taskloss.kernels.choices import Choice
from taskloss.tasks.registry import register
from taskloss.tasks.task import Call, Inference, Task


class CostMatrix:
    """Costs ``[target, predicted]`` as an immutable value: it can be compared, hashed, copied and pickled."""

    __slots__ = ("_hash", "values")

    def __init__(self, cost: Any) -> None:
        self.values = _output_checks.as_cost_matrix(cost)
        self.values.setflags(write=False)
        self._hash = hash(self.values.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CostMatrix) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        size = len(self.values)
        return repr(self.values.tolist()) if size <= 4 else f"<{size} x {size} costs>"

    def __reduce__(self) -> tuple[type[CostMatrix], tuple[np.ndarray]]:
        return CostMatrix, (self.values,)


class ClassTask(Task):
    """Base of the tasks on class indices: F and L belong to single samples and are reduced by their mean or sum."""

    target_kind: ClassVar[str] = "class"
    options: ClassVar[frozenset[str]] = frozenset({"ignore_index", "weight"})
    default_update: ClassVar[str] = "central"

    @property
    @abstractmethod
    def answer_size(self) -> int:
        """The number of classes in an answer."""

    @abstractmethod
    def cost_values(self, classes: int) -> np.ndarray:
        """Return the cost matrix for scores of this many classes; empty for the top-k error."""

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> ClassInference:
        self.refuse_unknown(call)
        batch = read_classes(scores, target, call.ignore_index)
        _output_checks.check_answer_size(self.answer_size, batch.classes)
        return ClassInference(batch, self.cost_values(batch.classes), self.answer_size, batch.weights(call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return class_values_shape(scores)


_NO_COSTS = np.empty((0, 0))


@register("multi_class")
@dataclass(frozen=True)
class MultiClass(ClassTask):
    r"""The cost of the highest-scoring class: ``L = cost[target, argmax_k scores_k]``, by default the error rate.

    For each sample ``F(k) = scores_k``, ``psi`` is one-hot, and the augmented answer is
    ``argmax_k scores_k + weight * cost[target, k]`` (McAllester, Hazan, Keshet 2010). Call it as
    ``torch.nn.functional.cross_entropy``: scores ``(n, K)`` with target ``(n,)``, or ``(B, K, H, W)`` with ``(B, H, W)``.
    Options: ``ignore_index``, ``weight`` (one per sample; the mean is then a weighted mean), ``reduction`` (``"none"``: one value
    per sample).

    Where several classes have the highest score, the value is their mean cost and the feature the mean of their features.

    Costs are taken as they are, not rescaled: the value of the direct loss is the mean cost in your units, between 0 and the
    largest cost, and epsilon says how much score a unit of cost is worth.

    The default update is the central one. The positive update gives no gradient to a sample that already has the costliest
    answer within reach, with 0/1 costs to every sample that is wrong: it refines a network that is mostly right.

    Args:
        cost: ``cost[target, predicted]``, square, finite, not negative, zero on the diagonal (default: 1 off the diagonal).

    >>> import torch, taskloss as tl
    >>> scores = torch.tensor([[2.0, 1.5, 0.0]], requires_grad=True)
    >>> loss = tl.DirectLoss(MultiClass(cost=[[0, 1, 5], [1, 0, 1], [1, 1, 0]]))(scores, torch.tensor([0]))
    >>> loss.backward()
    >>> loss.item(), scores.grad.tolist()
    (0.0, [[-0.5, 0.0, 0.5]])
    """

    cost: Any = None

    def __post_init__(self) -> None:
        if self.cost is not None and not isinstance(self.cost, CostMatrix):
            object.__setattr__(self, "cost", CostMatrix(self.cost))

    @property
    def answer_size(self) -> int:
        return 1

    def cost_values(self, classes: int) -> np.ndarray:
        if self.cost is None:
            return _NO_COSTS
        _output_checks.check_cost_fits(self.cost.values, classes)
        return self.cost.values


@register("top_k_error", label="top-k accuracy")
@dataclass(frozen=True)
class TopKError(ClassTask):
    r"""The target is not among the k highest-scoring classes.

    An answer is a set S of k classes, ``F(S)`` the sum of their scores, ``psi`` its indicator and ``L(S) = [target not in S]``.
    Since ``F + w L = w + sum over S of (s_j - w [j = target])``, the augmented answer is the k largest of the scores with w
    taken off the target's: exact for both updates. The truth is the best-scoring set with the target in it. Ties take the mean
    over all the maximizing sets. Calls, options and the note on the positive update as for :class:`MultiClass`, which is this
    task with k = 1.

    Args:
        k: how many classes an answer holds, at most K.

    >>> import torch, taskloss as tl
    >>> scores = torch.tensor([[3.0, 2.0, 1.5, 0.0]], requires_grad=True)
    >>> loss = tl.DirectLoss(TopKError(2))(scores, torch.tensor([1]))
    >>> loss.backward()
    >>> loss.item(), scores.grad.tolist()
    (0.0, [[0.0, -0.5, 0.5, 0.0]])
    """

    k: int = 5

    def __post_init__(self) -> None:
        _checks.check_count("k", self.k)

    @property
    def answer_size(self) -> int:
        return self.k

    def cost_values(self, classes: int) -> np.ndarray:
        return _NO_COSTS


class ClassInference(Inference[Choice]):
    """Exact inference for all the samples of one batch."""

    def __init__(self, batch: ClassBatch, cost: np.ndarray, answer_size: int, weights: np.ndarray) -> None:
        self.values_shape = batch.values_shape
        self.defined = batch.kept
        self.weights = weights
        self._batch = batch
        self._answer_size = answer_size
        raw = choices.ClassSamples(batch.scores, batch.target, cost, np.zeros(batch.target.shape))
        natural = choices.choose(raw, answer_size, 0.0)
        self._samples = raw._replace(reference=natural.threshold)
        self._predicted = natural._replace(threshold=raw.reference)

    def predict(self) -> Choice:
        return self._predicted

    def augment(self, weight: float) -> Choice:
        return choices.choose(self._samples, self._answer_size, float(weight))

    def truth(self) -> Choice:
        return choices.choose(self._samples, self._answer_size, choices.TRUTH)

    def loss(self, answer: Choice) -> np.ndarray:
        return choices.losses(self._samples, answer).reshape(-1)

    def score_difference(self, answer: Choice, reference: Choice) -> np.ndarray:
        return choices.score_differences(self._samples, answer, reference).reshape(-1)

    def feature_difference(self, answer: Choice, reference: Choice, factor: np.ndarray) -> np.ndarray:
        out = np.empty_like(self._batch.scores)
        each = factor.reshape(self._batch.target.shape)
        choices.write_feature_differences(self._samples, answer, reference, each, out)
        return out.reshape(self._batch.shape)

    def owner(self) -> np.ndarray:
        return self._batch.owner()
