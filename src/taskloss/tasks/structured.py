r"""Structured answers: any solver of ``max <scores, psi>``, with a loss that is linear in psi, or any loss.

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

**Any other loss** is given as a function ``loss(psi, target)``, together with ``augment(scores, target, weight)``, which finds
``argmax <scores, psi> + weight * loss(psi, target)`` for weights of either sign. F is not divided then. The answer of least loss,
which the hinge, the perceptron and the checks need, is that of scores of zero and the weight -1.

**The default update** is "positive" for the Hamming loss and "central" for all others. With costs the positive update moves
toward its own prediction and away from the most expensive answer in reach, and never hears of a better one; see
``docs/decisions.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from taskloss import _checks, _output_checks
from taskloss.kernels.sums import summable_unit
from taskloss.tasks import structured_checks
from taskloss.tasks.structured_inference import AugmentedInference, StructuredInference
from taskloss.tasks.task import Call, Task


@dataclass(frozen=True)
class Structured(Task):
    """A task for your own argmax: shortest paths, matchings, parse trees, spanning trees ...

    Args:
        solver: maximizes ``<scores, psi>`` over the answers: takes a float64 numpy array of scores and returns psi, an array (or
            tensor) of the same shape. Where several answers are best, its choice is taken. Use a function of a module, or an
            object that can be compared and pickled (a frozen dataclass), so that the loss can be.
        loss: ``"hamming"`` (target: the true psi), ``"cost"`` or ``"regret"`` (target: true costs); see
            :mod:`taskloss.tasks.structured`. Or a function ``loss(psi, target)`` that returns a number, or one per instance if
            ``batched``; the target is then any array with the batch axes of the scores, and comes as it was given.
        augment: for a loss given as a function: ``augment(scores, target, weight)`` returns the psi that maximizes
            ``<scores, psi> + weight * loss(psi, target)``, for any scores and for weights of either sign. Without it, such a
            loss can be evaluated, and trained by :class:`taskloss.decisions.PerturbedOptimizerLoss` alone.
        batched: whether solver, loss and augment take a whole batch, ``(R, ...)``, in one call; else one instance at a time.
        batch_dims: how many leading axes of the scores are batch axes; the others are one instance. Values are one per instance.
        on_worse: what to do when an answer scores lower than the truth, which no maximizer does: ``"raise"``, ``"warn"`` or
            ``"ignore"``. With ``loss="cost"`` the truth is not at hand, and the answers of a call are compared with one another.
            Those of ``augment`` are compared with the truth and the prediction, in what they should maximize.

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
    loss: str | Callable[[Any, Any], Any] = field(default="hamming", kw_only=True)
    augment: Callable[[Any, Any, float], Any] | None = field(default=None, kw_only=True)
    batched: bool = field(default=False, kw_only=True)
    batch_dims: int = field(default=1, kw_only=True)
    on_worse: str = field(default="raise", kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.solver, Task):
            name = type(self.solver).__name__
            raise TypeError(f"solver must be a function of the scores, got the task {name}; give the solver in it, task.solver")
        _checks.check_callable("solver", self.solver, "the scores")
        _checks.check_flag("batched", self.batched)
        structured_checks.check_loss_and_augment(self.loss, self.augment)
        _checks.check_choice("on_worse", self.on_worse, ("raise", "warn", "ignore"))
        if self.batch_dims != 0:
            _checks.check_count("batch_dims", self.batch_dims)

    @property
    def default_update(self) -> str:  # type: ignore[override]  # Other tasks have one for all their settings.
        """The update of the direct loss if none is asked for."""
        return "positive" if self.loss == "hamming" else "central"

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> StructuredInference:
        self.refuse_unknown(call)
        if isinstance(self.loss, str):
            _output_checks.check_instances(scores.shape, target.shape, self.batch_dims)
            (_output_checks.check_true_features if self.loss == "hamming" else _output_checks.check_true_costs)(target)
        else:
            structured_checks.check_batch_axes(scores.shape, target.shape, self.batch_dims)
        _checks.check_finite(scores, None)
        values_shape = scores.shape[: self.batch_dims]
        if call.weight is not None:
            _output_checks.check_instance_weight(call.weight, values_shape)
        weights = np.ones(values_shape) if call.weight is None else call.weight
        inference = StructuredInference if isinstance(self.loss, str) else AugmentedInference
        return inference(self, scores, target, weights.reshape(-1).astype(np.float64))

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
            return _output_checks.as_features(self._call_solver(keys), keys.shape, unit_interval)
        return np.stack([_output_checks.as_features(self._call_solver(one), one.shape, unit_interval) for one in keys])

    def _call_solver(self, keys: np.ndarray) -> Any:
        """Call the solver; an error of a user's own solver gets a note that says what it was called with."""
        try:
            return self.solver(keys)
        except Exception as error:
            if not type(self.solver).__module__.startswith("taskloss."):
                what = "a whole batch (batched=True)" if self.batched else "one instance (batched=False)"
                error.add_note(f"taskloss called this solver with {what}: a float64 numpy array of shape {keys.shape}")
            raise
