r"""A ranking as counts: features and joint scores of interleavings of two sorted lists.

With positives ``s_1 >= ... >= s_P`` and negatives ``t_1 >= ... >= t_N`` only the interleavings of the two lists can be optimal
answers (Yue et al. 2007), so a ranking is ``c_1 <= ... <= c_P``, where the *count* ``c_i`` is the number of negatives above the
i-th positive, which therefore has the rank ``i + c_i``. The paper's pairwise joint score ``F = 1/(P N) sum_{i,j} y_ij (s_i -
t_j)`` becomes

.. math::
    F(c) &= F(0) + \tfrac{2}{PN} \sum_i \sum_{j \le c_i} (t_j - s_i) \\
    \psi(\text{positive } i) &= (N - 2 c_i) / (P N) \\
    \psi(\text{negative } j) &= -(P - 2\, \#\{i : c_i \ge j\}) / (P N).

**Ties.** The answers that maximize a separable objective over nondecreasing counts form a lattice. The feature of an answer is
the mean of the features of the least and the greatest maximizer, then averaged over samples of equal label and equal score. An
answer is therefore a pair of count vectors throughout. That of the prediction, the *natural* counts ``c0_i``, is ``#{j : t_j >
s_i}`` (``above``) and ``#{j : t_j >= s_i}`` (``at_or_above``).

**The solvers' contract.** Loss-augmented inference maximizes ``F + w L``, or ``F - w M`` with the metric ``M = 1 - L``. Let
``M = scale * M'``, with ``M'`` free of constant factors (for AP the sum of the precisions). Times ``P N / 2`` and up to a
constant, the objective is

.. math:: \sum_i \sum_{j \le c_i} (t_j - s_i) - \text{loss\_weight} \cdot M'(c), \qquad
          \text{loss\_weight} = w \cdot \text{scale} \cdot P N / 2.

The positive update has a positive weight and lets negatives rise; the negative update has a negative weight and lets positives
rise. Every ``augment_*`` function takes the :class:`~taskloss.kernels.sort.TwoLists` of R rankings and ``loss_weight`` of shape
``(R,)``, reads its arguments only, and returns the least and the greatest maximizing counts, int64 of shape ``(positives,)``
each; in the flat list of all positives, those of one ranking follow those of another. In derivations and kernels, *row* i is
the i-th positive of a ranking (i from 1 in formulas, ``row`` from 0 in code), and a *cell* is a row with a count.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel
from taskloss.kernels.sort import scores_of


@kernel
def natural_counts(lists):
    """Return the counts of the prediction: the negatives scored above each positive, and those at or above it, int64 each."""
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
    """Return ``F(counts) - F(reference)`` of each ranking, float64 ``(R,)``; zero where a list is empty."""
    result = np.zeros(len(lists.positive_start) - 1, np.float64)
    for r in range(len(result)):
        s, t = scores_of(lists, r)
        if len(s) > 0 and len(t) > 0:
            rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
            result[r] = 2.0 * (_excess(s, t, counts[rows]) / len(s) - _excess(s, t, reference[rows]) / len(s)) / len(t)
    return result


@inner_kernel
def _excess(s, t, counts):
    """Return ``sum_i sum_{j <= c_i} (t_j - s_i)``, carried from row to row so that only differences of scores are ever added."""
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
    """Write ``factor[r] * (psi(answer) - psi(reference))`` to the samples' entries of the flat array ``out``.

    The counts are summed as integers before the one division, so equal samples get bit-equal values in any order of the input.

    Args:
        lists: the samples of R rankings, read; a ranking with an empty list is left out.
        least: least counts of the answer, int64 ``(positives,)``, read.
        greatest: greatest counts of the answer, likewise.
        reference_least: least counts of the reference, likewise.
        reference_greatest: greatest counts of the reference, likewise.
        factor: float64 ``(R,)``, read.
        out: floats, one entry per sample of the input; entries of samples in ``lists`` are written.
    """
    for r in range(len(lists.positive_start) - 1):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        begin, end = lists.negative_start[r], lists.negative_start[r + 1]
        if start == stop or begin == end:
            continue
        unit = factor[r] / (stop - start) / (end - begin)

        # ``total`` is twice the change of the counts of a tied group, ``added[c]`` that of the number of counts equal to c.
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

        # Twice the change of #{i : c_i >= j} is minus what was added below j, since ``added`` sums to zero.
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
