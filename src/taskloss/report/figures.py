"""The charts of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from taskloss.report.curves import FALSE_POSITIVE_RATES
from taskloss.report.records import Comparison, Curves, Run
from taskloss.report.summary import as_percent, as_points, summarize
from taskloss.report.svg import Axis, Chart, unit_axis


def _curves(comparison: Comparison, method: str) -> list[Curves]:
    return [run.curves for run in comparison.runs_of(method) if run.curves is not None]


def _add_band(chart: Chart, x: np.ndarray, curves: np.ndarray, place: int) -> None:
    """The mean over the splits, and one standard deviation to either side."""
    mean, spread = curves.mean(axis=0), curves.std(axis=0, ddof=1)
    chart.band(x, mean - spread, mean + spread, f"band s{place}")
    chart.line(x, mean, f"line s{place}")


def precision_recall(comparison: Comparison) -> Markup:
    """Precision over recall, as steps: the area under the mean curve is the mean average precision."""
    chart = Chart(
        unit_axis("recall"), unit_axis("precision"), "Precision over recall on the test samples, a curve for each method"
    )
    share = comparison.data.positives / comparison.data.samples
    chart.line([0, 1], [share, share], "chance")
    for place, method in enumerate(comparison.methods):
        curves = np.array([curve.precision for curve in _curves(comparison, method)])
        steps = np.repeat(curves, 2, axis=1)
        recall = np.repeat(np.arange(curves.shape[1] + 1) / curves.shape[1], 2)[1:-1]
        _add_band(chart, recall, steps, place)
    return chart.render()


def roc(comparison: Comparison) -> Markup:
    """The share of positives found over the share of negatives flagged."""
    chart = Chart(unit_axis("false positive rate"), unit_axis("recall"), "ROC curves on the test samples, one for each method")
    chart.line([0, 1], [0, 1], "chance")
    for place, method in enumerate(comparison.methods):
        curves = np.array([curve.recall for curve in _curves(comparison, method)])
        _add_band(chart, np.array(FALSE_POSITIVE_RATES), curves, place)
    return chart.render()


def splits(comparison: Comparison) -> Markup:
    """The test metric of every run: a column of dots for each split."""
    seeds = comparison.seeds()
    values = [run.value for run in comparison.runs]
    ticks = tuple(float(place) for place in range(1, len(seeds) + 1, -(-len(seeds) // 12)))
    chart = Chart(
        Axis(0.5, len(seeds) + 0.5, "split", ticks),
        Axis.around(values, comparison.metric),
        "The test metric of each method by split",
    )
    for place, method in enumerate(comparison.methods):
        offset = (place - (len(comparison.methods) - 1) / 2) * min(0.12, 0.7 / len(comparison.methods))
        for column, run in enumerate(comparison.runs_of(method), 1):
            note = f"{method}, split {column}: {as_percent(run.value)}"
            chart.dot(column + offset, run.value, f"dot s{place}", note)
    return chart.render()


def differences(comparison: Comparison) -> Markup:
    """Each method less the baseline, in points: small dots the splits, a large one their mean, a bar its interval."""
    contrasts = summarize(comparison).contrasts
    reach = [100 * value for contrast in contrasts.values() for value in (*contrast.differences, *contrast.interval)]
    chart = Chart(
        Axis.around([0.0, *reach], f"points against {comparison.baseline}"),
        Axis(0.0, float(len(contrasts)), ""),
        f"Differences of each method to {comparison.baseline}, with intervals",
    )
    chart.line([0, 0], [0, len(contrasts)], "zero")
    for place, method in enumerate(comparison.methods):
        if method not in contrasts:
            continue
        row = len(contrasts) - list(contrasts).index(method) - 0.6
        contrast = contrasts[method]
        chart.text(chart.x.low, row + 0.25, method, f"name s{place}")
        chart.line([100 * value for value in contrast.interval], [row, row], f"line s{place}")
        for value in contrast.differences:
            chart.dot(100 * value, row - 0.16, f"dot small faint s{place}", as_points(value))
        chart.dot(100 * contrast.mean, row, f"dot s{place}", f"{method}: {as_points(contrast.mean)}")
    return chart.render()


def learning(comparison: Comparison) -> Markup:
    """The exact metric on the validation samples while training: thin one split, thick their mean where most still run."""
    runs = [run for run in comparison.runs if len(run.steps) > 1]
    longest = max((run.steps[-1] for run in runs), default=1)
    starts = [value for run in runs for value in run.learning]
    low = float(np.quantile(starts, 0.05)) if starts else 0.0
    chart = Chart(
        Axis.around([0, longest], "step"),
        Axis.around([low, max(starts, default=1.0)], f"validation {comparison.metric}"),
        "The validation metric over the steps of the training",
    )
    for place, method in enumerate(comparison.methods):
        own = [run for run in comparison.runs_of(method) if len(run.steps) > 1]
        for run in own:
            chart.line(run.steps, run.learning, f"thin s{place}")
        if own:
            steps, mean = mean_learning(own)
            chart.line(steps, mean, f"line s{place}")
    return chart.render()


def mean_learning(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """The mean learning curve, as far as at least half of the runs went; runs that stopped earlier keep their last value."""
    end = int(np.median([run.steps[-1] for run in runs]))
    steps = np.unique(np.linspace(1, end, min(end, 150)).round())
    return steps, np.mean([np.interp(steps, run.steps, run.learning) for run in runs], axis=0)


def calibration(comparison: Comparison) -> Markup | None:
    """Observed over predicted frequency, bins of equal size pooled over the splits; None if no method predicts probabilities."""
    chart = Chart(unit_axis("predicted probability"), unit_axis("observed frequency"), "Observed over predicted frequency")
    chart.line([0, 1], [0, 1], "chance")
    any_bins = False
    for place, method in enumerate(comparison.methods):
        bins = pooled_bins(_curves(comparison, method))
        if len(bins):
            any_bins = True
            chart.line(bins[:, 0], bins[:, 1], f"line s{place}")
            for predicted, observed, samples in bins:
                note = f"{method}: predicted {predicted:.3f}, observed {observed:.3f} in {samples:,.0f} samples"
                chart.dot(predicted, observed, f"dot small s{place}", note)
    return chart.render() if any_bins else None


def pooled_bins(curves: Sequence[Curves]) -> np.ndarray:
    """Bins of all the splits put together by their order: predicted, observed, samples; without those that are empty."""
    filled = [
        [(part.predicted, part.observed, part.samples) for part in curve.calibration] for curve in curves if curve.calibration
    ]
    if not filled or len({len(bins) for bins in filled}) > 1:
        return np.zeros((0, 3))
    bins = np.array(filled, dtype=np.float64)
    samples = bins[:, :, 2].sum(axis=0)
    predicted, observed = (np.sum(bins[:, :, column] * bins[:, :, 2], axis=0) / np.maximum(samples, 1) for column in (0, 1))
    return np.column_stack([predicted, observed, samples])[samples > 0]


def histogram(run: Run) -> Markup:
    """Scores of the two classes on the test samples of a split; each class adds up to 1."""
    counts = run.thresholds
    if counts is None:
        raise ValueError(f"the run of {run.method} with seed {run.seed} has no thresholds")
    positive = np.array(counts.positive_scores) / max(counts.positives, 1)
    negative = np.array(counts.negative_scores) / max(counts.negatives, 1)
    # The square root keeps a few samples visible beside a full bin.
    top = float(np.sqrt(max(positive.max(), negative.max())))
    span = Axis.around([counts.edges[0], counts.edges[-1]], "score")
    inside = tuple(tick for tick in span.ticks if counts.edges[0] <= tick <= counts.edges[-1])
    chart = Chart(
        Axis(counts.edges[0], counts.edges[-1], "score", inside),
        Axis(0.0, top, "share (root scale)"),
        f"Histogram of the scores of {run.method}: positives and negatives",
        height=220,
    )
    for low, high, share_negative, share_positive in zip(counts.edges, counts.edges[1:], negative, positive, strict=False):
        chart.bar(low, high, float(np.sqrt(share_negative)), "negatives")
        chart.bar(low, high, float(np.sqrt(share_positive)), "positives")
    return chart.render()
