"""The expected loss under Gaussian noise, by the score-function estimator."""

from __future__ import annotations

from math import prod

import numpy as np

from taskloss import _checks
from taskloss.decisions.loss import PerturbedLoss
from taskloss.tasks.structured import Structured
from taskloss.tasks.structured_inference import StructuredInference


class PerturbedOptimizerLoss(PerturbedLoss):
    r"""Differentiable perturbed optimizer: the expected loss of the answer to noisy scores, any loss.

    Berthet et al., *Learning with differentiable perturbed optimizers*, NeurIPS 2020; for losses that are not linear, Silvestri
    et al., *Score function gradient estimation to widen the applicability of decision-focused learning*, 2023. The value is an
    estimate of :math:`E L(\psi(s + \sigma Z))` with Gaussian noise Z; the gradient is the score-function estimate of the
    gradient of this expectation,

    .. math:: \frac{1}{K} \sum_k (L_k - b_k) \frac{Z_k}{\sigma} ,

    in which the mean of the other samples, :math:`b_k`, takes the larger part of the variance away without a bias. Nothing is
    asked of the loss but its value, so ``Structured(solver, loss=function)`` needs no ``augment=``.

    Args:
        task: a :class:`taskloss.Structured` task.
        sigma: standard deviation of the noise, in units of the scores.
        samples: number of perturbed answers per instance and call, at least 2. The variance falls with their number, and grows
            with the number of scores of an instance.
        objective: ``"loss"``, or ``"solution"``: the mean squared difference of the mean answer and the true one.
        seed: of the noise; see :class:`taskloss.decisions.loss.PerturbedLoss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Called with ``(scores, target)``. In PyEPO it is ``perturbedOpt`` (DPO), followed by the loss; ``objective="solution"`` is its
    usual companion ``MSELoss``.

    >>> import torch, taskloss as tl
    >>> task = tl.Structured(tl.solvers.Assignment(), loss="regret", batched=True)
    >>> scores = torch.tensor([[[0.0, 0.2], [0.2, 0.0]]], requires_grad=True)
    >>> PerturbedOptimizerLoss(task, samples=1000)(scores, torch.tensor([[[1.0, 2.0], [2.0, 1.0]]])).backward()
    >>> scores.grad.sign().tolist()                        # less for the expensive matching
    [[[-1.0, 1.0], [1.0, -1.0]]]
    """

    def __init__(
        self,
        task: Structured,
        *,
        sigma: float = 1.0,
        samples: int = 10,
        objective: str = "loss",
        seed: int = 0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(task, sigma=sigma, samples=samples, seed=seed, reduction=reduction)
        if samples < 2:
            raise ValueError("samples must be at least 2: each sample is compared with the mean of the others; got 1")
        self.objective = _checks.check_choice("objective", objective, ("loss", "solution"))

    def _evaluate(self, inference: StructuredInference, with_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        noise = self._draw(inference)
        perturbed = inference.perturb(self.sigma * noise)
        answers = perturbed.predict()
        if self.objective == "loss":
            samples = perturbed.loss(answers).reshape(self.samples, -1)
            values = samples.mean(axis=0)
        else:
            answers = answers.reshape(noise.shape)
            difference = answers.mean(axis=0) - inference.truth()
            entries, axes = max(prod(difference.shape[1:]), 1), tuple(range(1, difference.ndim))
            values = (difference**2).sum(axis=axes) / entries
            samples = 2.0 / entries * (answers * difference).sum(axis=tuple(axis + 1 for axis in axes))
        if not with_gradient:
            return values, None
        # sample - mean of the others = (sample - mean of all) * samples / (samples - 1)
        advantage = (samples - samples.mean(axis=0)) / (self.samples - 1)
        return values, np.einsum("kr,kr...->r...", advantage, noise) / self.sigma

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, objective={self.objective!r}"
