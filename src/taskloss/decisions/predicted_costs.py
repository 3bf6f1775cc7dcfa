r"""Losses of predicted costs by the names of the field: SPO+, blackbox differentiation, perturbation gradients.

Each takes *costs* to be minimized, ``(predicted_costs, true_costs)``, and is one of the losses of this library at scores
:math:`s = -\hat c`. The solver is one of this library's, or one of your own: it *maximizes* ``<scores, psi>``, and gets minus the
costs. For values to be maximized, as in a knapsack, the costs are minus the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import numpy as np
from torch import Tensor, nn

from taskloss import _checks
from taskloss.decisions.loss import DecisionLoss
from taskloss.direct import DirectLoss, StructuredHingeLoss
from taskloss.tasks.structured import Structured
from taskloss.tasks.structured_inference import StructuredInference

Solver = Callable[[np.ndarray], Any]


class SolverOptions(TypedDict, total=False):
    """Settings of :class:`taskloss.Structured`."""

    batched: bool
    """Whether the solver takes a whole batch in one call (default False)."""
    batch_dims: int
    """How many leading axes of the costs are batch axes (default 1)."""
    on_worse: str
    """What to do when an answer is worse than the truth: ``"raise"`` (default), ``"warn"`` or ``"ignore"``."""


def _task(solver: Solver, loss: str, options: SolverOptions) -> Structured:
    for option in options.keys() - SolverOptions.__annotations__.keys():
        raise TypeError(f"unknown option {option!r}; expected {', '.join(SolverOptions.__annotations__)}")
    return Structured(solver, loss=loss, **options)


class SPOPlusLoss(nn.Module):
    r"""SPO+, a convex upper bound of the regret of predicted costs.

    Elmachtoub, Grigas, *Smart "predict, then optimize"*, Management Science 68, 2022:

    .. math::
        \ell(\hat c, c) &= -\min_\psi \langle 2 \hat c - c, \psi \rangle + \langle 2 \hat c - c, \psi^* \rangle , \\
        \nabla_{\hat c} &= 2 (\psi^* - \psi(2 \hat c - c)) .

    It is :class:`taskloss.StructuredHingeLoss` with the regret as task loss, at doubled scores :math:`-2 \hat c`.

    Args:
        solver: maximizes ``<scores, psi>``; see :class:`taskloss.Structured`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        options: ``batched``, ``batch_dims`` and ``on_worse`` of :class:`taskloss.Structured`.

    Called with ``(predicted_costs, true_costs)``. In PyEPO it is ``SPOPlus``.

    >>> import torch, taskloss as tl
    >>> predicted = torch.tensor([[[0.0, -2.0], [-2.0, 0.0]]], requires_grad=True)
    >>> loss = SPOPlusLoss(tl.solvers.Assignment(), batched=True)(predicted, torch.tensor([[[1.0, 5.0], [5.0, 1.0]]]))
    >>> loss.item()
    16.0
    >>> loss.backward()
    >>> predicted.grad.tolist()
    [[[2.0, -2.0], [-2.0, 2.0]]]
    """

    def __init__(self, solver: Solver, *, reduction: str = "mean", **options: Unpack[SolverOptions]) -> None:
        super().__init__()
        self.loss = StructuredHingeLoss(_task(solver, "regret", options), reduction=reduction)

    def forward(self, predicted_costs: Tensor, true_costs: Tensor, **call: Any) -> Tensor:
        return self.loss(-2 * predicted_costs, true_costs, **call)


class BlackboxLoss(nn.Module):
    r"""The regret of predicted costs, with the gradient of blackbox differentiation (DBB).

    Vlastelica, Paulus, Musil, Martius, Rolinek, *Differentiation of blackbox combinatorial solvers*, ICLR 2020. The gradient in
    the costs is :math:`(\psi(\hat c + \lambda c) - \psi(\hat c)) / \lambda`. It is ``DirectLoss(update="negative")`` with
    epsilon = lambda.

    Args:
        solver: maximizes ``<scores, psi>``; see :class:`taskloss.Structured`.
        lambda_: how many units of predicted cost one unit of true cost is worth in the second call. In PyEPO, a mean over B
            instances comes between: its ``lambd`` is B times this.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        options: ``batched``, ``batch_dims`` and ``on_worse`` of :class:`taskloss.Structured`.

    Called with ``(predicted_costs, true_costs)``. In PyEPO it is ``blackboxOpt``, followed by the L1 loss of the objective.

    >>> import torch, taskloss as tl
    >>> predicted = torch.tensor([[[0.0, -2.0], [-2.0, 0.0]]], requires_grad=True)
    >>> BlackboxLoss(tl.solvers.Assignment(), lambda_=2.0)(predicted, torch.tensor([[[1.0, 5.0], [5.0, 1.0]]])).backward()
    >>> predicted.grad.tolist()
    [[[0.5, -0.5], [-0.5, 0.5]]]
    """

    def __init__(
        self, solver: Solver, *, lambda_: float = 1.0, reduction: str = "mean", **options: Unpack[SolverOptions]
    ) -> None:
        super().__init__()
        epsilon = _checks.check_positive("lambda_", lambda_)
        task = _task(solver, "regret", options)
        self.loss = DirectLoss(task, epsilon=epsilon, update="negative", reduction=reduction)

    def forward(self, predicted_costs: Tensor, true_costs: Tensor, **call: Any) -> Tensor:
        return self.loss(-predicted_costs, true_costs, **call)


class PerturbationGradientLoss(DecisionLoss):
    r"""Perturbation gradient (PG): a finite difference of the least predicted cost, in the direction of the true costs.

    Huang, Gupta, *Decision-focused learning with directional gradients*, NeurIPS 2024. With :math:`V(c) = \min_\psi \langle c,
    \psi \rangle`, whose derivative in the direction of the true costs is the true cost of the decision, the value is

    ==============  =============================================================  =============
    ``difference``  value                                                          direct update
    ==============  =============================================================  =============
    "backward"      :math:`(V(\hat c) - V(\hat c - \sigma c)) / \sigma`            positive
    "forward"       :math:`(V(\hat c + \sigma c) - V(\hat c)) / \sigma`            negative
    "central"       :math:`(V(\hat c + \sigma c) - V(\hat c - \sigma c))/2\sigma`  central
    ==============  =============================================================  =============

    V is concave, so the backward difference is at least the cost of the decision and the forward difference at most. The gradient
    is that of the value, and is that of ``DirectLoss`` with epsilon = sigma and the update of the last column, whose value is the
    cost itself. The backward difference, PyEPO's default, learns badly from scratch (``docs/decisions.md``); a warning says so.

    Args:
        solver: maximizes ``<scores, psi>``; see :class:`taskloss.Structured`.
        sigma: the step.
        difference: ``"central"``, ``"forward"`` or ``"backward"``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        options: ``batched``, ``batch_dims`` and ``on_worse`` of :class:`taskloss.Structured`.

    Called with ``(predicted_costs, true_costs)``. In PyEPO it is ``perturbationGradient`` (PG), central with ``two_sides=True``.

    >>> import torch, taskloss as tl
    >>> predicted = torch.tensor([[[0.0, -2.0], [-2.0, 0.0]]], requires_grad=True)
    >>> loss = PerturbationGradientLoss(tl.solvers.Assignment(), sigma=1.0)(predicted, torch.tensor([[[1.0, 5.0], [5.0, 1.0]]]))
    >>> loss.item()                                        # V(c + sigma c) = 2, V(c - sigma c) = -14
    8.0
    """

    def __init__(
        self,
        solver: Solver,
        *,
        sigma: float = 1.0,
        difference: str = "central",
        reduction: str = "mean",
        **options: Unpack[SolverOptions],
    ) -> None:
        super().__init__(_task(solver, "cost", options), reduction=reduction)
        self.sigma = _checks.check_positive("sigma", sigma)
        self.difference = _checks.check_choice("difference", difference, tuple(_UPDATES))

    # The arguments have the names of what they are.
    def forward(self, predicted_costs: Tensor, true_costs: Tensor, **call: Any) -> Tensor:  # type: ignore[override]
        return super().forward(-predicted_costs, true_costs, **call)

    def _evaluate(self, inference: StructuredInference, with_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        if with_gradient:
            self._advice.check_update(self.task, _UPDATES[self.difference])
        # V(c + weight * true costs) = -<scores, psi> + weight * <true costs, psi>, with psi the augmented answer at -weight.
        weights = {"backward": (0.0, -self.sigma), "forward": (self.sigma, 0.0), "central": (self.sigma, -self.sigma)}
        (upper, lower), step = weights[self.difference], 2 * self.sigma if self.difference == "central" else self.sigma
        first, second = (inference.augment(-weight) if weight else inference.predict() for weight in (upper, lower))
        values = inference.score_difference(second, first) + upper * inference.loss(first) - lower * inference.loss(second)
        return values / step, (second - first) / step

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, sigma={self.sigma}, difference={self.difference!r}"


_UPDATES = {"central": "central", "forward": "negative", "backward": "positive"}
"""The direct update with the gradient of each difference."""
