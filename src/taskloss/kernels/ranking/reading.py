"""Reading rankings: one pass that checks, counts and packs the samples, one sort, and one pass that deals them out.

A float32 score, its label and its index are packed into one 64-bit integer, as in :mod:`taskloss.kernels.sort`.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel
from taskloss.kernels.ranking.interleaving import natural_counts
from taskloss.kernels.sort import IGNORED, NEGATIVE, POSITIVE, TwoLists

_SIGN, _INDEX = np.uint32(0x80000000), np.uint64(0x7FFFFFFF)


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


def read_lists(
    scores: np.ndarray, labels: np.ndarray, owner: np.ndarray, rankings: int
) -> tuple[TwoLists, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
    """Sort the samples of R rankings and count.

    Args:
        scores: float32 or float64 ``(n,)``; of ignored samples any values.
        labels: uint8 ``(n,)``.
        owner: int64 ``(n,)``, the ranking of each sample; empty when there is only one ranking.
        rankings: R.

    Returns:
        The samples as two lists; for each of the P positives the negatives scored above it, and those scored at or above it,
        int64 ``(P,)``; the positives and the negatives of each ranking, int64 ``(R,)``; the positives, at least 1, as float64
        ``(R,)``; which rankings have both, bool ``(R,)``; whether all the scores that count are finite.
    """
    packed = scores.dtype == np.float32 and len(scores) < 2**31
    keys, positive_start, negative_start, *counts = _prepare(scores, labels, owner, rankings, packed)
    if packed:
        keys.sort()
    else:
        keys = np.argsort(-scores).view(np.uint64)
    positives, negatives, positive_index, negative_index, *above = _deal(
        keys, packed, scores, labels, owner, positive_start, negative_start
    )
    lists = TwoLists(positives, negatives, positive_index, negative_index, positive_start, negative_start)
    return lists, *above, *counts


@kernel
def _prepare(scores, labels, owner, rankings, packed):
    """Return the sort keys, where the lists of each ranking start ``(R + 1,)``, and the last five results of ``read_lists``."""
    positives, negatives = np.zeros(rankings, np.int64), np.zeros(rankings, np.int64)
    finite = True
    for i in range(len(labels)):
        if labels[i] != IGNORED:
            r = owner[i] if len(owner) > 0 else 0
            positives[r] += labels[i] == POSITIVE
            negatives[r] += labels[i] == NEGATIVE
            finite &= np.isfinite(scores[i])
    positive_start, negative_start = np.zeros(rankings + 1, np.int64), np.zeros(rankings + 1, np.int64)
    relevant, two_classes = np.empty(rankings), np.empty(rankings, np.bool_)
    for r in range(rankings):
        positive_start[r + 1] = positive_start[r] + positives[r]
        negative_start[r + 1] = negative_start[r] + negatives[r]
        relevant[r] = max(positives[r], 1)
        two_classes[r] = positives[r] > 0 and negatives[r] > 0
    keys = np.empty(positive_start[-1] + negative_start[-1] if packed else 0, np.uint64)
    if packed:
        # Adding zero turns -0.0 into 0.0: the two are one score, so they must be one key.
        bits = (scores + np.float32(0.0)).view(np.uint32)
        kept = 0
        for i in range(len(scores)):
            if labels[i] != IGNORED:
                key = np.uint64(_reversed_bits(bits[i])) << np.uint64(32)
                keys[kept] = key | (np.uint64(labels[i]) << np.uint64(31)) | np.uint64(i)
                kept += 1
    return keys, positive_start, negative_start, positives, negatives, relevant, two_classes, finite


@kernel
def pair_worths(factor, positives, negatives):
    """Return ``factor * positives * negatives`` of each ranking, float64 ``(R,)``."""
    worths = np.empty(len(positives))
    for r in range(len(positives)):
        worths[r] = factor * positives[r] * negatives[r]
    return worths


@inlined_kernel
def _reversed_bits(word):
    """Return the bits of a float32 as an integer that falls as the float rises; the map is its own inverse."""
    return word if word & _SIGN else np.uint32(0x7FFFFFFF) - word


@kernel
def _deal(keys, packed, scores, labels, owner, positive_start, negative_start):
    """Walk the sorted keys (packed, or plain indices) and append each sample to its list; return the lists and their counts."""
    positives, positive_index = np.empty(positive_start[-1]), np.empty(positive_start[-1], np.int64)
    negatives, negative_index = np.empty(negative_start[-1]), np.empty(negative_start[-1], np.int64)
    next_positive, next_negative = positive_start.copy(), negative_start.copy()
    for key in keys:
        if packed:
            # Unpacking spares the walk two random reads per sample, which would cost more than the sort.
            i = np.int64(key & _INDEX)
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
    lists = TwoLists(positives, negatives, positive_index, negative_index, positive_start, negative_start)
    above, at_or_above = natural_counts(lists)
    return positives, negatives, positive_index, negative_index, above, at_or_above
