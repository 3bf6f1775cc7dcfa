"""PPD-SG and PPD-AdaGrad (Liu et al. 2020): the area under the ROC curve as a saddle point, and the optimizer that solves it.

Reference: M. Liu, Z. Yuan, Y. Ying, T. Yang, Stochastic AUC maximization with deep neural networks, ICLR 2020 (arXiv 1908.10831).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss.peers.inputs import read_binary


class PPDLoss(nn.Module):
    r"""Saddle-point form of the pairwise square loss of AUC; :class:`ProximalPrimalDual` minimizes and maximizes it.

    With ``h = sigmoid(score)``, the share p of positives, and the scalars a, b and alpha of this module, the loss is the mean of

    .. math::
        F = (1-p)(h-a)^2 [y=1] + p (h-b)^2 [y=0] + 2 (1+\alpha) \left(p\,h\,[y=0] - (1-p)\,h\,[y=1]\right) - p(1-p)\,\alpha^2

    over the samples. The weights, a and b minimize it, alpha maximizes it. Minimized over a and b and maximized over alpha it is
    the pairwise square loss up to a constant, if p is the share of positives among the samples:

    .. math:: \min_{a,b} \max_\alpha \overline{F} = p(1-p) \left( \mathrm{mean}_{i,j} (1 - (h_i - h_j))^2 - 1 \right)

    over the positives i and the negatives j, at ``a = mean h_i``, ``b = mean h_j`` and ``alpha = b - a``.

    Args:
        positive_share: p; by default the share among all samples that the loss has seen so far, the present batch included.

    Call with scores and target ``(n,)``; a batch may hold one class only. The loss counts samples in training mode and when the
    scores need a gradient, so a validation loss under ``torch.no_grad()`` leaves it unchanged.

    >>> loss = PPDLoss()
    >>> round(loss(torch.tensor([2.0, 0.0, -1.0]), torch.tensor([1, 0, 0])).item(), 4)
    -0.0124
    """

    seen: Tensor
    """Number of negatives and of positives so far, ``(2,)``."""
    sampled: Tensor
    """Number of samples and sum of h since :meth:`restart_sampling`, a row per class, ``(2, 2)``."""

    def __init__(self, positive_share: float | None = None) -> None:
        super().__init__()
        if positive_share is not None and not 0.0 < _checks.check_positive("positive_share", positive_share) < 1.0:
            raise ValueError(f"positive_share must be between 0 and 1, got {positive_share!r}; 5% is 0.05")
        self.positive_share = positive_share
        # Scalars in double precision: they accumulate many small steps, and cost nothing.
        self.a, self.b, self.alpha = (nn.Parameter(torch.zeros((), dtype=torch.float64)) for _ in range(3))
        self.register_buffer("seen", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("sampled", torch.zeros(2, 2, dtype=torch.float64))

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        scores, positive = read_binary(scores, target)
        h = torch.sigmoid(scores)
        counts = torch.stack([(~positive).sum(), positive.sum()]).to(self.seen)
        if self.training and torch.is_grad_enabled() and scores.requires_grad:
            self._observe(h.detach(), positive, counts)
        p = self._share(counts)
        a, b, alpha = (scalar.to(h) for scalar in (self.a, self.b, self.alpha))
        of_positives = (1.0 - p) * ((h - a).square() - 2.0 * (1.0 + alpha) * h)
        of_negatives = p * ((h - b).square() + 2.0 * (1.0 + alpha) * h)
        return torch.where(positive, of_positives, of_negatives).mean() - p * (1.0 - p) * alpha.square()

    def restart_sampling(self) -> None:
        """Forget the samples of :meth:`best_alpha`."""
        self.sampled.zero_()

    def best_alpha(self) -> Tensor | None:
        """Return the maximizer, ``mean h of negatives - mean h of positives`` of the samples; None without both classes."""
        number, total = self.sampled.unbind(1)
        return (total[0] / number[0] - total[1] / number[1]) if bool(number.all()) else None

    def extra_repr(self) -> str:
        return f"positive_share={self.positive_share!r}"

    def _observe(self, h: Tensor, positive: Tensor, counts: Tensor) -> None:
        self.seen += counts
        self.sampled[:, 0] += counts
        self.sampled[:, 1] += torch.stack([h[~positive].sum(), h[positive].sum()]).to(self.sampled)

    def _share(self, counts: Tensor) -> float:
        if self.positive_share is not None:
            return self.positive_share
        # Before the first training batch, the batch at hand is all there is.
        counts = self.seen if bool(self.seen.any()) else counts
        return (counts[1] / counts.sum()).item()


class ProximalPrimalDual(torch.optim.Optimizer):
    r"""Optimizer of :class:`PPDLoss`: descent in the weights, a and b, ascent in alpha, in stages around a reference point.

    Let ``v = (weights, a, b)``, let g be the gradient of the loss, and let v_0 be the reference of the stage k = 0, 1, ... with
    the step size ``eta = learning_rate / growth^k`` and ``stage_length * growth^k`` steps. **PPD-SG** steps to

    .. math::
        v \leftarrow \arg\min_u \langle g, u \rangle + \tfrac{1}{2\gamma} \|u - v_0\|^2 + \tfrac{1}{2\eta} \|u - v\|^2
        = v - \frac{\eta}{1 + \eta/\gamma} \left(g + \frac{v - v_0}{\gamma}\right),
        \qquad \alpha \leftarrow \alpha + \eta\,\partial F / \partial \alpha .

    **PPD-AdaGrad** sums ``u = g + (v - v_0) / gamma`` over the steps of the stage and goes to
    ``v = v_0 - eta * sum(u) / (delta + sqrt(sum(u^2)))``, coordinate by coordinate; alpha likewise, upward, from its value at the
    beginning of the stage and without the proximal term. At the end of a stage v and v_0 become the mean iterate of the stage,
    and alpha becomes the mean h over negatives minus the mean h over positives, on fresh samples.

    Where the original draws these samples by itself, this class takes them from the training loop: v rests at the mean iterate
    for the next ``alpha_batches * growth^k`` steps (more if a class is missing), whose batches are the samples. The network sees
    them in training mode. The released code differs from the paper, which is followed here: it takes an explicit step on the
    proximal term, leaves the weights where they are at the end of a stage, and weights negatives by ``p (1 - p)`` instead of p.
    The lengths of the stages of PPD-AdaGrad are those of the released code; in the paper they depend on the gradients.

    Args:
        params: the weights, as for any optimizer; the scalars of the loss are added. Weights in half precision are refused.
        loss: the loss that is differentiated.
        learning_rate: step size of the first stage (original: tuned among 0.1, 0.01, ...).
        gamma: weight of the proximal term, as its inverse; the paper's 1/gamma must exceed the weak convexity of the loss.
        adagrad: PPD-AdaGrad instead of PPD-SG.
        stage_length: number of steps of the first stage; the released code has 2000 for PPD-SG and 200 for PPD-AdaGrad.
        growth: factor of the stage length and divisor of the step size from one stage to the next.
        alpha_batches: number of batches that estimate alpha after the first stage.
        delta: constant of AdaGrad.

    ``state_dict`` holds everything that a run depends on besides the weights: also a, b, alpha and the counts of the loss. A
    parameter without a gradient counts as one with a zero gradient.

    >>> model, loss = nn.Linear(1, 1), PPDLoss()
    >>> optimizer = ProximalPrimalDual(model.parameters(), loss, learning_rate=0.1, stage_length=100)
    >>> loss(model(torch.tensor([[1.0], [0.0]])).squeeze(-1), torch.tensor([1, 0])).backward()
    >>> optimizer.step()
    >>> optimizer.stage, optimizer.step_size
    (0, 0.1)
    """

    def __init__(
        self,
        params: Any,
        loss: PPDLoss,
        *,
        learning_rate: float = 0.1,
        gamma: float = 2000.0,
        adagrad: bool = False,
        stage_length: int = 2000,
        growth: float = 3.0,
        alpha_batches: int = 3,
        delta: float = 0.5,
    ) -> None:
        if not isinstance(loss, PPDLoss):
            raise TypeError(f"loss must be a PPDLoss, whose scalars are optimized too, got {type(loss).__name__}")
        _checks.check_flag("adagrad", adagrad)
        if _checks.check_positive("growth", growth) < 1.0:
            raise ValueError(f"growth must be at least 1, got {growth!r}")
        self._loss, self._adagrad, self._growth = loss, adagrad, float(growth)
        self._stage_length = _checks.check_count("stage_length", stage_length)
        self._alpha_batches = _checks.check_count("alpha_batches", alpha_batches)
        self._delta = _checks.check_positive("delta", delta)
        rates = {"lr": _checks.check_positive("learning_rate", learning_rate), "gamma": _checks.check_positive("gamma", gamma)}
        super().__init__(params, rates)
        for parameter in self._parameters():
            if parameter.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"weights must be float32 or float64, got {parameter.dtype}; the mean of a stage needs the digits"
                )
        self.add_param_group({"params": [loss.a, loss.b]})
        self.add_param_group({"params": [loss.alpha]})

    @property
    def stage(self) -> int:
        """Number of stages that are finished, samples for alpha included."""
        return int(self._counters()["stage"].item())

    @property
    def step_size(self) -> float:
        """Step size of the present stage, that of the first group of parameters."""
        return float(self.param_groups[0]["lr"] / self._growth**self.stage)

    @property
    def is_sampling(self) -> bool:
        """Whether the weights rest at the mean iterate while batches are collected for alpha."""
        return int(self._counters()["steps"].item()) >= self._scheduled(self._stage_length)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step with the gradients at hand; return what ``closure`` returned, if there is one."""
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        if not self._has_begun():
            self._begin_stage()
        if self.is_sampling:
            self._sample()
        else:
            self._update()
        return value

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer and of the loss; the state of each parameter holds tensors only."""
        loss = self._loss
        if self._has_begun():
            for scalar in loss.parameters():
                self.state[scalar]["value"] = scalar.detach().clone()
            self.state[loss.alpha].update(seen=loss.seen.clone(), sampled=loss.sampled.clone())
        return super().state_dict()

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`, the scalars and counts of the loss included."""
        super().load_state_dict(state_dict)
        loss = self._loss
        if self._has_begun():
            for scalar in loss.parameters():
                scalar.copy_(self.state[scalar]["value"])
            loss.seen.copy_(self.state[loss.alpha]["seen"])
            loss.sampled.copy_(self.state[loss.alpha]["sampled"])

    def _parameters(self) -> Iterator[Tensor]:
        return (parameter for group in self.param_groups for parameter in group["params"])

    def _has_begun(self) -> bool:
        return "stage" in self.state.get(self._loss.alpha, {})

    def _counters(self) -> dict[str, Tensor]:
        """Return the state with the counters, which are tensors because checkpoints hold nothing else."""
        return self.state[self._loss.alpha] if self._has_begun() else {"stage": torch.zeros(()), "steps": torch.zeros(())}

    def _scheduled(self, first: int) -> int:
        """Return a length of this stage, given that of the first one."""
        return round(first * self._growth**self.stage)

    def _begin_stage(self) -> None:
        """Make the present point the reference, and forget the sums of the last stage."""
        counters = {"stage": torch.tensor(self.stage + self._has_begun(), dtype=torch.float64)}
        for name in ("steps", "batches"):
            counters[name] = torch.zeros((), dtype=torch.float64)
        sums = ("gradient_sum", "square_sum") if self._adagrad else ()
        for parameter in self._parameters():
            zeros = {name: torch.zeros_like(parameter) for name in ("mean", *sums)}
            self.state[parameter] = {"reference": parameter.detach().clone(), **zeros}
        self.state[self._loss.alpha].update(counters)

    def _update(self) -> None:
        """Step with the gradient; after the last step of the stage, go to the mean iterate."""
        counters = self._counters()
        counters["steps"] += 1
        shrink = self._growth**-self.stage
        for group in self.param_groups:
            eta, gamma = group["lr"] * shrink, group["gamma"]
            for parameter in group["params"]:
                state, ascends = self.state[parameter], parameter is self._loss.alpha
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                if not ascends:
                    gradient = gradient + (parameter - state["reference"]) / gamma
                if self._adagrad:
                    state["gradient_sum"] += -gradient if ascends else gradient
                    state["square_sum"] += gradient.square()
                    parameter.copy_(state["reference"] - eta * state["gradient_sum"] / (self._delta + state["square_sum"].sqrt()))
                else:
                    parameter.add_(gradient, alpha=eta if ascends else -eta / (1.0 + eta / gamma))
                state["mean"] += (parameter - state["mean"]) / counters["steps"].item()
        if self.is_sampling:
            self._rest_at_mean()

    def _rest_at_mean(self) -> None:
        for parameter in self._parameters():
            if parameter is not self._loss.alpha:
                parameter.copy_(self.state[parameter]["mean"])
        self._loss.restart_sampling()

    def _sample(self) -> None:
        """Count a batch of samples; after the last one, set alpha and begin the next stage."""
        counters = self._counters()
        counters["batches"] += 1
        alpha = self._loss.best_alpha()
        if alpha is not None and counters["batches"] >= self._scheduled(self._alpha_batches):
            self._loss.alpha.copy_(alpha)
            self._begin_stage()
