"""The figures under the table, and which method won, if any: computed from the runs, told in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from taskloss.report.records import Comparison

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """All in the unit of the metric, [0, 1], except the count of wins."""

    means: dict[str, float]
    spreads: dict[str, float]
    """Standard deviation over the seeds, by method."""
    differences: tuple[float, ...]
    """Contender minus baseline, seed by seed."""
    mean_difference: float
    spread_of_differences: float
    interval: tuple[float, float]
    """Confidence interval of the mean difference."""
    wins: int
    """Seeds on which the contender is strictly ahead."""
    verdict: str


class Row(NamedTuple):
    """A line of the table, as it is shown."""

    heading: str
    baseline: str
    contender: str
    difference: str


def summarize(comparison: Comparison) -> Summary:
    """Means, spreads, paired differences and the verdict.

    The interval is that of the corrected resampled t-test (Nadeau and Bengio, *Inference for the generalization error*, 2003):
    the splits of different seeds share most of their samples, so the plain paired t-test is far too sure. The correction adds
    the ratio of test to training samples to the ``1/seeds`` that the variance is multiplied with.
    """
    methods = (comparison.baseline, comparison.contender)
    scores = np.array([[run.average_precision for run in pair] for pair in comparison.pairs()])
    differences = scores[:, 1] - scores[:, 0]
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    overlap = comparison.test_fraction / (1 - comparison.test_fraction)
    reach = float(stdtrit(len(scores) - 1, (1 + CONFIDENCE) / 2)) * spread * sqrt(1 / len(scores) + overlap)
    means = dict(zip(methods, scores.mean(axis=0).tolist(), strict=True))
    interval, wins = (mean - reach, mean + reach), int((differences > 0).sum())
    return Summary(
        means=means,
        spreads=dict(zip(methods, scores.std(axis=0, ddof=1).tolist(), strict=True)),
        differences=tuple(differences.tolist()),
        mean_difference=mean,
        spread_of_differences=spread,
        interval=interval,
        wins=wins,
        verdict=_verdict(comparison, means, interval, f"ahead on {wins} of {len(scores)} seeds"),
    )


def _verdict(comparison: Comparison, means: dict[str, float], interval: tuple[float, float], record: str) -> str:
    """A winner is named only when the interval leaves out zero."""
    baseline, contender = comparison.baseline, comparison.contender
    low, high = interval
    if low > 0:
        finding = f"{contender} ranks better than {baseline}"
    elif high < 0:
        finding = f"{contender} ranks worse than {baseline}"
    else:
        finding = f"No clear difference between {contender} and {baseline}"
    return (
        f"{finding[0].upper()}{finding[1:]}: mean test AP {as_percent(means[contender])} against {as_percent(means[baseline])}, "
        f"{contender} {record}; the {CONFIDENCE:.0%} interval of the difference is {as_points(low)} to {as_points(high)} points."
    )


def seed_rows(comparison: Comparison) -> list[Row]:
    """The table's lines, one a seed."""
    return [
        Row(str(baseline.seed), as_percent(baseline.average_precision), as_percent(contender.average_precision), as_points(step))
        for (baseline, contender), step in zip(comparison.pairs(), summarize(comparison).differences, strict=True)
    ]


def summary_rows(comparison: Comparison) -> list[Row]:
    """The table's last lines: mean, and standard deviation over the seeds."""
    summary = summarize(comparison)

    def row(heading: str, values: dict[str, float], difference: str) -> Row:
        return Row(heading, as_percent(values[comparison.baseline]), as_percent(values[comparison.contender]), difference)

    return [
        row("mean", summary.means, as_points(summary.mean_difference)),
        row("spread", summary.spreads, as_percent(summary.spread_of_differences)),
    ]


def as_percent(value: float) -> str:
    """A metric in [0, 1] as tables show it.

    >>> as_percent(0.93456)
    '93.46'
    """
    return f"{100 * value:.2f}"


def as_points(difference: float) -> str:
    """A difference of two metrics in percentage points, its sign always shown.

    >>> as_points(0.0123), as_points(-0.000001)
    ('+1.23', '+0.00')
    """
    return f"{round(100 * difference, 2) + 0.0:+.2f}"
