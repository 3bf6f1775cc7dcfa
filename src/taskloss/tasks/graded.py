r"""NDCG of graded relevance: answers are orders, and augmented inference is a sort.

With gains ``g_i`` and discounts ``d(r) = 1/log2(1 + r)`` (zero beyond the cut), the joint score uses the metric's own discounts,

.. math:: F = \frac{1}{Z} \sum_i s_i\, d(\mathrm{rank}_i), \qquad L = 1 - \frac{1}{Z} \sum_i g_i\, d(\mathrm{rank}_i), \qquad
          F + w L = w + \frac{1}{Z} \sum_i (s_i - w g_i)\, d(\mathrm{rank}_i),

with Z the gain of the ideal order. Since d falls, the best order sorts by ``s - w g``, for w of either sign. The feature of an
order is ``psi_i = d(rank_i) / Z``; samples with equal keys share the mean of their discounts. (With a cut in the metric but
not in F, a sort would not be optimal: both have the same cut.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taskloss import _checks
from taskloss.layout import ranked_dims, ranking_weights, values_shape
from taskloss.metrics import graded
from taskloss.tasks.registry import register
from taskloss.tasks.task import Call, Inference, Task


@register("graded_ndcg", label="graded NDCG")
@dataclass(frozen=True)
class GradedNDCG(Task):
    """Normalized discounted cumulative gain of graded relevance (0, 1, 2, ...).

    Järvelin and Kekäläinen 2002; the exponential gain is that of Burges et al. 2005. With the linear gain equal to scikit-learn's
    ``ndcg_score``, which takes the mean over the orders of tied samples. A ranking whose gains are all equal is undefined.

    Args:
        gain: ``"exponential"``, ``2**relevance - 1``, or ``"linear"``, the relevance itself.
        at: count only the first ``at`` ranks. Samples beyond them in both answers get no gradient, so leave it out in
            training unless that is what you want.
        on_one_class: as for :class:`~taskloss.AveragePrecision`.

    >>> import torch, taskloss as tl
    >>> round(tl.DirectLoss(GradedNDCG())(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 2, 1])).item(), 4)
    0.341
    """

    target_kind: ClassVar[str] = "graded"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "weight"})
    gain: str = graded.GAINS[0]
    at: int | None = None
    on_one_class: str = "skip"

    def __post_init__(self) -> None:
        _checks.check_choice("gain", self.gain, graded.GAINS)
        _checks.check_choice("on_one_class", self.on_one_class, ("skip", "raise"))
        _checks.check_optional_count("at", self.at)

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> GradedInference:
        self.refuse_unknown(call)
        rankings = graded.read_graded(
            scores,
            target,
            gain=self.gain,
            at=self.at,
            dims=call.dims,
            groups=call.groups,
            ignore_index=call.ignore_index,
        )
        if self.on_one_class == "raise":
            _checks.check_two_classes(~rankings.defined)
        return GradedInference(rankings, scores.dtype, ranking_weights(rankings.layout, call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return values_shape(scores, ranked_dims(dims), groups)


class GradedInference(Inference[np.ndarray]):
    """Exact inference for all the rankings of one batch; an answer is the discount of each sample's rank, float64 ``(n,)``."""

    def __init__(self, rankings: graded.GradedRankings, dtype: np.dtype, weights: np.ndarray) -> None:
        self.values_shape = rankings.layout.values_shape
        self.defined = rankings.defined
        self.weights = weights
        self._rankings = rankings
        self._dtype = dtype
        self._ideal = rankings.ideal()

    def predict(self) -> np.ndarray:
        return self._rankings.discounts_by(self._rankings.scores)

    def augment(self, weight: float) -> np.ndarray:
        return self._rankings.discounts_by(self._rankings.scores - weight * self._rankings.gains)

    def truth(self) -> np.ndarray:
        """Return the order by gain, equal gains by score: of all the ideal orders the one that scores highest."""
        order = np.lexsort((self._rankings.scores, self._rankings.gains))
        gains, scores = self._rankings.gains[order], self._rankings.scores[order]
        differs = (gains[1:] != gains[:-1]) | (scores[1:] != scores[:-1])
        keys = np.zeros(len(order))
        keys[order[1:]] = np.cumsum(differs)
        return self._rankings.discounts_by(keys)

    def loss(self, answer: np.ndarray) -> np.ndarray:
        return 1.0 - self._rankings.sums(self._rankings.gains, answer) / self._ideal

    def score_difference(self, answer: np.ndarray, reference: np.ndarray) -> np.ndarray:
        return self._rankings.sums(self._rankings.scores, answer - reference) / self._ideal

    def feature_difference(self, answer: np.ndarray, reference: np.ndarray, factor: np.ndarray) -> np.ndarray:
        difference = (answer - reference) * self._of_samples(factor / self._ideal)
        return difference.astype(self._dtype).reshape(self._rankings.layout.shape)

    def _of_samples(self, values: np.ndarray) -> np.ndarray:
        """Return the value of each sample's ranking, to be multiplied with what the samples have."""
        return values if self._rankings.layout.rankings == 1 else values[self._rankings.owner]

    def owner(self) -> np.ndarray:
        return self._rankings.layout.full_owner()
