r"""Calibration: maps from scores to probabilities, fitted to scores that were held out of the training.

A direct loss rewards the right order, not probabilities, so its scores need such a map. The maps here are strictly increasing, so
probabilities rank as the scores do.

**Two classes.** The log-odds are an increasing, piecewise linear function of the score,

.. math:: \log\frac{p}{1 - p} = b + \sum_j a_j h_j(s), \qquad a_j > 0 ,

where :math:`h_j` is the part of s in the j-th segment. With few samples there is one segment, which is Platt scaling (Platt
1999); with more there are up to six. The likelihood uses Platt's smoothed targets, and slopes that differ from the slope of Platt
scaling are penalized.

**More classes.** Vector scaling (Guo et al. 2017), ``softmax(a_k s_k + b_k)`` with positive slopes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, softmax

MAX_SEGMENTS = 6
SAMPLES_PER_SEGMENT = 25
"""Samples of the rarer class that a segment needs."""
MIN_SLOPE = 1e-3
"""Positive, so that different scores have different probabilities even where held-out samples show no relation."""
STIFFNESS = 1.0
"""Weight of the penalty on slopes that differ from the slope of Platt scaling."""


@dataclass(frozen=True)
class BrokenLine:
    """Log-odds of two classes as an increasing, piecewise linear function of the score."""

    knots: np.ndarray
    """Scores where the slope changes, increasing; one fewer than there are slopes."""
    slopes: np.ndarray
    offset: float

    @classmethod
    def fit(cls, scores: np.ndarray, target: np.ndarray, weights: np.ndarray | None = None) -> BrokenLine:
        """Fit to held-out scores and their 0/1 labels, both ``(n,)``; the weights of the samples have mean 1."""
        positives, negatives = int((target == 1).sum()), int((target == 0).sum())
        smoothed = np.where(target == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
        weights = np.ones(len(scores)) if weights is None else weights
        platt = cls._fit(scores, smoothed, weights, np.empty(0), None)
        segments = int(np.clip(min(positives, negatives) // SAMPLES_PER_SEGMENT, 1, MAX_SEGMENTS))
        levels = np.arange(1, segments) / segments
        # Quantiles as if both classes were equally frequent, so that rare positives get segments of their own.
        knots = np.unique([np.mean([np.quantile(scores[target == label], level) for label in (0, 1)]) for level in levels])
        return platt if segments == 1 else cls._fit(scores, smoothed, weights, knots, platt)

    @classmethod
    def _fit(
        cls,
        scores: np.ndarray,
        probabilities: np.ndarray,
        weights: np.ndarray,
        knots: np.ndarray,
        platt: BrokenLine | None,
    ) -> BrokenLine:
        """Fit the slopes between given knots to target probabilities; ``platt`` is the fit with one segment, if known."""
        parts = _parts(scores, knots)
        base = 1.0 if platt is None else float(platt.slopes[0])
        stiffness = 0.0 if platt is None else STIFFNESS / base**2

        def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            logits = parameters[0] + parts @ parameters[1:]
            value = -(weights * (probabilities * log_expit(logits) + (1 - probabilities) * log_expit(-logits))).sum()
            residual = weights * (expit(logits) - probabilities)
            deviation = parameters[1:] - base
            gradient = np.append(residual.sum(), parts.T @ residual + stiffness * deviation)
            return value + stiffness / 2 * (deviation**2).sum(), gradient

        start = np.full(1 + parts.shape[1], base)
        start[0] = 0.0 if platt is None else platt.offset
        bounds = [(None, None)] + [(MIN_SLOPE * base, None)] * parts.shape[1]
        solution = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(knots, solution[1:], float(solution[0]))

    def logits(self, scores: np.ndarray) -> np.ndarray:
        return self.offset + _parts(scores, self.knots) @ self.slopes

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        return expit(self.logits(scores))


def _parts(scores: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Split each score into its parts in the segments, shape ``(n, segments)``; the parts sum to the score.

    >>> _parts(np.array([-1.0, 0.5, 3.0]), np.array([0.0, 1.0])).tolist()
    [[-1.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 1.0, 2.0]]
    """
    if len(knots) == 0:
        return scores[:, None]
    inner = np.clip(scores[:, None], knots[:-1], knots[1:]) - knots[:-1]
    first, last = np.minimum(scores, knots[0]), np.maximum(scores - knots[-1], 0.0)
    return np.column_stack([first, inner, last])


@dataclass(frozen=True)
class VectorScaling:
    """Logits of several classes: a positive slope and an offset per class."""

    slopes: np.ndarray
    offsets: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray, target: np.ndarray, weights: np.ndarray | None = None) -> VectorScaling:
        """Fit to held-out scores ``(n, K)`` and their class indices ``(n,)``; the weights of the samples have mean 1."""
        classes = scores.shape[1]
        truth = np.eye(classes)[target]
        each = np.ones((len(scores), 1)) if weights is None else weights[:, None]

        def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            slopes, offsets = parameters[:classes], parameters[classes:]
            logits = scores * slopes + offsets
            residual = each * (softmax(logits, axis=1) - truth)
            # A weak penalty toward slope 1 and offset 0 keeps the parameters of classes that are never held out finite.
            value = -(each * truth * log_softmax(logits, axis=1)).sum() + ((slopes - 1) ** 2).sum() / 2 + (offsets**2).sum() / 20
            return value, np.append((residual * scores).sum(0) + slopes - 1, residual.sum(0) + offsets / 10)

        start = np.append(np.ones(classes), np.zeros(classes))
        bounds = [(MIN_SLOPE, None)] * classes + [(None, None)] * classes
        solution = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(solution[:classes], solution[classes:])

    def logits(self, scores: np.ndarray) -> np.ndarray:
        return scores * self.slopes + self.offsets

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        return softmax(self.logits(scores), axis=1)
