r"""Probabilities of the counts of positives in a tied group, all orders of the group being equally likely.

In a group of p positives and n negatives, the k-th positive has j negatives of the group above it with probability

.. math:: \binom{k - 1 + j}{j} \binom{p - k + n - j}{n - j} \Big/ \binom{p + n}{n}.

The binomials overflow. So the probabilities of each positive are computed relative to a j near the mean, by ratios of
neighbours, outward until they are negligible. A positive that is tied with no negative has ``j = 0`` only.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel

# Relative to the probability near the mean; a million of these are below the last bit of a sum.
_NEGLIGIBLE = 1e-22


@kernel
def ranks_in_groups(lists):
    """Return the rank k of each positive among the positives of its score, from 1, and the number p of these, int64 each."""
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
def likely_counts(k, p, n):
    """Return the least and the greatest j of each positive whose probability is not negligible; all arrays int64 ``(P,)``."""
    least = np.empty(len(k), np.int64)
    greatest = np.empty(len(k), np.int64)
    for i in range(len(k)):
        start = _near_mean(k[i], p[i], n[i])
        low, relative = start, 1.0
        while low > 0 and relative > _NEGLIGIBLE:
            low -= 1
            relative /= _ratio(k[i], p[i], n[i], low)
        high, relative = start, 1.0
        while high < n[i] and relative > _NEGLIGIBLE:
            relative *= _ratio(k[i], p[i], n[i], high)
            high += 1
        least[i], greatest[i] = low, high
    return least, greatest


@kernel
def count_probabilities(k, p, n, least, greatest):
    """Return the probabilities of ``j = least..greatest`` of each positive in turn, float64; the arguments are int64 ``(P,)``."""
    result = np.empty(np.sum(greatest - least + 1), np.float64)
    end = 0
    for i in range(len(k)):
        begin, end = end, end + greatest[i] - least[i] + 1
        start = _near_mean(k[i], p[i], n[i]) - least[i]
        probabilities = result[begin:end]
        probabilities[start] = 1.0
        for j in range(start - 1, -1, -1):
            probabilities[j] = probabilities[j + 1] / _ratio(k[i], p[i], n[i], least[i] + j)
        for j in range(start + 1, len(probabilities)):
            probabilities[j] = probabilities[j - 1] * _ratio(k[i], p[i], n[i], least[i] + j - 1)
        probabilities /= probabilities.sum()
    return result


@inner_kernel
def _near_mean(k, p, n):
    """Return the mean of j, rounded down."""
    return k * n // (p + 1)


@kernel
def _ratio(k, p, n, j):
    """Return the probability of j + 1 divided by that of j."""
    return ((k + j) / (j + 1)) * ((n - j) / (p - k + n - j))
