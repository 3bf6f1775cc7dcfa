r"""Loss-augmented inference for recall at a precision: the last positive down to which the precision still holds.

The precision down to the k-th positive is at least p when ``c_k <= B_k = floor(k (1 - p)/p)``; row k then *holds*. The metric
is the largest k whose row holds, divided by P. With ``c0_i`` the natural counts:

- *Positive update* (the metric falls to k): every row after k must have ``c_i >= B_i + 1``. Each of them costs
  ``sum_{c0_i < j <= B_i + 1} (s_i - t_j)``, whatever the others do, so the cost of k is a sum over the rows after it. Rows with
  ``B_i >= N`` always hold, so k cannot fall below the last of them.
- *Negative update* (the metric rises to k): the counts of the rows up to k go down to at most ``B_k``, which costs
  ``sum_{i <= k} sum_{B_k < j <= c0_i} (t_j - s_i)``.

Sums over ranges of the negatives come from prefix sums that start at the middle score, so that an extreme score only affects
the ranges that contain it.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.kernels.sort import scores_of


@allocating_kernel
def holding_bounds(positives, ratio):
    """Return ``B_k`` for k = 1..positives, int64; ``ratio`` is ``(1 - p)/p``."""
    # 1e-9: a product that should be an integer must not be rounded down to the one before.
    bounds = np.empty(positives, np.int64)
    for i in range(positives):
        bounds[i] = np.int64(np.floor((i + 1) * ratio + 1e-9))
    return bounds


@inner_kernel
def last_holding(counts, bounds):
    """Return the largest k with ``c_k <= B_k``, zero if there is none."""
    for k in range(len(counts), 0, -1):
        if counts[k - 1] <= bounds[k - 1]:
            return k
    return 0


@kernel
def augment_precision_bound(lists, above, at_or_above, ratio, loss_weight):
    """Return the least and greatest maximizing counts for a loss weight of either sign, here that of k, the largest holding row.

    ``above`` and ``at_or_above`` are the counts of the prediction; ``ratio`` is ``(1 - p)/p``.
    """
    least = above.copy()
    greatest = at_or_above.copy()
    for r in range(len(loss_weight)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        s, t = scores_of(lists, r)
        if len(s) == 0 or len(t) == 0:
            continue
        bounds = holding_bounds(len(s), ratio)
        # A larger k means lower counts.
        if loss_weight[r] > 0:
            largest_k, smallest_k = _best_lower(s, t, above[rows], bounds, loss_weight[r])
            for i in range(len(s)):
                if i >= largest_k:
                    least[rows][i] = max(least[rows][i], min(bounds[i] + 1, len(t)))
                if i >= smallest_k:
                    greatest[rows][i] = max(greatest[rows][i], min(bounds[i] + 1, len(t)))
        else:
            largest_k, smallest_k = _best_higher(s, t, at_or_above[rows], bounds, -loss_weight[r])
            for i in range(len(s)):
                if i < largest_k:
                    least[rows][i] = min(least[rows][i], bounds[largest_k - 1])
                if i < smallest_k:
                    greatest[rows][i] = min(greatest[rows][i], bounds[smallest_k - 1])
    return least, greatest


@allocating_kernel
def _best_lower(s, t, natural, bounds, reward):
    """Return the largest and the smallest optimal k at or below that of the prediction; ``reward`` per row that k falls."""
    sums = _prefix_from_middle(t)
    natural_k = last_holding(natural, bounds)
    best = value = 0.0
    largest_k = smallest_k = natural_k
    cost = 0.0
    for i in range(len(s) - 1, -1, -1):
        if bounds[i] >= len(t):
            break
        if bounds[i] + 1 > natural[i]:
            cost += (bounds[i] + 1 - natural[i]) * (s[i] - t[len(t) // 2]) - (sums[bounds[i] + 1] - sums[natural[i]])
        if i < natural_k:
            value = reward * (natural_k - i) - cost
            if value > best:
                best, largest_k = value, i
            if value >= best:
                smallest_k = i
    return largest_k, smallest_k


@allocating_kernel
def _best_higher(s, t, natural, bounds, reward):
    """Return the largest and the smallest optimal k at or above that of the prediction; ``reward`` per row that k rises."""
    sums = _prefix_from_middle(t)
    middle = t[len(t) // 2]
    natural_k = last_holding(natural, bounds)
    best = 0.0
    largest_k = smallest_k = natural_k
    # The cost of k is a sum over the rows first..k, those with counts above B_k; scores are measured from the middle one:
    # sum_{j <= c0_i} (t_j - s_i), less the same for j <= B_k.
    first = 0
    natural_sum = score_sum = 0.0
    for i in range(len(s)):
        natural_sum += sums[natural[i]] - natural[i] * (s[i] - middle)
        score_sum += s[i] - middle
        bound = min(bounds[i], len(t))
        while first <= i and natural[first] <= bound:
            natural_sum -= sums[natural[first]] - natural[first] * (s[first] - middle)
            score_sum -= s[first] - middle
            first += 1
        if i + 1 > natural_k:
            cost = natural_sum - (i + 1 - first) * sums[bound] + bound * score_sum
            value = reward * (i + 1 - natural_k) - cost
            if value > best:
                best, smallest_k = value, i + 1
            if value >= best:
                largest_k = i + 1
    return largest_k, smallest_k


@allocating_kernel
def _prefix_from_middle(t):
    """Return ``sums[c] = sum_{j <= c} (t_j - middle)`` up to a constant, accumulated outward from the middle score."""
    sums = np.zeros(len(t) + 1, np.float64)
    centre = len(t) // 2
    middle = t[centre]
    for c in range(centre, len(t)):
        sums[c + 1] = sums[c] + (t[c] - middle)
    for c in range(centre - 1, -1, -1):
        sums[c] = sums[c + 1] - (t[c] - middle)
    return sums


@kernel
def holding(lists, counts, ratio):
    """Return the largest k whose row holds in each ranking, float64 ``(R,)``; zero if none does."""
    result = np.zeros(len(lists.positive_start) - 1, np.float64)
    for r in range(len(result)):
        rows = counts[lists.positive_start[r] : lists.positive_start[r + 1]]
        result[r] = last_holding(rows, holding_bounds(len(rows), ratio))
    return result
