"""Rankings: tasks whose metric is a sum over the positives, ``M(c) = scale * sum_i m(i, c_i)``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taskloss import _checks
from taskloss.kernels import interleaving, isotonic, staircase, terms
from taskloss.kernels.sort import TwoLists
from taskloss.layout import Layout, one_class, ranking_weights, relevant_counts, two_lists
from taskloss.tasks.registry import register
from taskloss.tasks.task import Call, Inference, Task

# Sums of up to 2^60 scores of this size stay finite in float64.
_LARGEST_SCORE = 2.0**960
_SHRINK = 2.0**-64


@dataclass(frozen=True)
class Ranking:
    """An answer: the counts of all rankings, least and greatest of equally good ones (:mod:`taskloss.kernels.interleaving`)."""

    least: np.ndarray
    greatest: np.ndarray
    is_prediction: bool = False
    """Tied scores make the prediction a set of rankings, which the metric scores by its own convention."""


class SeparableRankingTask(Task):
    """Base of the ranking tasks. A subclass names its metric's terms, scale and value under ties."""

    target_kind: ClassVar[str] = "binary"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "num_relevant", "weight"})
    metric: ClassVar[int]
    """The metric's number in :mod:`taskloss.kernels.terms`."""
    on_one_class: str

    @abstractmethod
    def scale(self, positives: np.ndarray, negatives: np.ndarray, relevant: np.ndarray) -> np.ndarray:
        """What the sum of the terms is multiplied with; all of shape ``(R,)``, no zero in ``relevant``."""

    @abstractmethod
    def term_sum(self, lists: TwoLists, above: np.ndarray, at_or_above: np.ndarray) -> np.ndarray:
        """The sum of the terms for the prediction, under the metric's convention for ties; shape ``(R,)``."""

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> RankingInference:
        self.refuse_unknown(call)
        layout, lists = two_lists(scores, target, dim=call.dim, groups=call.groups, ignore_index=call.ignore_index)
        relevant = relevant_counts(layout, lists, call.num_relevant)
        undefined = one_class(lists, relevant)
        if self.on_one_class == "raise":
            _checks.check_two_classes(undefined)
        return RankingInference(self, layout, lists, scores.dtype, relevant, ~undefined, ranking_weights(layout, call.weight))

    def values_shape(self, shape: tuple[int, ...], dim: int, groups: int | None) -> tuple[int, ...]:
        dim = _checks.check_dim(dim, len(shape))
        return (*shape[:dim], *(() if groups is None else (groups,)), *shape[dim + 1 :])


class RankingInference(Inference[Ranking]):
    """Exact inference for all the rankings of one batch."""

    def __init__(
        self,
        task: SeparableRankingTask,
        layout: Layout,
        lists: TwoLists,
        dtype: np.dtype,
        relevant: np.ndarray,
        defined: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        self.values_shape = layout.values_shape
        self.defined = defined
        self.weights = weights
        self._task = task
        self._layout = layout
        self._dtype = dtype
        self._positives = lists.positive_counts()
        self._negatives = lists.negative_counts()
        self._scale = task.scale(self._positives, self._negatives, np.maximum(relevant, 1.0))
        self._lists = lists
        self._summable, self._unit = _shrink_huge(lists) if dtype == np.float64 else (lists, 1.0)
        self._natural = interleaving.natural_counts(lists)

    def predict(self) -> Ranking:
        above, at_or_above = self._natural
        return Ranking(above, at_or_above, is_prediction=True)

    def augment(self, weight: float) -> Ranking:
        pull = weight * self._unit * self._scale * self._positives * self._negatives / 2
        if weight > 0:
            return Ranking(*isotonic.augment_convex(self._summable, self._task.metric, pull))
        return Ranking(*staircase.augment_any(self._summable, self._natural[1], self._task.metric, pull))

    def truth(self) -> Ranking:
        counts = np.zeros(len(self._lists.positives), np.int64)
        return Ranking(counts, counts)

    def loss(self, answer: Ranking) -> np.ndarray:
        if answer.is_prediction:
            terms_sum = self._task.term_sum(self._lists, *self._natural)
        else:
            terms_sum = interleaving.term_sum(self._lists, self._task.metric, answer.least)
        return 1.0 - self._scale * terms_sum

    def score_difference(self, answer: Ranking, reference: Ranking) -> np.ndarray:
        return interleaving.score_difference(self._summable, answer.least, reference.least) / self._unit

    def feature_difference(self, answer: Ranking, reference: Ranking, factor: np.ndarray) -> np.ndarray:
        out = np.zeros(int(np.prod(self._layout.shape)), self._dtype)
        interleaving.write_feature_difference(
            self._lists, answer.least, answer.greatest, reference.least, reference.greatest, factor, out
        )
        return out.reshape(self._layout.shape)

    def owner(self) -> np.ndarray:
        return self._layout.full_owner()


def _shrink_huge(lists: TwoLists) -> tuple[TwoLists, float]:
    """Lists whose sums cannot overflow, and the power of two that they were shrunk by; losses must be shrunk alike."""
    sides = (lists.positives, lists.negatives)
    largest = max((float(np.abs(side).max()) for side in sides if len(side)), default=0.0)
    if largest <= _LARGEST_SCORE:
        return lists, 1.0
    return lists._replace(positives=lists.positives * _SHRINK, negatives=lists.negatives * _SHRINK), _SHRINK


@register("average_precision")
@dataclass(frozen=True)
class AveragePrecision(SeparableRankingTask):
    r"""Average precision, ``L = 1 - AP``, of binary relevance.

    .. math:: \mathrm{AP} = \frac{1}{R} \sum_{i=1}^{P} \frac{i}{i + c_i}

    with ``c_i`` the negatives above the i-th positive and R the number of relevant items (P unless ``num_relevant`` is given).
    Reference: Song, Schwing, Zemel, Urtasun, *Training Deep Neural Networks via Direct Loss Minimization*, ICML 2016. The
    positive update and the hinge are solved by pooling in O(n log n), the negative update by a table under the staircase.

    Args:
        on_one_class: ``"skip"``: a ranking with one class only has zero loss and gradient and is left out of means;
            ``"raise"``: it is an error.

    >>> import taskloss as tl, torch
    >>> criterion = tl.DirectLoss(tl.AveragePrecision())
    >>> round(criterion(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 0, 1, 0])).item(), 6)
    0.166667
    """

    metric: ClassVar[int] = terms.AVERAGE_PRECISION
    on_one_class: str = "skip"

    def __post_init__(self) -> None:
        _checks.check_choice("on_one_class", self.on_one_class, ("skip", "raise"))

    def scale(self, positives: np.ndarray, negatives: np.ndarray, relevant: np.ndarray) -> np.ndarray:
        return 1.0 / relevant

    def term_sum(self, lists: TwoLists, above: np.ndarray, at_or_above: np.ndarray) -> np.ndarray:
        return interleaving.average_precision(lists, at_or_above)
