"""What every training method returns, whatever kind of model it trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from taskloss.cli.metric import Metric
from taskloss.cli.splits import Subset


class MethodResult(NamedTuple):
    """The predictions of a trained model for the n test samples, and the course of its training."""

    scores: np.ndarray
    """Shape ``(n,)``; of K classes ``(n, K)``, and the class with the highest score is predicted."""
    probabilities: np.ndarray | None
    """Probability of the positive class, shape ``(n,)``, or of each of several, ``(n, K)``; None if the method predicts none."""
    threshold: float | None
    """Decision threshold chosen on held-out samples: a score above it is positive. None for queries and several classes."""
    validation_metric: Sequence[float]
    """The metric on the validation samples after each step."""
    best_step: int
    """The step whose weights were kept, counted from 1."""
    score: Callable[[np.ndarray], np.ndarray]
    """Function from the features of other samples, shape ``(n, features)``, to their scores."""

    def value(self, metric: Metric, test: Subset, scores: np.ndarray | None = None) -> float:
        """Return a metric of the test samples, or of others and their ``scores``; a metric of decisions uses the threshold."""
        scores = self.scores if scores is None else scores
        shift = (self.threshold or 0.0) if metric.judges_decisions else 0.0
        return metric.value(scores - shift, test.target, test.groups)


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of learning curves; one that ended early keeps its last value.

    >>> mean_curve([(0.0, 1.0), (0.5, 0.5, 2.0)])
    [0.25, 0.75, 1.5]
    """
    longest = max(map(len, curves))
    padded = [[*curve, *[curve[-1]] * (longest - len(curve))] for curve in curves]
    mean: list[float] = np.mean(padded, axis=0).tolist()
    return mean
