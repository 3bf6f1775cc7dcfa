r"""Where the positives of a tied group may stand, and how likely, when all the orders of the group are equally likely.

In a group of p positives and n negatives, the k-th positive has j negatives of the group above it with probability

.. math:: \binom{k - 1 + j}{j} \binom{p - k + n - j}{n - j} \Big/ \binom{p + n}{n}.

The binomials overflow, so each positive starts near its mean and takes the ratios of neighbours outward, until they no longer
count. A positive that is tied with no negative has the one place ``j = 0``.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel

# Relative to a likely place; a million of these are below the last bit of a sum.
_NEGLIGIBLE = 1e-22


@kernel
def group_places(lists):
    """For each positive its place k among the positives of its score, from 1, and their number p."""
    k = np.empty(len(lists.positives), np.int64)
    p = np.empty(len(lists.positives), np.int64)
    for r in range(len(lists.positive_start) - 1):
        first = lists.positive_start[r]
        while first < lists.positive_start[r + 1]:
            end = first
            while end < lists.positive_start[r + 1] and lists.positives[end] == lists.positives[first]:
                k[end] = end - first + 1
                end += 1
            p[first:end] = end - first
            first = end
    return k, p


@kernel
def likely_places(k, p, n):
    """The least and the greatest j of each positive that count."""
    least = np.empty(len(k), np.int64)
    greatest = np.empty(len(k), np.int64)
    for i in range(len(k)):
        start = _start(k[i], p[i], n[i])
        left, weight = start, 1.0
        while left > 0 and weight > _NEGLIGIBLE:
            left -= 1
            weight /= _ratio(k[i], p[i], n[i], left)
        right, weight = start, 1.0
        while right < n[i] and weight > _NEGLIGIBLE:
            weight *= _ratio(k[i], p[i], n[i], right)
            right += 1
        least[i], greatest[i] = left, right
    return least, greatest


@kernel
def place_probabilities(k, p, n, least, greatest):
    """The probabilities of ``j = least..greatest``, those of one positive after those of another."""
    result = np.empty(np.sum(greatest - least + 1))
    end = 0
    for i in range(len(k)):
        begin, end = end, end + greatest[i] - least[i] + 1
        start = _start(k[i], p[i], n[i]) - least[i]
        mine = result[begin:end]
        mine[start] = 1.0
        for j in range(start - 1, -1, -1):
            mine[j] = mine[j + 1] / _ratio(k[i], p[i], n[i], least[i] + j)
        for j in range(start + 1, len(mine)):
            mine[j] = mine[j - 1] * _ratio(k[i], p[i], n[i], least[i] + j - 1)
        mine /= mine.sum()
    return result


@kernel
def _start(k, p, n):
    """A likely j: the mean, rounded down."""
    return k * n // (p + 1)


@kernel
def _ratio(k, p, n, j):
    """The probability of j + 1 over that of j."""
    return ((k + j) / (j + 1)) * ((n - j) / (p - k + n - j))
