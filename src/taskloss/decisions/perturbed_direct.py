"""The direct update, averaged over noise on the scores."""

from __future__ import annotations

import numpy as np

from taskloss import _checks
from taskloss.decisions.loss import PerturbedLoss
from taskloss.direct import EPSILON, RULES, Step, update_of
from taskloss.tasks.structured import Structured
from taskloss.tasks.structured_inference import StructuredInference


class PerturbedDirectLoss(PerturbedLoss):
    r"""Direct loss minimization through noisy scores: the mean over the noise of the direct updates.

    Lorberbom, Gane, Jaakkola, Hazan, *Direct optimization through argmax for discrete variational auto-encoder*, NeurIPS 2019.
    The value is an estimate of :math:`E L(\psi(s + \sigma Z))`. The theorem of the direct loss asks for a smooth distribution
    of the data; noise on the scores makes it smooth for each instance, so that for small epsilon the expected gradient is the
    gradient of this expectation. Other than the score-function estimate of the same, the finite difference has a bias (of the
    order of epsilon) and a far smaller variance.

    Args:
        task: a :class:`taskloss.Structured` task.
        epsilon: weight of the loss in the augmented inference, in units of the scores.
        update: ``"positive"``, ``"negative"`` or ``"central"``; the default of the task if left out.
        sigma: scale of the noise, in units of the scores.
        samples: number of perturbed scores per instance and call.
        noise: ``"gaussian"``, ``"gumbel"`` or ``"sum_of_gamma"``.
        seed: of the noise; see :class:`taskloss.decisions.loss.PerturbedLoss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Called with ``(scores, target)``.

    >>> import torch, taskloss as tl
    >>> task = tl.Structured(tl.solvers.Assignment(), loss="regret", batched=True)
    >>> scores = torch.tensor([[[0.0, 0.2], [0.2, 0.0]]], requires_grad=True)
    >>> PerturbedDirectLoss(task, samples=10)(scores, torch.tensor([[[1.0, 2.0], [2.0, 1.0]]])).backward()
    >>> scores.grad.sign().tolist()
    [[[-1.0, 1.0], [1.0, -1.0]]]
    """

    def __init__(
        self,
        task: Structured,
        *,
        epsilon: float = EPSILON,
        update: str | None = None,
        sigma: float = 1.0,
        samples: int = 1,
        noise: str = "gaussian",
        seed: int = 0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(task, sigma=sigma, samples=samples, noise=noise, seed=seed, reduction=reduction)
        self.epsilon = _checks.check_positive("epsilon", epsilon)
        self.update = update_of(task, update)

    def _evaluate(self, inference: StructuredInference, with_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        epsilon = self._step_size(inference)
        perturbed = inference.perturb(self.sigma * self._draw(inference))
        values, step = RULES[self.update](perturbed, epsilon, with_gradient)
        values = values.reshape(self.samples, -1).mean(axis=0)
        if not isinstance(step, Step):
            return values, None
        self._advice.check_update(self.task, self.update)
        differences = (step.answer - step.reference).reshape(self.samples, *inference.scores.shape)
        self._examine(differences)
        return values, step.factor / inference.entries * differences.mean(axis=0)

    def _step_size(self, inference: StructuredInference) -> float:
        """Return epsilon for this call."""
        return _checks.check_positive("epsilon", self.epsilon)

    def _examine(self, differences: np.ndarray) -> None:
        """Look at the differences of two answers, ``(samples, R, ...)``; the adaptive loss learns its step from them."""

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, epsilon={self.epsilon}, update={self.update!r}"
