r"""The best ratio of linear functions of the confusion counts that soft labels allow, in closed form.

A sample with score s has the position ``phi = tanh(s)`` (or s itself), drawn toward the wrong side by a margin m in [0, 1/2],

.. math:: \psi = (1 - m)\,\varphi - m \;\text{(positives)}, \qquad \psi = (1 - m)\,\varphi + m \;\text{(negatives)},

which stays in [-1, 1]; its label may be anything in ``[max(0, psi), min(1, 1 + psi)]``. The ratio then depends on two numbers:
the sum A of the labels of the positives (true positives) and the sum B of those of the negatives (false positives), each free
in an interval of its own. A ratio of linear functions with a positive denominator has its maximum over a box at a corner, so
four candidates settle it. With m = 0 this is the value of the linear program of Meng et al. (2021); with m = 1/2 a label is the
sigmoid of 2 s and nothing is left to choose: the soft count that Dice losses use.

At the kink ``psi = 0`` the derivative is the one-sided one that is not zero, so that constant scores can train.

Labels are added as whole numbers of ``2^-60``: exact, so no sum depends on the order of the samples.
"""

from __future__ import annotations

import math

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel
from taskloss.kernels.sort import IGNORED, NEGATIVE, POSITIVE

_STEPS = 2.0**30
_LOW, _HIGH = 0, 1


@kernel
def positions_of(scores, squash):
    """``phi`` of the scores, float64."""
    phi = np.empty(len(scores))
    for i in range(len(scores)):
        # In float64 from here on: the tanh of a float32 would be a float32.
        score = np.float64(scores[i])
        phi[i] = math.tanh(score) if squash else score
    return phi


@inlined_kernel
def soft_position(phi, positive, margin):
    """``psi`` of a sample."""
    # In this form a phi of -1 and of 1 on the wrong side stay there exactly.
    return phi - margin * (1.0 + phi) if positive else phi + margin * (1.0 - phi)


@inlined_kernel
def soft_slope(phi, margin, squash):
    """The derivative of ``psi`` in the score."""
    return (1.0 - margin) * (1.0 - phi * phi if squash else 1.0)


@inlined_kernel
def _parts(label):
    """A number in [0, 1] as a whole number of ``2^-30``, and the rest as one of ``2^-60``."""
    scaled = label * _STEPS
    upper = math.floor(scaled)
    return upper, np.int64((scaled - upper) * _STEPS)


@kernel
def _tally(phi, labels, margin, sums, counts):
    """Add the samples of a run to the counts ``(2,)`` and the sums ``(2, 2, 2)`` of its labeling: class, end, part.

    The sums of a run are numbers of their own, which the compiler need not keep in memory.
    """
    for label in (NEGATIVE, POSITIVE):
        count = low_upper = low_rest = high_upper = high_rest = 0
        for i in range(len(phi)):
            if labels[i] == label:
                psi = soft_position(phi[i], label == POSITIVE, margin)
                upper, rest = _parts(max(0.0, psi))
                low_upper += upper
                low_rest += rest
                upper, rest = _parts(min(1.0, 1.0 + psi))
                high_upper += upper
                high_rest += rest
                count += 1
        counts[label] += count
        sums[label, _LOW, 0] += low_upper
        sums[label, _LOW, 1] += low_rest
        sums[label, _HIGH, 0] += high_upper
        sums[label, _HIGH, 1] += high_rest


@kernel
def _total(sums, r, positive, end):
    return (sums[r, positive, end, 0] + sums[r, positive, end, 1] / _STEPS) / _STEPS


@kernel
def _best_corner(sums, counts, r, numerator, denominator, zero_division, corner):
    """The largest ratio; ``corner`` takes its ends and its derivatives for negatives and positives: ``(end, derivative)``."""
    negatives, positives = counts[r, 0], counts[r, 1]
    top = numerator[2] * positives + numerator[3] * negatives
    bottom = denominator[2] * positives + denominator[3] * negatives
    top_a, bottom_a = numerator[0] - numerator[2], denominator[0] - denominator[2]
    top_b, bottom_b = numerator[1] - numerator[3], denominator[1] - denominator[3]
    best = -np.inf
    # The corner of the usual metrics comes first: true positives high, false positives low. The others must be better.
    for a_end in (_HIGH, _LOW):
        for b_end in (_LOW, _HIGH):
            a, b = _total(sums, r, 1, a_end), _total(sums, r, 0, b_end)
            over, under = top + top_a * a + top_b * b, bottom + bottom_a * a + bottom_b * b
            ratio = over / under if under > 0.0 else zero_division
            if ratio > best:
                best = ratio
                corner[0, 0], corner[1, 0] = b_end, a_end
                corner[0, 1] = (top_b - ratio * bottom_b) / under if under > 0.0 else 0.0
                corner[1, 1] = (top_a - ratio * bottom_a) / under if under > 0.0 else 0.0
    return best


@inlined_kernel
def _sample_gradient(corner, phi, positive, margin, squash):
    """The derivative of the best ratio in the score of a sample."""
    psi = soft_position(phi, positive == POSITIVE, margin)
    moves = psi >= 0.0 if corner[positive, 0] == _LOW else psi <= 0.0
    return corner[positive, 1] * soft_slope(phi, margin, squash) if moves else 0.0


@kernel
def best_ratios(phi, labels, run_owner, labelings, numerator, denominator, margin, zero_division):
    """The largest ratio of each labeling, shape ``(R,)``, and its corners ``(R, 2, 2)``.

    Parameters: ``phi``, ``labels`` (uint8) flat, runs of equal length owned by labelings; ``numerator`` and ``denominator``
    the coefficients of tp, fp, fn, tn, those of the denominator at least zero.
    """
    sums, counts = np.zeros((labelings, 2, 2, 2), np.int64), np.zeros((labelings, 2), np.int64)
    run = len(phi) // max(len(run_owner), 1)
    for q in range(len(run_owner)):
        r, samples = run_owner[q], slice(q * run, (q + 1) * run)
        _tally(phi[samples], labels[samples], margin, sums[r], counts[r])
    best, corners = np.empty(labelings), np.empty((labelings, 2, 2))
    for r in range(labelings):
        best[r] = _best_corner(sums, counts, r, numerator, denominator, zero_division, corners[r])
    return best, corners


@kernel
def write_ratio_gradients(phi, labels, run_owner, corners, margin, squash, factor, out):
    """``factor[r]`` times the derivative of the ratio of labeling r in each score."""
    run = len(phi) // max(len(run_owner), 1)
    for q in range(len(run_owner)):
        r = run_owner[q]
        for i in range(q * run, (q + 1) * run):
            out[i] = 0.0
            if labels[i] != IGNORED:
                positive = np.int64(labels[i] == POSITIVE)
                out[i] = factor[r] * _sample_gradient(corners[r], phi[i], positive, margin, squash)
