r"""The best ratio of linear functions of the confusion counts that soft labels allow, in closed form.

A score s becomes ``phi = tanh(s)`` (or phi = s), in [-1, 1]. A margin m in [0, 1/2] shifts it toward the wrong side,

.. math:: \psi = (1 - m)\,\varphi - m \;\text{(positives)}, \qquad \psi = (1 - m)\,\varphi + m \;\text{(negatives)},

which stays in [-1, 1]. The soft label of the sample may be any value in ``[max(0, psi), min(1, 1 + psi)]``. The ratio then
depends on two sums: A, the soft labels of the positives (true positives), and B, those of the negatives (false positives). Each
is free in an interval of its own. A ratio of linear functions with a positive denominator has its maximum over a box at a
corner, so the best of four corners is the answer. With m = 0 it is the value of the linear program of Meng et al. (2021); with
m = 1/2 the label is sigmoid(2 s) and nothing is left to choose: the soft count of Dice losses.

At the kink ``psi = 0`` the derivative is the one-sided one that is not zero, so that constant scores can train.

Labels are added as integer multiples of ``2^-60``. That is exact, so no sum depends on the order of the samples.
"""

from __future__ import annotations

import math

import numpy as np

from taskloss.kernels._numba import inlined_kernel, inner_kernel, kernel
from taskloss.kernels.sort import IGNORED, NEGATIVE, POSITIVE

_HALF_SCALE = 2.0**30
_LOWER, _UPPER = 0, 1


@kernel
def phi_of(scores, squash):
    """Return phi of each score, float64 ``(n,)``: the tanh if ``squash``, else the score itself."""
    phi = np.empty(len(scores), np.float64)
    for i in range(len(scores)):
        # In float64 from here on: the tanh of a float32 would be a float32.
        score = np.float64(scores[i])
        phi[i] = math.tanh(score) if squash else score
    return phi


@inlined_kernel
def psi_of(phi, positive, margin):
    """Return psi of a sample."""
    # In this form a phi of -1 (positives) or 1 (negatives) stays there exactly.
    return phi - margin * (1.0 + phi) if positive else phi + margin * (1.0 - phi)


@inlined_kernel
def psi_slope(phi, margin, squash):
    """Return the derivative of psi with respect to the score."""
    return (1.0 - margin) * (1.0 - phi * phi if squash else 1.0)


@inlined_kernel
def _fixed_point(label):
    """Return the two 30-bit digits of a label in [0, 1]: multiples of ``2^-30``, and of ``2^-60`` for the rest."""
    scaled = label * _HALF_SCALE
    high = math.floor(scaled)
    return high, np.int64((scaled - high) * _HALF_SCALE)


@inner_kernel
def _add_label_bounds(phi, labels, margin, sums, counts):
    """Add the bounds of the soft labels of some samples of one labeling to its sums.

    Args:
        phi: float64 ``(n,)``, read.
        labels: uint8 ``(n,)``, read.
        margin: m.
        sums: int64 ``(2, 2, 2)``, updated: by class, bound (lower, upper) and digit of the fixed-point number.
        counts: int64 ``(2,)``, updated: the number of negatives and of positives.
    """
    for label in (NEGATIVE, POSITIVE):
        # Sums in local variables stay in registers, which takes a fifth less time for large labelings.
        count = lower_high = lower_low = upper_high = upper_low = 0
        for i in range(len(phi)):
            if labels[i] == label:
                psi = psi_of(phi[i], label == POSITIVE, margin)
                high, low = _fixed_point(max(0.0, psi))
                lower_high += high
                lower_low += low
                high, low = _fixed_point(min(1.0, 1.0 + psi))
                upper_high += high
                upper_low += low
                count += 1
        counts[label] += count
        sums[label, _LOWER, 0] += lower_high
        sums[label, _LOWER, 1] += lower_low
        sums[label, _UPPER, 0] += upper_high
        sums[label, _UPPER, 1] += upper_low


@inlined_kernel
def _to_float(digits):
    """Return the value of a fixed-point number given by its two digits."""
    return (digits[0] + digits[1] / _HALF_SCALE) / _HALF_SCALE


@inner_kernel
def _best_corner(sums, counts, numerator, denominator, zero_division, bounds, slopes):
    """Return the largest ratio of one labeling over the four corners of the box of A and B.

    Args:
        sums: int64 ``(2, 2, 2)`` of :func:`_add_label_bounds`, read.
        counts: int64 ``(2,)``, read.
        numerator: coefficients of tp, fp, fn, tn, float64 ``(4,)``, read.
        denominator: likewise.
        zero_division: the ratio where the denominator is 0.
        bounds: int64 ``(2,)``, written: which bound the labels of negatives and of positives have at the best corner.
        slopes: float64 ``(2,)``, written: the derivatives of the ratio there with respect to B and to A.
    """
    negatives, positives = counts[NEGATIVE], counts[POSITIVE]
    # With fn = P - A and tn = N - B, numerator and denominator are linear functions of A and B.
    top = numerator[2] * positives + numerator[3] * negatives
    bottom = denominator[2] * positives + denominator[3] * negatives
    top_a, bottom_a = numerator[0] - numerator[2], denominator[0] - denominator[2]
    top_b, bottom_b = numerator[1] - numerator[3], denominator[1] - denominator[3]
    best = -np.inf
    # The corner of the usual metrics comes first: most true positives, fewest false ones. The others must be better.
    for a_bound in (_UPPER, _LOWER):
        for b_bound in (_LOWER, _UPPER):
            a, b = _to_float(sums[POSITIVE, a_bound]), _to_float(sums[NEGATIVE, b_bound])
            over, under = top + top_a * a + top_b * b, bottom + bottom_a * a + bottom_b * b
            ratio = over / under if under > 0.0 else zero_division
            if ratio > best:
                best = ratio
                bounds[NEGATIVE], bounds[POSITIVE] = b_bound, a_bound
                slopes[NEGATIVE] = (top_b - ratio * bottom_b) / under if under > 0.0 else 0.0
                slopes[POSITIVE] = (top_a - ratio * bottom_a) / under if under > 0.0 else 0.0
    return best


@kernel
def best_ratios(phi, labels, run_owner, labelings, numerator, denominator, margin, zero_division):
    """Return the largest ratio of each labeling, float64 ``(R,)``, and what its gradient needs.

    Args:
        phi: float64 ``(n,)``, read: runs of equal length, each within one labeling.
        labels: uint8 ``(n,)``, read: ``POSITIVE``, ``NEGATIVE`` or ``IGNORED``.
        run_owner: int64, one per run, read: the labeling of the run.
        labelings: R.
        numerator: coefficients of tp, fp, fn, tn, float64 ``(4,)``, read.
        denominator: likewise, at least zero.
        margin: m.
        zero_division: the ratio where the denominator is 0.

    Also returned: the bounds, int64 ``(R, 2)``, and slopes, float64 ``(R, 2)``, of the best corner for negatives and positives
    (see :func:`_best_corner`).
    """
    sums, counts = np.zeros((labelings, 2, 2, 2), np.int64), np.zeros((labelings, 2), np.int64)
    run_length = len(phi) // max(len(run_owner), 1)
    for q in range(len(run_owner)):
        r, run = run_owner[q], slice(q * run_length, (q + 1) * run_length)
        _add_label_bounds(phi[run], labels[run], margin, sums[r], counts[r])
    best, bounds, slopes = (
        np.empty(labelings, np.float64),
        np.empty((labelings, 2), np.int64),
        np.empty((labelings, 2), np.float64),
    )
    for r in range(labelings):
        best[r] = _best_corner(sums[r], counts[r], numerator, denominator, zero_division, bounds[r], slopes[r])
    return best, bounds, slopes


@kernel
def write_ratio_gradients(phi, labels, run_owner, bounds, slopes, margin, squash, factor, out):
    """Write ``factor[r]`` times the derivative of the ratio of labeling r with respect to each of its scores.

    Args:
        phi: as for :func:`best_ratios`, read.
        labels: likewise.
        run_owner: likewise.
        bounds: int64 ``(R, 2)`` from :func:`best_ratios`, read.
        slopes: float64 ``(R, 2)`` from :func:`best_ratios`, read.
        margin: m.
        squash: whether phi is the tanh of the score.
        factor: float64 ``(R,)``, read.
        out: ``(n,)``, written; zero for ignored samples.
    """
    run_length = len(phi) // max(len(run_owner), 1)
    for q in range(len(run_owner)):
        r = run_owner[q]
        for i in range(q * run_length, (q + 1) * run_length):
            out[i] = 0.0
            if labels[i] != IGNORED:
                psi = psi_of(phi[i], labels[i] == POSITIVE, margin)
                # The lower bound max(0, psi) moves with psi above zero, the upper bound min(1, 1 + psi) below it.
                moves = psi >= 0.0 if bounds[r, labels[i]] == _LOWER else psi <= 0.0
                out[i] = factor[r] * (slopes[r, labels[i]] * psi_slope(phi[i], margin, squash) if moves else 0.0)
