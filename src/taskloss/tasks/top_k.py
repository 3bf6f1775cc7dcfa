"""Tasks of the first k ranks: precision and recall at k."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taskloss import _checks
from taskloss.kernels.ranking import topk
from taskloss.layout import Rankings
from taskloss.metrics import of_rankings
from taskloss.tasks.ranking import RankingTask
from taskloss.tasks.registry import register


class _TopKTask(RankingTask):
    """Base of the metrics that count the positives in the top k."""

    default_update: ClassVar[str] = "central"
    k: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_k(self.k)

    @abstractmethod
    def total(self, rankings: Rankings, top: np.ndarray) -> np.ndarray:
        """Return what the number of positives in the first ``top[r]`` ranks is divided by, ``(R,)``."""

    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        top = of_rankings.top(rankings, self.k)
        return of_rankings.share_in_top(rankings, top, self.total(rankings, top))

    def of_counts(self, rankings: Rankings, counts: np.ndarray) -> np.ndarray:
        top = of_rankings.top(rankings, self.k)
        return topk.count_inside(rankings.lists, counts, top) / self.total(rankings, top)

    def augment(self, rankings: Rankings, metric_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        top = of_rankings.top(rankings, self.k)
        loss_weight = metric_weight / self.total(rankings, top)
        return topk.augment_top_k(rankings.lists, rankings.above, rankings.at_or_above, top, loss_weight)


@register("precision_at_k")
@dataclass(frozen=True)
class PrecisionAtK(_TopKTask):
    """The share of positives among the first k samples; k a count, or a fraction of the list (an alert budget).

    A tied group cut by rank k counts in proportion. A list shorter than k is still divided by k. Both updates in O(n log n).

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss(PrecisionAtK(2))(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 0])).item()
    0.5
    """

    k: float = 10
    on_one_class: str = "skip"

    def total(self, rankings: Rankings, top: np.ndarray) -> np.ndarray:
        return top


@register("recall_at_k")
@dataclass(frozen=True)
class RecallAtK(_TopKTask):
    """The share of the relevant items that the first k samples hold; k and ties as for :class:`PrecisionAtK`.

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss(RecallAtK(2))(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 0])).item()
    0.0
    """

    k: float = 10
    on_one_class: str = "skip"

    def total(self, rankings: Rankings, top: np.ndarray) -> np.ndarray:
        return rankings.relevant
