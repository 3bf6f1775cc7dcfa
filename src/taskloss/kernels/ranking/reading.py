"""Reading rankings: sorted lists and counts."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ranking.interleaving import natural_counts
from taskloss.kernels.sort import MANY_SAMPLES, TwoLists, deal, pack, read_labels, scores_of, sort_few, split_by_label


def read_lists(
    scores: np.ndarray, target: np.ndarray, ignore: bool, ignored: int, owner: np.ndarray, rankings: int
) -> tuple[TwoLists, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool, bool]:
    """Sort the samples of R rankings and count.

    Args:
        scores: float32 or float64 ``(n,)``; of ignored samples any values.
        target: as in :func:`~taskloss.kernels.sort.read_labels`, like the next two.
        ignore: see there.
        ignored: see there.
        owner: int64 ``(n,)``, the ranking of each sample; empty when there is only one ranking.
        rankings: R.

    Returns:
        The samples as two lists, the results of :func:`_count`, and whether every target is 0, 1 or ignored.
    """
    if scores.dtype == np.float32 and len(scores) < MANY_SAMPLES:
        fields, counts, known = _read_few(scores, target, ignore, ignored, owner, rankings)
        return TwoLists(*fields), *counts, known
    labels, known = read_labels(target, ignore, ignored)
    lists = split_by_label(scores, labels, owner, rankings)
    return lists, *_count(lists), known


@kernel
def _read_few(scores, target, ignore, ignored, owner, rankings):
    """Return the results of :func:`read_lists`, for float32 scores, in one call."""
    labels, known = read_labels(target, ignore, ignored)
    keys, positive_start, negative_start = pack(scores, labels, owner, rankings, True)
    sort_few(keys)
    samples = deal(keys, True, scores, labels, owner, positive_start, negative_start)
    lists = TwoLists(samples[0], samples[1], samples[2], samples[3], positive_start, negative_start)
    return (samples[0], samples[1], samples[2], samples[3], positive_start, negative_start), _count(lists), known


@kernel
def _count(lists):
    """Count the samples of R rankings.

    Returns:
        For each of the P positives the negatives scored above it, and those scored at or above it, int64 ``(P,)``; the positives
        and the negatives of each ranking, int64 ``(R,)``; the positives, at least 1, as float64 ``(R,)``; which rankings have
        both, bool ``(R,)``; whether all scores are finite.
    """
    rankings = len(lists.positive_start) - 1
    positives, negatives = np.empty(rankings, np.int64), np.empty(rankings, np.int64)
    relevant, two_classes = np.empty(rankings, np.float64), np.empty(rankings, np.bool_)
    finite = True
    for r in range(rankings):
        s, t = scores_of(lists, r)
        positives[r], negatives[r] = len(s), len(t)
        relevant[r] = max(len(s), 1)
        two_classes[r] = len(s) > 0 and len(t) > 0
        # Infinities and NaN are at the ends of a sorted list.
        finite &= len(s) == 0 or (np.isfinite(s[0]) and np.isfinite(s[-1]))
        finite &= len(t) == 0 or (np.isfinite(t[0]) and np.isfinite(t[-1]))
    above, at_or_above = natural_counts(lists)
    return above, at_or_above, positives, negatives, relevant, two_classes, finite


@kernel
def pair_weights(factor, positives, negatives):
    """Return ``factor * positives * negatives`` of each ranking, float64 ``(R,)``."""
    weights = np.empty(len(positives), np.float64)
    for r in range(len(positives)):
        weights[r] = factor * positives[r] * negatives[r]
    return weights
