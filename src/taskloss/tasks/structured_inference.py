"""The inference problems of :class:`~taskloss.Structured`: with a loss that is linear in psi, and with any loss."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from taskloss import _output_checks
from taskloss.kernels.sums import summable_unit
from taskloss.tasks import structured_checks
from taskloss.tasks.task import Inference

if TYPE_CHECKING:
    from taskloss.tasks.structured import Structured

# How much worse than another answer an answer may score, relative to the scores that take part: solvers may work in float32.
_TOLERANCE = 1e-5


class StructuredInference(Inference[np.ndarray]):
    """Instances with a loss that is linear in psi. An answer is the features of all the instances, ``(R, ...)``."""

    def __init__(self, task: Structured, scores: np.ndarray, target: np.ndarray, weights: np.ndarray) -> None:
        self.values_shape = scores.shape[: task.batch_dims]
        self.weights = weights
        self.defined = np.ones(len(weights), bool)
        self._task = task
        self._shape, self._dtype = scores.shape, scores.dtype
        instance = scores.shape[task.batch_dims :]
        self.scores = scores.astype(np.float64).reshape(len(weights), *instance)
        """The scores of the instances, float64 ``(R, ...)``."""
        self._target = self._read_target(target.reshape(len(weights), *target.shape[task.batch_dims :]))
        self.entries = max(prod(instance), 1) if task.loss == "hamming" else 1
        """The divisor of F and of the psi in its gradient."""
        self._known_truth: np.ndarray | None = self._target if task.loss == "hamming" else None
        self._unperturbed: Self | None = None
        self._earlier: np.ndarray | None = None

    def _read_target(self, target: np.ndarray) -> np.ndarray:
        return target.astype(np.float64)

    def perturb(self, noise: np.ndarray) -> Self:
        """Return ``K R`` instances, K copies of each with noise ``(K, R, ...)`` added to its scores; values are ``(K, ...)``."""
        copies = len(noise)
        other = copy.copy(self)
        other.values_shape, other._shape = (copies, *self.values_shape), (copies, *self._shape)
        other.weights, other.defined = np.tile(self.weights, copies), np.tile(self.defined, copies)
        other.scores = (self.scores + noise).reshape(-1, *self.scores.shape[1:])
        other._target = _repeat(self._target, copies)
        # The best answers are looked for once, not in each copy.
        other._known_truth, other._unperturbed, other._earlier = None, self, None
        return other

    def predict(self) -> np.ndarray:
        return self._best(self.scores)

    def augment(self, weight: float) -> np.ndarray:
        return self._best(self.scores + weight * self.loss_direction())

    def loss_direction(self) -> np.ndarray:
        """Return v of a loss ``(b + <v, psi>) / entries``, float64 ``(R, ...)``."""
        return 1.0 - 2.0 * self._target if self._task.loss == "hamming" else self._target

    def truth(self) -> np.ndarray:
        if self._known_truth is None:
            if self._unperturbed is None:
                self._known_truth = self._find_truth()
            else:
                self._known_truth = _repeat(self._unperturbed.truth(), self.values_shape[0])
        return self._known_truth

    def _find_truth(self) -> np.ndarray:
        """Return the answers of least loss."""
        truth = self._task.solve(-self._target)
        structured_checks.warn_of_idle_truth(self._target, truth)
        return truth

    def loss(self, answer: np.ndarray) -> np.ndarray:
        if self._task.loss == "hamming":
            wrong = self._target * (1.0 - answer) + (1.0 - self._target) * answer
            return _sums(wrong) / self.entries
        return _sums(self._target * (answer - self.truth() if self._task.loss == "regret" else answer))

    def score_difference(self, answer: np.ndarray, reference: np.ndarray) -> np.ndarray:
        unit = summable_unit(self.scores)
        with np.errstate(over="ignore"):
            return _sums(self.scores * unit * (answer - reference)) / (self.entries * unit)

    def feature_difference(self, answer: np.ndarray, reference: np.ndarray, factor: np.ndarray) -> np.ndarray:
        each = (factor / self.entries).reshape(-1, *[1] * (answer.ndim - 1))
        return (each * (answer - reference)).astype(self._dtype).reshape(self._shape)

    def owner(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.weights)), prod(self.scores.shape[1:]))

    def _best(self, keys: np.ndarray) -> np.ndarray:
        """Return the solver's answers at other scores ``(R, ...)``, after a comparison with answers that are known."""
        answer = self._task.solve(keys)
        if self._has_truth():
            self._compare_with_truth(keys, answer)
        elif self._earlier is not None:
            self._compare_scores(keys, answer, self._earlier, "its answer to other scores")
        self._earlier = answer
        return answer

    def _compare_with_truth(self, keys: np.ndarray, answer: np.ndarray) -> None:
        """Check that the truth does not score higher than the answer."""
        if self._task.on_worse != "ignore" and self._has_truth():
            self._compare_scores(keys, answer, self.truth(), "the truth")

    def _compare_scores(self, keys: np.ndarray, answer: np.ndarray, other: np.ndarray, name: str) -> None:
        """Check that another answer does not score higher."""
        if self._task.on_worse != "ignore":
            keys = keys * summable_unit(keys)
            gap, size = _sums(keys * (other - answer)), _sums(np.abs(keys) * (np.abs(other) + np.abs(answer)))
            self._report(gap, size, lambda instance, by: _output_checks.worse_than_other(instance, by, name))

    def _has_truth(self) -> bool:
        """Whether the truth is at hand, or one call of the solver away."""
        return self._task.loss != "cost"

    def _report(self, gap: np.ndarray, size: np.ndarray, message: Callable[[int, float], str]) -> None:
        """Raise or warn where an answer is worse than another by ``gap``, beyond rounding of terms of ``size``, both ``(R,)``."""
        worse = gap > _TOLERANCE * size
        if worse.any():
            first = int(worse.argmax())
            instances = self.scores if self._unperturbed is None else self._unperturbed.scores
            text = message(first % len(instances), float(gap[first]))
            if self._task.on_worse == "raise":
                raise ValueError(text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)


class AugmentedInference(StructuredInference):
    """Instances with any loss, given as a function, and a solver of its augmented inference."""

    def __init__(self, task: Structured, scores: np.ndarray, target: np.ndarray, weights: np.ndarray) -> None:
        super().__init__(task, scores, target, weights)
        self._predicted: np.ndarray | None = None

    def _read_target(self, target: np.ndarray) -> np.ndarray:
        return target

    def perturb(self, noise: np.ndarray) -> Self:
        other = super().perturb(noise)
        other._predicted = None
        return other

    def predict(self) -> np.ndarray:
        # Known from here on: the truth, which the next line looks for, is compared with it.
        self._predicted = self._task.solve(self.scores)
        self._compare_with_truth(self.scores, self._predicted)
        return self._predicted

    def augment(self, weight: float) -> np.ndarray:
        answer = self._maximize(self.scores, weight)
        if self._task.on_worse != "ignore":
            self._compare(answer, self.truth(), self.scores, weight, "the answer of least loss")
            if self._predicted is not None:
                self._compare(answer, self._predicted, self.scores, weight, "the prediction")
        return answer

    def loss_direction(self) -> np.ndarray:
        raise ValueError(
            "this needs a task loss that is linear in psi, loss='hamming', 'cost' or 'regret'; for a loss given as a function "
            "use DirectLoss, StructuredHingeLoss, or PerturbedDirectLoss or PerturbedOptimizerLoss of taskloss.decisions"
        )

    def _find_truth(self) -> np.ndarray:
        # With scores of zero, the maximum of F - L is the minimum of L.
        zeros = np.zeros_like(self.scores)
        answer = self._maximize(zeros, -1.0)
        if self._task.on_worse != "ignore" and self._predicted is not None:
            self._compare(answer, self._predicted, zeros, -1.0, "the prediction")
        return answer

    def loss(self, answer: np.ndarray) -> np.ndarray:
        loss = self._task.loss
        assert callable(loss)
        if self._task.batched:
            return structured_checks.as_losses(loss(answer.copy(), self._target.copy()), (len(answer),))
        pairs = zip(answer.copy(), self._target.copy(), strict=True)
        return np.array([structured_checks.as_losses(loss(*pair), ()) for pair in pairs], np.float64)

    def _has_truth(self) -> bool:
        return self._task.augment is not None

    def _maximize(self, keys: np.ndarray, weight: float) -> np.ndarray:
        """Return the user's ``argmax <keys, psi> + weight * loss``."""
        augment: Any = self._task.augment
        if augment is None:
            structured_checks.refuse_without_augment()
        if not len(keys):
            return np.zeros(keys.shape)
        unit = summable_unit(keys)
        keys, target, weight = keys * unit, self._target.copy(), weight * unit
        if self._task.batched:
            return _output_checks.as_features(augment(keys, target, weight), keys.shape, False)
        pairs = zip(keys, target, strict=True)
        return np.stack([_output_checks.as_features(augment(one, true, weight), one.shape, False) for one, true in pairs])

    def _compare(self, answer: np.ndarray, other: np.ndarray, keys: np.ndarray, weight: float, name: str) -> None:
        """Check that no other answer is higher in ``<keys, psi> + weight * loss``."""
        unit = summable_unit(keys)
        losses, other_losses = self.loss(answer), self.loss(other)
        gap = _sums(keys * unit * (other - answer)) + weight * unit * (other_losses - losses)
        size = _sums(np.abs(keys) * unit * (np.abs(answer) + np.abs(other)))
        size += abs(weight) * unit * (np.abs(losses) + np.abs(other_losses))
        self._report(gap, size, lambda instance, by: structured_checks.worse_than_other(instance, by / unit, weight, name))


def _sums(values: np.ndarray) -> np.ndarray:
    """Return the sum of each instance, ``(R,)``."""
    return values.reshape(len(values), -1).sum(axis=1) if values.size else np.zeros(len(values))


def _repeat(array: np.ndarray, copies: int) -> np.ndarray:
    """Return copies of all instances one after another, ``(copies * R, ...)``."""
    return np.broadcast_to(array, (copies, *array.shape)).reshape(-1, *array.shape[1:])
