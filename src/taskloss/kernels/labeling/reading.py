"""The steps of a labeling loss, each in one call: reading the samples, the losses of counts, augmented inference.

The passes over the samples are in :mod:`taskloss.kernels.labeling.samples`.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.labeling.confusion import metric_value
from taskloss.kernels.labeling.flips import augment_labelings, cost_limits
from taskloss.kernels.labeling.samples import Samples, Tallies, collect_costs, sort_segments, tally
from taskloss.kernels.sort import IGNORED, MANY_SAMPLES, NEGATIVE, POSITIVE, read_labels, sort_few


@kernel
def read_samples(scores, target, ignore, ignored, run_owner, labelings):
    """Return the results of :func:`~taskloss.kernels.sort.read_labels`, then those of :func:`count_samples`, in one call."""
    labels, known = read_labels(target, ignore, ignored)
    counts, nonempty, finite = count_samples(Samples(scores, labels, run_owner), labelings)
    return labels, known, counts, nonempty, finite


@kernel
def count_samples(samples, labelings):
    """Count the samples of R labelings.

    Returns:
        The rows of :class:`Tallies`, int64 ``(6, R)``; which labelings have samples that are not ignored, bool ``(R,)``; whether
        all the scores that are not ignored are finite.
    """
    finite = True
    for i in range(len(samples.scores)):
        finite &= np.isfinite(samples.scores[i]) | (samples.labels[i] == IGNORED)
    counts = tally(samples, labelings)
    nonempty = np.empty(labelings, np.bool_)
    for r in range(labelings):
        nonempty[r] = counts[0, r] + counts[1, r] > 0
    return counts, nonempty, finite


@kernel
def confusion_losses(metric, scale, true_positives, false_positives, positives, negatives, beta2, zero_division):
    """Return ``scale * (1 - metric)`` for confusion counts, four arrays ``(R,)``, integers or floats."""
    losses = np.empty(len(true_positives), np.float64)
    for r in range(len(losses)):
        a, b = np.float64(true_positives[r]), np.float64(false_positives[r])
        value = metric_value(metric, a, b, np.float64(positives[r]), np.float64(negatives[r]), beta2, zero_division)
        losses[r] = scale * (1.0 - value)
    return losses


def augment(
    metric: int,
    weight: float,
    samples: Samples,
    tallies: Tallies,
    weights: tuple[np.ndarray, np.ndarray],
    beta2: float,
    zero_division: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the results of :func:`augment_labelings` for samples; ``weights`` are those of positives and of negatives."""
    if len(samples.scores) < MANY_SAMPLES:
        return _augment_few(metric, weight, samples, tallies, *weights, beta2, zero_division)
    values, start, stop = _collect(metric, weight, samples, tallies, *weights, beta2)
    sort_segments(values, start.reshape(-1), stop.reshape(-1))
    return augment_labelings(metric, weight, values, start, stop, tallies, *weights, beta2, zero_division)


@kernel
def _augment_few(metric, weight, samples, tallies, positive_weight, negative_weight, beta2, zero_division):
    """Do what :func:`augment` does, in one call."""
    values, start, stop = _collect(metric, weight, samples, tallies, positive_weight, negative_weight, beta2)
    for label in range(2):
        for r in range(start.shape[1]):
            sort_few(values[start[label, r] : stop[label, r]])
    return augment_labelings(metric, weight, values, start, stop, tallies, positive_weight, negative_weight, beta2, zero_division)


def augment_both(
    metric: int,
    epsilon: float,
    scale: float,
    samples: Samples,
    tallies: Tallies,
    weights: tuple[np.ndarray, np.ndarray],
    beta2: float,
    zero_division: float,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return :func:`weights_at_prediction`, and with them the results of :func:`augment` for ``epsilon * scale`` and minus it."""
    arguments = scale, tallies, *weights, beta2, zero_division
    if len(samples.scores) < MANY_SAMPLES:
        return _augment_both_few(metric, epsilon, samples, *arguments)
    local = weights_at_prediction(metric, *arguments)
    options = samples, tallies, local, beta2, zero_division
    return local, augment(metric, epsilon * scale, *options), augment(metric, -epsilon * scale, *options)


@kernel
def _augment_both_few(metric, epsilon, samples, scale, tallies, positive_weight, negative_weight, beta2, zero_division):
    """Do what :func:`augment_both` does, in one call."""
    local = weights_at_prediction(metric, scale, tallies, positive_weight, negative_weight, beta2, zero_division)
    weight = epsilon * scale
    worse = _augment_few(metric, weight, samples, tallies, local[0], local[1], beta2, zero_division)
    better = _augment_few(metric, -weight, samples, tallies, local[0], local[1], beta2, zero_division)
    return local, worse, better


@kernel
def weights_at_prediction(metric, scale, tallies, positive_weight, negative_weight, beta2, zero_division):
    """Return weights of positives and negatives, ``(R,)`` each: those given, or the change of the loss by one flip if it is less.

    ``LabelingTask.weights_at_prediction`` says how it is measured.
    """
    of_positives, of_negatives = positive_weight.copy(), negative_weight.copy()
    for r in range(len(of_positives)):
        positives, negatives = np.float64(tallies.positives[r]), np.float64(tallies.negatives[r])
        if positives == 0.0 or negatives == 0.0:
            continue
        a, b = max(np.float64(tallies.positives_above[r]), 1.0), np.float64(tallies.negatives_above[r])
        other_a, other_b = a + 1.0 if a < positives else a - 1.0, b - 1.0 if b > 0.0 else b + 1.0
        value = metric_value(metric, a, b, positives, negatives, beta2, zero_division)
        change = scale * abs(metric_value(metric, other_a, b, positives, negatives, beta2, zero_division) - value)
        if 0.0 < change < of_positives[r]:
            of_positives[r] = change
        change = scale * abs(metric_value(metric, a, other_b, positives, negatives, beta2, zero_division) - value)
        if 0.0 < change < of_negatives[r]:
            of_negatives[r] = change
    return of_positives, of_negatives


@kernel
def _collect(metric, weight, samples, tallies, positive_weight, negative_weight, beta2):
    """Return the costs of flipping samples, unsorted, for the update that the sign of ``weight`` names.

    The positive update flips positives above zero and negatives below, the negative update the others. Samples that no gain of
    the metric can pay for are left out.

    Returns:
        The costs, of the scores' dtype, and where those of the positives and of the negatives of each labeling start and stop,
        int64 ``(2, R)`` each.
    """
    limits = cost_limits(metric, weight, tallies, positive_weight, negative_weight, beta2)
    labelings = len(positive_weight)
    start, stop = np.empty((2, labelings), np.int64), np.empty((2, labelings), np.int64)
    end = 0
    for label in range(2):
        for r in range(labelings):
            size = tallies.positives[r] if label == 0 else tallies.negatives[r]
            above = tallies.positives_above[r] if label == 0 else tallies.negatives_above[r]
            start[label, r] = end
            # One more than there are: the pass writes each candidate before it knows whether to keep it.
            end += (above if (weight > 0) == (label == 0) else size - above) + 1
    values = np.empty(end, samples.scores.dtype)
    direction = 1.0 if weight > 0 else -1.0
    collect_costs(samples, POSITIVE, direction, limits[0], start[0], stop[0], values)
    collect_costs(samples, NEGATIVE, -direction, limits[1], start[1], stop[1], values)
    return values, start, stop
