"""The steps of a labeling loss, each in one call: counting the samples, the losses of counts, the costs of flips.

The passes over the samples are in :mod:`taskloss.kernels.labeling.samples`.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.labeling.confusion import metric_value
from taskloss.kernels.labeling.flips import cost_limits
from taskloss.kernels.labeling.samples import Costs, Samples, Tallies, collect_costs, sort_segments, tally
from taskloss.kernels.sort import IGNORED, NEGATIVE, POSITIVE

# numpy's sort is the fastest on long segments; on short ones its call would take longer than the sort.
_LONG_SEGMENT = 256


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
    return counts, counts[0] + counts[1] > 0, finite


@kernel
def confusion_losses(metric, scale, true_positives, false_positives, positives, negatives, beta2, zero_division):
    """Return ``scale * (1 - metric)`` for confusion counts, four arrays ``(R,)``, integers or floats."""
    losses = np.empty(len(true_positives))
    for r in range(len(losses)):
        a, b = np.float64(true_positives[r]), np.float64(false_positives[r])
        value = metric_value(metric, a, b, np.float64(positives[r]), np.float64(negatives[r]), beta2, zero_division)
        losses[r] = scale * (1.0 - value)
    return losses


def costs_of_flips(
    metric: int, worth: np.ndarray, samples: Samples, tallies: Tallies, weights: tuple[np.ndarray, np.ndarray], beta2: float
) -> tuple[Costs, Costs]:
    """Return the sorted costs of flipping positives and of flipping negatives, for the update that the sign of ``worth`` names.

    The positive update flips positives above zero and negatives below, the negative update the others. Samples that no gain of
    the metric can pay for are left out.
    """
    values, start, stop, longest = _collect(metric, worth, samples, tallies, *weights, beta2)
    if longest > _LONG_SEGMENT:
        sort_segments(values, start.reshape(-1), stop.reshape(-1))
    return Costs(values, start[0], stop[0]), Costs(values, start[1], stop[1])


@kernel
def _collect(metric, worth, samples, tallies, positive_weight, negative_weight, beta2):
    """Return the costs, where those of the positives and of the negatives of each labeling start and stop, ``(2, R)`` each, and
    the length of the longest list. The lists are sorted unless one of them is long.
    """
    limits = cost_limits(metric, worth, tallies, positive_weight, negative_weight, beta2)
    labelings = len(worth)
    start, stop = np.empty((2, labelings), np.int64), np.empty((2, labelings), np.int64)
    positive_update = labelings > 0 and worth[0] > 0
    end = 0
    for label in range(2):
        for r in range(labelings):
            size = tallies.positives[r] if label == 0 else tallies.negatives[r]
            above = tallies.positives_above[r] if label == 0 else tallies.negatives_above[r]
            start[label, r] = end
            # One more than there are: the pass writes each candidate before it knows whether to keep it.
            end += (above if positive_update == (label == 0) else size - above) + 1
    values = np.empty(end, samples.scores.dtype)
    direction = 1.0 if positive_update else -1.0
    stop[0] = collect_costs(samples, POSITIVE, direction, limits[0], start[0], values)
    stop[1] = collect_costs(samples, NEGATIVE, -direction, limits[1], start[1], values)
    longest = 0
    for label in range(2):
        for r in range(labelings):
            longest = max(longest, stop[label, r] - start[label, r])
    if longest <= _LONG_SEGMENT:
        for label in range(2):
            for r in range(labelings):
                values[start[label, r] : stop[label, r]].sort()
    return values, start, stop, longest
