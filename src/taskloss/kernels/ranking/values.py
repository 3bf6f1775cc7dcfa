"""Values of ranking metrics for the prediction, ties included; results are float64 ``(R,)``, one value per ranking.

Samples with equal scores form a group. For metrics of a decision threshold (average precision, precision at a recall, recall at
a precision or at a false positive rate) a group is retrieved together, as in scikit-learn's curves. Metrics of ranks (NDCG,
precision and recall at k) and areas take the mean over the orders of the group. The reciprocal rank takes its worst order.

``lists`` are those of R rankings; ``above`` and ``at_or_above`` the counts of the prediction, int64 ``(positives,)``.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel
from taskloss.kernels.ranking.precision_bound import holding_bounds
from taskloss.kernels.ranking.terms import discount


@inner_kernel
def _group_end(positives, first, stop):
    """Return one past the last positive, before ``stop``, whose score equals that of ``first``."""
    end = first + 1
    while end < stop and positives[end] == positives[first]:
        end += 1
    return end


@kernel
def average_precision(lists, at_or_above, relevant, cut):
    """Return the mean precision at the scores of the relevant items, float64 ``(R,)``.

    Each positive has the precision at the end of its group; a group that ends beyond rank ``cut`` counts nothing. ``relevant``
    are the relevant items of each ranking, missing ones included, float64 ``(R,)``.
    """
    result = np.zeros(len(relevant), np.float64)
    for r in range(len(result)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        first = start
        while first < stop:
            end = _group_end(lists.positives, first, stop)
            retrieved = end - start
            if retrieved + at_or_above[first] <= cut:
                result[r] += (end - first) * (retrieved / (retrieved + at_or_above[first]))
            first = end
        result[r] /= min(relevant[r], cut)
    return result


@kernel
def ndcg(lists, above, at_or_above, scale, cut):
    """Return the sum of the discounts of the positives' ranks up to ``cut``, multiplied by ``scale[r]``.

    Each member of a group has its mean discount.
    """
    result = np.zeros(len(lists.positive_start) - 1, np.float64)
    for r in range(len(result)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        first = start
        while first < stop:
            end = _group_end(lists.positives, first, stop)
            top = first - start + above[first] + 1
            bottom = end - start + at_or_above[first]
            total = 0.0
            for rank in range(top, min(bottom, cut) + 1):
                total += discount(np.float64(rank))
            result[r] += (end - first) * (total / (bottom - top + 1))
            first = end
        result[r] *= scale[r]
    return result


@kernel
def inverse_entries(table, indices):
    """Return one over the entries of a table at ``indices``, whole numbers as float64 ``(R,)``."""
    result = np.empty(len(indices), np.float64)
    for r in range(len(indices)):
        result[r] = 1.0 / table[int(indices[r])]
    return result


@kernel
def positives_in_top(lists, above, at_or_above, k):
    """Return the number of positives in the top ``k[r]`` ranks; of a group cut by rank k a proportional part counts."""
    result = np.zeros(len(lists.positive_start) - 1, np.float64)
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
    """Return the number of positives with at most ``bound[r]`` negatives at or above them."""
    result = np.zeros(len(lists.positive_start) - 1, np.float64)
    for r in range(len(result)):
        for i in range(lists.positive_start[r], lists.positive_start[r + 1]):
            result[r] += at_or_above[i] <= bound[r]
    return result


@kernel
def precision_at_positive(lists, at_or_above, row):
    """Return the precision when the positive ``row[r]`` (from 1) and its group are retrieved; zero if there are fewer."""
    result = np.zeros(len(lists.positive_start) - 1, np.float64)
    for r in range(len(result)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        i = start + row[r] - 1
        if i < stop:
            retrieved = _group_end(lists.positives, i, stop) - start
            result[r] = retrieved / (retrieved + at_or_above[i])
    return result


@kernel
def positives_at_precision(lists, at_or_above, ratio):
    """Return the most positives that a threshold retrieves at a precision of at least p; ``ratio = (1 - p)/p``."""
    result = np.zeros(len(lists.positive_start) - 1, np.float64)
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
