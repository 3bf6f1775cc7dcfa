"""The perturbed Fenchel-Young loss."""

from __future__ import annotations

import numpy as np

from taskloss.decisions.loss import PerturbedLoss
from taskloss.tasks.structured import Structured
from taskloss.tasks.structured_inference import StructuredInference


class PerturbedFenchelYoungLoss(PerturbedLoss):
    r"""Perturbed Fenchel-Young loss: a smooth, convex loss of the scores that leads to the true answer.

    Berthet, Blondel, Teboul, Cuturi, Vert, Bach, *Learning with differentiable perturbed optimizers*, NeurIPS 2020. With Gaussian
    noise Z, the value is an estimate of

    .. math:: E \max_\psi \langle s + \sigma Z, \psi \rangle - \langle s, \psi^* \rangle ,

    the mean over the samples of :math:`\langle s + \sigma Z, \psi(s + \sigma Z) - \psi^*\rangle`: the term :math:`\langle
    \sigma Z, \psi^*\rangle` has the mean zero, and without it no sample is below zero. The Fenchel-Young loss of the paper has
    also the constant :math:`\Omega(\psi^*)`, which is zero for an answer that some scores make the only best one; so nothing is
    left out, and the infimum is zero. The gradient is that of the value, ``mean psi(s + sigma Z) - psi(truth)``. As sigma goes
    to zero, this is the :class:`~taskloss.PerceptronLoss`. The task loss plays no part but for the truth: the target itself for
    ``"hamming"``, the best answer under the true costs for ``"cost"`` and ``"regret"``. For the Hamming loss, value and
    gradient are divided by the number of entries, as F is.

    Args:
        task: a :class:`taskloss.Structured` task.
        sigma: standard deviation of the noise, in units of the scores.
        samples: number of perturbed answers per instance and call.
        seed: of the noise; see :class:`taskloss.decisions.loss.PerturbedLoss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Called with ``(scores, target)``. In PyEPO it is ``perturbedFenchelYoung`` (PFY).

    >>> import torch, taskloss as tl
    >>> criterion = PerturbedFenchelYoungLoss(tl.Structured(tl.solvers.Assignment(), loss="regret", batched=True), sigma=0.1)
    >>> scores = torch.tensor([[[0.0, 2.0], [2.0, 0.0]]], requires_grad=True)
    >>> criterion(scores, torch.tensor([[[1.0, 5.0], [5.0, 1.0]]])).backward()       # the diagonal is the cheapest matching
    >>> scores.grad.tolist()
    [[[-1.0, 1.0], [1.0, -1.0]]]
    """

    def __init__(self, task: Structured, *, sigma: float = 1.0, samples: int = 1, seed: int = 0, reduction: str = "mean") -> None:
        super().__init__(task, sigma=sigma, samples=samples, seed=seed, reduction=reduction)

    def _evaluate(self, inference: StructuredInference, with_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        perturbed = inference.perturb(self.sigma * self._draw(inference))
        answers, truth = perturbed.predict(), inference.truth()
        values = perturbed.score_difference(answers, perturbed.truth()).reshape(self.samples, -1).mean(axis=0)
        if not with_gradient:
            return values, None
        return values, (answers.reshape(self.samples, *truth.shape).mean(axis=0) - truth) / inference.entries
