"""Implicit maximum likelihood estimation, with a fixed and with an adaptive step."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from taskloss import _checks
from taskloss.decisions.loss import PerturbedLoss
from taskloss.decisions.perturbed_direct import PerturbedDirectLoss
from taskloss.direct import EPSILON
from taskloss.tasks.structured import Structured
from taskloss.tasks.structured_inference import StructuredInference


class ImplicitMLELoss(PerturbedDirectLoss):
    r"""Implicit maximum likelihood estimation (I-MLE).

    Niepert, Minervini, Franceschi, *Implicit MLE: backpropagating through discrete exponential family distributions*, NeurIPS
    2021. Its target distribution has the scores :math:`s - \lambda\, dL/d\psi`, and its gradient is the mean over the noise of
    :math:`(\psi(s + \sigma Z) - \psi(s + \sigma Z - \lambda\, dL/d\psi)) / \lambda`. For a loss that is linear in psi this is the
    *negative* direct update at noisy scores, so this is :class:`PerturbedDirectLoss` with ``update="negative"`` and the noise
    of the paper, a sum of Gamma variables. For a loss given as a function the augmented answer takes the place of the linear
    step.

    Args:
        task: a :class:`taskloss.Structured` task.
        epsilon: the step, in units of the scores. The paper's lambda is ``epsilon`` for costs and a sum over the batch; each mean
            (over the entries for the Hamming loss, over the batch) multiplies lambda by the number of its terms.
        symmetric: take the difference of steps to both sides, the central update.
        sigma: scale of the noise (its temperature), in units of the scores.
        samples: number of perturbed scores per instance and call.
        seed: of the noise; see :class:`taskloss.decisions.loss.PerturbedLoss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Called with ``(scores, target)``. In PyEPO it is ``implicitMLE`` (IMLE), followed by the loss. There, the noise is added to
    the costs, here to the scores; it is not symmetric.

    >>> import torch, taskloss as tl
    >>> criterion = ImplicitMLELoss(tl.Structured(tl.solvers.Assignment(), loss="regret", batched=True), epsilon=2.0, sigma=0.1)
    >>> scores = torch.tensor([[[0.0, 2.0], [2.0, 0.0]]], requires_grad=True)
    >>> criterion(scores, torch.tensor([[[1.0, 5.0], [5.0, 1.0]]])).backward()
    >>> scores.grad.tolist()
    [[[-0.5, 0.5], [0.5, -0.5]]]
    """

    def __init__(
        self,
        task: Structured,
        *,
        epsilon: float = EPSILON,
        symmetric: bool = False,
        sigma: float = 1.0,
        samples: int = 1,
        seed: int = 0,
        reduction: str = "mean",
    ) -> None:
        _checks.check_flag("symmetric", symmetric)
        super().__init__(
            task,
            epsilon=epsilon,
            update="central" if symmetric else "negative",
            sigma=sigma,
            samples=samples,
            noise="sum_of_gamma",
            seed=seed,
            reduction=reduction,
        )


class AdaptiveImplicitMLELoss(ImplicitMLELoss):
    r"""Implicit maximum likelihood estimation with an adaptive step (AI-MLE).

    Minervini, Franceschi, Niepert, *Adaptive perturbation-based gradient estimation for discrete latent variable models*, AAAI
    2023. The step is relative to the scores, :math:`\epsilon = \alpha \lVert s \rVert / \lVert v \rVert` with the norms of the
    whole batch and v the direction of the loss, :math:`dL/d\psi`. After each call, :math:`\alpha` grows by ``rate`` if a
    running mean of the number of nonzero entries of a gradient, per instance and sample, is below ``target``, and falls by as
    much if not. So the step follows the scale of the scores, which no decision depends on. If all scores or all of v are zero,
    epsilon is :math:`\alpha`.

    Args:
        task: a :class:`taskloss.Structured` task with a loss that is linear in psi.
        alpha: the first value of alpha.
        rate: how much alpha changes in each call.
        target: the wanted number of nonzero entries. ``math.inf`` lets alpha grow in every call, as in PyEPO, which compares the
            *share* of nonzero entries with 1.
        symmetric: take the difference of steps to both sides, the central update.
        sigma: scale of the noise (its temperature), in units of the scores.
        samples: number of perturbed scores per instance and call.
        seed: of the noise; see :class:`taskloss.decisions.loss.PerturbedLoss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Called with ``(scores, target)``. In PyEPO it is ``adaptiveImplicitMLE`` (AIMLE), followed by the loss. ``alpha`` and the
    running mean are part of ``state_dict``.

    >>> import torch, taskloss as tl
    >>> criterion = AdaptiveImplicitMLELoss(tl.Structured(tl.solvers.Assignment(), loss="regret", batched=True), sigma=0.1)
    >>> scores = torch.tensor([[[0.0, 2.0], [2.0, 0.0]]], requires_grad=True)
    >>> criterion(scores, torch.tensor([[[1.0, 5.0], [5.0, 1.0]]])).backward()
    >>> round(criterion.alpha.item(), 3)                   # it has grown, since the gradient was zero
    1.001
    """

    alpha: Tensor
    """The present alpha, float64."""
    nonzero: Tensor
    """The running mean of the number of nonzero entries of a gradient, float64."""

    def __init__(
        self,
        task: Structured,
        *,
        alpha: float = 1.0,
        rate: float = 1e-3,
        target: float = 1.0,
        symmetric: bool = False,
        sigma: float = 1.0,
        samples: int = 1,
        seed: int = 0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(task, symmetric=symmetric, sigma=sigma, samples=samples, seed=seed, reduction=reduction)
        if not isinstance(task.loss, str):
            raise ValueError(
                "the step is relative to a loss that is linear in psi: give a task with loss='hamming', 'cost' or 'regret'"
            )
        self.rate = _checks.check_positive("rate", rate)
        self.target = target if target == float("inf") else _checks.check_positive("target", target)
        self.register_buffer("alpha", torch.tensor(_checks.check_positive("alpha", alpha), dtype=torch.float64))
        self.register_buffer("nonzero", torch.ones((), dtype=torch.float64))

    def _step_size(self, inference: StructuredInference) -> float:
        norms = [float(np.linalg.norm(part)) for part in (inference.scores, inference.loss_direction())]
        # Alpha must not reach zero, where no step would be left to learn from.
        alpha = max(float(self.alpha), self.rate)
        return alpha * norms[0] / norms[1] if all(norms) else alpha

    def _examine(self, differences: np.ndarray) -> None:
        gradients = max(differences.shape[0] * differences.shape[1], 1)
        self.nonzero.mul_(0.9).add_(0.1 * np.count_nonzero(differences) / gradients)
        grow = float(self.nonzero) < self.target
        self.alpha.add_(self.rate if grow else -self.rate).clamp_(min=0.0)

    def _apply(self, *args: Any, **options: Any) -> Self:
        """Move with the model, but not to its precision: in bfloat16 alpha would stay 1, since 1.001 is no number."""
        kept = self.alpha, self.nonzero
        super()._apply(*args, **options)  # type: ignore[no-untyped-call]  # torch has no types for it.
        self.alpha, self.nonzero = (number.to(self.draws.device) for number in kept)
        return self

    def extra_repr(self) -> str:
        # Without epsilon, which is another in every call.
        step = f"update={self.update!r}, alpha={float(self.alpha):.4g}, rate={self.rate}, target={self.target}"
        return f"{PerturbedLoss.extra_repr(self)}, {step}"
