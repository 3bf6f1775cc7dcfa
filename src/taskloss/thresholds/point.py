"""The result of choosing a threshold: its requirement, its guarantee, and what was observed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from taskloss.layout import to_numpy


class Counts(NamedTuple):
    """Confusion counts of one threshold (numbers) or of several (arrays)."""

    true_positives: Any
    false_positives: Any
    false_negatives: Any
    true_negatives: Any


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold, what is guaranteed for new data, and what was observed on the validation samples."""

    threshold: float
    """Decide positive where ``score > threshold``."""
    requirement: str
    """The requirement, e.g. ``"precision >= 0.9"``."""
    found: bool
    """Whether a threshold meets the requirement. If not, ``threshold`` is infinite: the trivial decision on the safe side, which
    is no alert, or for a recall only alerts."""
    confidence: float | None
    """Confidence of the guarantee; None where there is none."""
    bound: float | None
    """Guaranteed value on new data: at least this precision or recall, or at most this rate."""
    counts: Counts | None
    """Confusion counts of the validation samples; None where no labels were given."""
    advice: str = ""
    """Why no threshold was found, and what to do; empty if one was."""

    @property
    def precision(self) -> float:
        """Observed share of true positives among the alerts; NaN without alerts."""
        return self._share("true_positives", "false_positives")

    @property
    def recall(self) -> float:
        """Observed share of the positives that raise an alert."""
        return self._share("true_positives", "false_negatives")

    @property
    def false_positive_rate(self) -> float:
        """Observed share of the negatives that raise an alert."""
        return self._share("false_positives", "true_negatives")

    def decide(self, scores: Any) -> np.ndarray:
        """Return a mask of the scores above the threshold."""
        return np.greater(to_numpy(scores), self.threshold)

    def require(self) -> OperatingPoint:
        """Return the point itself if it was found, else raise an error that says why not."""
        if not self.found:
            raise ValueError(f"no threshold with {self.requirement} was found: {self.advice}")
        return self

    def __str__(self) -> str:
        if not self.found:
            return f"no threshold with {self.requirement}: {self.advice}"
        text = f"{self.requirement}: score > {self.threshold:.6g}"
        if self.bound is not None:
            sign = self.requirement.split()[1]
            text += f", {self.requirement.split()[0]} {sign} {self.bound:.4f} with {self.confidence:.0%} confidence"
        if self.counts is not None:
            text += f" (observed: precision {self.precision:.4f}, recall {self.recall:.4f}, FPR {self.false_positive_rate:.4f})"
        return text

    def _share(self, one: str, other: str) -> float:
        if self.counts is None:
            return math.nan
        part, rest = getattr(self.counts, one), getattr(self.counts, other)
        return part / (part + rest) if part + rest else math.nan


def found_point(
    threshold: float,
    requirement: str,
    values: np.ndarray,
    labels: np.ndarray | None,
    confidence: float | None,
    bound: float | None,
) -> OperatingPoint:
    """Return the operating point of a threshold that meets the requirement."""
    return OperatingPoint(threshold, requirement, True, confidence, bound, _observe(threshold, values, labels))


def missing_point(
    threshold: float, requirement: str, values: np.ndarray, labels: np.ndarray | None, confidence: float, advice: str
) -> OperatingPoint:
    """Return the result for a requirement that no threshold meets; ``advice`` says why."""
    return OperatingPoint(threshold, requirement, False, confidence, None, _observe(threshold, values, labels), advice)


def _observe(threshold: float, values: np.ndarray, labels: np.ndarray | None) -> Counts | None:
    if labels is None:
        return None
    alerts = values > threshold
    return Counts(
        *(int(np.count_nonzero(part)) for part in (alerts & labels, alerts & ~labels, ~alerts & labels, ~alerts & ~labels))
    )
