"""The four losses over an explicit list of answers: each answer has a feature and a loss, and everything else is a maximum.

Independent of the library; the lists come from :mod:`tests.oracles.choices` and :mod:`tests.oracles.structures`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LOSSES = ("positive", "negative", "hinge", "perceptron")


@dataclass(frozen=True)
class Answers:
    """Every answer of one instance, in one row each."""

    features: np.ndarray
    """``psi``, shape (answers, scores)."""
    losses: np.ndarray
    """``L``, shape (answers,)."""
    true: np.ndarray
    """Which answers may stand for the truth, bool (answers,)."""


@dataclass(frozen=True)
class Expected:
    """What a loss must give: the gradient is ``factor * (first - second)`` for maximizers ``first`` and ``second``."""

    values: np.ndarray
    """Every value that some choice among tied predictions has; their mean is that of the tie rule of averages."""
    first: np.ndarray
    second: np.ndarray
    """Features of the maximizers, one a row."""
    factor: float

    @property
    def tied(self) -> bool:
        return len(self.first) > 1 or len(self.second) > 1

    @property
    def mean_gradient(self) -> np.ndarray:
        return self.factor * (self.first.mean(axis=0) - self.second.mean(axis=0))

    def differences(self) -> np.ndarray:
        """All the gradients that some choice among the maximizers has."""
        return self.factor * (self.first[:, None] - self.second[None]).reshape(-1, self.first.shape[1])


def _maximizers(objective: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    if among is not None:
        objective = np.where(among, objective, -np.inf)
    best = objective.max()
    return np.flatnonzero(objective >= best - 1e-11 * max(1.0, abs(best)))


def expected(answers: Answers, scores: np.ndarray, loss: str, epsilon: float) -> Expected:
    """Value and gradient of one of the four losses by looking at every answer."""
    joint = answers.features @ scores.reshape(-1)
    predicted, truth = _maximizers(joint), _maximizers(joint, answers.true)
    if loss in ("positive", "negative"):
        weight = epsilon if loss == "positive" else -epsilon
        first, second, factor = _maximizers(joint + weight * answers.losses), predicted, 1.0 / weight
        values = answers.losses[predicted]
    elif loss == "hinge":
        first, second, factor = _maximizers(joint + answers.losses), truth, 1.0
        values = np.array([(joint + answers.losses).max() - joint[truth[0]]])
    else:
        first, second, factor = predicted, truth, 1.0
        values = np.array([joint.max() - joint[truth[0]]])
    return Expected(values, answers.features[first], answers.features[second], factor)
