r"""Rankings of graded relevance: gains, discounts of ranks, and their normalized sum.

.. math:: \mathrm{NDCG} = \frac{1}{Z} \sum_i g_i\, d(\mathrm{rank}_i), \qquad d(r) = \frac{1}{\log_2(1 + r)} \text{ up to the cut}

with gains ``g_i`` and Z the sum of the ideal order. The public score and the task both take their values from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taskloss import _checks
from taskloss.kernels.ranking.grades import rank_discounts, read_grades, sums_by_ranking
from taskloss.layout import Layout, lay_out, ranked_dims

GAINS = ("exponential", "linear")


class GradedRankings(NamedTuple):
    """The rankings of one batch of graded relevance: R of them, n samples in all."""

    layout: Layout
    scores: np.ndarray
    """Float64 ``(n,)``; zero where ignored."""
    gains: np.ndarray
    """Float64 ``(n,)``; zero where ignored."""
    ignored: np.ndarray
    """Bool ``(n,)``."""
    owner: np.ndarray
    """Ranking of each sample, int64 ``(n,)``; empty when there is only one ranking."""
    cut: int
    """The last rank that counts."""
    defined: np.ndarray
    """Rankings with several gains, bool ``(R,)``."""

    def discounts_by(self, keys: np.ndarray) -> np.ndarray:
        """Return the discount of each sample's rank when a ranking is sorted by ``keys``; equal keys share their mean."""
        return rank_discounts(keys, self.ignored, self.owner, self.layout.rankings, self.cut)

    def sums(self, values: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Return the sum of ``values * factors`` of each ranking, ``(R,)``."""
        return sums_by_ranking(values, factors, self.owner, self.layout.rankings)

    def ideal(self) -> np.ndarray:
        """Return the discounted gain of the ideal order, ``(R,)``; 1 where undefined."""
        return np.where(self.defined, self.sums(self.gains, self.discounts_by(self.gains)), 1.0)


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
    """Check graded input in any calling form and turn grades into gains."""
    _checks.check_shapes(scores, target)
    layout = lay_out(scores.shape, ranked_dims(dims), groups)
    owner = layout.owner
    exponential = gain == "exponential"
    keys, gains, ignored, defined, valid = read_grades(
        scores.ravel(), target.ravel(), ignore_index is not None, ignore_index or 0, exponential, owner, layout.rankings
    )
    if not valid:
        left_out = ignored.reshape(scores.shape)
        _checks.check_finite(scores, ~left_out)
        _checks.check_relevance(target, left_out, exponential=exponential)
    return GradedRankings(layout, keys, gains, ignored, owner, len(keys) if at is None else at, defined)


def ndcg(rankings: GradedRankings) -> np.ndarray:
    """Return the discounted gain of the prediction divided by that of the ideal order, ``(R,)``."""
    return rankings.sums(rankings.gains, rankings.discounts_by(rankings.scores)) / rankings.ideal()
