r"""Probabilities from scores that were held out of the training.

A direct loss asks for the right order, not for probabilities, so its scores need a map. The maps here are strictly increasing:
probabilities rank as the scores do.

**Two classes.** The log-odds are a rising broken line of the score,

.. math:: \log\frac{p}{1 - p} = b + \sum_j a_j h_j(s), \qquad a_j > 0 ,

where :math:`h_j` is the part of s in the j-th segment. Of few samples there is one segment, which is Platt scaling (Platt 1999);
of more there are up to six. The likelihood, with Platt's smoothed targets, is penalized for slopes that differ from the one of
Platt scaling.

**More classes.** Vector scaling (Guo et al. 2017), ``softmax(a_k s_k + b_k)`` with positive slopes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, softmax

MOST_SEGMENTS = 6
SAMPLES_A_SEGMENT = 25
"""Of the rarer class."""
LEAST_SLOPE = 1e-3
"""Positive, so that equal probabilities mean equal scores, also where held-out samples show no relation."""
STIFFNESS = 1.0


@dataclass(frozen=True)
class BrokenLine:
    """Log-odds of two classes as a rising broken line of the score."""

    knots: np.ndarray
    """Where the slope changes, rising; one less than there are slopes."""
    slopes: np.ndarray
    offset: float

    @classmethod
    def fit(cls, scores: np.ndarray, target: np.ndarray) -> BrokenLine:
        """To held-out scores and their 0/1 labels, both ``(n,)``."""
        positives, negatives = int((target == 1).sum()), int((target == 0).sum())
        wanted = np.where(target == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
        platt = cls._fit(scores, wanted, np.empty(0), None)
        segments = int(np.clip(min(positives, negatives) // SAMPLES_A_SEGMENT, 1, MOST_SEGMENTS))
        levels = np.arange(1, segments) / segments
        # Quantiles of both classes as if they were equally frequent: rare positives have segments of their own.
        knots = np.unique([np.mean([np.quantile(scores[target == label], level) for label in (0, 1)]) for level in levels])
        return platt if segments == 1 else cls._fit(scores, wanted, knots, platt)

    @classmethod
    def _fit(cls, scores: np.ndarray, wanted: np.ndarray, knots: np.ndarray, platt: BrokenLine | None) -> BrokenLine:
        parts = _parts(scores, knots)
        base = 1.0 if platt is None else float(platt.slopes[0])
        stiffness = 0.0 if platt is None else STIFFNESS / base**2

        def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            logits = parameters[0] + parts @ parameters[1:]
            value = -(wanted * log_expit(logits) + (1 - wanted) * log_expit(-logits)).sum()
            change = expit(logits) - wanted
            off = parameters[1:] - base
            gradient = np.append(change.sum(), parts.T @ change + stiffness * off)
            return value + stiffness / 2 * (off**2).sum(), gradient

        start = np.full(1 + parts.shape[1], base)
        start[0] = 0.0 if platt is None else platt.offset
        bounds = [(None, None)] + [(LEAST_SLOPE * base, None)] * parts.shape[1]
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(knots, found[1:], float(found[0]))

    def logits(self, scores: np.ndarray) -> np.ndarray:
        return self.offset + _parts(scores, self.knots) @ self.slopes

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        return expit(self.logits(scores))


def _parts(scores: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """The part of each score in each segment; their sum is the score.

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
    """Logits of several classes: a positive slope and an offset a class."""

    slopes: np.ndarray
    offsets: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray, target: np.ndarray) -> VectorScaling:
        """To held-out scores ``(n, K)`` and their class indices ``(n,)``."""
        classes = scores.shape[1]
        truth = np.eye(classes)[target]

        def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            slopes, offsets = parameters[:classes], parameters[classes:]
            logits = scores * slopes + offsets
            change = softmax(logits, axis=1) - truth
            # A light pull to 1 and 0 keeps classes that are never held out finite.
            value = -(truth * log_softmax(logits, axis=1)).sum() + ((slopes - 1) ** 2).sum() / 2 + (offsets**2).sum() / 20
            return value, np.append((change * scores).sum(0) + slopes - 1, change.sum(0) + offsets / 10)

        start = np.append(np.ones(classes), np.zeros(classes))
        bounds = [(LEAST_SLOPE, None)] * classes + [(None, None)] * classes
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(found[:classes], found[classes:])

    def logits(self, scores: np.ndarray) -> np.ndarray:
        return scores * self.slopes + self.offsets

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        return softmax(self.logits(scores), axis=1)
