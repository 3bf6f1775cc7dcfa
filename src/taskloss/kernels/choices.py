r"""Multi-class inference: choosing k of K classes for each sample, with or without the loss added to the scores.

An answer for one sample is a set S of k classes, its feature ``psi`` the indicator of S, its joint score
:math:`F = \sum_{c \in S} s_c`. Both losses here are linear in ``psi``, with t the target and w the weight of the loss:

- cost matrix, k = 1: :math:`L = \sum_c \psi_c\, \mathrm{cost}[t, c]`, so
  :math:`F + wL = \sum_c \psi_c (s_c + w\, \mathrm{cost}[t, c])`;
- top-k error: :math:`L = [t \notin S] = 1 - \psi_t`, so
  :math:`F + wL = w + \sum_c \psi_c (s_c - w [c = t])`.

The coefficients of ``psi`` are the *keys* of the classes. A linear function of ``psi`` over the sets of size k is maximized by
the k largest keys, whatever the sign of w: augmented inference is exact, and it is the prediction of shifted scores. (With k = 1
the second form is the first one with 0/1 costs.)

**Ties.** The maximizing sets all contain the classes with keys above the k-th largest, the *threshold*, and any of those with
a key equal to it. The feature is the mean over all the maximizing sets: 1 above the threshold, ``(k - above) / tied`` at it. So
the order of the classes never matters.

**Rounding.** Keys are measured from the prediction's threshold. These differences are exact for the classes whose membership is
in question, so equal scores of 1e30 still see a cost of 1.

Shapes: scores ``(outer, K, inner)``; arrays with one value per sample ``(outer, inner)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel

IGNORED = -1
"""The target of samples that take no part: their features, losses and joint scores are zero."""
TRUTH = -np.inf
"""The weight for which the answer is the target and the k - 1 other classes with the highest scores."""


class ClassSamples(NamedTuple):
    """Class scores with their targets."""

    scores: np.ndarray
    """Float32 or float64, ``(outer, K, inner)``."""
    target: np.ndarray
    """Class indices or ``IGNORED``, int64, ``(outer, inner)``."""
    cost: np.ndarray
    """Cost of each answer (column) for each target (row), float64 ``(K, K)``; empty for the top-k error."""
    reference: np.ndarray
    """What keys are measured from: the prediction's threshold, float64 ``(outer, inner)``."""


class Choice(NamedTuple):
    """An answer: the classes whose keys, with the loss at this weight, reach the threshold."""

    weight: float
    threshold: np.ndarray
    """The k-th largest key, float64 ``(outer, inner)``."""
    share: np.ndarray
    """The feature of the classes whose key equals the threshold, float64 ``(outer, inner)``."""


@inlined_kernel
def _key(samples, sample, c, weight):
    """Return the key of class ``c``: its score from the reference, with the loss at this weight."""
    b, j = sample
    gap = np.float64(samples.scores[b, c, j]) - samples.reference[b, j]
    if weight == 0.0:
        return gap
    target = samples.target[b, j]
    if weight == TRUTH:
        return np.inf if c == target else gap
    if samples.cost.shape[0] > 0:
        return gap + weight * samples.cost[target, c]
    return gap - weight if c == target else gap


@inlined_kernel
def _feature(samples, sample, c, choice):
    """Return ``psi`` of class ``c``."""
    key = _key(samples, sample, c, choice.weight)
    threshold = choice.threshold[sample]
    return 1.0 if key > threshold else (choice.share[sample] if key == threshold else 0.0)


@kernel
def choose(samples, k, weight):
    """Return the :class:`Choice` of ``k`` classes that maximizes ``F + weight * L``; 0 is for the prediction, or ``TRUTH``."""
    outer, _, inner = samples.scores.shape
    threshold, share = np.zeros((outer, inner), np.float64), np.zeros((outer, inner), np.float64)
    largest = np.empty(k, np.float64)
    for b in range(outer):
        for j in range(inner):
            if samples.target[b, j] != IGNORED:
                if k == 1:
                    threshold[b, j], share[b, j] = _largest_key(samples, (b, j), weight)
                else:
                    threshold[b, j], share[b, j] = _kth_largest_key(samples, (b, j), weight, largest)
    return Choice(weight, threshold, share)


@inlined_kernel
def _largest_key(samples, sample, weight):
    """Return the largest key and the share of each class that has it: k = 1, without branches."""
    best = -np.inf
    for c in range(samples.scores.shape[1]):
        best = max(best, _key(samples, sample, c, weight))
    tied = 0
    for c in range(samples.scores.shape[1]):
        tied += _key(samples, sample, c, weight) == best
    return best, 1.0 / tied


@inlined_kernel
def _kth_largest_key(samples, sample, weight, largest):
    """Return the k-th largest key, k = ``len(largest)``, and the share of each class that has it; ``largest`` is overwritten."""
    k = len(largest)
    # ``largest`` holds the largest keys so far, descending; ``left_out`` counts the keys equal to its last that are not in it.
    filled, left_out = 0, 0
    for c in range(samples.scores.shape[1]):
        key = _key(samples, sample, c, weight)
        if filled < k:
            filled += 1
        elif key <= largest[k - 1]:
            left_out += key == largest[k - 1]
            continue
        else:
            left_out = left_out + 1 if largest[k - 2] == largest[k - 1] else 0
        slot = filled - 1
        while slot > 0 and largest[slot - 1] < key:
            largest[slot] = largest[slot - 1]
            slot -= 1
        largest[slot] = key
    inside = 1
    while inside < k and largest[k - 1 - inside] == largest[k - 1]:
        inside += 1
    return largest[k - 1], inside / (inside + left_out)


@kernel
def losses(samples, choice):
    """Return the mean loss of the maximizing sets, float64 ``(outer, inner)``."""
    outer, classes, inner = samples.scores.shape
    result = np.zeros((outer, inner), np.float64)
    for b in range(outer):
        for j in range(inner):
            target = samples.target[b, j]
            if target == IGNORED:
                continue
            if samples.cost.shape[0] == 0:
                result[b, j] = 1.0 - _feature(samples, (b, j), target, choice)
                continue
            total = 0.0
            for c in range(classes):
                total += _feature(samples, (b, j), c, choice) * samples.cost[target, c]
            result[b, j] = total
    return result


@kernel
def score_differences(samples, choice, other):
    """Return ``F(choice) - F(other)``, float64 ``(outer, inner)``.

    Both have k classes, so the scores may be measured from any reference.
    """
    outer, classes, inner = samples.scores.shape
    result = np.zeros((outer, inner), np.float64)
    for b in range(outer):
        for j in range(inner):
            if samples.target[b, j] == IGNORED:
                continue
            total = 0.0
            for c in range(classes):
                difference = _feature(samples, (b, j), c, choice) - _feature(samples, (b, j), c, other)
                if difference != 0.0:
                    total += difference * _key(samples, (b, j), c, 0.0)
            result[b, j] = total
    return result


@kernel
def write_feature_differences(samples, choice, other, factor, out):
    """Write ``factor * (psi(choice) - psi(other))`` to ``out``, of the scores' shape; ``factor`` is ``(outer, inner)``."""
    outer, classes, inner = samples.scores.shape
    for b in range(outer):
        for j in range(inner):
            ignored = samples.target[b, j] == IGNORED
            for c in range(classes):
                difference = 0.0
                if not ignored:
                    difference = _feature(samples, (b, j), c, choice) - _feature(samples, (b, j), c, other)
                out[b, c, j] = factor[b, j] * difference
