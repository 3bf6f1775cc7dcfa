"""The protocol: what a metric must offer so that every loss can train on it.

A :class:`Task` is an immutable description of a metric. Reading one batch gives an :class:`Inference`, which solves the two
inference problems of direct loss minimization for that batch. An *answer* is whatever suits the task (counts for rankings);
the losses only pass it back. A loss that is an ordinary function of the scores is read into an :class:`Objective` instead.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from taskloss import _checks
from taskloss.layout import to_numpy
from taskloss.metrics.reduction import as_optional_array, as_scores, reduce_values

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
    """Shape of the values, one per item, R in all."""
    defined: np.ndarray
    """Which items the metric is defined for, bool ``(R,)``; the others have zero loss and gradient."""
    weights: np.ndarray
    """Weight of each item in a mean or sum, float64 ``(R,)``."""

    @abstractmethod
    def owner(self) -> np.ndarray:
        """Return the item that each element of the flattened scores belongs to, int64."""


class Objective(Reading):
    """A batch of a loss that is a function of the scores, with a gradient of its own (:mod:`taskloss.lp`)."""

    @abstractmethod
    def values(self) -> np.ndarray:
        """Return the loss of each item, float64 ``(R,)``."""

    @abstractmethod
    def gradient(self, factor: np.ndarray) -> np.ndarray:
        """Return the gradient of ``sum_r factor[r] * loss[r]`` in the shape of the scores, float32 or float64."""


class Inference(Reading, Generic[Answer]):
    """The inference problems of one batch; every call solves those of all its items.

    The joint score is linear in the scores, ``F(scores, y) = <scores, psi(y)>``. Losses and joint scores are float64 arrays of
    shape ``(R,)``. Only *differences* of joint scores and features are needed: they stay accurate where F itself would not.
    """

    @abstractmethod
    def predict(self) -> Answer:
        """Return ``argmax_y F(y)``."""

    @abstractmethod
    def augment(self, weight: float) -> Answer:
        """Return ``argmax_y F(y) + weight * L(y)``; the weight has either sign and is never zero."""

    def augment_both(self, epsilon: float) -> tuple[Inference[Answer], Answer, Answer]:
        """Return ``augment(epsilon)`` and ``augment(-epsilon)`` for the central update, after the inference that they belong to.

        Its joint score may be scaled by what a change of the prediction is worth. A factor for each sample changes neither the
        prediction nor, as epsilon goes to zero, the direct gradient: it changes how far from the decision a sample takes part,
        and divides its gradient by as much.
        """
        return self, self.augment(epsilon), self.augment(-epsilon)

    @abstractmethod
    def truth(self) -> Answer:
        """Return the target as an answer."""

    @abstractmethod
    def loss(self, answer: Answer) -> np.ndarray:
        """Return ``L(y)``, one minus the metric; for the prediction under the metric's own convention for ties."""

    @abstractmethod
    def score_difference(self, answer: Answer, reference: Answer) -> np.ndarray:
        """Return ``F(answer) - F(reference)``."""

    @abstractmethod
    def feature_difference(self, answer: Answer, reference: Answer, factor: np.ndarray) -> np.ndarray:
        """Return ``factor[r] * (psi(answer) - psi(reference))`` in the shape of the scores; float64 for float64 scores, else
        float32.
        """


@functools.cache
def _refused(options: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return the options that are not among these, each with its field of :class:`Call`."""
    names = ("dim", "groups", "ignore_index", "num_relevant", "weight")
    return tuple((name, field) for name, field in zip(names, Call._fields, strict=True) if name not in options)


class Task(ABC):
    """A metric. Subclasses are immutable and hashable (frozen dataclasses), so that they can be shared and compared."""

    label: ClassVar[str]
    """The metric's name for readers, set by ``register``."""
    target_kind: ClassVar[str]
    """What the target holds: ``"binary"`` 0/1 relevance, ``"graded"`` relevance, ``"labels"`` 0/1 or a mask of class indices,
    ``"class"`` indices, ``"structure"``."""
    options: ClassVar[frozenset[str]]
    """The options of a call that the task honours."""
    default_update: ClassVar[str] = "positive"
    """The update of the direct loss if none is asked for: the one that trains a fresh network best, noisy labels included."""

    @abstractmethod
    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> Any:
        """Check one batch, float32 or float64 scores, and return its ``Inference`` or ``Objective``."""

    @abstractmethod
    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        """Return the shape of the values, one per item, for scores and target of these shapes and this number of groups."""

    def has_item_per_row(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, grouped: bool
    ) -> bool:
        """Whether more rows of scores are more items (rankings, labelings), instead of more samples of the same items."""
        longer = (scores[0] + 1, *scores[1:]), (target[0] + 1, *target[1:])
        groups = 1 if grouped else None
        return self.values_shape(*longer, dims, groups) != self.values_shape(scores, target, dims, groups)

    def refuse_unknown(self, call: Call) -> None:
        """Raise for an option that was set although this task has no use for it."""
        for name, field in _refused(self.options):
            if getattr(call, field) is not None:
                raise ValueError(f"{type(self).__name__} has no use for {name}=; leave it out")

    def score(
        self,
        scores: Any,
        target: Any,
        *,
        dim: int | tuple[int, ...] | None = None,
        groups: Any = None,
        ignore_index: int | None = None,
        num_relevant: Any = None,
        weight: Any = None,
        reduction: str = "mean",
    ) -> float | np.ndarray:
        """Return the exact metric of the prediction, one minus the task loss, without a gradient.

        Takes arrays or tensors and the options of the losses. Undefined items are NaN and left out of means.

        >>> import taskloss as tl
        >>> round(tl.AveragePrecision().score([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0]), 6)
        0.833333
        """
        _checks.check_ignore_index(ignore_index)
        arrays = [as_optional_array(data) for data in (groups, num_relevant, weight)]
        call = Call(_checks.as_dims(dim), arrays[0], ignore_index, *arrays[1:])
        inference = self.read(as_scores(scores), to_numpy(target), call)
        values = np.where(inference.defined, 1.0 - inference.loss(inference.predict()), np.nan)
        return reduce_values(values, inference.weights, inference.values_shape, reduction)
