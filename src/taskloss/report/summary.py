"""The statistics of a comparison, and the verdict in plain sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from scipy.special import stdtr, stdtrit

from taskloss.report.records import Comparison

CONFIDENCE = 0.95
ENOUGH_SPLITS, MANY_SPLITS = 5, 10
"""With fewer splits than the first number nothing is called clear; with fewer than the second, more are recommended."""


@dataclass(frozen=True)
class Contrast:
    """The paired differences of a method to another one, in the unit of the metric."""

    differences: tuple[float, ...]
    """Method minus the other, one value per split."""
    mean: float
    spread: float
    """Standard deviation over the splits."""
    error: float
    """Standard error of the mean, corrected for the samples that the splits share."""
    interval: tuple[float, float]
    """Confidence interval of the mean."""
    p_value: float
    """Two-sided p-value of the corrected resampled t-test."""
    adjusted_p: float
    """The p-value after Holm's correction for the number of methods tested against the baseline."""
    wins: int
    """Number of splits on which the method is strictly ahead."""

    @property
    def is_clear(self) -> bool:
        """Whether zero is outside the interval."""
        return self.interval[0] > 0 or self.interval[1] < 0

    @property
    def finding(self) -> str:
        """What the splits say: clearly if zero is outside the interval, probably if it is more than one standard error away."""
        word = "better" if self.mean > 0 else "worse"
        if self.is_clear:
            return f"clearly {word}" if len(self.differences) >= ENOUGH_SPLITS else f"{word}, but on few splits"
        return f"probably {word}" if abs(self.mean) > self.error else "no clear difference"


@dataclass(frozen=True)
class Gain:
    """What one method gains over another."""

    method: str
    reference: str
    contrast: Contrast
    label: str
    """The two methods in words."""
    sentence: str
    """The gain with its interval, and what it shows."""


@dataclass(frozen=True)
class Summary:
    """The statistics of a comparison; values are in the unit of the metric, [0, 1]."""

    means: dict[str, float]
    """Mean over the splits, by method."""
    spreads: dict[str, float]
    """Standard deviation over the splits, by method."""
    contrasts: dict[str, Contrast]
    """Every other method compared with the baseline."""
    recommended: str
    """The method to use."""
    outcome: str
    """Whether the recommended method is better than the baseline: ``"clear"`` if the interval says so, else ``"unclear"``."""
    verdict: str
    """Which method to use, with its mean, and how sure that is."""
    gains: tuple[Gain, ...]
    """The recommended method against the baseline and against trees, and the contender against the baseline."""
    remark: str
    """What else to know before following the verdict; may be empty."""
    train_command: str
    """The command that trains the recommended method on all the data; empty if there is none."""


def summarize(comparison: Comparison) -> Summary:
    """Compute means, standard deviations, paired tests and the verdict."""
    comparison.seeds()
    scores = {method: np.array([run.value for run in comparison.runs_of(method)]) for method in comparison.methods}
    overlap = comparison.test_fraction / (1 - comparison.test_fraction)

    def contrast(method: str, reference: str) -> Contrast:
        return resampled_t_test(scores[method] - scores[reference], overlap)

    contrasts = {method: contrast(method, comparison.baseline) for method in scores if method != comparison.baseline}
    adjusted = holm([each.p_value for each in contrasts.values()])
    contrasts = {
        method: replace(each, adjusted_p=value) for (method, each), value in zip(contrasts.items(), adjusted, strict=True)
    }
    means = {method: float(values.mean()) for method, values in scores.items()}
    recommended = _recommend(comparison, means, contrast)
    to_others = {method: contrast(recommended, method) for method in scores if method != recommended}
    pairs = [(recommended, comparison.baseline), (recommended, comparison.trees), (comparison.contender, comparison.baseline)]
    gains = tuple(
        _gain(method, reference, contrast(method, reference), alone=method != recommended)
        for method, reference in dict.fromkeys(pairs)
        if method != reference and reference in scores
    )
    return Summary(
        means=means,
        spreads={method: float(values.std(ddof=1)) for method, values in scores.items()},
        contrasts=contrasts,
        recommended=recommended,
        outcome="clear" if recommended in contrasts and contrasts[recommended].interval[0] > 0 else "unclear",
        verdict=f"{_say_what(comparison, means, recommended)} {_say_how_sure(to_others)}",
        gains=gains,
        remark=" ".join(_remarks(comparison, means, recommended, to_others, gains)),
        train_command=comparison.train_commands.get(recommended, ""),
    )


def resampled_t_test(differences: np.ndarray, overlap: float) -> Contrast:
    """Apply the corrected resampled t-test (Nadeau and Bengio, *Inference for the generalization error*, 2003).

    The splits of different seeds share most of their samples, so their differences are correlated, and the plain paired t-test
    is far too confident. The correction adds the ratio of test to training samples, ``overlap``, to the factor ``1/n`` of the
    variance: ``t = mean / (std * sqrt(1/n + test/training))``, with ``n - 1`` degrees of freedom.

    Equal differences, such as one test sample in each of two splits, say nothing about their spread. The standard error is then
    taken to be as large as the mean, the interval reaches to zero, and the p-value is that of the sign test.
    """
    n = len(differences)
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    error = spread * sqrt(1 / n + overlap)
    half_width = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * error
    if spread <= 1e-12 * abs(mean):
        error = half_width = abs(mean)
        p_value = min(1.0, 2.0 * 0.5**n) if mean else 1.0
    else:
        p_value = 2 * float(stdtr(n - 1, -abs(mean) / error)) if error > 0 else 1.0
    wins = int((differences > 0).sum())
    interval = (mean - half_width, mean + half_width)
    return Contrast(tuple(differences.tolist()), mean, spread, error, interval, p_value, p_value, wins)


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


def _recommend(comparison: Comparison, means: dict[str, float], contrast: Callable[[str, str], Contrast]) -> str:
    """Return the method to use: the default, unless the one with the highest mean is ahead by more than one standard error.

    This is the one-standard-error rule (Breiman et al., *Classification and Regression Trees*, 1984). The highest of several
    means is partly luck, so a small lead is no reason to leave the method that is best on other data.
    """
    candidates = [method for method in comparison.methods if method in comparison.train_commands] or list(comparison.methods)
    default = comparison.default if comparison.default in candidates else comparison.baseline
    best = max(candidates, key=means.__getitem__)
    lead = contrast(best, default)
    return best if lead.mean > lead.error else default


def _gain(method: str, reference: str, contrast: Contrast, *, alone: bool) -> Gain:
    low, high = contrast.interval
    label = f"{method}{' alone' if alone else ''} against {reference}"
    sentence = f"{label}: {as_points(contrast.mean)} ({as_points(low)} to {as_points(high)}), {contrast.finding}"
    return Gain(method, reference, contrast, label, sentence)


def _say_what(comparison: Comparison, means: dict[str, float], recommended: str) -> str:
    """Return the sentence that names the method to use, and why that one."""
    best = max(means, key=means.__getitem__)
    text = f"Use {recommended}: its mean test {comparison.metric} is {as_percent(means[recommended])}"
    if means[recommended] == means[best]:
        return f"{text}, the highest of {len(means)} methods."
    if best not in comparison.train_commands and comparison.train_commands:
        return f"{text}; {best} has {as_percent(means[best])}, but taskloss train cannot train it."
    return f"{text}; {best} has {as_percent(means[best])}, which is ahead by less than one standard error."


def _say_how_sure(to_others: dict[str, Contrast]) -> str:
    """Return a sentence that says which methods the recommended one is better than, and from which it cannot be told."""
    by_finding: dict[str, list[str]] = {}
    for method, contrast in to_others.items():
        by_finding.setdefault(contrast.finding.partition(",")[0], []).append(method)
    order = ("clearly better", "better", "probably better", "no clear difference", "probably worse", "worse", "clearly worse")
    parts = []
    for finding in order:
        if finding in by_finding:
            words = f"is {finding} than" if finding != "no clear difference" else "cannot be told from"
            parts.append(f"it {words} {_list(by_finding[finding])}")
    splits = len(next(iter(to_others.values())).differences)
    said = ", and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return f"How sure is that? By {splits} splits, {said}."


def _remarks(
    comparison: Comparison, means: dict[str, float], recommended: str, to_others: dict[str, Contrast], gains: Sequence[Gain]
) -> list[str]:
    """Return sentences on what else to know before following the verdict."""
    remarks = []
    default = comparison.default if comparison.default in comparison.train_commands else comparison.baseline
    if recommended != default:
        remarks.append("It was chosen by the splits that judge it, so expect a little less.")
    elif default != comparison.baseline:
        level = [method for method, contrast in to_others.items() if contrast.mean <= contrast.error]
        level = [method for method in level if method in comparison.train_commands]
        if level:
            best = max(level, key=means.__getitem__)
            remarks.append(f"{recommended} trains several models; {best} alone trains faster and is within one standard error.")
    if comparison.trees and comparison.trees not in comparison.methods:
        remarks.append(f"{comparison.trees} was not compared, so how it does on these data is not known.")
    splits = len(comparison.seeds())
    if splits < MANY_SPLITS and not all(gain.contrast.is_clear for gain in gains):
        remarks.append(f"With {splits} splits the intervals are wide: --splits {MANY_SPLITS} tells more.")
    return remarks


def _list(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    >>> _list(["a"]), _list(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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
