"""Labelings of samples: tallies, costs of flips, features and joint scores, each in one pass over the samples.

The best labeling with given numbers of true and false positives gives label 1 to the positives and the negatives with the
highest scores. So an answer is one threshold for positives and one for negatives: above it the label is 1, below it 0, and at
it samples have a mean label, the *share*. The prediction has the threshold 0 and the share 1/2; the truth has the thresholds
``-inf`` for positives and ``inf`` for negatives. The *thresholds* of R answers are the rows of one array, float64 ``(4, R)``:
threshold and share of the positives, threshold and share of the negatives. To *flip* a sample is to label it otherwise than the
prediction does. No pass needs the samples in any order, so only samples that may flip are ever sorted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inlined_kernel, kernel
from taskloss.kernels.sort import IGNORED, NEGATIVE, POSITIVE, sort_few
from taskloss.kernels.sums import order_free_sums


class Samples(NamedTuple):
    """The n samples of R labelings, in the order of the input, as runs of equal length; a run belongs to one labeling."""

    scores: np.ndarray
    """Float32 or float64 ``(n,)``."""
    labels: np.ndarray
    """``NEGATIVE``, ``POSITIVE`` or ``IGNORED`` of :mod:`taskloss.kernels.sort`, uint8 ``(n,)``."""
    run_owner: np.ndarray
    """The labeling of each run, int64."""


class Tallies(NamedTuple):
    """Numbers of samples of each labeling by label and by sign of the score, int64 ``(R,)`` each."""

    positives: np.ndarray
    negatives: np.ndarray
    positives_above: np.ndarray
    """Positives with a score above zero: the true positives of the prediction."""
    negatives_above: np.ndarray
    """Negatives with a score above zero: the false positives of the prediction."""
    positives_at: np.ndarray
    """Positives with a score of exactly zero."""
    negatives_at: np.ndarray
    """Negatives with a score of exactly zero."""


class Costs(NamedTuple):
    """Distances from zero of the samples that may flip, one ascending list per labeling; samples at zero are left out."""

    values: np.ndarray
    """Labeling ``r`` owns ``values[start[r]:stop[r]]``; of the scores' dtype."""
    start: np.ndarray
    """int64 ``(R,)``."""
    stop: np.ndarray
    """int64 ``(R,)``."""


@kernel
def one_vs_rest(mask, classes, ignore, ignored_class):
    """Return labels, uint8 ``(B, C, S)``, for class indices ``mask`` ``(B, S)``, and whether all indices are valid."""
    batch, size = mask.shape
    labels = np.zeros((batch, classes, size), np.uint8)
    valid = True
    for b in range(batch):
        for s in range(size):
            index = np.int64(mask[b, s])
            if ignore and index == ignored_class:
                labels[b, :, s] = IGNORED
            elif 0 <= index < classes:
                labels[b, index, s] = POSITIVE
            else:
                valid = False
    return labels, valid


@inlined_kernel
def _run_length(samples):
    """Return the number of samples per run."""
    return len(samples.scores) // max(len(samples.run_owner), 1)


@allocating_kernel
def tally(samples, labelings):
    """Return the :class:`Tallies` as rows of one array, int64 ``(6, R)``."""
    counts = np.zeros((6, labelings), np.int64)
    length = _run_length(samples)
    for run in range(len(samples.run_owner)):
        positives = negatives = positives_above = negatives_above = positives_at = negatives_at = 0
        for i in range(run * length, (run + 1) * length):
            positive, negative = samples.labels[i] == POSITIVE, samples.labels[i] == NEGATIVE
            above, at = samples.scores[i] > 0, samples.scores[i] == 0
            positives += positive
            negatives += negative
            positives_above += positive & above
            negatives_above += negative & above
            positives_at += positive & at
            negatives_at += negative & at
        r = samples.run_owner[run]
        counts[0, r] += positives
        counts[1, r] += negatives
        counts[2, r] += positives_above
        counts[3, r] += negatives_above
        counts[4, r] += positives_at
        counts[5, r] += negatives_at
    return counts


@kernel
def collect_costs(samples, label, direction, limits, start, stop, values):
    """Write ``direction * score`` of the samples of this label where it is positive and at most ``limits[r]``, unsorted.

    Args:
        samples: the samples of R labelings, read.
        label: ``POSITIVE`` or ``NEGATIVE``.
        direction: 1.0 for samples above zero, -1.0 for samples below.
        limits: the highest cost to keep, float64 ``(R,)``, read.
        start: where labeling r begins in ``values``, int64 ``(R,)``, read.
        stop: where the costs of labeling r end, int64 ``(R,)``, written.
        values: of the scores' dtype, written; the capacity of a labeling is one more than its number of costs.
    """
    for r in range(len(start)):
        stop[r] = start[r]
    length = _run_length(samples)
    for run in range(len(samples.run_owner)):
        r = samples.run_owner[run]
        slot, limit = stop[r], limits[r]
        for i in range(run * length, (run + 1) * length):
            cost = direction * np.float64(samples.scores[i])
            # Every cost is written, and overwritten unless kept: an unpredictable branch would cost more than the rest.
            values[slot] = cost
            slot += (samples.labels[i] == label) & (cost > 0.0) & (cost <= limit)
        stop[r] = slot


def segments(lengths: np.ndarray) -> tuple[np.ndarray, int]:
    """Return where segments of these lengths start, one behind the other, and their total length."""
    ends = np.cumsum(lengths)
    return ends - lengths, int(ends[-1]) if len(ends) else 0


_SHORT_SEGMENT = 256


def sort_segments(values: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
    """Sort ``values[start[r]:stop[r]]`` in place for each r.

    numpy's sort is the fastest on long segments; on short ones the call would take longer than the sort.
    """
    for r in np.flatnonzero(stop - start > _SHORT_SEGMENT):
        values[start[r] : stop[r]].sort()
    _sort_short_segments(values, start, stop)


@kernel
def _sort_short_segments(values, start, stop):
    for r in range(len(start)):
        if 1 < stop[r] - start[r] <= _SHORT_SEGMENT:
            sort_few(values[start[r] : stop[r]])


def costs_of(samples: Samples, label: int, direction: int, limits: np.ndarray, capacity: np.ndarray) -> Costs:
    """Return the sorted costs of flipping the samples of this label above zero (``direction`` 1) or below it (-1).

    Samples that cost more than ``limits[r]`` are left out. ``capacity[r]`` is the space to reserve, at least their number.
    """
    start, size = segments(capacity + 1)
    values, stop = np.empty(size, samples.scores.dtype), np.empty_like(start)
    collect_costs(samples, label, float(direction), limits, start, stop, values)
    sort_segments(values, start, stop)
    return Costs(values=values, start=start, stop=stop)


@inlined_kernel
def _fill_rules(rules, answer, reference, r, positive_factor, negative_factor):
    """Write, for each label, the factor and the thresholds and shares of two answers to a row of ``rules``, float64 ``(3, 5)``.

    The factor of ignored samples is zero.
    """
    rules[NEGATIVE, 0], rules[POSITIVE, 0], rules[IGNORED, 0] = negative_factor, positive_factor, 0.0
    rules[POSITIVE, 1], rules[POSITIVE, 2] = answer[0, r], answer[1, r]
    rules[POSITIVE, 3], rules[POSITIVE, 4] = reference[0, r], reference[1, r]
    rules[NEGATIVE, 1], rules[NEGATIVE, 2] = answer[2, r], answer[3, r]
    rules[NEGATIVE, 3], rules[NEGATIVE, 4] = reference[2, r], reference[3, r]


@inlined_kernel
def _weighted_change(rules, label, score):
    """Return ``factor * (label by answer - label by reference)``, without a branch."""
    change = np.float64(score > rules[label, 1]) - np.float64(score > rules[label, 3])
    change += rules[label, 2] * np.float64(score == rules[label, 1])
    change -= rules[label, 4] * np.float64(score == rules[label, 3])
    return rules[label, 0] * change


@kernel
def write_feature_difference(samples, answer, reference, factor, positive_weight, negative_weight, out):
    """Write ``factor[r] * weight[r] * (label by answer - label by reference)`` to ``out``, with the weight of the sample's label.

    Args:
        samples: the samples of R labelings, read.
        answer: thresholds, float64 ``(4, R)``, read.
        reference: likewise.
        factor: float64 ``(R,)``, read.
        positive_weight: the weight of positives in the joint score, likewise.
        negative_weight: the weight of negatives, likewise.
        out: floats ``(n,)``, written; zero for ignored samples.
    """
    length = _run_length(samples)
    rules = np.zeros((3, 5), np.float64)
    rules_owner = -1
    for run in range(len(samples.run_owner)):
        r = samples.run_owner[run]
        if r != rules_owner:
            rules_owner = r
            _fill_rules(rules, answer, reference, r, factor[r] * positive_weight[r], factor[r] * negative_weight[r])
        for i in range(run * length, (run + 1) * length):
            # Adding zero turns -0.0 into 0.0.
            out[i] = _weighted_change(rules, samples.labels[i], np.float64(samples.scores[i])) + 0.0


def score_difference(
    samples: Samples, tallies: Tallies, answer: np.ndarray, reference: np.ndarray, weights: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return ``F(answer) - F(reference)`` of each labeling, float64 ``(R,)``; ``weights`` of positives and of negatives."""
    start, size = segments(tallies.positives + tallies.negatives + 1)
    terms = np.empty(size, np.float64)
    stop = _collect_terms(samples, answer, reference, weights[0], weights[1], start, terms)
    return order_free_sums(terms, start, stop)


@kernel
def _collect_terms(samples, answer, reference, positive_weight, negative_weight, start, terms):
    """Write the nonzero terms ``weight * change of label * score``, those of labeling r from ``terms[start[r]]`` on.

    Args:
        samples: the samples of R labelings, read.
        answer: thresholds, float64 ``(4, R)``, read.
        reference: likewise.
        positive_weight: the weight of positives in the joint score, float64 ``(R,)``, read.
        negative_weight: the weight of negatives, likewise.
        start: int64 ``(R,)``, read.
        terms: float64, written; the capacity of a labeling is one more than its number of samples.

    Returns:
        Where the terms of each labeling end, int64 ``(R,)``.
    """
    stop = start.copy()
    length = _run_length(samples)
    rules = np.zeros((3, 5), np.float64)
    rules_owner = -1
    for run in range(len(samples.run_owner)):
        r = samples.run_owner[run]
        if r != rules_owner:
            rules_owner = r
            _fill_rules(rules, answer, reference, r, positive_weight[r], negative_weight[r])
        slot = stop[r]
        for i in range(run * length, (run + 1) * length):
            score = np.float64(samples.scores[i])
            change = _weighted_change(rules, samples.labels[i], score)
            terms[slot] = change * score
            slot += change != 0.0
        stop[r] = slot
    return stop
