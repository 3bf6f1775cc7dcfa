r"""Rankings of graded relevance: gains, discounts of places, and their normalized sum.

.. math:: \mathrm{NDCG} = \frac{1}{Z} \sum_i g_i\, d(\mathrm{rank}_i), \qquad d(r) = \frac{1}{\log_2(1 + r)} \text{ up to the cut}

with gains ``g_i`` and Z the sum of the ideal order. The public score and the task both take their values from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskloss import _checks
from taskloss.kernels.ranking.graded import place_discounts
from taskloss.kernels.sums import order_free_sums_by_owner
from taskloss.layout import Layout, lay_out, ranked_dims

GAINS = ("exponential", "linear")


@dataclass(frozen=True)
class GradedRankings:
    """The rankings of one batch of graded relevance; R of them, n samples in all, flat."""

    layout: Layout
    scores: np.ndarray
    """Float64 of shape ``(n,)``; zero where ignored."""
    gains: np.ndarray
    """Float64 of shape ``(n,)``; zero where ignored."""
    ignored: np.ndarray
    """Bool of shape ``(n,)``."""
    owner: np.ndarray
    """Ranking of each sample, shape ``(n,)``."""
    at: int | None
    """The last place that counts; None for all."""
    defined: np.ndarray
    """Rankings with several gains, bool of shape ``(R,)``."""

    def discounts_by(self, keys: np.ndarray) -> np.ndarray:
        """The discount of each sample's place when a ranking is sorted by ``keys``; equal keys share their mean."""
        cut = len(keys) if self.at is None else self.at
        return place_discounts(keys, self.ignored, self.layout.owner, self.layout.rankings, cut)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sums a ranking, shape ``(R,)``: the order of the samples must not show in the last bit."""
        return order_free_sums_by_owner(values, self.owner, self.layout.rankings)

    def ideal(self) -> np.ndarray:
        """The discounted gain of the ideal order, shape ``(R,)``; 1 where undefined."""
        return np.where(self.defined, self.sums(self.gains * self.discounts_by(self.gains)), 1.0)


def read_graded(
    scores: np.ndarray,
    target: np.ndarray,
    *,
    gain: str,
    at: int | None,
    dims: Sequence[int] | None = None,
    groups: np.ndarray | None = None,
    ignore_index: int | None = None,
) -> GradedRankings:
    """Check graded input in any calling form."""
    _checks.check_shapes(scores, target)
    layout = lay_out(scores.shape, ranked_dims(dims), groups)
    ignored = np.zeros(target.shape, bool) if ignore_index is None else target == ignore_index
    _checks.check_finite(scores, ~ignored)
    _checks.check_relevance(target, ignored, exponential=gain == "exponential")
    relevance = np.where(ignored, 0, target).astype(np.float64).reshape(-1)
    gains = np.exp2(relevance) - 1.0 if gain == "exponential" else relevance
    keys = np.where(ignored, 0, scores).astype(np.float64).reshape(-1)
    owner = layout.full_owner()
    defined = _several_gains(gains, ignored.reshape(-1), owner, layout.rankings)
    return GradedRankings(layout, keys, gains, ignored.reshape(-1), owner, at, defined)


def _several_gains(gains: np.ndarray, ignored: np.ndarray, owner: np.ndarray, rankings: int) -> np.ndarray:
    lowest, highest = np.full(rankings, np.inf), np.full(rankings, -np.inf)
    np.minimum.at(lowest, owner[~ignored], gains[~ignored])
    np.maximum.at(highest, owner[~ignored], gains[~ignored])
    return lowest < highest


def ndcg(rankings: GradedRankings) -> np.ndarray:
    """Discounted gain of the prediction as a share of that of the ideal order, shape ``(R,)``."""
    return rankings.sums(rankings.gains * rankings.discounts_by(rankings.scores)) / rankings.ideal()
