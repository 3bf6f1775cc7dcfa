"""The four losses over an explicit list of answers, each with its feature and its task loss.

Independent of the library: all inference is a maximum over the list. The lists come from :mod:`tests.oracles.choices` and
:mod:`tests.oracles.structures`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LOSSES = ("positive", "negative", "hinge", "perceptron")


@dataclass(frozen=True)
class Answers:
    """Every answer of one instance, one row each."""

    features: np.ndarray
    """``psi``, shape (answers, scores)."""
    losses: np.ndarray
    """``L``, shape (answers,)."""
    true: np.ndarray
    """Which answers agree with the target, bool (answers,)."""


@dataclass(frozen=True)
class Expected:
    """Expected value and gradient of a loss; the gradient is ``factor * (first - second)`` with features of maximizers."""

    values: np.ndarray
    """The values for all choices among tied predictions; the tie rule of averages takes their mean."""
    first: np.ndarray
    """Features of the maximizers of the first inference problem, one per row."""
    second: np.ndarray
    """Features of the maximizers of the second inference problem, one per row."""
    factor: float

    @property
    def tied(self) -> bool:
        """Whether an inference problem has several maximizers."""
        return len(self.first) > 1 or len(self.second) > 1

    @property
    def mean_gradient(self) -> np.ndarray:
        """The gradient by the tie rule of averages."""
        return self.factor * (self.first.mean(axis=0) - self.second.mean(axis=0))

    def differences(self) -> np.ndarray:
        """Return the gradients for all choices among the maximizers, one per row."""
        return self.factor * (self.first[:, None] - self.second[None]).reshape(-1, self.first.shape[1])


def _maximizers(objective: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Return the indices of all maximizers, within rounding."""
    if among is not None:
        objective = np.where(among, objective, -np.inf)
    best = objective.max()
    return np.flatnonzero(objective >= best - 1e-11 * max(1.0, abs(best)))


def expected(answers: Answers, scores: np.ndarray, loss: str, epsilon: float) -> Expected:
    """Return value and gradient of one of the four losses, by enumeration of the answers."""
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
