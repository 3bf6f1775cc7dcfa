"""Labelings of samples: counts, the samples that may change sides, features and joint scores; each one pass over the samples.

The best labeling with a given number of true and false positives takes the positives and the negatives with the highest scores,
so an answer is a threshold a class: above it the label is 1, below it 0, and samples right on it share what is left
(``share``, the mean label of samples of equal score). The prediction has the threshold 0 and the share 1/2; the truth has
the thresholds ``-inf`` for positives and ``inf`` for negatives. No pass needs the samples in any order, so only samples
that may change sides are ever sorted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel
from taskloss.kernels.sort import IGNORED, NEGATIVE, POSITIVE
from taskloss.kernels.sums import order_free_sums


class Samples(NamedTuple):
    """The samples of R labelings, in the order of the input.

    ``scores`` and ``labels`` (uint8, as in :mod:`taskloss.kernels.sort`) have shape ``(n,)``; they are runs of equal length,
    ``run_owner[q]`` being the labeling that run q belongs to.
    """

    scores: np.ndarray
    labels: np.ndarray
    run_owner: np.ndarray


class Tallies(NamedTuple):
    """Samples of each labeling by label and by the side of zero, int64 of shape ``(R,)``."""

    positives: np.ndarray
    negatives: np.ndarray
    positives_above: np.ndarray
    """Score above zero: the true positives of the prediction."""
    negatives_above: np.ndarray
    """The false positives of the prediction."""
    positives_at: np.ndarray
    """Score exactly zero."""
    negatives_at: np.ndarray


class Thresholds(NamedTuple):
    """An answer, float64 of shape ``(R,)`` each."""

    positive: np.ndarray
    positive_share: np.ndarray
    negative: np.ndarray
    negative_share: np.ndarray


class Costs(NamedTuple):
    """Distances from zero of the samples that may change sides, one list a labeling from the nearest to the farthest.

    Labeling ``r`` owns ``values[start[r]:stop[r]]``; zeros are left out.
    """

    values: np.ndarray
    start: np.ndarray
    stop: np.ndarray


@kernel
def one_vs_rest(mask, classes, ignore, ignored_class):
    """Labels of shape ``(B, C, S)`` for class indices of shape ``(B, S)``, and whether all of these are in range."""
    batch, size = mask.shape
    labels = np.zeros((batch, classes, size), np.uint8)
    good = True
    for b in range(batch):
        for s in range(size):
            index = np.int64(mask[b, s])
            if ignore and index == ignored_class:
                labels[b, :, s] = IGNORED
            elif 0 <= index < classes:
                labels[b, index, s] = 1
            else:
                good = False
    return labels, good


@kernel
def tally(samples, labelings):
    """The :class:`Tallies` as rows of one array, shape ``(6, R)``."""
    counts = np.zeros((6, labelings), np.int64)
    run = len(samples.scores) // max(len(samples.run_owner), 1)
    for q in range(len(samples.run_owner)):
        positives = negatives = positives_above = negatives_above = positives_at = negatives_at = 0
        for i in range(q * run, (q + 1) * run):
            positive, negative = samples.labels[i] == POSITIVE, samples.labels[i] == NEGATIVE
            above, at = samples.scores[i] > 0, samples.scores[i] == 0
            positives += positive
            negatives += negative
            positives_above += positive & above
            negatives_above += negative & above
            positives_at += positive & at
            negatives_at += negative & at
        r = samples.run_owner[q]
        counts[0, r] += positives
        counts[1, r] += negatives
        counts[2, r] += positives_above
        counts[3, r] += negatives_above
        counts[4, r] += positives_at
        counts[5, r] += negatives_at
    return counts


@kernel
def collect_costs(samples, label, direction, limits, start, values):
    """Write ``direction * score`` of the samples of this label where it is above zero and at most ``limits[r]``.

    ``start[r]`` is where labeling r begins in ``values``, which has room for all and one more; returns where each one stops.
    """
    stop = start.copy()
    run = len(samples.scores) // max(len(samples.run_owner), 1)
    for q in range(len(samples.run_owner)):
        r = samples.run_owner[q]
        place, limit = stop[r], limits[r]
        for i in range(q * run, (q + 1) * run):
            cost = direction * np.float64(samples.scores[i])
            # Written in any case and kept or not: a branch that cannot be foreseen would take longer than the rest of the pass.
            values[place] = cost
            place += (samples.labels[i] == label) & (cost > 0.0) & (cost <= limit)
        stop[r] = place
    return stop


def segments(room: np.ndarray) -> tuple[np.ndarray, int]:
    """Where segments of these lengths start, one behind the other, and their length in all."""
    ends = np.cumsum(room)
    return ends - room, int(ends[-1]) if len(ends) else 0


_FEW = 256


def sort_segments(values: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
    """Sort ``values[start[r]:stop[r]]`` in place for each r.

    numpy's sort is the fastest on long segments; on short ones its call would take longer than the sort.
    """
    for r in np.flatnonzero(stop - start > _FEW):
        values[start[r] : stop[r]].sort()
    _sort_short_segments(values, start, stop)


@kernel
def _sort_short_segments(values, start, stop):
    for r in range(len(start)):
        if 1 < stop[r] - start[r] <= _FEW:
            values[start[r] : stop[r]].sort()


def costs_of(samples: Samples, label: int, direction: int, limits: np.ndarray, room: np.ndarray) -> Costs:
    """The costs of flipping samples with this label whose score is on the side ``direction`` of zero, sorted.

    ``room[r]`` is at least how many there are; samples that cost more than ``limits[r]`` are left out.
    """
    start, size = segments(room + 1)
    values = np.empty(size, samples.scores.dtype)
    stop = collect_costs(samples, label, float(direction), limits, start, values)
    sort_segments(values, start, stop)
    return Costs(values, start, stop)


@inlined_kernel
def _fill_rules(rules, answer, reference, r, positive_unit, negative_unit):
    """By label: the unit, and the thresholds and shares of two answers. Ignored samples have the unit zero."""
    rules[NEGATIVE, 0], rules[POSITIVE, 0], rules[IGNORED, 0] = negative_unit[r], positive_unit[r], 0.0
    rules[NEGATIVE, 1], rules[NEGATIVE, 2] = answer.negative[r], answer.negative_share[r]
    rules[NEGATIVE, 3], rules[NEGATIVE, 4] = reference.negative[r], reference.negative_share[r]
    rules[POSITIVE, 1], rules[POSITIVE, 2] = answer.positive[r], answer.positive_share[r]
    rules[POSITIVE, 3], rules[POSITIVE, 4] = reference.positive[r], reference.positive_share[r]


@inlined_kernel
def _weighted_change(rules, label, score):
    """``unit * (label by answer - label by reference)``, without a branch."""
    change = np.float64(score > rules[label, 1]) - np.float64(score > rules[label, 3])
    change += rules[label, 2] * np.float64(score == rules[label, 1])
    change -= rules[label, 4] * np.float64(score == rules[label, 3])
    return rules[label, 0] * change


@kernel
def write_feature_difference(samples, answer, reference, positive_unit, negative_unit, out):
    """``unit[r] * (label by answer - label by reference)``, the unit by the sample's own label; zero for ignored samples."""
    run = len(samples.scores) // max(len(samples.run_owner), 1)
    rules = np.zeros((3, 5))
    filled = -1
    for q in range(len(samples.run_owner)):
        if samples.run_owner[q] != filled:
            filled = samples.run_owner[q]
            _fill_rules(rules, answer, reference, filled, positive_unit, negative_unit)
        for i in range(q * run, (q + 1) * run):
            # Adding zero turns -0.0 into 0.0.
            out[i] = _weighted_change(rules, samples.labels[i], np.float64(samples.scores[i])) + 0.0


def score_difference(
    samples: Samples, tallies: Tallies, answer: Thresholds, reference: Thresholds, weights: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """``F(answer) - F(reference)`` of each labeling, shape ``(R,)``; ``weights`` of positives and of negatives."""
    start, size = segments(tallies.positives + tallies.negatives + 1)
    terms = np.empty(size)
    stop = _collect_terms(samples, answer, reference, weights[0], weights[1], start, terms)
    return order_free_sums(terms, start, stop)


@kernel
def _collect_terms(samples, answer, reference, positive_weight, negative_weight, start, terms):
    stop = start.copy()
    run = len(samples.scores) // max(len(samples.run_owner), 1)
    rules = np.zeros((3, 5))
    filled = -1
    for q in range(len(samples.run_owner)):
        r = samples.run_owner[q]
        if r != filled:
            filled = r
            _fill_rules(rules, answer, reference, r, positive_weight, negative_weight)
        place = stop[r]
        for i in range(q * run, (q + 1) * run):
            score = np.float64(samples.scores[i])
            change = _weighted_change(rules, samples.labels[i], score)
            terms[place] = change * score
            place += change != 0.0
        stop[r] = place
    return stop
