"""Sorting: scores to two descending lists a ranking, positives and negatives.

Sorting is the floor under every ranking loss. A float32 score and its position fit into one 64-bit integer (order-preserving
bits of the score above, the position below), and numpy sorts such integers many times faster than any sort that
has to carry a permutation along.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import kernel

NEGATIVE, POSITIVE, IGNORED = 0, 1, 2


class TwoLists(NamedTuple):
    """The samples of R rankings, split by label; within a ranking from the highest score to the lowest.

    Ranking ``r`` owns ``positives[positive_start[r]:positive_start[r + 1]]``, and likewise its negatives. The ``*_index``
    arrays say where each sample stands in the flat input.
    """

    positives: np.ndarray
    negatives: np.ndarray
    positive_index: np.ndarray
    negative_index: np.ndarray
    positive_start: np.ndarray
    negative_start: np.ndarray

    def positive_counts(self) -> np.ndarray:
        """Positives of each ranking, shape ``(R,)``."""
        return self.positive_start[1:] - self.positive_start[:-1]

    def negative_counts(self) -> np.ndarray:
        """Negatives of each ranking, shape ``(R,)``."""
        return self.negative_start[1:] - self.negative_start[:-1]


def split_by_label(scores: np.ndarray, labels: np.ndarray, owner: np.ndarray, rankings: int) -> TwoLists:
    """Sort flat ``scores`` and deal them out to the two lists of each ranking.

    One sort serves all the rankings: dealing the sorted samples out in order keeps each list sorted.

    Parameters: ``scores`` float32 or float64, ``labels`` uint8 (``NEGATIVE``, ``POSITIVE`` or ``IGNORED``), ``owner`` int64, the
    ranking of each sample (empty when there is only one ranking); all of shape ``(n,)``.

    >>> lists = split_by_label(np.array([0.1, 0.9, 0.5]), np.array([1, 0, 1], np.uint8), np.empty(0, np.int64), 1)
    >>> lists.positives.tolist(), lists.negatives.tolist()
    ([0.5, 0.1], [0.9])
    """
    if rankings == 1:
        positive_start = np.array([0, np.count_nonzero(labels == POSITIVE)])
        negative_start = np.array([0, np.count_nonzero(labels == NEGATIVE)])
    else:
        positive_start, negative_start = _count(labels, owner, rankings)
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
    _deal(keys, packed, scores, labels, owner, positive_start[:-1].copy(), negative_start[:-1].copy(), *lists[:4])
    return lists


@kernel
def _count(labels, owner, rankings):
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
def _pack(scores, labels, kept):
    """One integer a sample that is not ignored: the score's bits so that a higher score is a lower number, label, position."""
    keys = np.empty(kept, np.uint64)
    # Adding zero turns -0.0 into 0.0: the two are one score, so they must be one key.
    bits = (scores + np.float32(0.0)).view(np.uint32)
    place = 0
    for i in range(len(scores)):
        if labels[i] != IGNORED:
            keys[place] = (np.uint64(_flip(bits[i])) << np.uint64(32)) | (np.uint64(labels[i]) << np.uint64(31)) | np.uint64(i)
            place += 1
    return keys


@kernel
def _flip(word):
    """Float bits to an order-reversing integer and back: the map is its own inverse."""
    return word if word & np.uint32(0x80000000) else np.uint32(0x7FFFFFFF) - word


@kernel
def _deal(
    keys, packed, scores, labels, owner, next_positive, next_negative, positives, negatives, positive_index, negative_index
):
    """Walk the sorted keys (packed, or plain positions) and append each sample to its list."""
    for key in keys:
        if packed:
            # Unpacking spares the walk two random reads a sample, which would cost more than the sort.
            i = np.int64(key & np.uint64(0x7FFFFFFF))
            score = np.float64(np.uint32(_flip(np.uint32(key >> np.uint64(32)))).view(np.float32))
            label = np.uint8((key >> np.uint64(31)) & np.uint64(1))
        else:
            i = np.int64(key)
            score = np.float64(scores[i])
            label = labels[i]
        ranking = owner[i] if len(owner) > 0 else 0
        if label == POSITIVE:
            place = next_positive[ranking]
            positives[place] = score
            positive_index[place] = i
            next_positive[ranking] = place + 1
        elif label == NEGATIVE:
            place = next_negative[ranking]
            negatives[place] = score
            negative_index[place] = i
            next_negative[ranking] = place + 1
