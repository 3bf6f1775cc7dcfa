"""Base of the ranking tasks. The *counts* of a ranking are ``c_i``, the negatives above its i-th positive."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np

from taskloss import _checks
from taskloss.kernels.items import filled
from taskloss.kernels.ranking import cutoff, interleaving, isotonic
from taskloss.kernels.ranking.reading import pair_weights
from taskloss.kernels.sums import summable_unit
from taskloss.layout import Layout, Rankings, ranked_dims, ranking_weights, read_rankings, values_shape
from taskloss.metrics import of_rankings
from taskloss.tasks.task import Call, Inference, Task


class Ranking(NamedTuple):
    """An answer: the counts ``c_i`` of all rankings (:mod:`taskloss.kernels.ranking.interleaving`).

    ``least`` and ``greatest``, int64 ``(P,)``, are the extreme ones of equally good counts.
    """

    least: np.ndarray
    greatest: np.ndarray
    is_prediction: bool = False
    """Whether this is the prediction: tied scores make it a set of rankings, which each metric scores by its own convention."""


class RankingTask(Task):
    """Base of the ranking tasks: a metric of the counts with exact loss-augmented inference."""

    target_kind: ClassVar[str] = "binary"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "num_relevant", "weight"})
    on_one_class: str

    @abstractmethod
    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        """Return the metric of the prediction under the metric's convention for ties, ``(R,)``."""

    @abstractmethod
    def of_counts(self, rankings: Rankings, counts: np.ndarray) -> np.ndarray:
        """Return the metric of one answer, ``(R,)``."""

    @abstractmethod
    def augment(self, rankings: Rankings, metric_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and greatest counts of each ranking that maximize the augmented objective times ``P N / 2``.

        That is ``sum_i sum_{j <= c_i} (t_j - s_i) - metric_weight * metric``, where ``metric_weight = weight * P N / 2``,
        ``(R,)``, has the sign of the weight.
        """

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> RankingInference:
        self.refuse_unknown(call)
        layout, rankings = read_rankings(
            scores,
            target,
            dims=call.dims,
            groups=call.groups,
            ignore_index=call.ignore_index,
            num_relevant=call.num_relevant,
        )
        if self.on_one_class == "raise":
            _checks.check_two_classes(rankings.undefined)
        return RankingInference(self, layout, rankings, scores.dtype, ranking_weights(layout, call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return values_shape(scores, ranked_dims(dims), groups)

    def __post_init__(self) -> None:
        _checks.check_choice("on_one_class", self.on_one_class, ("skip", "raise"))


class ConvexRankingTask(RankingTask):
    """``M(c) = scale * sum_i m(i, c_i)`` with m convex in c: the positive update by pooling."""

    metric: ClassVar[int]
    """The metric's number in :mod:`taskloss.kernels.ranking.terms`."""
    at: int | None
    """The last rank that counts; None for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_optional_count("at", self.at)

    @abstractmethod
    def scale(self, rankings: Rankings) -> np.ndarray:
        """Return the factor of the sum of the terms, ``(R,)``."""

    @abstractmethod
    def augment_down(self, rankings: Rankings, loss_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Solve the negative update, ``loss_weight < 0``."""

    def of_counts(self, rankings: Rankings, counts: np.ndarray) -> np.ndarray:
        return self.scale(rankings) * cutoff.term_sum(rankings.lists, self.metric, counts, self._cut(rankings))

    def augment(self, rankings: Rankings, metric_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        loss_weight = metric_weight * self.scale(rankings)
        if self.at is not None:
            cut = self._cut(rankings)
            return cutoff.augment_cut(rankings.lists, rankings.above, rankings.at_or_above, self.metric, cut, loss_weight)
        if min(metric_weight.tolist(), default=0.0) < 0.0:
            return self.augment_down(rankings, loss_weight)
        return isotonic.augment_convex(rankings.lists, self.metric, loss_weight)

    def _cut(self, rankings: Rankings) -> np.ndarray:
        """Return the last rank that counts, int64 ``(R,)``."""
        return filled(len(rankings.positives), self.at or of_rankings.NO_CUT, np.int64)


class RankingInference(Inference[Ranking]):
    """Exact inference for all the rankings of one batch."""

    def __init__(
        self,
        task: RankingTask,
        layout: Layout,
        rankings: Rankings,
        dtype: np.dtype,
        weights: np.ndarray,
    ) -> None:
        self.values_shape = layout.values_shape
        self.defined = rankings.defined
        self.weights = weights
        self._task = task
        self._layout = layout
        self._rankings = rankings
        self._dtype = dtype
        self._summable, self._unit = _shrink_huge(rankings) if dtype == np.float64 else (rankings, 1.0)

    def predict(self) -> Ranking:
        return Ranking(self._rankings.above, self._rankings.at_or_above, is_prediction=True)

    def augment(self, weight: float) -> Ranking:
        metric_weight = pair_weights(weight * self._unit / 2, self._rankings.positives, self._rankings.negatives)
        return Ranking(*self._task.augment(self._summable, metric_weight))

    def truth(self) -> Ranking:
        counts = np.zeros(len(self._rankings.lists.positives), np.int64)
        return Ranking(counts, counts)

    def loss(self, answer: Ranking) -> np.ndarray:
        if answer.is_prediction:
            return 1.0 - self._task.of_prediction(self._rankings)
        return 1.0 - self._task.of_counts(self._rankings, answer.least)

    def score_difference(self, answer: Ranking, reference: Ranking) -> np.ndarray:
        return interleaving.score_difference(self._summable.lists, answer.least, reference.least) / self._unit

    def feature_difference(self, answer: Ranking, reference: Ranking, factor: np.ndarray) -> np.ndarray:
        out = np.zeros(prod(self._layout.shape), self._dtype)
        interleaving.write_feature_difference(
            self._rankings.lists, answer.least, answer.greatest, reference.least, reference.greatest, factor, out
        )
        return out.reshape(self._layout.shape)

    def owner(self) -> np.ndarray:
        return self._layout.full_owner()


def _shrink_huge(rankings: Rankings) -> tuple[Rankings, float]:
    """Return rankings whose score sums cannot overflow, and the factor of their scores; metric weights need the same factor."""
    lists = rankings.lists
    unit = summable_unit(lists.positives, lists.negatives)
    if unit == 1.0:
        return rankings, unit
    shrunk = lists._replace(positives=lists.positives * unit, negatives=lists.negatives * unit)
    return rankings._replace(lists=shrunk), unit
