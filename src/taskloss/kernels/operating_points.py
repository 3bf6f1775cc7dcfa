r"""Precision at a recall and recall at a precision of soft labels: the best threshold, found among the breakpoints after a sort.

Let p be the positions psi of the positives and q those of the negatives (:mod:`taskloss.kernels.ratios`), tau a threshold. The
best labels for it are ``min(1, 1 + p - tau)`` and ``max(0, q - tau)``, so with P positives

.. math:: A(\tau) = P - D(\tau), \quad D(\tau) = \sum_i (\tau - p_i)_+ , \qquad B(\tau) = \sum_j (q_j - \tau)_+

are the soft true and false positives. D rises and is convex, B falls and is convex, both linear between neighbouring positions.

Thresholds range over ``tau <= min p + 1``, where no positive label falls below 0 (one-sided), or over ``[max - 1, min + 1]`` of
all positions, where every label can be met (two-sided).

- Precision at a recall: the loss is ``B / (A + B)``, subject to ``A >= recall P``. B / A is monotone between breakpoints, so the
  least value is at one of them, at an end, or where ``A = recall P``. Two-sided, even the lowest threshold may miss the recall;
  then the loss is one plus what is missing.
- Recall at a precision: the loss is ``D / P + slack (g)_+ / P`` with ``g = precision B - (1 - precision) A``, which must not be
  above zero where it can be avoided. Convex and piecewise linear, so the least value is at a breakpoint, an end or a root of g.

The gradient is that of the least value (Danskin). A constraint that binds adds its multiplier to the weight of A or B. At a
breakpoint the samples that stand there count in part, by the share that makes the slope in tau zero; at an end the samples that
define it take what is left. So positions that move together change nothing, as it must be.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ratios import positions_of, soft_position, soft_slope

_NEAR_ZERO = 1e-12


@kernel
def operating_points(lists, bound, at_recall, two_sided, slack, margin, squash, positive_gradient, negative_gradient):
    """The loss of each ranking, ``(R,)``; the gradients in the scores of its sorted lists go to the last two arguments.

    ``bound`` is the recall (``at_recall``) or the precision that must be reached. A ranking with one class only gets zeros.
    """
    values = np.zeros(len(lists.positive_start) - 1)
    for r in range(len(values)):
        positive = slice(lists.positive_start[r], lists.positive_start[r + 1])
        negative = slice(lists.negative_start[r], lists.negative_start[r + 1])
        p, p_slope = _positions(lists.positives[positive], True, margin, squash)
        q, q_slope = _positions(lists.negatives[negative], False, margin, squash)
        p_gradient, q_gradient = np.zeros(len(p)), np.zeros(len(q))
        if len(p) > 0 and len(q) > 0:
            low = max(p[0], q[0]) - 1.0 if two_sided else -np.inf
            high = (min(p[-1], q[-1]) if two_sided else p[-1]) + 1.0
            if at_recall:
                values[r] = _at_recall(p, q, bound, low, high, two_sided, p_gradient, q_gradient)
            else:
                values[r] = _at_precision(p, q, bound, slack, low, high, two_sided, p_gradient, q_gradient)
        positive_gradient[positive] = p_gradient * p_slope
        negative_gradient[negative] = q_gradient * q_slope
    return values


@kernel
def _positions(scores, positive, margin, squash):
    phi, slopes = positions_of(scores, squash), np.empty(len(scores))
    for i in range(len(scores)):
        slopes[i] = soft_slope(phi[i], margin, squash)
        phi[i] = soft_position(phi[i], positive, margin)
    return phi, slopes


@kernel
def _breakpoints(p, q):
    """All positions from the lowest, how many positives are at most there, D and B."""
    n, i, j = len(p) + len(q), len(p) - 1, len(q) - 1
    levels, at_most = np.empty(n), np.empty(n, np.int64)
    for k in range(n):
        take_positive = j < 0 or (i >= 0 and p[i] <= q[j])
        levels[k] = p[i] if take_positive else q[j]
        i, j = (i - 1, j) if take_positive else (i, j - 1)
        at_most[k] = len(p) - 1 - i
    deficit, excess = np.zeros(n), np.zeros(n)
    for k in range(1, n):
        deficit[k] = deficit[k - 1] + at_most[k - 1] * (levels[k] - levels[k - 1])
    for k in range(n - 2, -1, -1):
        excess[k] = excess[k + 1] + (len(q) - (k + 1 - at_most[k])) * (levels[k + 1] - levels[k])
    return levels, at_most, deficit, excess


@kernel
def _deficit_and_excess(p, q, threshold):
    deficit = excess = 0.0
    for value in p:
        deficit += max(0.0, threshold - value)
    for value in q:
        excess += max(0.0, value - threshold)
    return deficit, excess


@kernel
def _at_recall(p, q, recall, low, high, two_sided, p_gradient, q_gradient):
    count = len(p)
    levels, at_most, deficit, excess = _breakpoints(p, q)
    room = (1.0 - recall) * count
    last = max(np.searchsorted(deficit, room, side="right") - 1, 0)
    reached = levels[last] + (room - deficit[last]) / max(at_most[last], 1)
    bounded = reached < high
    end = min(reached, high)
    if end < low:
        missing, _ = _deficit_and_excess(p, q, low)
        _distribute(p, q, low, -1.0 / count, 0.0, 0.5, p_gradient, q_gradient)
        _give_rest(p, q, max(p[0], q[0]), True, p_gradient, q_gradient)
        return 1.0 + recall - (count - missing) / count
    best, threshold = np.inf, end
    for k in range(-2, len(levels)):
        candidate = low if k == -2 else (end if k == -1 else levels[k])
        if not np.isfinite(candidate) or candidate < low or candidate > end:
            continue
        d, b = _deficit_and_excess(p, q, candidate) if k < 0 else (deficit[k], excess[k])
        if b < best * (count - d):
            best, threshold = b / (count - d), candidate
    d, b = _deficit_and_excess(p, q, threshold)
    total = count - d + b
    weight_a, weight_b = -b / (total * total), (count - d) / (total * total)
    _, right = _slopes(p, q, threshold, weight_a, weight_b)
    if right < 0.0 and threshold >= end and bounded:
        # The recall binds: its multiplier makes the weight of A such that the slope is zero.
        below, above = _half_counts(p, q, threshold)
        _distribute(p, q, threshold, -weight_b * above / below, weight_b, 0.5, p_gradient, q_gradient)
    else:
        _at_threshold(p, q, threshold, weight_a, weight_b, low, end, two_sided, p_gradient, q_gradient)
    return b / total


@kernel
def _at_precision(p, q, precision, slack, low, high, two_sided, p_gradient, q_gradient):
    count = len(p)
    levels, _, deficit, excess = _breakpoints(p, q)
    best, threshold, at_root = np.inf, high, False
    for k in range(-2, len(levels)):
        candidate = low if k == -2 else (high if k == -1 else levels[k])
        if np.isfinite(candidate) and low <= candidate <= high:
            d, b = _deficit_and_excess(p, q, candidate) if k < 0 else (deficit[k], excess[k])
            over = precision * b - (1.0 - precision) * (count - d)
            value = d + slack * max(0.0, over)
            if value < best:
                best, threshold, at_root = value, candidate, abs(over) <= _NEAR_ZERO * count
        if 0 <= k < len(levels) - 1:
            here = precision * excess[k] - (1.0 - precision) * (count - deficit[k])
            after = precision * excess[k + 1] - (1.0 - precision) * (count - deficit[k + 1])
            if here > 0.0 > after:
                share = here / (here - after)
                candidate = levels[k] + share * (levels[k + 1] - levels[k])
                value = deficit[k] + share * (deficit[k + 1] - deficit[k])
                if low <= candidate <= high and value < best:
                    best, threshold, at_root = value, candidate, True
    d, b = _deficit_and_excess(p, q, threshold)
    over = precision * b - (1.0 - precision) * (count - d)
    if at_root:
        below, above = _half_counts(p, q, threshold)
        fall = precision * above - (1.0 - precision) * below
        multiplier = min(below / fall, slack) if fall > 0.0 else slack
        weight_a, weight_b = -(1.0 + multiplier * (1.0 - precision)) / count, multiplier * precision / count
        _distribute(p, q, threshold, weight_a, weight_b, 0.5, p_gradient, q_gradient)
    else:
        multiplier = slack if over > 0.0 else 0.0
        weight_a, weight_b = -(1.0 + multiplier * (1.0 - precision)) / count, multiplier * precision / count
        _at_threshold(p, q, threshold, weight_a, weight_b, low, high, two_sided, p_gradient, q_gradient)
    return best / count


@kernel
def _counts(p, q, threshold):
    """Positives below and at the threshold, negatives above and at it."""
    below = at_p = above = at_q = 0
    for value in p:
        below += value < threshold
        at_p += value == threshold
    for value in q:
        above += value > threshold
        at_q += value == threshold
    return below, at_p, above, at_q


@kernel
def _half_counts(p, q, threshold):
    """Positives below and negatives above, those at the threshold counting half."""
    below, at_p, above, at_q = _counts(p, q, threshold)
    return below + 0.5 * at_p, above + 0.5 * at_q


@kernel
def _slopes(p, q, threshold, weight_a, weight_b):
    """The slopes in tau from the left and from the right."""
    below, at_p, above, at_q = _counts(p, q, threshold)
    return -weight_a * below - weight_b * (above + at_q), -weight_a * (below + at_p) - weight_b * above


@kernel
def _distribute(p, q, threshold, weight_a, weight_b, share, p_gradient, q_gradient):
    """The gradient in the positions; ``share``: how far the threshold has passed the samples that stand at it."""
    for i in range(len(p)):
        p_gradient[i] = weight_a if p[i] < threshold else (weight_a * share if p[i] == threshold else 0.0)
    for j in range(len(q)):
        q_gradient[j] = weight_b if q[j] > threshold else (weight_b * (1.0 - share) if q[j] == threshold else 0.0)


@kernel
def _at_threshold(p, q, threshold, weight_a, weight_b, low, high, two_sided, p_gradient, q_gradient):
    """The gradient at a breakpoint or an end."""
    left, right = _slopes(p, q, threshold, weight_a, weight_b)
    share = 0.5
    if right > left:
        share = min(max(-left / (right - left), 0.0), 1.0)
    _distribute(p, q, threshold, weight_a, weight_b, share, p_gradient, q_gradient)
    if right < 0.0 and threshold >= high:
        _give_rest(p, q, min(p[-1], q[-1]) if two_sided else p[-1], two_sided, p_gradient, q_gradient)
    elif left > 0.0 and threshold <= low:
        _give_rest(p, q, max(p[0], q[0]), True, p_gradient, q_gradient)


@kernel
def _give_rest(p, q, level, with_negatives, p_gradient, q_gradient):
    """The samples at this level define the end, and take what makes the sum of the gradient zero."""
    rest = -(p_gradient.sum() + q_gradient.sum())
    members = np.count_nonzero(p == level) + (np.count_nonzero(q == level) if with_negatives else 0)
    for i in range(len(p)):
        if p[i] == level:
            p_gradient[i] += rest / members
    if with_negatives:
        for j in range(len(q)):
            if q[j] == level:
                q_gradient[j] += rest / members
