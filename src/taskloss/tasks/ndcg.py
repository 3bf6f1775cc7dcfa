"""Normalized discounted cumulative gain of binary relevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taskloss.kernels.ranking import monotone_rows, terms
from taskloss.layout import Rankings
from taskloss.metrics import of_rankings
from taskloss.tasks.ranking import ConvexRankingTask
from taskloss.tasks.registry import register


@register("ndcg", label="NDCG")
@dataclass(frozen=True)
class NDCG(ConvexRankingTask):
    r"""Normalized discounted cumulative gain of binary relevance.

    .. math:: \mathrm{NDCG} = \frac{\sum_i d(i + c_i)}{\sum_{r \le R} d(r)}, \qquad d(r) = \frac{1}{\log_2(1 + r)}

    Reference: Järvelin and Kekäläinen 2002. Equal to scikit-learn's ``ndcg_score``, which takes the mean over the orders of tied
    samples. Positive update by pooling, negative update by divide and conquer. Arguments as for :class:`AveragePrecision`.

    >>> import torch, taskloss as tl
    >>> round(tl.DirectLoss(NDCG())(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0, 1, 1])).item(), 4)
    0.3066
    """

    metric: ClassVar[int] = terms.NDCG
    on_one_class: str = "skip"
    at: int | None = None

    def scale(self, rankings: Rankings) -> np.ndarray:
        return of_rankings.inverse_ideal_gains(rankings, self.at)

    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        return of_rankings.ndcg(rankings, self.at)

    def augment_down(self, rankings: Rankings, loss_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return monotone_rows.augment_monotone_rows(rankings.lists, rankings.at_or_above, self.metric, loss_weight)
