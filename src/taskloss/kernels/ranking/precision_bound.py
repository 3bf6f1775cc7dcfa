r"""Loss-augmented inference for recall at a precision: the last positive down to which the precision still holds.

At precision p, the first k positives are retrieved in time when at most ``B_k = floor(k (1 - p)/p)`` negatives stand above the
k-th. The metric is the largest such k.

- *Positive update* (the metric falls to k): every row after k must have ``c_i >= B_i + 1``. Each row pays for itself,
  ``sum_{c0_i < j <= B_i + 1} (s_i - t_j)``, so the cost of k is a sum over the rows after it. Rows with ``B_i >= N`` always hold.
- *Negative update* (the metric rises to k): the rows up to k go down to at most ``B_k``, at the cost of
  ``sum_{i <= k} sum_{B_k < j <= c0_i} (t_j - s_i)``.

Sums over ranges of the negatives come from prefix sums that start at the middle score, so that an extreme score only touches
the ranges that contain it.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel


@kernel
def holding_bounds(positives, ratio):
    """``B_k`` for k = 1..positives; ``ratio`` is ``(1 - p)/p``. A little is added lest rounding lose a whole number."""
    bounds = np.empty(positives, np.int64)
    for i in range(positives):
        bounds[i] = np.int64(np.floor((i + 1) * ratio + 1e-9))
    return bounds


@kernel
def last_holding(counts, bounds):
    """The metric: the largest k with ``c_k <= B_k``, zero if there is none."""
    for k in range(len(counts), 0, -1):
        if counts[k - 1] <= bounds[k - 1]:
            return k
    return 0


@kernel
def augment_precision_bound(lists, above, at_or_above, ratio, pull):
    """Least and greatest maximizing counts; each k of the metric is worth ``-pull`` (either sign), of shape ``(R,)``."""
    least = above.copy()
    greatest = at_or_above.copy()
    for r in range(len(pull)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        s = lists.positives[rows]
        t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        if len(s) == 0 or len(t) == 0:
            continue
        bounds = holding_bounds(len(s), ratio)
        if pull[r] > 0:
            many, few = _best_lower(s, t, above[rows], bounds, pull[r])
            for i in range(len(s)):
                if i >= many:
                    least[rows][i] = max(least[rows][i], min(bounds[i] + 1, len(t)))
                if i >= few:
                    greatest[rows][i] = max(greatest[rows][i], min(bounds[i] + 1, len(t)))
        else:
            many, few = _best_higher(s, t, at_or_above[rows], bounds, -pull[r])
            for i in range(len(s)):
                if i < many:
                    least[rows][i] = min(least[rows][i], bounds[many - 1])
                if i < few:
                    greatest[rows][i] = min(greatest[rows][i], bounds[few - 1])
    return least, greatest


@kernel
def _best_lower(s, t, natural, bounds, reward):
    """The largest and the smallest best k at or below the natural one."""
    sums = _prefix_from_middle(t)
    k = last_holding(natural, bounds)
    best = value = 0.0
    many = few = k
    cost = 0.0
    for i in range(len(s) - 1, -1, -1):
        if bounds[i] >= len(t):
            break
        if bounds[i] + 1 > natural[i]:
            cost += (bounds[i] + 1 - natural[i]) * (s[i] - t[len(t) // 2]) - (sums[bounds[i] + 1] - sums[natural[i]])
        if i < k:
            value = reward * (k - i) - cost
            if value > best:
                best, many = value, i
            if value >= best:
                few = i
    return many, few


@kernel
def _best_higher(s, t, natural, bounds, reward):
    """The largest and the smallest best k at or above the natural one."""
    sums = _prefix_from_middle(t)
    middle = t[len(t) // 2]
    natural_k = last_holding(natural, bounds)
    best = 0.0
    many = few = natural_k
    first = 0
    # Over the rows first..k: their own sums of negatives and scores, both measured from the middle.
    own = score_sum = 0.0
    for i in range(len(s)):
        own += sums[natural[i]] - natural[i] * (s[i] - middle)
        score_sum += s[i] - middle
        bound = min(bounds[i], len(t))
        while first <= i and natural[first] <= bound:
            own -= sums[natural[first]] - natural[first] * (s[first] - middle)
            score_sum -= s[first] - middle
            first += 1
        if i + 1 > natural_k:
            cost = own - (i + 1 - first) * sums[bound] + bound * score_sum
            value = reward * (i + 1 - natural_k) - cost
            if value > best:
                best, few = value, i + 1
            if value >= best:
                many = i + 1
    return many, few


@kernel
def _prefix_from_middle(t):
    """``sums[c] = sum_{j <= c} (t_j - middle)`` up to a constant, built outward from the middle score."""
    sums = np.zeros(len(t) + 1)
    centre = len(t) // 2
    middle = t[centre]
    for c in range(centre, len(t)):
        sums[c + 1] = sums[c] + (t[c] - middle)
    for c in range(centre - 1, -1, -1):
        sums[c] = sums[c + 1] - (t[c] - middle)
    return sums


@kernel
def holding(lists, counts, ratio):
    """The metric of each ranking, shape ``(R,)``."""
    result = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(result)):
        mine = counts[lists.positive_start[r] : lists.positive_start[r + 1]]
        result[r] = last_holding(mine, holding_bounds(len(mine), ratio))
    return result
