"""Values of the ranking metrics for the predictions of a batch, one per ranking, ``(R,)``.

Conventions for ties are those of :mod:`taskloss.kernels.ranking.values`. The public scores and the tasks share these values.
"""

from __future__ import annotations

import functools

import numpy as np

from taskloss.kernels.items import filled
from taskloss.kernels.ranking import majorant, operating_point, single_row, values
from taskloss.layout import Rankings

NO_CUT = 2**62
"""A rank beyond every list."""


def reachable(rankings: Rankings, at: int | None) -> np.ndarray:
    """Return the number of relevant items that a perfect list has within the cut, float64 ``(R,)``."""
    return rankings.relevant if at is None else np.minimum(rankings.relevant, at)


def average_precision(rankings: Rankings, at: int | None = None) -> np.ndarray:
    """Return the mean precision at the thresholds of the positives."""
    return values.average_precision(rankings.lists, rankings.at_or_above, rankings.relevant, at or NO_CUT)


def band_auc(rankings: Rankings, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve between ``low`` and ``high`` false positives (real numbers), divided by the band."""
    return majorant.band_mean(rankings.lists, rankings.above, rankings.at_or_above, low, high, rankings.relevant)


def false_positive_band(rankings: Rankings, min_fpr: float, max_fpr: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the band between two false positive rates in numbers of negatives, not rounded, as scikit-learn interpolates."""
    return operating_point.false_positive_band(rankings.negatives, min_fpr, max_fpr)


def recall_at_fpr(rankings: Rankings, fpr: float) -> np.ndarray:
    """Return the share of positives with at most the allowed number of negatives at or above them."""
    allowed = operating_point.allowed_false_positives(rankings.negatives, fpr)
    return values.positives_above_bound(rankings.lists, rankings.at_or_above, allowed) / rankings.relevant


def inverse_ideal_gains(rankings: Rankings, at: int | None = None) -> np.ndarray:
    """Return one over the discounted gain of a perfect list, ``1 / sum_{r <= R} d(r)``."""
    count = reachable(rankings, at)
    return values.inverse_entries(_discount_sums(int(max(count.tolist(), default=1.0)).bit_length()), count)


@functools.lru_cache(maxsize=2)
def _discount_sums(bits: int) -> np.ndarray:
    """Return ``sum_{r <= R} d(r)`` for R from 0 to ``2**bits - 1``; cached, since every step of a loss needs it."""
    sums = np.concatenate((np.zeros(1), np.cumsum(1.0 / np.log2(np.arange(2, 2**bits + 1)))))
    sums.setflags(write=False)
    return sums


def ndcg(rankings: Rankings, at: int | None = None) -> np.ndarray:
    """Return the discounted gain of the positives divided by that of a perfect list."""
    return values.ndcg(rankings.lists, rankings.above, rankings.at_or_above, inverse_ideal_gains(rankings, at), at or NO_CUT)


def reciprocal_rank(rankings: Rankings) -> np.ndarray:
    """Return one over the rank of the first positive."""
    return single_row.precision_at_row(rankings.lists, rankings.at_or_above, filled(len(rankings.positives), 1, np.int64))


def precision_at_recall(rankings: Rankings, recall: float) -> np.ndarray:
    """Return the precision of the highest threshold that reaches the recall; zero when none does."""
    needed = operating_point.needed_positives(rankings.relevant, recall)
    return values.precision_at_positive(rankings.lists, rankings.at_or_above, needed)


def recall_at_precision(rankings: Rankings, precision: float) -> np.ndarray:
    """Return the largest recall of a threshold that has the precision."""
    ratio = negatives_a_positive(precision)
    return values.positives_at_precision(rankings.lists, rankings.at_or_above, ratio) / rankings.relevant


def negatives_a_positive(precision: float) -> float:
    """Return the number of negatives per positive at this precision, ``(1 - p)/p``."""
    return (1.0 - precision) / precision


def top(rankings: Rankings, k: float) -> np.ndarray:
    """Return k as a count, or as a fraction of each list rounded down to at least 1; int64 ``(R,)``."""
    if isinstance(k, int):
        return filled(len(rankings.positives), k, np.int64)
    return operating_point.top_of_list(rankings.positives, rankings.negatives, k)


def share_in_top(rankings: Rankings, top: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the number of positives in the first ``top[r]`` ranks divided by ``total[r]``."""
    return values.positives_in_top(rankings.lists, rankings.above, rankings.at_or_above, top) / total
