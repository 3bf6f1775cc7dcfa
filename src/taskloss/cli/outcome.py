"""What every method gets and gives back, whatever it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taskloss.cli.metric import Metric


class Part(NamedTuple):
    """Some of the samples."""

    features: np.ndarray
    target: np.ndarray
    groups: np.ndarray | None


class Outcome(NamedTuple):
    """A trained model on the test samples."""

    scores: np.ndarray
    probabilities: np.ndarray | None
    """Of the positive class, if the method predicts them."""
    threshold: float | None
    """Chosen on held-out samples: what is above it is positive."""
    course: Sequence[float]
    """The validation metric after each step."""
    best_step: int

    def value(self, metric: Metric, test: Part) -> float:
        """The metric on the test samples, with this threshold where it judges decisions."""
        scores = self.scores - (self.threshold or 0.0) if metric.of_labels else self.scores
        return metric.value(scores, test.target, test.groups)
