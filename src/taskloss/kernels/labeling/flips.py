r"""Loss-augmented inference for labelings: which samples to move to the other side of zero.

Every metric of :mod:`taskloss.kernels.labeling.confusion` grows with the true positives a and falls with the false positives b. So the
positive update only takes labels away from positives above zero and gives labels to negatives below; the negative update
does the opposite. A sample that changes sides costs its distance from zero, so the best i positives to flip are the i nearest
to zero. With ``p`` and ``q`` the costs of the positives and the negatives in rising order, inference is

.. math:: \max_{i, j} \; |w|\, |M(a, b) - M(a \mp i, b \pm j)| - v_+ \sum_{l \le i} p_l - v_- \sum_{l \le j} q_l .

All terms of the sums are positive and rise, so nothing cancels and a huge score, last in its list, cannot wipe out the others.
One search solves each metric in time linear in the lists, or nearly:

- *Accuracy, balanced accuracy*: the metric is linear, so each sample decides by itself.
- *Jaccard*: for a fixed b it is linear in a: positives flip while ``v p < |w| / (P + b)``. From one b to the next the number of
  them moves in one direction only.
- *F-beta, MCC*: for a fixed ``k = a + b`` linear in a, with the slope ``c_k = (1 + beta^2)/(beta^2 P + k)`` or ``n / sqrt(P N k
  (n - k))``: flipping one more of both kinds keeps k, so pairs flip while ``v p_i + v q_j < |w| c_k``. Let ``d = k - k_0`` rise.
  While the slope falls, the number of flips that lower k falls too; while it rises (MCC, ``k > n/2``) the number of flips that
  raise k rises. Either way a walk from one k to the next takes a linear number of steps in all.
- *G-mean*: ``sqrt((a - i)(N - b - j))`` has mixed differences of one sign, so the best i for each j is monotone in j: divide and
  conquer.

Ties. Samples at zero cost nothing to flip and are flipped first; of the best answers the one with the fewest other flips is
taken. Where the metric does not see how many of the samples at zero are flipped, it is the mean of the least and the greatest
number. Samples of equal label and score share their flips.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel
from taskloss.kernels.labeling.confusion import ACCURACY, BALANCED_ACCURACY, F_BETA, G_MEAN, MCC, largest_change, metric_value

# A bound that rounding cannot cross.
_SLACK = 1.0 + 1e-9


@kernel
def cost_limits(metric, weight, tallies, positive_weight, negative_weight, beta2):
    """The highest cost that a flip of a positive and of a negative can be worth, shape ``(2, R)``."""
    limits = np.empty((2, len(weight)))
    whole_range = 2.0 if metric == MCC else 1.0
    for r in range(len(weight)):
        a, b = np.float64(tallies.positives_above[r]), np.float64(tallies.negatives_above[r])
        a_most, b_most = a + tallies.positives_at[r], b + tallies.negatives_at[r]
        positives, negatives = np.float64(tallies.positives[r]), np.float64(tallies.negatives[r])
        changes = largest_change(metric, weight[r], a, b, a_most, b_most, positives, negatives, beta2)
        limits[0, r] = abs(weight[r]) * min(changes[0], whole_range) / positive_weight[r] * _SLACK
        limits[1, r] = abs(weight[r]) * min(changes[1], whole_range) / negative_weight[r] * _SLACK
    return limits


@kernel
def augment_labelings(
    metric, weight, positive_costs, negative_costs, tallies, positive_weight, negative_weight, beta2, zero_division
):
    """The best labelings for ``weight`` (all of one sign, shape ``(R,)``): thresholds ``(4, R)``, and counts a, b ``(2, R)``."""
    thresholds = np.empty((4, len(weight)))
    counts = np.empty((2, len(weight)))
    for r in range(len(weight)):
        sign = 1.0 if weight[r] > 0 else -1.0
        p = positive_costs.values[positive_costs.start[r] : positive_costs.stop[r]]
        q = negative_costs.values[negative_costs.start[r] : negative_costs.stop[r]]
        # Where the search starts: with all the samples at zero flipped.
        a, b = np.float64(tallies.positives_above[r]), np.float64(tallies.negatives_above[r])
        if sign > 0:
            b += tallies.negatives_at[r]
        else:
            a += tallies.positives_at[r]
        problem = (
            metric,
            weight[r],
            a,
            b,
            np.float64(tallies.positives[r]),
            np.float64(tallies.negatives[r]),
            positive_weight[r],
            negative_weight[r],
            beta2,
            zero_division,
        )
        i, j = _solve(problem, p, q)
        a, b = a - sign * i, b + sign * j
        counts[0, r], counts[1, r] = a, b
        free_positives = tallies.positives_at[r] if i == 0 else 0
        free_negatives = tallies.negatives_at[r] if j == 0 else 0
        least = _least_free_flips(problem, a, b, free_positives, free_negatives)
        thresholds[0, r], thresholds[1, r] = threshold_after(p, i, free_positives, least[0], sign > 0)
        thresholds[2, r], thresholds[3, r] = threshold_after(q, j, free_negatives, least[1], sign < 0)
    return thresholds, counts


@kernel
def threshold_after(costs, flips, free, least_free, downward):
    """Threshold and share after this many flips; of ``free`` samples at zero between ``least_free`` and all of them flip."""
    if flips == 0:
        flipped = (least_free + free) / 2.0 / free if free > 0 else 0.5
        return 0.0, 1.0 - flipped if downward else flipped
    cost = costs[flips - 1]
    first, end = flips - 1, flips
    while first > 0 and costs[first - 1] == cost:
        first -= 1
    while end < len(costs) and costs[end] == cost:
        end += 1
    flipped = (flips - first) / (end - first)
    return (np.float64(cost), 1.0 - flipped) if downward else (-np.float64(cost), flipped)


@kernel
def _least_free_flips(problem, a, b, free_positives, free_negatives):
    """The fewest flips at zero that leave the metric where all of them put it: of negatives, then of positives."""
    metric, weight, _, _, positives, negatives, _, _, beta2, zero_division = problem
    sign = 1.0 if weight > 0 else -1.0
    value = metric_value(metric, a, b, positives, negatives, beta2, zero_division)
    low, high = 0, free_negatives
    while low < high:
        middle = (low + high) // 2
        kept = sign * (free_negatives - middle)
        if metric_value(metric, a, b - kept, positives, negatives, beta2, zero_division) == value:
            high = middle
        else:
            low = middle + 1
    least_negatives = low
    b -= sign * (free_negatives - least_negatives)
    low, high = 0, free_positives
    while low < high:
        middle = (low + high) // 2
        kept = sign * (free_positives - middle)
        if metric_value(metric, a + kept, b, positives, negatives, beta2, zero_division) == value:
            high = middle
        else:
            low = middle + 1
    return low, least_negatives


@kernel
def _solve(problem, p, q):
    """The best numbers of positives and of negatives to flip, the fewest among equally good ones."""
    metric, weight, _, _, positives, negatives, positive_weight, negative_weight, _, _ = problem
    if len(p) == 0 and len(q) == 0:
        return 0, 0
    if positives > 0.0 and negatives > 0.0:
        if metric == ACCURACY:
            share = abs(weight) / (positives + negatives)
            return _count_below(p, share / positive_weight), _count_below(q, share / negative_weight)
        if metric == BALANCED_ACCURACY:
            share = abs(weight) / 2.0
            return (
                _count_below(p, share / (positives * positive_weight)),
                _count_below(q, share / (negatives * negative_weight)),
            )
    if metric in (F_BETA, MCC):
        if weight > 0:
            return _search_diagonals(problem, p, q)
        j, i = _search_diagonals(problem, q, p)
        return i, j
    if metric == G_MEAN:
        return _divide_and_conquer(problem, p, q)
    return _search_rows(problem, p, q)


@kernel
def _count_below(costs, bound):
    """How many of the rising ``costs`` are below ``bound``."""
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
    """The sums of the first 0, 1, 2, ... costs."""
    sums = np.empty(len(costs) + 1)
    sums[0] = 0.0
    for place in range(len(costs)):
        sums[place + 1] = sums[place] + costs[place]
    return sums


@inlined_kernel
def _objective(problem, i, j, positive_sum, negative_sum):
    metric, weight, a, b, positives, negatives, positive_weight, negative_weight, beta2, zero_division = problem
    sign = 1.0 if weight > 0 else -1.0
    value = metric_value(metric, a - sign * i, b + sign * j, positives, negatives, beta2, zero_division)
    return -weight * value - positive_weight * positive_sum - negative_weight * negative_sum


@inlined_kernel
def _slope(problem, k):
    """How much the metric grows with a at a fixed ``k = a + b``."""
    metric, _, _, _, positives, negatives, _, _, beta2, _ = problem
    if metric == F_BETA:
        return (1.0 + beta2) / (beta2 * positives + k)
    n = positives + negatives
    return n / (np.sqrt(positives * negatives) * np.sqrt(k * (n - k)))


@kernel
def _search_diagonals(problem, first, second):
    """The search over ``k = a + b``: the best numbers of flips of ``first``, which lower k, and of ``second``, which raise it."""
    _, weight, a, b, _, _, positive_weight, negative_weight, _, _ = problem
    first_weight, second_weight = positive_weight, negative_weight
    if weight < 0:
        first_weight, second_weight = negative_weight, positive_weight
    first_sums, second_sums = running_sums(first), running_sums(second)
    best_value, best_first, best_second = -np.inf, 0, 0
    m = len(first)
    for shift in range(-len(first), len(second) + 1):
        lowest, highest = max(0, -shift), min(len(first), len(second) - shift)
        m = min(max(m, lowest), highest)
        if lowest < highest:
            gain = abs(weight) * _slope(problem, a + b + shift)
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


@kernel
def _search_rows(problem, p, q):
    """The search over b, for metrics that are linear in a with the slope ``1 / (P + b)``."""
    _, weight, _, b, positives, _, positive_weight, _, _, _ = problem
    sign = 1.0 if weight > 0 else -1.0
    p_sums, q_sums = running_sums(p), running_sums(q)
    best_value, best_i, best_j = -np.inf, 0, 0
    i = 0
    for j in range(len(q) + 1):
        if len(p) > 0:
            bound = abs(weight) / (positives + b + sign * j)
            while i < len(p) and positive_weight * p[i] < bound:
                i += 1
            while i > 0 and positive_weight * p[i - 1] >= bound:
                i -= 1
        value = _objective(problem, i, j, p_sums[i], q_sums[j])
        if value > best_value or (value == best_value and i + j < best_i + best_j):
            best_value, best_i, best_j = value, i, j
    return best_i, best_j


@kernel
def _divide_and_conquer(problem, p, q):
    """The search for metrics whose best i is monotone in j: falling for the positive update, rising for the negative one."""
    weight = problem[1]
    p_sums, q_sums = running_sums(p), running_sums(q)
    best_value, best_i, best_j = -np.inf, 0, 0
    # Waiting ranges of j with the bounds of their i; the depth is logarithmic.
    stack = np.empty((130, 4), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, len(q) + 1, 0, len(p)
    waiting = 1
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
        if weight > 0:
            stack[waiting] = (begin, j, row_i, high)
            stack[waiting + 1] = (j + 1, end, low, row_i)
        else:
            stack[waiting] = (begin, j, low, row_i)
            stack[waiting + 1] = (j + 1, end, row_i, high)
        waiting += 2
    return best_i, best_j
