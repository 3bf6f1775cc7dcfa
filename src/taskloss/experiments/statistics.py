"""Means over seeds, and differences of two methods on the same seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

CONFIDENCE = 0.95


def describe_mean(values: Sequence[float], digits: int = 1) -> str:
    """Return the mean and the standard deviation of shares, in percent.

    >>> describe_mean([0.5, 0.6]), describe_mean([0.5])
    ('55.0 +- 7.1', '50.0')
    """
    mean = f"{100 * statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} +- {100 * statistics.stdev(values):.{digits}f}"


@dataclass(frozen=True)
class Difference:
    """The mean difference of paired shares, with its confidence interval by Student's t, and how many pairs are above zero."""

    mean: float
    half_width: float
    """Half the width of the interval; infinite for a single pair."""
    above: int
    pairs: int
    digits: int = 1
    """Digits after the point when it is printed, in percent."""

    @property
    def sign(self) -> int:
        """1 or -1 if zero is outside the interval, 0 if it is inside."""
        return 0 if abs(self.mean) <= self.half_width else 1 if self.mean > 0 else -1

    def __str__(self) -> str:
        interval = "" if self.pairs < 2 else f" +- {100 * self.half_width:.{self.digits}f}"
        return f"{100 * self.mean:+.{self.digits}f}{interval} points, above on {self.above} of {self.pairs}"


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the difference of the first and the second values, pair by pair.

    >>> str(paired_difference([0.9, 0.8, 0.9], [0.5, 0.5, 0.5]))
    '+36.7 +- 14.3 points, above on 3 of 3'
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    pairs = len(differences)
    half_width = float("inf")
    if pairs > 1:
        quantile = float(stdtrit(pairs - 1, (1 + CONFIDENCE) / 2))
        half_width = quantile * statistics.stdev(differences) / pairs**0.5
    return Difference(statistics.fmean(differences), half_width, sum(value > 0 for value in differences), pairs)
