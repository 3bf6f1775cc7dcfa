"""From scores to the figures of a curve: precision and recall, ROC, calibration, thresholds. Numbers only; nothing is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskloss.report.records import Bin, Curves, Thresholds

MOST_POINTS = 200
FALSE_POSITIVE_RATES: tuple[float, ...] = tuple(((np.arange(101) / 100) ** 2).tolist())
"""Where the ROC curve is read: denser near zero, where imbalanced data are decided."""
BINS = 10
"""Of the calibration."""
SCORE_BINS = 40
"""Of the histogram of scores."""
MOST_THRESHOLDS = 300


def describe_curves(scores: np.ndarray, target: np.ndarray, probabilities: np.ndarray | None) -> Curves:
    """The curves of one test; ``probabilities`` are those of the positive class, if the method predicts them."""
    return Curves(
        precision=_rounded(_on_grid(precision_at_positives(scores, target))),
        recall=_rounded(recall_at_rates(scores, target)),
        calibration=() if probabilities is None else calibration_bins(probabilities, target),
    )


def precision_at_positives(scores: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Precision at the threshold of each positive, best first; samples with equal scores are retrieved together.

    Read as steps over recall 1/P, 2/P, ..., 1, this is the precision-recall curve whose area is the average precision: the mean
    of these values. So the mean of several such curves has the mean average precision under it.

    >>> precision_at_positives(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 0, 1, 0])).round(3).tolist()
    [1.0, 0.667]
    """
    everything = np.sort(scores)
    positives = np.sort(scores[target == 1])
    retrieved = len(everything) - np.searchsorted(everything, positives)
    relevant = len(positives) - np.searchsorted(positives, positives)
    precision: np.ndarray = (relevant / retrieved)[::-1]
    return precision


def _on_grid(curve: np.ndarray) -> np.ndarray:
    """A step curve over P equal steps as one over at most MOST_POINTS of them, each the mean height: the area stays the same."""
    if len(curve) <= MOST_POINTS:
        return curve
    area = np.concatenate([[0.0], np.cumsum(curve)])
    ends = np.linspace(0, len(curve), MOST_POINTS + 1)
    means: np.ndarray = np.diff(np.interp(ends, np.arange(len(area)), area)) / (len(curve) / MOST_POINTS)
    return means


def recall_at_rates(scores: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The ROC curve (straight between thresholds, so that ties count half) at FALSE_POSITIVE_RATES.

    >>> recall_at_rates(np.array([3.0, 2.0, 1.0]), np.array([1, 0, 1]))[[0, -1]].tolist()
    [0.5, 1.0]
    """
    hits, alarms, _ = _cumulative(scores, target)
    hits, alarms = np.concatenate([[0], hits]), np.concatenate([[0], alarms])
    rates = np.array(FALSE_POSITIVE_RATES) * alarms[-1]
    # The curve rises straight up where only positives follow: the last point at or before a rate is the highest there, and the
    # one after it is where the line onward leads.
    before = np.searchsorted(alarms, rates, side="right") - 1
    after = np.minimum(before + 1, len(alarms) - 1)
    way = (rates - alarms[before]) / np.maximum(alarms[after] - alarms[before], 1)
    recall: np.ndarray = (hits[before] + way * (hits[after] - hits[before])) / hits[-1]
    return recall


def calibration_bins(probabilities: np.ndarray, target: np.ndarray) -> tuple[Bin, ...]:
    """Predicted against observed frequency in BINS bins, the least probable samples first; a bin may be empty.

    Each bin is predicted to hold equally many positives. Bins with equally many samples would nearly all sit at zero where
    positives are rare.
    """
    order = np.argsort(probabilities, kind="stable")
    mass = np.cumsum(probabilities[order])
    cuts = np.searchsorted(mass, mass[-1] * np.arange(1, BINS) / BINS)
    return tuple(_bin(probabilities[part], target[part]) for part in np.split(order, cuts))


def _bin(probabilities: np.ndarray, target: np.ndarray) -> Bin:
    if not len(target):
        return Bin(0.0, 0.0, 0)
    return Bin(_short(probabilities.mean()), _short(target.mean()), len(target))


def describe_thresholds(scores: np.ndarray, target: np.ndarray, chosen: float | None) -> Thresholds:
    """Counts at up to MOST_THRESHOLDS thresholds, closer together where few samples are flagged.

    The chosen one (flag what is above it, as :mod:`taskloss.thresholds` has it) is among them, as the lowest score it flags.
    """
    hits, alarms, values = _cumulative(scores, target)
    flagged = hits + alarms
    wanted = np.geomspace(1, len(scores), MOST_THRESHOLDS)
    picks = set(np.minimum(np.searchsorted(flagged, wanted), len(values) - 1).tolist())
    if chosen is not None:
        picks.add(int(np.clip(np.searchsorted(-values, -chosen) - 1, 0, len(values) - 1)))
    places = sorted(picks)
    edges = np.linspace(*_range(scores), SCORE_BINS + 1)
    clipped = np.clip(scores, edges[0], edges[-1])
    return Thresholds(
        values=tuple(float(f"{value:.9g}") for value in values[places]),
        true_positives=tuple(hits[places].tolist()),
        false_positives=tuple(alarms[places].tolist()),
        positives=int(hits[-1]),
        negatives=int(alarms[-1]),
        chosen=chosen,
        edges=tuple(float(f"{edge:.9g}") for edge in edges),
        positive_scores=tuple(np.histogram(clipped[target == 1], edges)[0].tolist()),
        negative_scores=tuple(np.histogram(clipped[target == 0], edges)[0].tolist()),
    )


def _range(scores: np.ndarray) -> tuple[float, float]:
    """The histogram's range: the scores less a few outliers, which count into the outer bins."""
    low, high = np.quantile(scores, [0.002, 0.998]).tolist()
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _cumulative(scores: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positives and negatives at or above each different score, and those scores, from the highest down."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    hits = np.cumsum(target[order])[ends]
    return hits, ends + 1 - hits, ranked[ends]


def thin_curve(values: Sequence[float]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """At most MOST_POINTS steps of a learning curve, first and last among them, and its values there."""
    places = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_POINTS)).round().astype(int))
    return tuple((places + 1).tolist()), _rounded(np.asarray(values, dtype=np.float64)[places])


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(_short(value) for value in values)


def _short(value: float) -> float:
    """Six decimals are more than a picture shows, and keep the files small."""
    return round(float(value), 6)
