r"""Sums over all pairs of a positive and a negative, by one walk along two sorted lists; no pair is ever formed.

With positive scores ``s_i`` and negative scores ``t_j`` (both descending), ``gap = s_i - t_j`` and a margin e > 0, the two sums
of a ranking are

.. math:: \text{hinge} = \sum_{ij} (e - \mathrm{gap})_+ , \qquad \text{ramp} = \sum_{ij} \mathrm{clip}(e - \mathrm{gap}, 0, e) .

A pair contributes when ``gap < e``. For positive i these are the pairs with the first ``reach_i`` negatives, and ``reach_i``
rises with i, as the positives descend. In the ramp, the first ``wrong_i`` of them, those with ``gap < 0``, cost e each and have
no slope; in the hinge ``wrong_i = 0``. A pair of equal scores has the slope of a pair that is barely right, so that constant
scores can train.

The sum over the negatives with a slope is carried from one positive to the next: when the positive score falls by d, each term
grows by d. The hinge adds terms of one sign only. The ramp subtracts a term at its own value, at most e, before the others grow.
So one huge score does not wipe out the digits of the others.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel
from taskloss.kernels.sort import TwoLists


def pair_sums(lists: TwoLists, margin: float, ramp: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sum over the pairs of each ranking, float64 ``(R,)``, and ``wrong`` and ``reach``, int64 ``(P,)``.

    P is the number of positives of all rankings.

    >>> from taskloss.kernels.sort import split_by_label
    >>> scores, labels = np.array([0.5, 0.0, 2.0]), np.array([1, 0, 0], np.uint8)
    >>> lists = split_by_label(scores, labels, np.empty(0, np.int64), 1)
    >>> [pair_sums(lists, 1.0, ramp)[0].item() for ramp in (False, True)]
    [3.0, 1.5]
    """
    wrong, reach = np.zeros(len(lists.positives), np.int64), np.empty(len(lists.positives), np.int64)
    return _pair_sums(lists, margin, ramp, wrong, reach), wrong, reach


@kernel
def _pair_sums(lists, margin, ramp, wrong, reach):
    """Return the sum of each ranking; write ``wrong`` and ``reach``."""
    sums = np.zeros(len(lists.positive_start) - 1, np.float64)
    for r in range(len(sums)):
        own = slice(lists.positive_start[r], lists.positive_start[r + 1])
        negatives = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        sums[r] = _sum_of_ranking(lists.positives[own], negatives, margin, ramp, wrong[own], reach[own])
    return sums


@inlined_kernel
def _sum_of_ranking(positives, negatives, margin, ramp, wrong, reach):
    """Return the sum over the pairs of one ranking; write ``wrong`` and ``reach`` of its positives."""
    # Negatives first to last - 1 have a slope; `sloped` is the sum of their terms.
    first = last = 0
    sloped = total = 0.0
    for i in range(len(positives)):
        score = positives[i]
        if ramp:
            while first < len(negatives) and score - negatives[first] < 0.0:
                if first < last:
                    sloped -= margin - (positives[i - 1] - negatives[first])
                first += 1
            last = max(last, first)
        if last > first:
            sloped += (last - first) * (positives[i - 1] - score)
        else:
            sloped = 0.0
        while last < len(negatives) and score - negatives[last] < margin:
            sloped += margin - (score - negatives[last])
            last += 1
        total += sloped + first * margin
        wrong[i], reach[i] = first, last
    return total


@kernel
def write_pair_gradients(lists, wrong, reach, factor, out):
    """Write ``factor[r]`` times the gradient of the sum of ranking r with respect to its scores.

    Args:
        lists: the :class:`TwoLists` of R rankings, read.
        wrong: int64 ``(P,)`` from :func:`pair_sums`, read.
        reach: likewise.
        factor: float64 ``(R,)``, read.
        out: flat, one element per score; written at the indices of the samples in ``lists``, else left alone.
    """
    for r in range(len(lists.positive_start) - 1):
        begin, end = lists.positive_start[r], lists.positive_start[r + 1]
        for i in range(begin, end):
            out[lists.positive_index[i]] = -factor[r] * (reach[i] - wrong[i])
        # Negative j has a slope in the pairs of the positives with wrong_i <= j < reach_i. Both rise with i, so these are the
        # positives from the first with reach_i > j up to the first with wrong_i > j.
        first, stop = begin, begin
        for j in range(lists.negative_start[r + 1] - lists.negative_start[r]):
            while first < end and reach[first] <= j:
                first += 1
            while stop < end and wrong[stop] <= j:
                stop += 1
            out[lists.negative_index[lists.negative_start[r] + j]] = factor[r] * (stop - first)
