r"""A ranking as counts: features, joint scores and values of interleavings of two sorted lists.

With positives ``s_1 >= ... >= s_P`` and negatives ``t_1 >= ... >= t_N`` only the interleavings of the two lists can be optimal
answers (Yue et al. 2007), so a ranking is ``c_1 <= ... <= c_P``, where ``c_i`` counts the negatives above the i-th positive. The
paper's pairwise joint score ``F = 1/(P N) sum_{i,j} y_ij (s_i - t_j)`` becomes

.. math::
    F(c) &= F(0) + \tfrac{2}{PN} \sum_i \sum_{j \le c_i} (t_j - s_i) \\
    \psi(\text{positive } i) &= (N - 2 c_i) / (P N) \\
    \psi(\text{negative } j) &= -(P - 2\, \#\{i : c_i \ge j\}) / (P N).

Ties: the answers that maximize a separable objective over nondecreasing counts form a lattice. The feature of an answer is the
mean of the features of its least and its greatest element, then averaged over samples of equal label and equal score. An answer
is therefore a pair of count vectors throughout.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel


@kernel
def natural_counts(lists):
    """The prediction: for each positive the negatives scored strictly above it, and those scored at or above it."""
    above = np.empty(len(lists.positives), np.int64)
    at_or_above = np.empty(len(lists.positives), np.int64)
    for r in range(len(lists.positive_start) - 1):
        begin, end = lists.negative_start[r], lists.negative_start[r + 1]
        higher = begin
        not_lower = begin
        for i in range(lists.positive_start[r], lists.positive_start[r + 1]):
            score = lists.positives[i]
            while higher < end and lists.negatives[higher] > score:
                higher += 1
            not_lower = max(not_lower, higher)
            while not_lower < end and lists.negatives[not_lower] >= score:
                not_lower += 1
            above[i] = higher - begin
            at_or_above[i] = not_lower - begin
    return above, at_or_above


@kernel
def score_difference(lists, counts, reference):
    """``F(counts) - F(reference)`` of each ranking, shape ``(R,)``; zero where a list is empty."""
    result = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(result)):
        s = lists.positives[lists.positive_start[r] : lists.positive_start[r + 1]]
        t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        if len(s) > 0 and len(t) > 0:
            rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
            result[r] = 2.0 * (_excess(s, t, counts[rows]) / len(s) - _excess(s, t, reference[rows]) / len(s)) / len(t)
    return result


@kernel
def _excess(s, t, counts):
    """``sum_i sum_{j <= c_i} (t_j - s_i)``, carried from row to row so that only differences of scores are ever added."""
    total = 0.0
    row = 0.0
    passed = 0
    for i in range(len(s)):
        if i > 0:
            row += passed * (s[i - 1] - s[i])
        while passed < counts[i]:
            row += t[passed] - s[i]
            passed += 1
        total += row
    return total


@kernel
def write_feature_difference(lists, least, greatest, reference_least, reference_greatest, factor, out):
    """``factor[r] * (psi(answer) - psi(reference))``, written to the samples' places in the flat array ``out``.

    The counts are summed as integers before the one division, so equal samples get bit-equal numbers in any order of the input.
    """
    for r in range(len(lists.positive_start) - 1):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        begin, end = lists.negative_start[r], lists.negative_start[r + 1]
        if start == stop or begin == end:
            continue
        unit = factor[r] / (stop - start) / (end - begin)

        # Twice the change of the counts, positive by positive; and how many counts of each size the change adds.
        added = np.zeros(end - begin + 1, np.int64)
        i = start
        while i < stop:
            first = i
            total = 0
            while i < stop and lists.positives[i] == lists.positives[first]:
                total += least[i] + greatest[i] - reference_least[i] - reference_greatest[i]
                added[least[i]] += 1
                added[greatest[i]] += 1
                added[reference_least[i]] -= 1
                added[reference_greatest[i]] -= 1
                i += 1
            value = -unit * (total / (i - first))
            for k in range(first, i):
                out[lists.positive_index[k]] = value

        # The change of #{i : c_i >= j}, twice, is minus what was added below j, since nothing was added in all.
        below = 0
        j = begin
        while j < end:
            first = j
            total = 0
            while j < end and lists.negatives[j] == lists.negatives[first]:
                below += added[j - begin]
                total -= below
                j += 1
            value = unit * (total / (j - first))
            for k in range(first, j):
                out[lists.negative_index[k]] = value


@kernel
def average_precision(lists, at_or_above, k):
    """``sum_i precision at the threshold s_i`` of each ranking (divide by the number of relevant items for AP).

    A tied group counts as retrieved together, so each of its positives has the precision at the group's end; a group that ends
    beyond rank ``k[r]`` counts nothing.
    """
    result = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(result)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        i = start
        while i < stop:
            first = i
            while i < stop and lists.positives[i] == lists.positives[first]:
                i += 1
            retrieved = i - start
            if retrieved + at_or_above[first] <= k[r]:
                result[r] += (i - first) * (retrieved / (retrieved + at_or_above[first]))
    return result
