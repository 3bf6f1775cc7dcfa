r"""Choosing k of K classes for each sample, and the same with the loss added to the scores.

An answer for one sample is a set S of k classes, its feature ``psi`` the indicator of S, its joint score
:math:`F = \sum_{j \in S} s_j`. Both losses here are linear in ``psi``:

- cost matrix, k = 1: :math:`L = \sum_j \psi_j\, \mathrm{cost}[t, j]`, so
  :math:`F + wL = \sum_j \psi_j (s_j + w\, \mathrm{cost}[t, j])`;
- top-k error: :math:`L = [t \notin S] = 1 - \psi_t`, so
  :math:`F + wL = w + \sum_j \psi_j (s_j - w [j = t])`.

A linear function of ``psi`` over the sets of size k is maximized by the k largest *keys*, whatever the sign of w: augmented
inference is exact, and is the prediction of shifted scores. (With k = 1 the second form is the first one with 0/1 costs.)

**Ties.** The maximizing sets all contain the classes with keys above the k-th largest, the *threshold*, and any of those with
a key equal to it. The feature is the mean over all the maximizing sets: 1 above the threshold, ``(k - above) / tied`` at it. So
the order of the classes never matters.

**Rounding.** Keys are differences to the prediction's threshold. They are exact for the classes that compete for a place, so
equal scores of 1e30 still see a cost of 1.

Arrays: scores ``(outer, K, inner)``; everything of a sample ``(outer, inner)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel

IGNORED = -1
"""The target of samples that take no part: their features, losses and joint scores are zero."""
TRUTH = -np.inf
"""The weight that puts the target into the answer and fills the other places by score."""


class Samples(NamedTuple):
    """Class scores with their targets."""

    scores: np.ndarray
    """Float32 or float64, ``(outer, K, inner)``."""
    target: np.ndarray
    """Class indices or ``IGNORED``, int64, ``(outer, inner)``."""
    cost: np.ndarray
    """Cost of each answer (column) for each target (row), float64 ``(K, K)``; empty for the error of the top k."""
    reference: np.ndarray
    """What keys are counted from, float64 ``(outer, inner)``."""


class Choice(NamedTuple):
    """An answer: the classes whose keys, with the loss at this weight, reach the threshold."""

    weight: float
    threshold: np.ndarray
    """The k-th largest key, float64 ``(outer, inner)``."""
    share: np.ndarray
    """The feature of the classes whose key equals the threshold, float64 ``(outer, inner)``."""


@inlined_kernel
def _key(samples, sample, k, weight):
    b, j = sample
    gap = np.float64(samples.scores[b, k, j]) - samples.reference[b, j]
    if weight == 0.0:
        return gap
    target = samples.target[b, j]
    if weight == TRUTH:
        return np.inf if k == target else gap
    if samples.cost.shape[0] > 0:
        return gap + weight * samples.cost[target, k]
    return gap - weight if k == target else gap


@inlined_kernel
def _feature(samples, sample, k, choice):
    key = _key(samples, sample, k, choice.weight)
    threshold = choice.threshold[sample]
    return 1.0 if key > threshold else (choice.share[sample] if key == threshold else 0.0)


@kernel
def choose(samples, places, weight):
    """The answer with ``places`` classes that maximizes ``F + weight * L``; weight 0 for the prediction, or ``TRUTH``."""
    outer, _, inner = samples.scores.shape
    threshold, share = np.zeros((outer, inner)), np.zeros((outer, inner))
    largest = np.empty(places)
    for b in range(outer):
        for j in range(inner):
            if samples.target[b, j] != IGNORED:
                if places == 1:
                    threshold[b, j], share[b, j] = _largest_key(samples, (b, j), weight)
                else:
                    threshold[b, j], share[b, j] = _last_of_largest_keys(samples, (b, j), weight, largest)
    return Choice(weight, threshold, share)


@inlined_kernel
def _largest_key(samples, sample, weight):
    """The largest key and the share of each class that has it: one place, found without branches."""
    best = -np.inf
    for k in range(samples.scores.shape[1]):
        best = max(best, _key(samples, sample, k, weight))
    tied = 0
    for k in range(samples.scores.shape[1]):
        tied += _key(samples, sample, k, weight) == best
    return best, 1.0 / tied


@inlined_kernel
def _last_of_largest_keys(samples, sample, weight, largest):
    """The last of the ``len(largest)`` largest keys, and the share of each class that has it in the places that are left."""
    places = len(largest)
    # The largest keys so far, falling, and how many equal to the last of them found no place.
    filled, left_out = 0, 0
    for k in range(samples.scores.shape[1]):
        key = _key(samples, sample, k, weight)
        if filled < places:
            filled += 1
        elif key <= largest[places - 1]:
            left_out += key == largest[places - 1]
            continue
        else:
            left_out = left_out + 1 if largest[places - 2] == largest[places - 1] else 0
        place = filled - 1
        while place > 0 and largest[place - 1] < key:
            largest[place] = largest[place - 1]
            place -= 1
        largest[place] = key
    inside = 1
    while inside < places and largest[places - 1 - inside] == largest[places - 1]:
        inside += 1
    return largest[places - 1], inside / (inside + left_out)


@kernel
def losses(samples, choice):
    """The mean loss of the maximizing sets, ``(outer, inner)``."""
    outer, classes, inner = samples.scores.shape
    result = np.zeros((outer, inner))
    for b in range(outer):
        for j in range(inner):
            target = samples.target[b, j]
            if target == IGNORED:
                continue
            if samples.cost.shape[0] == 0:
                result[b, j] = 1.0 - _feature(samples, (b, j), target, choice)
                continue
            total = 0.0
            for k in range(classes):
                total += _feature(samples, (b, j), k, choice) * samples.cost[target, k]
            result[b, j] = total
    return result


@kernel
def score_differences(samples, choice, other):
    """``F(choice) - F(other)``, ``(outer, inner)``. Both have equally many classes, so scores may be counted from anywhere."""
    outer, classes, inner = samples.scores.shape
    result = np.zeros((outer, inner))
    for b in range(outer):
        for j in range(inner):
            if samples.target[b, j] == IGNORED:
                continue
            total = 0.0
            for k in range(classes):
                difference = _feature(samples, (b, j), k, choice) - _feature(samples, (b, j), k, other)
                if difference != 0.0:
                    total += difference * _key(samples, (b, j), k, 0.0)
            result[b, j] = total
    return result


@kernel
def write_feature_differences(samples, choice, other, factor, out):
    """``factor * (psi(choice) - psi(other))``, factor ``(outer, inner)``, into ``out`` of the shape of the scores."""
    outer, classes, inner = samples.scores.shape
    for b in range(outer):
        for j in range(inner):
            ignored = samples.target[b, j] == IGNORED
            for k in range(classes):
                difference = 0.0
                if not ignored:
                    difference = _feature(samples, (b, j), k, choice) - _feature(samples, (b, j), k, other)
                out[b, k, j] = factor[b, j] * difference
