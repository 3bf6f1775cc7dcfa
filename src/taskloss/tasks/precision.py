"""Tasks of precision: average precision, reciprocal rank, precision at a recall, recall at a precision."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taskloss import _checks
from taskloss.kernels.items import filled
from taskloss.kernels.ranking import corridor, operating_point, precision_bound, single_row, terms
from taskloss.layout import Rankings
from taskloss.metrics import of_rankings
from taskloss.tasks.ranking import ConvexRankingTask, RankingTask
from taskloss.tasks.registry import register


@register("average_precision")
@dataclass(frozen=True)
class AveragePrecision(ConvexRankingTask):
    r"""Average precision, ``L = 1 - AP``, of binary relevance.

    .. math:: \mathrm{AP} = \frac{1}{R} \sum_{i=1}^{P} \frac{i}{i + c_i}

    with ``c_i`` the negatives above the i-th positive and R the number of relevant items (P unless ``num_relevant`` is given).
    Reference: Song, Schwing, Zemel, Urtasun, *Training Deep Neural Networks via Direct Loss Minimization*, ICML 2016. The
    positive update and the hinge are solved by pooling in O(n log n), the negative update by a
    table of which only a narrow corridor is filled.

    Args:
        on_one_class: ``"skip"``: a ranking with one class only has zero loss and gradient and is left out of means;
            ``"raise"``: it is an error.
        at: count only the positives within the first ``at`` ranks and divide by ``min(R, at)``. A tied group that ends beyond
            them counts nothing. Samples beyond them in both answers get no gradient.

    >>> import taskloss as tl, torch
    >>> criterion = tl.DirectLoss(tl.AveragePrecision())
    >>> round(criterion(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 0, 1, 0])).item(), 6)
    0.166667
    """

    metric: ClassVar[int] = terms.AVERAGE_PRECISION
    on_one_class: str = "skip"
    at: int | None = None

    def scale(self, rankings: Rankings) -> np.ndarray:
        return 1.0 / of_rankings.reachable(rankings, self.at)

    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        return of_rankings.average_precision(rankings, self.at)

    def augment_down(self, rankings: Rankings, loss_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return corridor.augment_average_precision_down(rankings.lists, rankings.at_or_above, loss_weight)


class _SingleRowTask(RankingTask):
    """Metrics that see one positive only, ``k / (k + c_k)``."""

    @abstractmethod
    def row(self, rankings: Rankings) -> np.ndarray:
        """Return the number k of each ranking, from 1, int64 ``(R,)``."""

    def of_counts(self, rankings: Rankings, counts: np.ndarray) -> np.ndarray:
        return single_row.precision_at_row(rankings.lists, counts, self.row(rankings))

    def augment(self, rankings: Rankings, metric_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return single_row.augment_single_row(
            rankings.lists, rankings.above, rankings.at_or_above, self.row(rankings), metric_weight
        )


@register("reciprocal_rank")
@dataclass(frozen=True)
class ReciprocalRank(_SingleRowTask):
    """Reciprocal rank of the first positive, ``1 / (1 + c_1)``; its mean over queries is the MRR.

    Tied samples count in their worst order.

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss("reciprocal_rank")(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 0])).item()
    0.5
    """

    on_one_class: str = "skip"

    def row(self, rankings: Rankings) -> np.ndarray:
        return filled(len(rankings.positives), 1, np.int64)

    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        return of_rankings.reciprocal_rank(rankings)


@register("precision_at_recall")
@dataclass(frozen=True)
class PrecisionAtRecall(_SingleRowTask):
    """Precision at the threshold that first reaches a recall: ``k / (k + c_k)`` with ``k = ceil(recall * R)``.

    A tied group is retrieved together. When more items are missing from the list than the recall allows, the metric is zero.

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss(PrecisionAtRecall(0.5))(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 1, 0, 1])).item()
    0.5
    """

    default_update: ClassVar[str] = "central"
    recall: float = 0.8
    on_one_class: str = "skip"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_fraction("recall", self.recall)

    def row(self, rankings: Rankings) -> np.ndarray:
        return operating_point.needed_positives(rankings.relevant, self.recall)

    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        return of_rankings.precision_at_recall(rankings, self.recall)


@register("recall_at_precision")
@dataclass(frozen=True)
class RecallAtPrecision(RankingTask):
    """The largest recall that a threshold reaches at a required precision.

    That is the largest ``k / R`` with ``k / (k + c_k) >= precision``. A tied group is retrieved together. Both updates in
    O(n log n).

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss(RecallAtPrecision(0.5))(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 1, 0, 0])).item()
    0.0
    """

    default_update: ClassVar[str] = "central"
    precision: float = 0.8
    on_one_class: str = "skip"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_fraction("precision", self.precision)

    @property
    def _ratio(self) -> float:
        return of_rankings.negatives_a_positive(self.precision)

    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        return of_rankings.recall_at_precision(rankings, self.precision)

    def of_counts(self, rankings: Rankings, counts: np.ndarray) -> np.ndarray:
        return precision_bound.holding(rankings.lists, counts, self._ratio) / rankings.relevant

    def augment(self, rankings: Rankings, metric_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        loss_weight = metric_weight / rankings.relevant
        return precision_bound.augment_precision_bound(
            rankings.lists, rankings.above, rankings.at_or_above, self._ratio, loss_weight
        )
