"""What a metric says of the prediction, ties included; each result has shape ``(R,)``, one value a ranking.

Samples with equal scores are one group. Metrics of a decision threshold (average precision, precision at a recall, recall at a
precision or at a false positive rate) see a group retrieved together, as scikit-learn's curves do. Metrics of ranks (NDCG,
precision and recall at k) and areas take the mean over the orders of the group. The reciprocal rank takes its worst order.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ranking.precision_bound import holding_bounds
from taskloss.kernels.ranking.terms import discount


@kernel
def _group_end(positives, first, stop):
    """One past the last positive whose score equals that of ``first``."""
    end = first + 1
    while end < stop and positives[end] == positives[first]:
        end += 1
    return end


@kernel
def discounted_gain(lists, above, at_or_above, k):
    """The sum of the discounts of the positives' ranks up to ``k[r]``, the mean discount of a group for each of its members."""
    result = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(result)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        first = start
        while first < stop:
            end = _group_end(lists.positives, first, stop)
            top = first - start + above[first] + 1
            bottom = end - start + at_or_above[first]
            total = 0.0
            for rank in range(top, min(bottom, k[r]) + 1):
                total += discount(np.float64(rank))
            result[r] += (end - first) * (total / (bottom - top + 1))
            first = end
    return result


@kernel
def positives_in_top(lists, above, at_or_above, k):
    """How many positives the top ``k[r]`` ranks hold; a group cut by rank k counts in proportion."""
    result = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(result)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        first = start
        while first < stop:
            end = _group_end(lists.positives, first, stop)
            top = first - start + above[first] + 1
            size = end - first + at_or_above[first] - above[first]
            inside = min(max(k[r] - top + 1, 0), size)
            result[r] += (end - first) * (inside / size)
            first = end
    return result


@kernel
def positives_above_bound(lists, at_or_above, bound):
    """How many positives have at most ``bound[r]`` negatives at or above them."""
    result = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(result)):
        for i in range(lists.positive_start[r], lists.positive_start[r + 1]):
            result[r] += at_or_above[i] <= bound[r]
    return result


@kernel
def precision_at_positive(lists, at_or_above, row):
    """The precision when the positive number ``row[r]`` (from 1) and its group are retrieved; zero beyond the positives."""
    result = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(result)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        i = start + row[r] - 1
        if i < stop:
            retrieved = _group_end(lists.positives, i, stop) - start
            result[r] = retrieved / (retrieved + at_or_above[i])
    return result


@kernel
def positives_at_precision(lists, at_or_above, ratio):
    """The most positives that a threshold retrieves at a precision p, ``ratio = (1 - p)/p``."""
    result = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(result)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        bounds = holding_bounds(stop - start, ratio)
        first = start
        while first < stop:
            end = _group_end(lists.positives, first, stop)
            if at_or_above[first] <= bounds[end - start - 1]:
                result[r] = end - start
            first = end
    return result
