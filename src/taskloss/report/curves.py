"""The values behind the charts, computed from scores: precision-recall, ROC, calibration, thresholds. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskloss.report.records import Bin, ClassResults, Curves, Thresholds

MAX_POINTS = 200
"""Largest number of points that a curve keeps."""
FALSE_POSITIVE_RATES: tuple[float, ...] = tuple(((np.arange(101) / 100) ** 2).tolist())
"""Where the ROC curve is sampled: denser near zero, which matters most for imbalanced data."""
CALIBRATION_BINS = 10
SCORE_BINS = 40
"""Number of bins in the histogram of scores."""
MAX_THRESHOLDS = 300


def describe_curves(scores: np.ndarray, target: np.ndarray, probabilities: np.ndarray | None) -> Curves:
    """Return the curves of one run on its test samples; all arrays have shape ``(n,)``.

    ``probabilities`` are those of the positive class, or None if the method predicts none.
    """
    return Curves(
        precision=_rounded(_resample_steps(precision_at_positives(scores, target))),
        recall=_rounded(recall_at_rates(scores, target)),
        calibration=() if probabilities is None else calibration_bins(probabilities, target),
    )


def describe_classes(scores: np.ndarray, target: np.ndarray, probabilities: np.ndarray | None) -> ClassResults:
    """Return the results of one run with K classes on its test samples; the class with the highest score is predicted.

    ``scores`` and ``probabilities`` have shape ``(n, K)``, the indices of the true classes ``(n,)``.

    >>> describe_classes(np.eye(3)[[0, 1, 1]], np.array([0, 1, 2]), None).confusion
    ((1, 0, 0), (0, 1, 0), (0, 1, 0))
    """
    chosen, classes = scores.argmax(1), scores.shape[1]
    counts = np.bincount(target * classes + chosen, minlength=classes**2).reshape(classes, classes)
    calibration: tuple[Bin, ...] = ()
    if probabilities is not None:
        calibration = calibration_bins(probabilities[np.arange(len(chosen)), chosen], (chosen == target).astype(np.int64))
    return ClassResults(tuple(tuple(row) for row in counts.tolist()), calibration)


def precision_at_positives(scores: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the precision at the score of each positive, from the highest score down, shape ``(P,)``.

    Samples with equal scores are retrieved together. As steps over recall 1/P, 2/P, ..., 1, these values are the precision-recall
    curve, and their mean, the area below it, is the average precision. The area below the mean of several such curves is
    therefore the mean average precision.

    >>> precision_at_positives(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 0, 1, 0])).round(3).tolist()
    [1.0, 0.667]
    """
    all_scores = np.sort(scores)
    positives = np.sort(scores[target == 1])
    retrieved = len(all_scores) - np.searchsorted(all_scores, positives)
    relevant = len(positives) - np.searchsorted(positives, positives)
    precision: np.ndarray = (relevant / retrieved)[::-1]
    return precision


def _resample_steps(curve: np.ndarray) -> np.ndarray:
    """Resample a step curve to at most MAX_POINTS equal steps, each with the mean height, so that the area stays the same."""
    if len(curve) <= MAX_POINTS:
        return curve
    area = np.concatenate([[0.0], np.cumsum(curve)])
    ends = np.linspace(0, len(curve), MAX_POINTS + 1)
    means: np.ndarray = np.diff(np.interp(ends, np.arange(len(area)), area)) / (len(curve) / MAX_POINTS)
    return means


def recall_at_rates(scores: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the recall of the ROC curve at FALSE_POSITIVE_RATES; lines between thresholds make ties count half.

    >>> recall_at_rates(np.array([3.0, 2.0, 1.0]), np.array([1, 0, 1]))[[0, -1]].tolist()
    [0.5, 1.0]
    """
    hits, alarms, _ = _cumulative(scores, target)
    hits, alarms = np.concatenate([[0], hits]), np.concatenate([[0], alarms])
    rates = np.array(FALSE_POSITIVE_RATES) * alarms[-1]
    # Where only positives follow, the curve rises vertically. So the last point at or before a rate is the highest at that rate,
    # and the line to the right of it ends in the next point.
    before = np.searchsorted(alarms, rates, side="right") - 1
    after = np.minimum(before + 1, len(alarms) - 1)
    share = (rates - alarms[before]) / np.maximum(alarms[after] - alarms[before], 1)
    recall: np.ndarray = (hits[before] + share * (hits[after] - hits[before])) / hits[-1]
    return recall


def calibration_bins(probabilities: np.ndarray, target: np.ndarray) -> tuple[Bin, ...]:
    """Compare predicted and observed frequency in CALIBRATION_BINS bins, the least probable samples first; a bin may be empty.

    All bins have the same expected number of positives. With equally many samples per bin, nearly all bins would lie at zero
    where positives are rare.
    """
    order = np.argsort(probabilities, kind="stable")
    mass = np.cumsum(probabilities[order])
    cuts = np.searchsorted(mass, mass[-1] * np.arange(1, CALIBRATION_BINS) / CALIBRATION_BINS)
    return tuple(_bin(probabilities[part], target[part]) for part in np.split(order, cuts))


def _bin(probabilities: np.ndarray, target: np.ndarray) -> Bin:
    """Return mean probability, share of positives and size of a bin."""
    if not len(target):
        return Bin(0.0, 0.0, 0)
    return Bin(_round(probabilities.mean()), _round(target.mean()), len(target))


def describe_thresholds(scores: np.ndarray, target: np.ndarray, chosen: float | None) -> Thresholds:
    """Count true and false positives at up to MAX_THRESHOLDS thresholds, denser where few samples are flagged.

    The ``chosen`` threshold, above which samples are flagged as in :mod:`taskloss.thresholds`, is among them, represented by the
    lowest score that it flags.
    """
    hits, alarms, values = _cumulative(scores, target)
    flagged = hits + alarms
    wanted = np.geomspace(1, len(scores), MAX_THRESHOLDS)
    indices = set(np.minimum(np.searchsorted(flagged, wanted), len(values) - 1).tolist())
    if chosen is not None:
        indices.add(int(np.clip(np.searchsorted(-values, -chosen) - 1, 0, len(values) - 1)))
    kept = sorted(indices)
    edges = np.linspace(*_histogram_range(scores), SCORE_BINS + 1)
    clipped = np.clip(scores, edges[0], edges[-1])
    return Thresholds(
        values=tuple(float(f"{value:.9g}") for value in values[kept]),
        true_positives=tuple(hits[kept].tolist()),
        false_positives=tuple(alarms[kept].tolist()),
        positives=int(hits[-1]),
        negatives=int(alarms[-1]),
        chosen=chosen,
        edges=tuple(float(f"{edge:.9g}") for edge in edges),
        positive_scores=tuple(np.histogram(clipped[target == 1], edges)[0].tolist()),
        negative_scores=tuple(np.histogram(clipped[target == 0], edges)[0].tolist()),
    )


def _histogram_range(scores: np.ndarray) -> tuple[float, float]:
    """Return the range of the scores without a few outliers; the outer bins count those."""
    low, high = np.quantile(scores, [0.002, 0.998]).tolist()
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _cumulative(scores: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers of positives and negatives at or above each distinct score, and these scores, the highest first."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    hits = np.cumsum(target[order])[ends]
    return hits, ends + 1 - hits, ranked[ends]


def thin_curve(values: Sequence[float]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return at most MAX_POINTS steps of a learning curve, the first and the last among them, and its values there."""
    indices = np.unique(np.linspace(0, len(values) - 1, min(len(values), MAX_POINTS)).round().astype(int))
    return tuple((indices + 1).tolist()), _rounded(np.asarray(values, dtype=np.float64)[indices])


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(_round(value) for value in values)


def _round(value: float) -> float:
    """Round to six decimals: more than a chart shows, and small in the file."""
    return round(float(value), 6)
