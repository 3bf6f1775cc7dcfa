"""Sorting: one list of positives and one of negatives per ranking, each from the highest score to the lowest.

Sorting bounds the speed of every ranking loss from below. A float32 score and the index of its sample fit into one 64-bit integer
(order-preserving bits of the score above, the index below), and numpy sorts such integers many times faster than any sort
that has to carry a permutation along.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel

NEGATIVE, POSITIVE, IGNORED = 0, 1, 2


class TwoLists(NamedTuple):
    """The samples of R rankings, split by label; within a ranking from the highest score to the lowest.

    Ranking ``r`` owns ``positives[positive_start[r]:positive_start[r + 1]]``, and likewise its negatives.
    """

    positives: np.ndarray
    """Scores of the positives, float64 ``(P,)``."""
    negatives: np.ndarray
    """Scores of the negatives, float64 ``(N,)``."""
    positive_index: np.ndarray
    """Index of each positive in the flat input, int64 ``(P,)``."""
    negative_index: np.ndarray
    """Index of each negative in the flat input, int64 ``(N,)``."""
    positive_start: np.ndarray
    """Where the positives of each ranking begin, int64 ``(R + 1,)``."""
    negative_start: np.ndarray
    """Where the negatives of each ranking begin, int64 ``(R + 1,)``."""

    def positive_counts(self) -> np.ndarray:
        """Return the number of positives of each ranking, int64 ``(R,)``."""
        return self.positive_start[1:] - self.positive_start[:-1]

    def negative_counts(self) -> np.ndarray:
        """Return the number of negatives of each ranking, int64 ``(R,)``."""
        return self.negative_start[1:] - self.negative_start[:-1]


@inlined_kernel
def scores_of(lists, r):
    """Return views of the positives' and of the negatives' scores of ranking ``r``."""
    s = lists.positives[lists.positive_start[r] : lists.positive_start[r + 1]]
    t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
    return s, t


def split_by_label(scores: np.ndarray, labels: np.ndarray, owner: np.ndarray, rankings: int) -> TwoLists:
    """Sort flat ``scores`` and distribute them to the two lists of each ranking.

    One sort serves all the rankings: distributing the sorted samples in order keeps each list sorted.

    Args:
        scores: float32 or float64, ``(n,)``.
        labels: ``NEGATIVE``, ``POSITIVE`` or ``IGNORED``, uint8 ``(n,)``.
        owner: the ranking of each sample, int64 ``(n,)``; empty when there is only one ranking.
        rankings: the number R of rankings.

    >>> lists = split_by_label(np.array([0.1, 0.9, 0.5]), np.array([1, 0, 1], np.uint8), np.empty(0, np.int64), 1)
    >>> lists.positives.tolist(), lists.negatives.tolist()
    ([0.5, 0.1], [0.9])
    """
    if rankings == 1:
        positive_start = np.array([0, np.count_nonzero(labels == POSITIVE)])
        negative_start = np.array([0, np.count_nonzero(labels == NEGATIVE)])
    else:
        positive_start, negative_start = _starts(labels, owner, rankings)
    lists = TwoLists(
        positives=np.empty(positive_start[-1]),
        negatives=np.empty(negative_start[-1]),
        positive_index=np.empty(positive_start[-1], np.int64),
        negative_index=np.empty(negative_start[-1], np.int64),
        positive_start=positive_start,
        negative_start=negative_start,
    )
    packed = scores.dtype == np.float32 and len(scores) < 2**31
    if packed:
        keys = _pack(scores, labels, positive_start[-1] + negative_start[-1])
        keys.sort()
    else:
        keys = np.argsort(-scores).view(np.uint64)
    _distribute(keys, packed, scores, labels, owner, positive_start[:-1].copy(), negative_start[:-1].copy(), *lists[:4])
    return lists


@kernel
def _starts(labels, owner, rankings):
    """Return where each ranking begins in the lists of positives and of negatives, each ``(R + 1,)``."""
    positive_start = np.zeros(rankings + 1, np.int64)
    negative_start = np.zeros(rankings + 1, np.int64)
    for i in range(len(labels)):
        if labels[i] == POSITIVE:
            positive_start[owner[i] + 1] += 1
        elif labels[i] == NEGATIVE:
            negative_start[owner[i] + 1] += 1
    for r in range(rankings):
        positive_start[r + 1] += positive_start[r]
        negative_start[r + 1] += negative_start[r]
    return positive_start, negative_start


@kernel
def _pack(scores, labels, count):
    """Return one uint64 key for each of the ``count`` samples that are not ignored, ascending where the score descends.

    The upper 32 bits are the score, order reversed; below them 1 bit of label and 31 bits of index.
    """
    keys = np.empty(count, np.uint64)
    # Adding zero turns -0.0 into 0.0: the two are one score, so they must be one key.
    bits = (scores + np.float32(0.0)).view(np.uint32)
    filled = 0
    for i in range(len(scores)):
        if labels[i] != IGNORED:
            keys[filled] = (np.uint64(_flip(bits[i])) << np.uint64(32)) | (np.uint64(labels[i]) << np.uint64(31)) | np.uint64(i)
            filled += 1
    return keys


@kernel
def _flip(word):
    """Map the bits of a float to an integer of reversed order, or back: the map is its own inverse."""
    return word if word & np.uint32(0x80000000) else np.uint32(0x7FFFFFFF) - word


@kernel
def _distribute(
    keys, packed, scores, labels, owner, next_positive, next_negative, positives, negatives, positive_index, negative_index
):
    """Append each sample to its list, in the order of the sorted keys.

    Args:
        keys: of :func:`_pack`, or indices of samples; uint64, read.
        packed: whether the keys are packed.
        scores: of all samples, ``(n,)``, read.
        labels: of all samples, uint8 ``(n,)``, read.
        owner: ranking of each sample, int64 ``(n,)`` or empty, read.
        next_positive: where the next positive of each ranking goes, int64 ``(R,)``, overwritten.
        next_negative: the same for negatives.
        positives: as in :class:`TwoLists`, written, like the three arguments below.
        negatives: see there.
        positive_index: see there.
        negative_index: see there.
    """
    for key in keys:
        if packed:
            # Unpacking saves two random reads per sample, which would cost more than the sort.
            i = np.int64(key & np.uint64(0x7FFFFFFF))
            score = np.float64(np.uint32(_flip(np.uint32(key >> np.uint64(32)))).view(np.float32))
            label = np.uint8((key >> np.uint64(31)) & np.uint64(1))
        else:
            i = np.int64(key)
            score = np.float64(scores[i])
            label = labels[i]
        ranking = owner[i] if len(owner) > 0 else 0
        if label == POSITIVE:
            slot = next_positive[ranking]
            positives[slot] = score
            positive_index[slot] = i
            next_positive[ranking] = slot + 1
        elif label == NEGATIVE:
            slot = next_negative[ranking]
            negatives[slot] = score
            negative_index[slot] = i
            next_negative[ranking] = slot + 1
