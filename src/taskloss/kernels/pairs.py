r"""Sums over all pairs of a positive and a negative by walking two sorted lists; no pair is ever formed.

With positives ``s``, negatives ``t`` (both falling), ``gap = s_i - t_j`` and a margin e > 0, the sums of a ranking are

.. math:: \text{hinge} = \sum_{ij} (e - \mathrm{gap})_+ , \qquad \text{ramp} = \sum_{ij} \mathrm{clip}(e - \mathrm{gap}, 0, e) .

A pair takes part when ``gap < e``: for positive i these are the first ``reach_i`` negatives, a count that rises as the positives
fall. The ramp leaves out the first ``wrong_i`` of them, those with ``gap < 0``, which cost e each and have no slope. A pair of
equal scores has the slope of the pairs that are barely right, so that constant scores can train.

The sum over the negatives that take part is carried from one positive to the next: as the score falls by ``d``, each term grows
by d. Only terms of one sign are added for the hinge; for the ramp a term leaves at its own value, at most e, before
the others move. So one huge score does not wipe out the others.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel
from taskloss.kernels.sort import TwoLists


def pair_losses(lists: TwoLists, margin: float, ramp: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sum over pairs of each ranking, ``(R,)``, and the counts ``wrong`` and ``reach`` of each positive (wrong 0: hinge).

    >>> from taskloss.kernels.sort import split_by_label
    >>> scores, labels = np.array([0.5, 0.0, 2.0]), np.array([1, 0, 0], np.uint8)
    >>> lists = split_by_label(scores, labels, np.empty(0, np.int64), 1)
    >>> [pair_losses(lists, 1.0, ramp)[0].item() for ramp in (False, True)]
    [3.0, 1.5]
    """
    wrong, reach = np.zeros(len(lists.positives), np.int64), np.empty(len(lists.positives), np.int64)
    return _pair_losses(lists, margin, ramp, wrong, reach), wrong, reach


@kernel
def _pair_losses(lists, margin, ramp, wrong, reach):
    sums = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(sums)):
        positives = lists.positives[lists.positive_start[r] : lists.positive_start[r + 1]]
        negatives = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        here = slice(lists.positive_start[r], lists.positive_start[r + 1])
        sums[r] = _one_ranking(positives, negatives, margin, ramp, wrong[here], reach[here])
    return sums


@inlined_kernel
def _one_ranking(positives, negatives, margin, ramp, wrong, reach):
    first = last = 0
    inside = total = 0.0
    for i in range(len(positives)):
        score = positives[i]
        if ramp:
            while first < len(negatives) and score - negatives[first] < 0.0:
                if first < last:
                    inside -= margin - (positives[i - 1] - negatives[first])
                first += 1
            last = max(last, first)
        if last > first:
            inside += (last - first) * (positives[i - 1] - score)
        else:
            inside = 0.0
        while last < len(negatives) and score - negatives[last] < margin:
            inside += margin - (score - negatives[last])
            last += 1
        total += inside + first * margin
        wrong[i], reach[i] = first, last
    return total


@kernel
def write_pair_gradients(lists, wrong, reach, factor, out):
    """``factor[r]`` times the gradient of the sums in the scores, to the places of ``out`` that the samples come from."""
    for r in range(len(lists.positive_start) - 1):
        begin, end = lists.positive_start[r], lists.positive_start[r + 1]
        for i in range(begin, end):
            out[lists.positive_index[i]] = -factor[r] * (reach[i] - wrong[i])
        # Negative j takes part in the pairs of the positives with wrong_i <= j < reach_i, and both counts rise with i.
        reached, passed = begin, begin
        for j in range(lists.negative_start[r + 1] - lists.negative_start[r]):
            while reached < end and reach[reached] <= j:
                reached += 1
            while passed < end and wrong[passed] <= j:
                passed += 1
            out[lists.negative_index[lists.negative_start[r] + j]] = factor[r] * (passed - reached)


@kernel
def class_pairs(values, target, classes, largest):
    """The scores of all pairs of classes: a sample of class k is in the ranking of (k, l) for each other class l.

    ``values`` are ``(n, K)``, ``target`` ``(n,)``. Entry ``i (K - 1) + c`` belongs to sample i and its c-th other class. The
    score of the pair a < b is ``values[a] - values[b]``, cut at plus or minus ``largest``; samples of class a are its
    positives. Returns the scores, the labels and the number of the pair.
    """
    others = classes - 1
    scores = np.empty(len(target) * others, values.dtype)
    labels, owner = np.empty(len(scores), np.uint8), np.empty(len(scores), np.int64)
    for i in range(len(target)):
        own = target[i]
        for c in range(others):
            other = c if c < own else c + 1
            a, b = min(own, other), max(own, other)
            place = i * others + c
            scores[place] = max(-largest, min(largest, values[i, a] - values[i, b]))
            labels[place] = own < other
            # Pairs are numbered (0, 1), (0, 2), ..., (1, 2), ...
            owner[place] = a * classes - (a * (a + 1)) // 2 + b - a - 1
    return scores, labels, owner


@kernel
def sum_class_pairs(gradient, target, classes):
    """The gradient in ``values`` of :func:`class_pairs` from that in its scores."""
    others = classes - 1
    result = np.zeros((len(target), classes), gradient.dtype)
    for i in range(len(target)):
        own = target[i]
        for c in range(others):
            other = c if c < own else c + 1
            part = gradient[i * others + c]
            result[i, min(own, other)] += part
            result[i, max(own, other)] -= part
    return result
