"""Sorting: one list of positives and one of negatives per ranking, each from the highest score to the lowest.

Sorting bounds the speed of every ranking loss from below. A float32 score and the index of its sample fit into one 64-bit integer
(order-preserving bits of the score above, the index below), and numpy sorts such integers many times faster than any sort
that has to carry a permutation along.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inlined_kernel, inner_kernel, kernel

NEGATIVE, POSITIVE, IGNORED = 0, 1, 2

MANY_SAMPLES = 1024
"""From here on numpy's sort is the fastest. For fewer samples calls take longer than the work: kernels sort by themselves."""


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


@inner_kernel
def sort_few(values):
    """Sort a short array in place by Shell's method, with the gaps of Ciura 2001.

    It is as fast as numba's quicksort up to a thousand values, and compiles in a fraction of its time.
    """
    for gap in (301, 132, 57, 23, 10, 4, 1):
        for i in range(gap, len(values)):
            value = values[i]
            k = i
            while k >= gap and values[k - gap] > value:
                values[k] = values[k - gap]
                k -= gap
            values[k] = value


@kernel
def read_labels(target, ignore, ignored):
    """Return labels, uint8 ``(n,)``, and whether every target is 0, 1 or ignored.

    Args:
        target: array ``(n,)`` of any real type.
        ignore: whether targets equal to ``ignored`` are left out.
        ignored: a whole number.
    """
    labels = np.empty(len(target), np.uint8)
    known = True
    for i in range(len(target)):
        if ignore and target[i] == ignored:
            labels[i] = IGNORED
        else:
            labels[i] = target[i] == 1
            known &= (target[i] == 1) | (target[i] == 0)
    return labels, known


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
    packed = scores.dtype == np.float32 and len(scores) < 2**31
    keys, *starts = pack(scores, labels, owner, rankings, packed)
    if packed:
        keys.sort()
    else:
        keys = np.argsort(-scores).view(np.uint64)
    return TwoLists(*deal(keys, packed, scores, labels, owner, *starts), *starts)


@kernel
def pack(scores, labels, owner, rankings, packed):
    """Return the sort keys of the samples that are not ignored, and where the two lists of each ranking begin.

    Args:
        scores: float32 ``(n,)``, or float64 if not ``packed``.
        labels: uint8 ``(n,)``.
        owner: the ranking of each sample, int64 ``(n,)``; empty when there is only one ranking.
        rankings: the number R of rankings.
        packed: whether keys are wanted; otherwise there are none.

    Returns:
        Keys, uint64, ascending where the score descends: the upper 32 bits are the score, order reversed; below them 1 bit of
        label and 31 bits of index. The starts of the lists of positives and of negatives, int64 ``(R + 1,)`` each.
    """
    positive_start, negative_start = np.zeros(rankings + 1, np.int64), np.zeros(rankings + 1, np.int64)
    for i in range(len(labels)):
        r = owner[i] if len(owner) > 0 else 0
        positive_start[r + 1] += labels[i] == POSITIVE
        negative_start[r + 1] += labels[i] == NEGATIVE
    for r in range(rankings):
        positive_start[r + 1] += positive_start[r]
        negative_start[r + 1] += negative_start[r]
    keys = np.empty(positive_start[-1] + negative_start[-1] if packed else 0, np.uint64)
    if packed:
        kept = 0
        for i in range(len(scores)):
            if labels[i] != IGNORED:
                # Adding zero turns -0.0 into 0.0: the two are one score, so they must be one key.
                bits = np.float32(scores[i] + np.float32(0.0)).view(np.uint32)
                key = np.uint64(_reversed_bits(bits)) << np.uint64(32)
                keys[kept] = key | (np.uint64(labels[i]) << np.uint64(31)) | np.uint64(i)
                kept += 1
    return keys, positive_start, negative_start


@inlined_kernel
def _reversed_bits(word):
    """Return the bits of a float32 as an integer that falls as the float rises; the map is its own inverse."""
    return word if word & np.uint32(0x80000000) else np.uint32(0x7FFFFFFF) - word


@kernel
def deal(keys, packed, scores, labels, owner, positive_start, negative_start):
    """Append each sample to its list, in the order of the sorted keys; return the first four fields of :class:`TwoLists`.

    ``keys`` are those of :func:`pack`, or indices of samples if not ``packed``; the other arguments as there.
    """
    positives, positive_index = np.empty(positive_start[-1], np.float64), np.empty(positive_start[-1], np.int64)
    negatives, negative_index = np.empty(negative_start[-1], np.float64), np.empty(negative_start[-1], np.int64)
    next_positive, next_negative = positive_start.copy(), negative_start.copy()
    for key in keys:
        if packed:
            # Unpacking saves two random reads per sample, which would cost more than the sort.
            i = np.int64(key & np.uint64(0x7FFFFFFF))
            score = np.float64(np.uint32(_reversed_bits(np.uint32(key >> np.uint64(32)))).view(np.float32))
            label = np.uint8((key >> np.uint64(31)) & np.uint64(1))
        else:
            i = np.int64(key)
            score = np.float64(scores[i])
            label = labels[i]
        r = owner[i] if len(owner) > 0 else 0
        if label == POSITIVE:
            positives[next_positive[r]], positive_index[next_positive[r]] = score, i
            next_positive[r] += 1
        elif label == NEGATIVE:
            negatives[next_negative[r]], negative_index[next_negative[r]] = score, i
            next_negative[r] += 1
    return positives, negatives, positive_index, negative_index
