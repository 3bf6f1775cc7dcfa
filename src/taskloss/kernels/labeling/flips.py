r"""Loss-augmented inference for labelings: a search over the numbers of positives and negatives to flip.

Every metric of :mod:`taskloss.kernels.labeling.confusion` grows with the true positives a and falls with the false positives
b. So the positive update only flips positives above zero to 0 and negatives below zero to 1; the negative update does the
opposite. A flip costs the sample's distance from zero, so the best i positives to flip are the i nearest to zero. With ``p``
and ``q`` the costs of the positives and the negatives in ascending order, ``v_+`` and ``v_-`` their weights in the joint
score, inference is

.. math:: \max_{i, j} \; |w|\, |M(a, b) - M(a \mp i, b \pm j)| - v_+ \sum_{l \le i} p_l - v_- \sum_{l \le j} q_l ,

with the upper signs for the positive update. All terms of the sums are positive and ascending, so nothing cancels, and a huge
score, last in its list, cannot swamp the others. For each metric one search takes time linear in the lists, or nearly so:

- *Accuracy, balanced accuracy*: the metric is linear, so each sample is decided by itself.
- *Jaccard*: for fixed b it is linear in a, so positives flip while ``v_+ p < |w| / (P + b)``. From one b to the next the
  number of flips changes in one direction only.
- *F-beta, MCC*: for fixed ``k = a + b`` they are linear in a with the slope ``c_k = (1 + beta^2)/(beta^2 P + k)`` or
  ``n / sqrt(P N k (n - k))``. Flipping one more sample of both kinds keeps k, so pairs flip while
  ``v_+ p_i + v_- q_j < |w| c_k``. Let k rise. While the slope falls, the number of flips that lower k falls too; while the
  slope rises (MCC, ``k > n/2``), the number of flips that raise k rises. Either way, following the optimum from one k to the
  next takes a linear number of steps in total.
- *G-mean*: ``sqrt((a - i)(N - b - j))`` has mixed differences of one sign, so the best i for each j is monotone in j: divide and
  conquer.

**Ties.** Samples at zero cost nothing to flip and are flipped first. Of the optima the one with the fewest other flips is taken.
Where the metric does not depend on how many of the samples at zero flip, the answer is the mean of the least and the greatest
number. Samples of equal label and score share their flips equally.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inlined_kernel, inner_kernel, kernel
from taskloss.kernels.labeling.confusion import ACCURACY, BALANCED_ACCURACY, F_BETA, G_MEAN, MCC, largest_change, metric_value
from taskloss.kernels.stack import push

# Widens the bounds on costs, so that rounding cannot exclude a sample that may flip.
_SLACK = 1.0 + 1e-9


class _Problem(NamedTuple):
    """Inference for one labeling; the search starts with all samples at zero flipped."""

    metric: int
    """An integer of :mod:`taskloss.kernels.labeling.confusion`."""
    weight: float
    """Weight of the loss, positive for the positive update."""
    a: float
    """True positives at the start."""
    b: float
    """False positives at the start."""
    positives: float
    negatives: float
    positive_weight: float
    """Weight of positives in the joint score."""
    negative_weight: float
    """Weight of negatives in the joint score."""
    beta2: float
    """Square of the F-score's beta."""
    zero_division: float
    """Value of 0/0."""


@allocating_kernel
def cost_limits(metric, weight, tallies, positive_weight, negative_weight, beta2):
    """Return the highest cost at which a positive (row 0) and a negative (row 1) can flip, float64 ``(2, R)``.

    Args:
        metric: an integer of :mod:`taskloss.kernels.labeling.confusion`.
        weight: the weight of the loss.
        tallies: :class:`~taskloss.kernels.labeling.samples.Tallies`.
        positive_weight: the weight of positives in the joint score, float64 ``(R,)``.
        negative_weight: the weight of negatives, likewise.
        beta2: the square of the F-score's beta.
    """
    limits = np.empty((2, len(positive_weight)), np.float64)
    metric_range = 2.0 if metric == MCC else 1.0
    for r in range(len(positive_weight)):
        a, b = np.float64(tallies.positives_above[r]), np.float64(tallies.negatives_above[r])
        a_most, b_most = a + tallies.positives_at[r], b + tallies.negatives_at[r]
        positives, negatives = np.float64(tallies.positives[r]), np.float64(tallies.negatives[r])
        changes = largest_change(metric, weight, a, b, a_most, b_most, positives, negatives, beta2)
        limits[0, r] = abs(weight) * min(changes[0], metric_range) / positive_weight[r] * _SLACK
        limits[1, r] = abs(weight) * min(changes[1], metric_range) / negative_weight[r] * _SLACK
    return limits


@kernel
def augment_labelings(metric, weight, costs, start, stop, tallies, positive_weight, negative_weight, beta2, zero_division):
    """Return the best labelings for ``weight``.

    Args:
        metric: an integer of :mod:`taskloss.kernels.labeling.confusion`.
        weight: the weight of the loss.
        costs: distances from zero of the samples that may flip, floats; samples at zero are left out.
        start: where the ascending costs of the positives (row 0) and negatives (row 1) of each labeling begin, int64 ``(2, R)``.
        stop: where they end, likewise.
        tallies: :class:`~taskloss.kernels.labeling.samples.Tallies`.
        positive_weight: the weight of positives in the joint score, float64 ``(R,)``.
        negative_weight: the weight of negatives, likewise.
        beta2: the square of the F-score's beta.
        zero_division: the value of 0/0.

    Returns:
        The thresholds of :mod:`taskloss.kernels.labeling.samples`, float64 ``(4, R)``; a and b, float64 ``(2, R)``.
    """
    thresholds = np.empty((4, len(positive_weight)), np.float64)
    counts = np.empty((2, len(positive_weight)), np.float64)
    sign = 1.0 if weight > 0 else -1.0
    for r in range(len(positive_weight)):
        p, q = costs[start[0, r] : stop[0, r]], costs[start[1, r] : stop[1, r]]
        # The search starts with all samples at zero flipped.
        a, b = np.float64(tallies.positives_above[r]), np.float64(tallies.negatives_above[r])
        if sign > 0:
            b += tallies.negatives_at[r]
        else:
            a += tallies.positives_at[r]
        problem = _Problem(
            metric=metric,
            weight=weight,
            a=a,
            b=b,
            positives=np.float64(tallies.positives[r]),
            negatives=np.float64(tallies.negatives[r]),
            positive_weight=positive_weight[r],
            negative_weight=negative_weight[r],
            beta2=beta2,
            zero_division=zero_division,
        )
        i, j = _solve(problem, p, q)
        a, b = a - sign * i, b + sign * j
        counts[0, r], counts[1, r] = a, b
        positives_at = tallies.positives_at[r] if i == 0 else 0
        negatives_at = tallies.negatives_at[r] if j == 0 else 0
        least = _least_flips_at_zero(problem, a, b, positives_at, negatives_at)
        thresholds[0, r], thresholds[1, r] = threshold_after(p, i, positives_at, least[0], sign > 0)
        thresholds[2, r], thresholds[3, r] = threshold_after(q, j, negatives_at, least[1], sign < 0)
    return thresholds, counts


@kernel
def threshold_after(costs, flips, at_zero, least_at_zero, downward):
    """Return the threshold and share of one label after ``flips`` flips, ``downward`` if from 1 to 0.

    ``costs`` are ascending. Without flips, of the ``at_zero`` samples at zero between ``least_at_zero`` and all flip.
    """
    if flips == 0:
        flipped = (least_at_zero + at_zero) / 2.0 / at_zero if at_zero > 0 else 0.5
        return 0.0, 1.0 - flipped if downward else flipped
    cost = costs[flips - 1]
    first, end = flips - 1, flips
    while first > 0 and costs[first - 1] == cost:
        first -= 1
    while end < len(costs) and costs[end] == cost:
        end += 1
    flipped = (flips - first) / (end - first)
    return (np.float64(cost), 1.0 - flipped) if downward else (-np.float64(cost), flipped)


@inner_kernel
def _least_flips_at_zero(problem, a, b, positives_at, negatives_at):
    """Return the fewest positives and negatives at zero whose flips leave the metric as if all of them flipped.

    By bisection, first over the negatives, then over the positives; ``a`` and ``b`` are the counts with all of them flipped.
    """
    sign = 1.0 if problem.weight > 0 else -1.0
    value = _metric_at(problem, a, b)
    low, high = 0, negatives_at
    while low < high:
        middle = (low + high) // 2
        if _metric_at(problem, a, b - sign * (negatives_at - middle)) == value:
            high = middle
        else:
            low = middle + 1
    least_negatives = low
    b -= sign * (negatives_at - least_negatives)
    low, high = 0, positives_at
    while low < high:
        middle = (low + high) // 2
        if _metric_at(problem, a + sign * (positives_at - middle), b) == value:
            high = middle
        else:
            low = middle + 1
    return low, least_negatives


@inlined_kernel
def _metric_at(problem, a, b):
    """Return the metric with ``a`` true and ``b`` false positives."""
    return metric_value(problem.metric, a, b, problem.positives, problem.negatives, problem.beta2, problem.zero_division)


@allocating_kernel
def _solve(problem, p, q):
    """Return the best numbers of positives and of negatives to flip, the fewest among equally good ones."""
    if len(p) == 0 and len(q) == 0:
        return 0, 0
    positives, negatives = problem.positives, problem.negatives
    if positives > 0.0 and negatives > 0.0:
        if problem.metric == ACCURACY:
            gain = abs(problem.weight) / (positives + negatives)
            return _count_below(p, gain / problem.positive_weight), _count_below(q, gain / problem.negative_weight)
        if problem.metric == BALANCED_ACCURACY:
            gain = abs(problem.weight) / 2.0
            return (
                _count_below(p, gain / (positives * problem.positive_weight)),
                _count_below(q, gain / (negatives * problem.negative_weight)),
            )
    if problem.metric in (F_BETA, MCC):
        if problem.weight > 0:
            return _search_diagonals(problem, p, q)
        j, i = _search_diagonals(problem, q, p)
        return i, j
    if problem.metric == G_MEAN:
        return _divide_and_conquer(problem, p, q)
    return _search_rows(problem, p, q)


@inner_kernel
def _count_below(costs, bound):
    """Return how many of the ascending ``costs`` are below ``bound``."""
    low, high = 0, len(costs)
    while low < high:
        middle = (low + high) // 2
        if costs[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def running_sums(costs):
    """Return the sums of the first 0, 1, 2, ... costs, float64, one more than there are costs."""
    sums = np.empty(len(costs) + 1, np.float64)
    sums[0] = 0.0
    for i in range(len(costs)):
        sums[i + 1] = sums[i] + costs[i]
    return sums


@inlined_kernel
def _objective(problem, i, j, positive_sum, negative_sum):
    """Return the objective after i flips of positives and j of negatives with these sums of costs."""
    sign = 1.0 if problem.weight > 0 else -1.0
    value = _metric_at(problem, problem.a - sign * i, problem.b + sign * j)
    return -problem.weight * value - problem.positive_weight * positive_sum - problem.negative_weight * negative_sum


@inlined_kernel
def _slope(problem, k):
    """Return the increase of F-beta or MCC with a at fixed ``k = a + b``."""
    if problem.metric == F_BETA:
        return (1.0 + problem.beta2) / (problem.beta2 * problem.positives + k)
    n = problem.positives + problem.negatives
    return n / (np.sqrt(problem.positives * problem.negatives) * np.sqrt(k * (n - k)))


@allocating_kernel
def _search_diagonals(problem, first, second):
    """Search over ``k = a + b``; return the best numbers of flips of ``first``, lowering k, and of ``second``, raising k."""
    weight = problem.weight
    first_weight, second_weight = problem.positive_weight, problem.negative_weight
    if weight < 0:
        first_weight, second_weight = problem.negative_weight, problem.positive_weight
    first_sums, second_sums = running_sums(first), running_sums(second)
    best_value, best_first, best_second = -np.inf, 0, 0
    m = len(first)
    for shift in range(-len(first), len(second) + 1):
        lowest, highest = max(0, -shift), min(len(first), len(second) - shift)
        m = min(max(m, lowest), highest)
        if lowest < highest:
            gain = abs(weight) * _slope(problem, problem.a + problem.b + shift)
            while m < highest and first_weight * first[m] + second_weight * second[m + shift] < gain:
                m += 1
            while m > lowest and first_weight * first[m - 1] + second_weight * second[m + shift - 1] >= gain:
                m -= 1
        if weight > 0:
            value = _objective(problem, m, m + shift, first_sums[m], second_sums[m + shift])
        else:
            value = _objective(problem, m + shift, m, second_sums[m + shift], first_sums[m])
        if value > best_value or (value == best_value and 2 * m + shift < best_first + best_second):
            best_value, best_first, best_second = value, m, m + shift
    return best_first, best_second


@allocating_kernel
def _search_rows(problem, p, q):
    """Search over b, for metrics that are linear in a with the slope ``1 / (P + b)``; return the best i and j."""
    sign = 1.0 if problem.weight > 0 else -1.0
    p_sums, q_sums = running_sums(p), running_sums(q)
    best_value, best_i, best_j = -np.inf, 0, 0
    i = 0
    for j in range(len(q) + 1):
        if len(p) > 0:
            gain = abs(problem.weight) / (problem.positives + problem.b + sign * j)
            while i < len(p) and problem.positive_weight * p[i] < gain:
                i += 1
            while i > 0 and problem.positive_weight * p[i - 1] >= gain:
                i -= 1
        value = _objective(problem, i, j, p_sums[i], q_sums[j])
        if value > best_value or (value == best_value and i + j < best_i + best_j):
            best_value, best_i, best_j = value, i, j
    return best_i, best_j


@allocating_kernel
def _divide_and_conquer(problem, p, q):
    """Search by halving the range of j; return the best i and j.

    For metrics whose best i is monotone in j: falling for the positive update, rising for the negative one.
    """
    p_sums, q_sums = running_sums(p), running_sums(q)
    best_value, best_i, best_j = -np.inf, 0, 0
    # A stack of ranges of j with the bounds of their i; it holds two ranges per halving of the range, so 130 suffice.
    stack = np.empty((130, 4), np.int64)
    waiting = push(stack, 0, 0, len(q) + 1, 0, len(p))
    while waiting > 0:
        waiting -= 1
        begin, end, low, high = stack[waiting]
        if begin >= end:
            continue
        j = (begin + end) // 2
        row_value, row_i = -np.inf, low
        for i in range(low, high + 1):
            value = _objective(problem, i, j, p_sums[i], q_sums[j])
            if value > row_value:
                row_value, row_i = value, i
        if row_value > best_value or (row_value == best_value and row_i + j < best_i + best_j):
            best_value, best_i, best_j = row_value, row_i, j
        if problem.weight > 0:
            waiting = push(stack, waiting, begin, j, row_i, high)
            waiting = push(stack, waiting, j + 1, end, low, row_i)
        else:
            waiting = push(stack, waiting, begin, j, low, row_i)
            waiting = push(stack, waiting, j + 1, end, row_i, high)
    return best_i, best_j
