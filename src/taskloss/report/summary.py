"""The statistics of a comparison, and the verdict in plain sentences."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import stdtr, stdtrit

from taskloss.report.records import Comparison

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Contrast:
    """The paired differences of a method to the baseline, in the unit of the metric."""

    differences: tuple[float, ...]
    """Method minus baseline, one value per split."""
    mean: float
    spread: float
    """Standard deviation over the splits."""
    interval: tuple[float, float]
    """Confidence interval of the mean."""
    p_value: float
    """Two-sided p-value of the corrected resampled t-test."""
    adjusted_p: float
    """The p-value after Holm's correction for the number of methods tested against the baseline."""
    wins: int
    """Number of splits on which the method is strictly ahead."""


@dataclass(frozen=True)
class Summary:
    """The statistics of a comparison; values are in the unit of the metric, [0, 1]."""

    means: dict[str, float]
    """Mean over the splits, by method."""
    spreads: dict[str, float]
    """Standard deviation over the splits, by method."""
    contrasts: dict[str, Contrast]
    """Every other method compared with the baseline."""
    outcome: str
    """Whether the contender is better than the baseline: ``"helps"``, ``"hurts"`` or ``"unclear"``."""
    verdict: str
    """The outcome as a sentence with its figures."""
    remark: str
    """A sentence about the method with the highest mean."""


def summarize(comparison: Comparison) -> Summary:
    """Compute means, standard deviations, paired tests and the verdict."""
    seeds = comparison.seeds()
    scores = {method: np.array([run.value for run in comparison.runs_of(method)]) for method in comparison.methods}
    overlap = comparison.test_fraction / (1 - comparison.test_fraction)
    others = [method for method in comparison.methods if method != comparison.baseline]
    contrasts = [resampled_t_test(scores[method] - scores[comparison.baseline], overlap) for method in others]
    adjusted = holm([contrast.p_value for contrast in contrasts])
    by_method = {
        method: Contrast(**{**vars(contrast), "adjusted_p": value})
        for method, contrast, value in zip(others, contrasts, adjusted, strict=True)
    }
    means = {method: float(values.mean()) for method, values in scores.items()}
    main = by_method[comparison.contender]
    outcome = "helps" if main.interval[0] > 0 else "hurts" if main.interval[1] < 0 else "unclear"
    return Summary(
        means=means,
        spreads={method: float(values.std(ddof=1)) for method, values in scores.items()},
        contrasts=by_method,
        outcome=outcome,
        verdict=_verdict(comparison, means, main, outcome, len(seeds)),
        remark=_remark(comparison, means, by_method),
    )


def resampled_t_test(differences: np.ndarray, overlap: float) -> Contrast:
    """Apply the corrected resampled t-test (Nadeau and Bengio, *Inference for the generalization error*, 2003).

    The splits of different seeds share most of their samples, so their differences are correlated, and the plain paired t-test
    is far too confident. The correction adds the ratio of test to training samples, ``overlap``, to the factor ``1/n`` of the
    variance: ``t = mean / (std * sqrt(1/n + test/training))``, with ``n - 1`` degrees of freedom.

    Equal differences, such as one test sample in each of two splits, say nothing about their spread. The p-value is then that of
    the sign test, and the interval reaches to zero.
    """
    n = len(differences)
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    error = spread * sqrt(1 / n + overlap)
    half_width = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * error
    if spread <= 1e-12 * abs(mean):
        half_width, p_value = abs(mean), min(1.0, 2.0 * 0.5**n) if mean else 1.0
    else:
        p_value = 2 * float(stdtr(n - 1, -abs(mean) / error)) if error > 0 else 1.0
    wins = int((differences > 0).sum())
    return Contrast(tuple(differences.tolist()), mean, spread, (mean - half_width, mean + half_width), p_value, p_value, wins)


def holm(p_values: list[float]) -> list[float]:
    """Correct k p-values for their number (Holm 1979): the smallest times k, the next times k - 1, never decreasing.

    >>> holm([0.01, 0.5, 0.03])
    [0.03, 0.5, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def _verdict(comparison: Comparison, means: dict[str, float], main: Contrast, outcome: str, splits: int) -> str:
    """Return the verdict as a sentence; it names a winner only if the interval excludes zero."""
    finding = {
        "helps": "Direct training helps on this data",
        "hurts": "Direct training does not help on this data, it does worse",
        "unclear": "Direct training does not clearly help on this data",
    }[outcome]
    low, high = main.interval
    return (
        f"{finding}: mean test {comparison.metric} {as_percent(means[comparison.contender])} with {comparison.contender} against "
        f"{as_percent(means[comparison.baseline])} with {comparison.baseline}, ahead on {main.wins} of {splits} splits; "
        f"the {CONFIDENCE:.0%} interval of the difference is {as_points(low)} to {as_points(high)} points."
    )


def _remark(comparison: Comparison, means: dict[str, float], contrasts: dict[str, Contrast]) -> str:
    """Return a sentence about the method with the highest mean."""
    best = max(means, key=means.__getitem__)
    if best == comparison.contender:
        return f"No other method has a higher mean than {best}."
    if best == comparison.baseline:
        return f"The highest mean is that of {best}."
    contrast = contrasts[best]
    clear = "which is clear" if contrast.adjusted_p < 1 - CONFIDENCE else "which is not clear"
    return (
        f"The highest mean is that of {best}, {as_percent(means[best])}: {as_points(contrast.mean)} points against "
        f"{comparison.baseline}, {clear} over these splits (p = {as_p(contrast.adjusted_p)} after Holm's correction)."
    )


def as_percent(value: float) -> str:
    """Format a metric in [0, 1] as a percentage.

    >>> as_percent(0.93456)
    '93.46'
    """
    return f"{100 * value:.2f}"


def as_points(difference: float) -> str:
    """Format a difference of two metrics in percentage points, always with its sign.

    >>> as_points(0.0123), as_points(-0.000001)
    ('+1.23', '+0.00')
    """
    return f"{round(100 * difference, 2) + 0.0:+.2f}"


def as_p(value: float) -> str:
    """Format a p-value.

    >>> as_p(0.0432), as_p(1e-9)
    ('0.043', '<0.001')
    """
    return "<0.001" if value < 0.001 else f"{value:.3f}"
