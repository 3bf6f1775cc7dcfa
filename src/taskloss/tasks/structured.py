r"""Structured answers: any solver of ``max <scores, psi>`` with a loss that is linear in psi.

With a loss :math:`L(\psi) = b + \langle v, \psi\rangle` and the joint score :math:`F(\psi) = \langle s, \psi\rangle`,

.. math:: F + w L = w b + \langle s + w v, \psi \rangle ,

so augmented inference is the solver itself at shifted scores, ``solver(scores + w * v)``, exact for either sign of w when the
solver is. Three losses of this form:

===========  ============================  ===================================================  ==================
``loss``     target                        L                                                    v
===========  ============================  ===================================================  ==================
"hamming"    the true psi, 0/1             share of wrong entries,                              ``1 - 2 target``
                                           ``mean(target (1 - psi) + (1 - target) psi)``
"cost"       true costs c                  ``<c, psi>``                                         ``c``
"regret"     true costs c                  ``<c, psi> - <c, solver(-c)>``                       ``c``
===========  ============================  ===================================================  ==================

For the Hamming loss F is divided by the number of entries as L is, so that epsilon is in units of the scores.

**Blackbox differentiation** (Vlastelica, Paulus, Musil, Martius, Rolinek, *Differentiation of blackbox combinatorial solvers*,
ICLR 2020) minimizes ``<costs, psi>`` with ``costs = -scores`` and takes as gradient in the costs ``(psi_lambda - psi)/lambda``
with ``psi_lambda = argmin <costs + lambda dl/dpsi, psi>``. For a loss linear in psi ``dl/dpsi`` is the constant ``v`` (divided by
the number of entries for Hamming), so ``psi_lambda`` is the augmented answer at weight ``-lambda`` and their gradient in the
scores, ``(psi - psi_lambda)/lambda``, is that of the *negative* direct update. Their lambda is epsilon where F is not divided;
with a mean over entries and over B instances, lambda = epsilon * entries * B.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

import numpy as np

from taskloss import _checks, _output_checks
from taskloss.kernels.sums import summable_unit
from taskloss.tasks.task import Call, Inference, Task

# How much worse than the truth an answer may score, relative to the scores that take part: solvers may work in float32.
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Structured(Task):
    """A task for your own argmax: shortest paths, matchings, parse trees, spanning trees ...

    Args:
        solver: maximizes ``<scores, psi>`` over the answers: takes a float64 numpy array of scores and returns psi, an array (or
            tensor) of the same shape. Where several answers are best, its choice is taken. Use a function of a module, or an
            object that can be compared and pickled (a frozen dataclass), so that the loss can be.
        loss: ``"hamming"`` (target: the true psi), ``"cost"`` or ``"regret"`` (target: true costs); see
            :mod:`taskloss.tasks.structured`.
        batched: whether the solver takes a whole batch, ``(R, ...)``, in one call; else it gets one instance at a time.
        batch_dims: how many leading axes of the scores are batch axes; the others are one instance. Values are one per instance.
        on_worse: what to do when an answer scores lower than the truth, which no maximizer does: ``"raise"``, ``"warn"`` or
            ``"ignore"``. With ``loss="cost"`` the truth is not at hand, and nothing is compared.

    Option of a call: ``weight``, one per instance.

    >>> import torch, taskloss as tl
    >>> criterion = tl.DirectLoss(Structured(tl.solvers.Assignment(), batched=True), epsilon=1.0)
    >>> scores = torch.tensor([[[0.0, 0.5], [0.2, 0.0]]], requires_grad=True)
    >>> loss = criterion(scores, torch.eye(2)[None])
    >>> loss.item()
    1.0
    """

    target_kind: ClassVar[str] = "structure"
    options: ClassVar[frozenset[str]] = frozenset({"weight"})
    solver: Callable[[np.ndarray], Any]
    loss: str = field(default="hamming", kw_only=True)
    batched: bool = field(default=False, kw_only=True)
    batch_dims: int = field(default=1, kw_only=True)
    on_worse: str = field(default="raise", kw_only=True)

    def __post_init__(self) -> None:
        _checks.check_callable("solver", self.solver, "the scores")
        _checks.check_flag("batched", self.batched)
        _checks.check_choice("loss", self.loss, ("hamming", "cost", "regret"))
        _checks.check_choice("on_worse", self.on_worse, ("raise", "warn", "ignore"))
        if self.batch_dims != 0:
            _checks.check_count("batch_dims", self.batch_dims)

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> StructuredInference:
        self.refuse_unknown(call)
        _output_checks.check_instances(scores.shape, target.shape, self.batch_dims)
        _checks.check_finite(scores, None)
        (_output_checks.check_true_features if self.loss == "hamming" else _output_checks.check_true_costs)(target)
        values_shape = scores.shape[: self.batch_dims]
        if call.weight is not None:
            _output_checks.check_instance_weight(call.weight, values_shape)
        weights = np.ones(values_shape) if call.weight is None else call.weight
        return StructuredInference(self, scores, target, weights.reshape(-1).astype(np.float64))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return scores[: self.batch_dims]

    def solve(self, keys: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the instances ``(R, ...)``."""
        if not len(keys):
            return np.zeros(keys.shape)
        # Solvers add scores up; a common factor changes no maximizer.
        keys = keys * summable_unit(keys)
        unit_interval = self.loss == "hamming"
        if self.batched:
            return _output_checks.as_features(self.solver(keys), keys.shape, unit_interval)
        return np.stack([_output_checks.as_features(self.solver(one), one.shape, unit_interval) for one in keys])


class StructuredInference(Inference[np.ndarray]):
    """An answer is the features of all the instances, ``(R, ...)``."""

    def __init__(self, task: Structured, scores: np.ndarray, target: np.ndarray, weights: np.ndarray) -> None:
        self.values_shape = scores.shape[: task.batch_dims]
        self.weights = weights
        self.defined = np.ones(len(weights), bool)
        self._task = task
        self._shape, self._dtype = scores.shape, scores.dtype
        instance = scores.shape[task.batch_dims :]
        self._scores = scores.astype(np.float64).reshape(-1, *instance)
        self._target = target.astype(np.float64).reshape(-1, *instance)
        # The divisor of F and L.
        self._entries = max(prod(instance), 1) if task.loss == "hamming" else 1
        self._known_truth: np.ndarray | None = self._target if task.loss == "hamming" else None

    def predict(self) -> np.ndarray:
        return self._best(self._scores)

    def augment(self, weight: float) -> np.ndarray:
        direction = 1.0 - 2.0 * self._target if self._task.loss == "hamming" else self._target
        return self._best(self._scores + weight * direction)

    def truth(self) -> np.ndarray:
        if self._known_truth is None:
            self._known_truth = self._task.solve(-self._target)
        return self._known_truth

    def loss(self, answer: np.ndarray) -> np.ndarray:
        if self._task.loss == "hamming":
            wrong = self._target * (1.0 - answer) + (1.0 - self._target) * answer
            return _sums(wrong) / self._entries
        return _sums(self._target * (answer - self.truth() if self._task.loss == "regret" else answer))

    def score_difference(self, answer: np.ndarray, reference: np.ndarray) -> np.ndarray:
        unit = summable_unit(self._scores)
        with np.errstate(over="ignore"):
            return _sums(self._scores * unit * (answer - reference)) / (self._entries * unit)

    def feature_difference(self, answer: np.ndarray, reference: np.ndarray, factor: np.ndarray) -> np.ndarray:
        each = (factor / self._entries).reshape(-1, *[1] * (answer.ndim - 1))
        return (each * (answer - reference)).astype(self._dtype).reshape(self._shape)

    def owner(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.weights)), prod(self._scores.shape[1:]))

    def _best(self, keys: np.ndarray) -> np.ndarray:
        answer = self._task.solve(keys)
        if self._task.on_worse != "ignore" and self._task.loss != "cost":
            self._compare(keys * summable_unit(keys), answer, self.truth())
        return answer

    def _compare(self, keys: np.ndarray, answer: np.ndarray, truth: np.ndarray) -> None:
        gap = _sums(keys * (truth - answer))
        worse = gap > _TOLERANCE * _sums(np.abs(keys) * (np.abs(truth) + np.abs(answer)))
        if worse.any():
            instance = int(worse.argmax())
            message = _output_checks.worse_than_truth(instance, float(gap[instance]))
            if self._task.on_worse == "raise":
                raise ValueError(message)
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def _sums(values: np.ndarray) -> np.ndarray:
    """Return the sum of each instance, ``(R,)``."""
    return values.reshape(len(values), -1).sum(axis=1) if values.size else np.zeros(len(values))
