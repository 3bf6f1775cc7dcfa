"""The protocol: what a metric must offer so that every loss can train on it.

A :class:`Task` is an immutable description of a metric. Reading one batch gives an :class:`Inference`, which solves the two
inference problems of direct loss minimization for that batch. An *answer* is whatever the task finds handy (counts for rankings);
the losses only pass it back. A loss that is an ordinary function of the scores is read into an :class:`Objective` instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

Answer = TypeVar("Answer")


class Call(NamedTuple):
    """The options of one call, as arrays; None where one was not given.

    A task that cannot honour one refuses it (:meth:`Task.refuse_unknown`).
    """

    dims: tuple[int, ...] | None = None
    groups: np.ndarray | None = None
    ignore_index: int | None = None
    num_relevant: np.ndarray | None = None
    weight: np.ndarray | None = None


class Reading(ABC):
    """One batch as a task reads it: R separate items (rankings, labelings ...)."""

    values_shape: tuple[int, ...]
    """Shape of one value an item, R in all."""
    defined: np.ndarray
    """Which items the metric is defined for, bool of shape ``(R,)``; the others have zero loss and gradient."""
    weights: np.ndarray
    """Weight of each item in a mean or sum, shape ``(R,)``."""

    @abstractmethod
    def owner(self) -> np.ndarray:
        """Which of the R items each element of the flattened scores belongs to, int64."""


class Objective(Reading):
    """A batch of a loss that is a function of the scores, with a gradient of its own (:mod:`taskloss.lp`)."""

    @abstractmethod
    def values(self) -> np.ndarray:
        """The loss of each item, float64 of shape ``(R,)``."""

    @abstractmethod
    def gradient(self, factor: np.ndarray) -> np.ndarray:
        """``factor[r]`` times the gradient of item r, summed over items, in the shape of the scores; float32 or float64."""


class Inference(Reading, Generic[Answer]):
    """The inference problems of one batch, all its items solved in each call.

    The joint score is linear in the scores, ``F(scores, y) = <scores, psi(y)>``. Losses and joint scores come as float64 arrays
    of shape ``(R,)``. Only *differences* of joint scores and features are asked for: they stay accurate where F itself would not.
    """

    @abstractmethod
    def predict(self) -> Answer:
        """``argmax_y F(y)``."""

    @abstractmethod
    def augment(self, weight: float) -> Answer:
        """``argmax_y F(y) + weight * L(y)``, weight of either sign, never zero."""

    @abstractmethod
    def truth(self) -> Answer:
        """The target as an answer."""

    @abstractmethod
    def loss(self, answer: Answer) -> np.ndarray:
        """``L(y)``, one minus the metric; for the prediction under the metric's own convention for ties."""

    @abstractmethod
    def score_difference(self, answer: Answer, reference: Answer) -> np.ndarray:
        """``F(answer) - F(reference)``."""

    @abstractmethod
    def feature_difference(self, answer: Answer, reference: Answer, factor: np.ndarray) -> np.ndarray:
        """``factor[r] * (psi(answer) - psi(reference))`` in the shape of the scores; float32, or float64 for float64 scores."""


class Task(ABC):
    """A metric. Subclasses are immutable and hashable (frozen dataclasses), so that they can be shared and compared."""

    target_kind: ClassVar[str]
    """What the target holds: ``"binary"`` 0/1 relevance, ``"graded"`` relevance, ``"labels"`` 0/1 or a mask of class indices,
    ``"class"`` indices, ``"structure"``."""
    options: ClassVar[frozenset[str]]
    """The options of a call that the task honours."""

    @abstractmethod
    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> Any:
        """Check one batch, float32 or float64 scores, and prepare its inference problems: an ``Inference``, or an
        ``Objective``.
        """

    @abstractmethod
    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        """Shape of one value an item for scores and target of these shapes, ``groups`` the number of groups if any."""

    def refuse_unknown(self, call: Call) -> None:
        """Raise for an option that was set although this task has no use for it."""
        for name, value in zip(("dim", "groups", "ignore_index", "num_relevant", "weight"), call, strict=True):
            if value is not None and name not in self.options:
                raise ValueError(f"{type(self).__name__} has no use for {name}=; leave it out")
