r"""Precision at a recall and recall at a precision of soft labels: the best threshold, found among breakpoints after a sort.

Let p be the psi of the positives and q those of the negatives (:mod:`taskloss.lp.losses.ratio_kernel`), and tau a threshold. The
best soft labels for it are ``min(1, 1 + p - tau)`` and ``max(0, q - tau)``, so with P positives

.. math:: A(\tau) = P - D(\tau), \quad D(\tau) = \sum_i (\tau - p_i)_+ , \qquad B(\tau) = \sum_j (q_j - \tau)_+

are the soft true and false positives. D, the deficit of true positives, rises and is convex; B, the excess of false ones, falls
and is convex. Both are linear between neighbouring psi.

One-sided, thresholds range over ``tau <= min p + 1``, where no positive label falls below 0. Two-sided, they range over
``[max - 1, min + 1]`` of all psi, where every bound of every label can be met.

- Precision at a recall: the loss is ``B / (A + B)``, subject to ``A >= recall P``. B / A is monotone between breakpoints, so the
  least value is at a breakpoint, at an end of the range, or where ``A = recall P``. Two-sided, even the lowest threshold may miss
  the recall; then the loss is one plus the missing recall.
- Recall at a precision: the loss is ``D / P + slack (g)_+ / P``, where ``g = precision B - (1 - precision) A`` is the
  violation. It is convex and piecewise linear, so the least value is at a breakpoint, at an end of the range, or at a root of
  g.

The gradient is that of the least value (Danskin). A constraint that is active adds its multiplier to the weights, the
derivatives of the loss with respect to A and B. At a breakpoint the samples with psi = tau count in part, by the share that
makes the slope in tau zero; at an end of the range the samples that define the end take the rest. So the gradient with respect
to psi sums to zero: adding a constant to all psi changes nothing.

In all of this file p and q are float64, descending, and not empty unless said otherwise; ``p_gradient`` and ``q_gradient`` have
their shapes and are written.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.lp.losses.ratio_kernel import phi_of, psi_of, psi_slope

_NEAR_ZERO = 1e-12


@kernel
def operating_points(lists, bound, at_recall, two_sided, slack, margin, squash, positive_gradient, negative_gradient):
    """Return the loss of each ranking, float64 ``(R,)``; a ranking with one class only gets zero loss and gradient.

    Args:
        lists: the :class:`taskloss.kernels.sort.TwoLists` of R rankings, read.
        bound: the recall (if ``at_recall``) or the precision to reach.
        at_recall: whether the loss is precision at a recall, or recall at a precision.
        two_sided: whether all bounds of all labels are kept.
        slack: the price of a violated precision.
        margin: m of :mod:`taskloss.lp.losses.ratio_kernel`.
        squash: whether phi is the tanh of the score.
        positive_gradient: shape of ``lists.positives``, written: derivatives of the loss with respect to these scores.
        negative_gradient: likewise for ``lists.negatives``.
    """
    values = np.zeros(len(lists.positive_start) - 1, np.float64)
    for r in range(len(values)):
        positive = slice(lists.positive_start[r], lists.positive_start[r + 1])
        negative = slice(lists.negative_start[r], lists.negative_start[r + 1])
        p, p_slope = _psi_and_slopes(lists.positives[positive], True, margin, squash)
        q, q_slope = _psi_and_slopes(lists.negatives[negative], False, margin, squash)
        p_gradient, q_gradient = np.zeros(len(p), np.float64), np.zeros(len(q), np.float64)
        if len(p) > 0 and len(q) > 0:
            lower = max(p[0], q[0]) - 1.0 if two_sided else -np.inf
            upper = (min(p[-1], q[-1]) if two_sided else p[-1]) + 1.0
            if at_recall:
                values[r] = _at_recall(p, q, bound, lower, upper, two_sided, p_gradient, q_gradient)
            else:
                values[r] = _at_precision(p, q, bound, slack, lower, upper, two_sided, p_gradient, q_gradient)
        positive_gradient[positive] = p_gradient * p_slope
        negative_gradient[negative] = q_gradient * q_slope
    return values


@allocating_kernel
def _psi_and_slopes(scores, positive, margin, squash):
    """Return psi of scores of one class, and its derivative with respect to each score."""
    phi = phi_of(scores, squash)
    psi, slopes = np.empty(len(phi), np.float64), np.empty(len(phi), np.float64)
    for i in range(len(phi)):
        psi[i], slopes[i] = psi_of(phi[i], positive, margin), psi_slope(phi[i], margin, squash)
    return psi, slopes


@allocating_kernel
def _breakpoints(p, q):
    """Return the breakpoints ``(P + N,)``, ascending; the number of positives up to each; and D and B there."""
    n, i, j = len(p) + len(q), len(p) - 1, len(q) - 1
    points, positives_up_to = np.empty(n, np.float64), np.empty(n, np.int64)
    for k in range(n):
        take_positive = j < 0 or (i >= 0 and p[i] <= q[j])
        points[k] = p[i] if take_positive else q[j]
        i, j = (i - 1, j) if take_positive else (i, j - 1)
        positives_up_to[k] = len(p) - 1 - i
    deficit, excess = np.zeros(n, np.float64), np.zeros(n, np.float64)
    for k in range(1, n):
        deficit[k] = deficit[k - 1] + positives_up_to[k - 1] * (points[k] - points[k - 1])
    for k in range(n - 2, -1, -1):
        excess[k] = excess[k + 1] + (len(q) - (k + 1 - positives_up_to[k])) * (points[k + 1] - points[k])
    return points, positives_up_to, deficit, excess


@inner_kernel
def _deficit_and_excess(p, q, threshold):
    """Return D and B at one threshold."""
    deficit = excess = 0.0
    for psi in p:
        deficit += max(0.0, threshold - psi)
    for psi in q:
        excess += max(0.0, psi - threshold)
    return deficit, excess


@allocating_kernel
def _at_recall(p, q, recall, lower, upper, two_sided, p_gradient, q_gradient):
    """Return one minus the best precision at a recall, over thresholds in ``[lower, upper]``; write its gradient."""
    count = len(p)
    points, positives_up_to, deficit, excess = _breakpoints(p, q)
    # A >= recall P holds up to the threshold where D reaches (1 - recall) P.
    allowed = (1.0 - recall) * count
    last = max(np.searchsorted(deficit, allowed, side="right") - 1, 0)
    recall_end = points[last] + (allowed - deficit[last]) / max(positives_up_to[last], 1)
    ends_by_recall = recall_end < upper
    end = min(recall_end, upper)
    if end < lower:
        # No threshold has the recall; the lowest one has the highest.
        missing, _ = _deficit_and_excess(p, q, lower)
        _write_gradient(p, q, lower, -1.0 / count, 0.0, 0.5, p_gradient, q_gradient)
        _give_rest(p, q, max(p[0], q[0]), True, p_gradient, q_gradient)
        return 1.0 + recall - (count - missing) / count
    # Candidates: the ends of the range (k = -2, -1), then the breakpoints.
    best, threshold = np.inf, end
    for k in range(-2, len(points)):
        candidate = lower if k == -2 else (end if k == -1 else points[k])
        if not np.isfinite(candidate) or candidate < lower or candidate > end:
            continue
        d, b = _deficit_and_excess(p, q, candidate) if k < 0 else (deficit[k], excess[k])
        if b < best * (count - d):
            best, threshold = b / (count - d), candidate
    d, b = _deficit_and_excess(p, q, threshold)
    total = count - d + b
    weight_a, weight_b = -b / (total * total), (count - d) / (total * total)
    _, right = _slopes(p, q, threshold, weight_a, weight_b)
    if right < 0.0 and threshold >= end and ends_by_recall:
        # The recall constraint is active: its multiplier makes the weight of A such that the slope in tau is zero.
        below, above = _half_counts(p, q, threshold)
        _write_gradient(p, q, threshold, -weight_b * above / below, weight_b, 0.5, p_gradient, q_gradient)
    else:
        _write_gradient_at_breakpoint(p, q, threshold, weight_a, weight_b, lower, end, two_sided, p_gradient, q_gradient)
    return b / total


@allocating_kernel
def _at_precision(p, q, precision, slack, lower, upper, two_sided, p_gradient, q_gradient):
    """Return the loss of recall at a precision, over thresholds in ``[lower, upper]``; write its gradient."""
    count = len(p)
    points, _, deficit, excess = _breakpoints(p, q)
    # Candidates: the ends of the range (k = -2, -1), then each breakpoint and the root of the violation g after it.
    best, threshold, at_root = np.inf, upper, False
    for k in range(-2, len(points)):
        candidate = lower if k == -2 else (upper if k == -1 else points[k])
        if np.isfinite(candidate) and lower <= candidate <= upper:
            d, b = _deficit_and_excess(p, q, candidate) if k < 0 else (deficit[k], excess[k])
            violation = precision * b - (1.0 - precision) * (count - d)
            value = d + slack * max(0.0, violation)
            if value < best:
                best, threshold, at_root = value, candidate, abs(violation) <= _NEAR_ZERO * count
        if 0 <= k < len(points) - 1:
            here = precision * excess[k] - (1.0 - precision) * (count - deficit[k])
            after = precision * excess[k + 1] - (1.0 - precision) * (count - deficit[k + 1])
            if here > 0.0 > after:
                share = here / (here - after)
                candidate = points[k] + share * (points[k + 1] - points[k])
                value = deficit[k] + share * (deficit[k + 1] - deficit[k])
                if lower <= candidate <= upper and value < best:
                    best, threshold, at_root = value, candidate, True
    d, b = _deficit_and_excess(p, q, threshold)
    violation = precision * b - (1.0 - precision) * (count - d)
    if at_root:
        # The precision constraint is active: its multiplier, at most the slack, makes the slope in tau zero.
        below, above = _half_counts(p, q, threshold)
        fall = precision * above - (1.0 - precision) * below
        multiplier = min(below / fall, slack) if fall > 0.0 else slack
        weight_a, weight_b = -(1.0 + multiplier * (1.0 - precision)) / count, multiplier * precision / count
        _write_gradient(p, q, threshold, weight_a, weight_b, 0.5, p_gradient, q_gradient)
    else:
        multiplier = slack if violation > 0.0 else 0.0
        weight_a, weight_b = -(1.0 + multiplier * (1.0 - precision)) / count, multiplier * precision / count
        _write_gradient_at_breakpoint(p, q, threshold, weight_a, weight_b, lower, upper, two_sided, p_gradient, q_gradient)
    return best / count


@inner_kernel
def _counts_around(p, q, threshold):
    """Return the numbers of positives below the threshold, positives at it, negatives above it, negatives at it."""
    below = at_p = above = at_q = 0
    for psi in p:
        below += psi < threshold
        at_p += psi == threshold
    for psi in q:
        above += psi > threshold
        at_q += psi == threshold
    return below, at_p, above, at_q


@inner_kernel
def _half_counts(p, q, threshold):
    """Return the numbers of positives below and of negatives above the threshold; samples at it count half."""
    below, at_p, above, at_q = _counts_around(p, q, threshold)
    return below + 0.5 * at_p, above + 0.5 * at_q


@kernel
def _slopes(p, q, threshold, weight_a, weight_b):
    """Return the slopes of the loss in tau to the left and to the right of the threshold."""
    below, at_p, above, at_q = _counts_around(p, q, threshold)
    return -weight_a * below - weight_b * (above + at_q), -weight_a * (below + at_p) - weight_b * above


@inner_kernel
def _write_gradient(p, q, threshold, weight_a, weight_b, share, p_gradient, q_gradient):
    """Write the gradient with respect to psi at a fixed threshold.

    Positives at the threshold count by ``share`` as if below it, negatives at it by ``1 - share`` as if above it.
    """
    for i in range(len(p)):
        p_gradient[i] = weight_a if p[i] < threshold else (weight_a * share if p[i] == threshold else 0.0)
    for j in range(len(q)):
        q_gradient[j] = weight_b if q[j] > threshold else (weight_b * (1.0 - share) if q[j] == threshold else 0.0)


@allocating_kernel
def _write_gradient_at_breakpoint(p, q, threshold, weight_a, weight_b, lower, upper, two_sided, p_gradient, q_gradient):
    """Write the gradient with respect to psi where the best threshold is a breakpoint or an end of ``[lower, upper]``."""
    left, right = _slopes(p, q, threshold, weight_a, weight_b)
    share = 0.5
    if right > left:
        share = min(max(-left / (right - left), 0.0), 1.0)
    _write_gradient(p, q, threshold, weight_a, weight_b, share, p_gradient, q_gradient)
    if right < 0.0 and threshold >= upper:
        _give_rest(p, q, min(p[-1], q[-1]) if two_sided else p[-1], two_sided, p_gradient, q_gradient)
    elif left > 0.0 and threshold <= lower:
        _give_rest(p, q, max(p[0], q[0]), True, p_gradient, q_gradient)


@allocating_kernel
def _give_rest(p, q, psi, with_negatives, p_gradient, q_gradient):
    """Add to the gradient of the samples at ``psi``, which define the end of the range, what makes its sum zero."""
    rest = -(p_gradient.sum() + q_gradient.sum())
    members = np.count_nonzero(p == psi) + (np.count_nonzero(q == psi) if with_negatives else 0)
    for i in range(len(p)):
        if p[i] == psi:
            p_gradient[i] += rest / members
    if with_negatives:
        for j in range(len(q)):
            if q[j] == psi:
                q_gradient[j] += rest / members
