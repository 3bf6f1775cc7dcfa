"""The charts of a comparison, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from taskloss.report.classes import class_rows
from taskloss.report.curves import FALSE_POSITIVE_RATES
from taskloss.report.effects import ColumnEffect
from taskloss.report.records import ClassResults, Comparison, Curves, Run, Thresholds
from taskloss.report.summary import as_percent, as_points, summarize
from taskloss.report.svg import BOTTOM, TOP, Axis, Chart, unit_axis

MAX_NAME = 44
"""Largest number of characters of the name of a column or a class in a chart."""
MAX_CLASSES = 12
"""Largest number of classes in a chart."""


def _curves(comparison: Comparison, method: str) -> list[Curves]:
    """Return the curves of all runs of a method that have some."""
    return [run.curves for run in comparison.runs_of(method) if run.curves is not None]


def _add_band(chart: Chart, x: np.ndarray, curves: np.ndarray, series: int) -> None:
    """Draw the mean over the splits as a line, and a band of one standard deviation around it.

    ``curves`` has one row per split; ``series`` is the index of the method, which sets the colour.
    """
    mean, deviation = curves.mean(axis=0), curves.std(axis=0, ddof=1)
    chart.band(x, mean - deviation, mean + deviation, f"band s{series}")
    chart.line(x, mean, f"line s{series}")


def precision_recall(comparison: Comparison) -> Markup:
    """Draw precision over recall as steps: the area under the mean curve is the mean average precision."""
    chart = Chart(
        unit_axis("recall"), unit_axis("precision"), "Precision over recall on the test samples, one curve for each method"
    )
    share = comparison.data.positives / comparison.data.samples
    chart.line([0, 1], [share, share], "chance")
    for series, method in enumerate(comparison.methods):
        curves = np.array([curve.precision for curve in _curves(comparison, method)])
        steps = np.repeat(curves, 2, axis=1)
        recall = np.repeat(np.arange(curves.shape[1] + 1) / curves.shape[1], 2)[1:-1]
        _add_band(chart, recall, steps, series)
    return chart.render()


def roc(comparison: Comparison) -> Markup:
    """Draw the ROC curves: recall over false positive rate."""
    chart = Chart(unit_axis("false positive rate"), unit_axis("recall"), "ROC curves on the test samples, one for each method")
    chart.line([0, 1], [0, 1], "chance")
    for series, method in enumerate(comparison.methods):
        curves = np.array([curve.recall for curve in _curves(comparison, method)])
        _add_band(chart, np.array(FALSE_POSITIVE_RATES), curves, series)
    return chart.render()


def splits(comparison: Comparison) -> Markup:
    """Draw the test metric of every run: one column of dots per split."""
    seeds = comparison.seeds()
    values = [run.value for run in comparison.runs]
    ticks = tuple(float(split) for split in range(1, len(seeds) + 1, -(-len(seeds) // 12)))
    chart = Chart(
        Axis(0.5, len(seeds) + 0.5, "split", ticks),
        Axis.around(values, comparison.metric),
        "The test metric of each method by split",
    )
    for series, method in enumerate(comparison.methods):
        offset = (series - (len(comparison.methods) - 1) / 2) * min(0.12, 0.7 / len(comparison.methods))
        for split, run in enumerate(comparison.runs_of(method), 1):
            note = f"{method}, split {split}: {as_percent(run.value)}"
            chart.dot(split + offset, run.value, f"dot s{series}", note)
    return chart.render()


def differences(comparison: Comparison) -> Markup:
    """Draw the differences of each method to the baseline: a small dot per split, a large dot and a bar for mean and interval."""
    contrasts = summarize(comparison).contrasts
    points = [100 * value for contrast in contrasts.values() for value in (*contrast.differences, *contrast.interval)]
    chart = Chart(
        Axis.around([0.0, *points], f"points against {comparison.baseline}"),
        Axis(0.0, float(len(contrasts)), ""),
        f"Differences of each method to {comparison.baseline}, with intervals",
    )
    chart.line([0, 0], [0, len(contrasts)], "zero")
    for series, method in enumerate(comparison.methods):
        if method not in contrasts:
            continue
        row = len(contrasts) - list(contrasts).index(method) - 0.6
        contrast = contrasts[method]
        chart.text(chart.x.low, row + 0.25, method, f"name s{series}")
        chart.line([100 * value for value in contrast.interval], [row, row], f"line s{series}")
        for value in contrast.differences:
            chart.dot(100 * value, row - 0.16, f"dot small faint s{series}", as_points(value))
        chart.dot(100 * contrast.mean, row, f"dot s{series}", f"{method}: {as_points(contrast.mean)}")
    return chart.render()


def effects(method: str, series: int, columns: Sequence[ColumnEffect]) -> Markup:
    """Draw the effects of columns, the largest at the top: a small dot per split, a large dot and a bar for mean and interval."""
    # Where there are few splits, intervals are far wider than the values; they end at the edge of the chart.
    falls = [100 * value for effect in columns for value in effect.falls]
    reach = max(map(abs, falls), default=1.0)
    ends = [100 * end for effect in columns for end in effect.interval if abs(100 * end) <= 2 * reach]
    chart = Chart(
        Axis.around([0.0, *falls, *ends], "points that the metric falls"),
        Axis(0.0, float(len(columns)), ""),
        f"Effects of the columns on {method}, with intervals",
        height=TOP + BOTTOM + 36 * len(columns),
    )
    chart.line([0, 0], [0, len(columns)], "zero")
    for index, effect in enumerate(columns):
        row = len(columns) - index - 0.7
        chart.text(chart.x.low, row + 0.35, _short(effect.column), "name")
        chart.line([100 * value for value in effect.interval], [row, row], f"line s{series}")
        for value in effect.falls:
            chart.dot(100 * value, row, f"dot small faint s{series}", f"{effect.column}: {as_points(value)}")
        chart.dot(100 * effect.mean, row, f"dot s{series}", f"{effect.column}: {as_points(effect.mean)}")
    return chart.render()


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "\u2026"


def recall_by_class(comparison: Comparison) -> Markup:
    """Draw the recall of each class: a row of dots, one per method."""
    return _by_class(comparison, "recall")


def precision_by_class(comparison: Comparison) -> Markup:
    """Draw the precision of each class: a row of dots, one per method; none where a method never predicts the class."""
    return _by_class(comparison, "precision")


def _by_class(comparison: Comparison, quantity: str) -> Markup:
    """Draw the recall or the precision of the classes, of many those with the lowest recall."""
    rows = [class_rows(comparison, method) for method in comparison.methods]
    lowest = np.argsort([sum(row.recall for row in of_class) for of_class in zip(*rows, strict=True)], kind="stable")[
        :MAX_CLASSES
    ]
    drawn = sorted(lowest.tolist())
    values = np.array([[getattr(of_method[index], quantity) for index in drawn] for of_method in rows])
    chart = Chart(
        Axis.around(values[np.isfinite(values)], quantity),
        Axis(0.0, float(len(drawn)), ""),
        f"The {quantity} of each class, one dot for each method",
        height=TOP + BOTTOM + 44 * len(drawn),
    )
    for place, index in enumerate(drawn):
        top = len(drawn) - place
        chart.text(chart.x.low, top - 0.32, _short(rows[0][index].label), "name")
        chart.line([chart.x.low, chart.x.high], [top - 1, top - 1], "grid")
        for series, method in enumerate(comparison.methods):
            value = values[series, place]
            if np.isfinite(value):
                # One below the other, so that equal values stay visible.
                height = top - 0.5 - 0.38 * (series + 0.5) / len(rows)
                chart.dot(value, height, f"dot small s{series}", f"{method}, {rows[0][index].label}: {as_percent(value)}")
    return chart.render()


def learning(comparison: Comparison) -> Markup:
    """Draw the validation metric over the steps: a thin line for each split, a thick one for their mean."""
    runs = [run for run in comparison.runs if len(run.steps) > 1]
    longest = max((run.steps[-1] for run in runs), default=1)
    values = [value for run in runs for value in run.learning]
    # The first steps of some runs are far below the rest and would flatten it.
    low = float(np.quantile(values, 0.05)) if values else 0.0
    chart = Chart(
        Axis.around([0, longest], "step"),
        Axis.around([low, max(values, default=1.0)], f"validation {comparison.metric}"),
        "The validation metric over the training steps",
    )
    for series, method in enumerate(comparison.methods):
        of_method = [run for run in comparison.runs_of(method) if len(run.steps) > 1]
        for run in of_method:
            chart.line(run.steps, run.learning, f"thin s{series}")
        if of_method:
            steps, mean = mean_learning(of_method)
            chart.line(steps, mean, f"line s{series}")
    return chart.render()


def mean_learning(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and values of the mean learning curve, up to the median number of steps.

    Runs that stopped earlier keep their last value.
    """
    end = int(np.median([run.steps[-1] for run in runs]))
    steps = np.unique(np.linspace(1, end, min(end, 150)).round())
    return steps, np.mean([np.interp(steps, run.steps, run.learning) for run in runs], axis=0)


def calibration(comparison: Comparison) -> Markup | None:
    """Draw observed over predicted frequency, pooled over the splits; return None if no method predicts probabilities."""
    parts = {method: [run.curves or run.classes for run in comparison.runs_of(method)] for method in comparison.methods}
    pooled = {method: pooled_bins([part for part in of_method if part is not None]) for method, of_method in parts.items()}
    values = np.concatenate([bins[:, :2] for bins in pooled.values()])
    if not len(values):
        return None
    axis = unit_axis("predicted probability")
    if comparison.data.classes:  # The predicted one of several classes is hardly ever improbable.
        axis = Axis.around([values.min(), 1.0], axis.label)
    chart = Chart(axis, replace(axis, label="observed frequency"), "Observed over predicted frequency")
    chart.line([axis.low, 1], [axis.low, 1], "chance")
    for series, (method, bins) in enumerate(pooled.items()):
        chart.line(bins[:, 0], bins[:, 1], f"line s{series}")
        for predicted, observed, samples in bins:
            note = f"{method}: predicted {predicted:.3f}, observed {observed:.3f} in {samples:,.0f} samples"
            chart.dot(predicted, observed, f"dot small s{series}", note)
    return chart.render()


def pooled_bins(curves: Sequence[Curves | ClassResults]) -> np.ndarray:
    """Pool the i-th bins of all the splits; return rows of predicted, observed and samples, without the empty bins."""
    filled = [
        [(part.predicted, part.observed, part.samples) for part in curve.calibration] for curve in curves if curve.calibration
    ]
    if not filled or len({len(bins) for bins in filled}) > 1:
        return np.zeros((0, 3))
    bins = np.array(filled, dtype=np.float64)
    samples = bins[:, :, 2].sum(axis=0)
    predicted, observed = (np.sum(bins[:, :, column] * bins[:, :, 2], axis=0) / np.maximum(samples, 1) for column in (0, 1))
    return np.column_stack([predicted, observed, samples])[samples > 0]


def histogram(method: str, counts: Thresholds) -> Markup:
    """Draw the scores of the two classes on the test samples of a run; the bars of each class add up to 1."""
    positive = np.array(counts.positive_scores) / max(counts.positives, 1)
    negative = np.array(counts.negative_scores) / max(counts.negatives, 1)
    # The square root keeps a few samples visible beside a full bin.
    top = float(np.sqrt(max(positive.max(), negative.max())))
    span = Axis.around([counts.edges[0], counts.edges[-1]], "score")
    inside = tuple(tick for tick in span.ticks if counts.edges[0] <= tick <= counts.edges[-1])
    chart = Chart(
        Axis(counts.edges[0], counts.edges[-1], "score", inside),
        Axis(0.0, top, "share (square-root scale)"),
        f"Histogram of the scores of {method}: positives and negatives",
        height=220,
    )
    for low, high, share_negative, share_positive in zip(counts.edges, counts.edges[1:], negative, positive, strict=False):
        chart.bar(low, high, float(np.sqrt(share_negative)), "negatives")
        chart.bar(low, high, float(np.sqrt(share_positive)), "positives")
    return chart.render()
