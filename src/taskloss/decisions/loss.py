"""What the losses of this package share: from a call to a value with a known gradient, and the noise of the perturbed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss._advice import Advice
from taskloss.kernels.items import weigh_items
from taskloss.known_gradient import WithGradient
from taskloss.layout import to_numpy
from taskloss.tasks.structured import Structured
from taskloss.tasks.structured_inference import StructuredInference
from taskloss.tasks.task import Call


class DecisionLoss(nn.Module):
    """Base of the losses over a :class:`taskloss.Structured` task. The forward pass computes the gradient with the value.

    Called with ``(scores, target)`` as the task takes them, and optionally ``weight``, one per instance, and ``reduction``.
    """

    def __init__(self, task: Structured, *, reduction: str = "mean") -> None:
        super().__init__()
        if not isinstance(task, Structured):
            raise TypeError(f"expected a taskloss.Structured task, got {type(task).__name__}; write Structured(solver, loss=...)")
        _checks.check_reduction(reduction)
        self.task = task
        self.reduction = reduction
        self._advice = Advice()

    def _evaluate(self, inference: StructuredInference, with_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the value of each instance, ``(R,)``, and its gradient in the scores, ``(R, ...)``, both float64."""
        raise NotImplementedError  # Every loss defines it.

    def forward(self, scores: Tensor, target: Tensor, *, weight: Any = None, reduction: str | None = None) -> Tensor:
        compute = self._compute
        if torch.compiler.is_compiling():  # Solvers are no code that can be traced, so the loss stays outside of the graph.
            compute = torch.compiler.disable(compute)
        return compute(scores, target, weight, self.reduction if reduction is None else reduction)

    def _compute(self, scores: Tensor, target: Tensor, weight: Any, reduction: str) -> Tensor:
        _checks.check_tensors(scores, target)
        _checks.check_reduction(reduction)
        weights = _checks.as_optional_tensor("weight", weight)
        call = Call(weight=None if weights is None else to_numpy(weights))
        array = to_numpy(scores)
        inference = self.task.read(array, to_numpy(target), call)
        with_gradient = scores.requires_grad and torch.is_grad_enabled()
        values, gradient = self._evaluate(inference, with_gradient)
        share, total = weigh_items(values, inference.defined, inference.weights, reduction == "mean", 1.0)
        result = np.array(total) if reduction != "none" else (values * inference.weights).reshape(inference.values_shape)
        value = torch.from_numpy(result.astype(array.dtype)).to(scores.device)
        if gradient is None:
            return value
        weighted = share.reshape(-1, *[1] * (gradient.ndim - 1)) * gradient
        owner = torch.from_numpy(inference.owner() if value.ndim else np.empty(0, np.int64)).to(scores.device)
        known = torch.from_numpy(weighted.astype(array.dtype).reshape(array.shape)).to(scores.device)
        return WithGradient.apply(scores, (value,), known, owner)

    def extra_repr(self) -> str:
        return f"{self.task!r}, reduction={self.reduction!r}"


class PerturbedLoss(DecisionLoss):
    """Base of the losses that add noise to the scores.

    The noise of call ``draws`` comes from ``numpy.random.default_rng((seed, draws))``: it depends on nothing else, least of all
    on the global random state. ``draws`` counts the calls and is part of ``state_dict``, so that a restored run goes on as it
    would have. All ``samples`` of all instances go to the solver in one call. Over several processes, give each its own seed.
    """

    draws: Tensor
    """Number of calls so far, int64."""

    def __init__(
        self, task: Structured, *, sigma: float, samples: int, noise: str = "gaussian", seed: int = 0, reduction: str = "mean"
    ) -> None:
        super().__init__(task, reduction=reduction)
        self.sigma = _checks.check_positive("sigma", sigma)
        self.samples = _checks.check_count("samples", samples)
        self.noise = _checks.check_choice("noise", noise, tuple(_NOISES))
        self.seed = _checks.check_not_negative("seed", seed)
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64))

    def _draw(self, inference: StructuredInference) -> np.ndarray:
        """Return noise of unit scale for each sample of each instance, float64 ``(samples, R, ...)``."""
        generator = np.random.default_rng((self.seed, int(self.draws)))
        self.draws += 1
        return _NOISES[self.noise](generator, (self.samples, *inference.scores.shape))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, sigma={self.sigma}, samples={self.samples}, noise={self.noise!r}, seed={self.seed}"


def _gaussian(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.standard_normal(shape)


def _gumbel(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.gumbel(size=shape)


def _sum_of_gamma(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return noise whose sum over k entries is nearly Gumbel distributed; k = 5, and ten terms of the series.

    Niepert, Minervini, Franceschi, *Implicit MLE*, NeurIPS 2021.
    """
    k, terms = 5, 10
    total = np.zeros(shape)
    for i in range(1, terms + 1):
        total += generator.gamma(1 / k, k / i, shape)
    return (total - np.log(terms)) / k


_NOISES = {"gaussian": _gaussian, "gumbel": _gumbel, "sum_of_gamma": _sum_of_gamma}
