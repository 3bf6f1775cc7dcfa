"""Tasks of the ROC curve: its area, a part of it, recall at a false positive rate."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taskloss import _checks
from taskloss.kernels.ranking import majorant, operating_point
from taskloss.layout import Rankings
from taskloss.metrics import of_rankings
from taskloss.tasks.ranking import RankingTask
from taskloss.tasks.registry import register


class _BandTask(RankingTask):
    """Metrics of a band of false positives: ``M(c) = mean_i (high - clip(c_i, low, high)) / (high - low)``."""

    @abstractmethod
    def band(self, rankings: Rankings) -> tuple[np.ndarray, np.ndarray]:
        """Return ``low`` and ``high`` as numbers of negatives, each ``(R,)``."""

    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        return of_rankings.band_auc(rankings, *self.band(rankings))

    def of_counts(self, rankings: Rankings, counts: np.ndarray) -> np.ndarray:
        return majorant.band_mean(rankings.lists, counts, counts, *self.band(rankings), rankings.relevant)

    def augment(self, rankings: Rankings, metric_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return majorant.augment_band(rankings.lists, *self.band(rankings), rankings.relevant, metric_weight)


@register("roc_auc", label="ROC AUC")
@dataclass(frozen=True)
class ROCAUC(_BandTask):
    r"""Area under the ROC curve: the share of pairs in the right order, tied pairs counting half.

    .. math:: \mathrm{AUC} = \frac{1}{PN} \sum_i N - c_i

    Both updates by a concave majorant in O(n log n).

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss("roc_auc")(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 0])).item()
    0.5
    """

    options: ClassVar[frozenset[str]] = RankingTask.options - {"num_relevant"}
    on_one_class: str = "skip"

    def band(self, rankings: Rankings) -> tuple[np.ndarray, np.ndarray]:
        return of_rankings.false_positive_band(rankings, 0.0, 1.0)


@register("partial_auc", label="partial AUC")
@dataclass(frozen=True)
class PartialAUC(_BandTask):
    r"""Partial area under the ROC curve between two false positive rates, as a share of the band.

    .. math::
        \frac{1}{P (h - l)} \sum_i h - \mathrm{clip}(c_i, l, h), \qquad
        l = \text{min\_fpr} \cdot N, \; h = \text{max\_fpr} \cdot N

    With ``min_fpr = 0`` this is the area up to ``max_fpr`` divided by ``max_fpr``: scikit-learn's
    ``roc_auc_score(max_fpr=...)`` before McClish's standardization. Both updates by a concave majorant in O(n log n).

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss(PartialAUC(max_fpr=0.5))(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 0])).item()
    1.0
    """

    options: ClassVar[frozenset[str]] = RankingTask.options - {"num_relevant"}
    max_fpr: float = 0.1
    min_fpr: float = 0.0
    on_one_class: str = "skip"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_band(self.min_fpr, self.max_fpr)

    def band(self, rankings: Rankings) -> tuple[np.ndarray, np.ndarray]:
        return of_rankings.false_positive_band(rankings, self.min_fpr, self.max_fpr)


@register("recall_at_fpr", label="recall at FPR")
@dataclass(frozen=True)
class RecallAtFPR(_BandTask):
    """Recall at a false positive rate: the positives above all but ``floor(fpr * N)`` negatives (sensitivity at a specificity).

    A tied group is retrieved together. Both updates by a concave majorant in O(n log n).

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss(RecallAtFPR(0.5))(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 1, 0, 1])).item()
    0.5
    """

    default_update: ClassVar[str] = "central"
    fpr: float = 0.05
    on_one_class: str = "skip"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_fraction("fpr", self.fpr)

    def band(self, rankings: Rankings) -> tuple[np.ndarray, np.ndarray]:
        allowed = operating_point.allowed_false_positives(rankings.negatives, self.fpr)
        return allowed, allowed + 1.0

    def of_prediction(self, rankings: Rankings) -> np.ndarray:
        return of_rankings.recall_at_fpr(rankings, self.fpr)
