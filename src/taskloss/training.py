"""The one training loop: full batch, early stopping on the exact metric, the best weights kept.

The metrics of this library do not decompose over samples, so the natural step sees all of them at once. The loop knows neither
the loss nor the metric: a criterion is any ``(scores, target) -> loss``, so a baseline and a direct loss get the same budget,
seed and stopping rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss.metrics import average_precision_score

Criterion = Callable[[Tensor, Tensor], Tensor]

HIDDEN = (64, 64)
"""Widths of the hidden layers, unless told otherwise."""


class Samples(NamedTuple):
    """Inputs of the network and their target, one row a sample."""

    features: Tensor
    target: Tensor


class Progress(NamedTuple):
    """What the loop tells its caller after each iteration."""

    iteration: int
    """Steps done so far, from 1."""
    loss: float
    metric: float


@dataclass(frozen=True)
class TrainingSettings:
    """The budget of a run. One set of defaults for everything that trains."""

    iterations: int = 400
    """Most steps that are taken, each over all the training samples."""
    patience: int = 100
    """Stop after this many steps without a better validation metric."""
    learning_rate: float = 3e-3
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        for name in ("iterations", "patience"):
            _checks.check_count(name, getattr(self, name))
        _checks.check_positive("learning_rate", self.learning_rate)
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be finite and not negative, got {self.weight_decay!r}")


@dataclass(frozen=True)
class TrainingResult:
    """The course of a run; the network itself holds the weights of the best iteration."""

    losses: tuple[float, ...]
    """Value of the criterion that each step descended from."""
    metrics: tuple[float, ...]
    """Validation metric after each step."""
    best_iteration: int
    """The step, counted from 1, after which the validation metric was highest (the first such step)."""

    @property
    def best_metric(self) -> float:
        """The highest validation metric of the run."""
        return self.metrics[self.best_iteration - 1]


def build_mlp(features: int, *, hidden: Sequence[int] = HIDDEN, seed: int = 0) -> nn.Sequential:
    """A ReLU network with one score a sample, shape ``(n, features) -> (n,)``; its weights depend on nothing but the seed.

    >>> build_mlp(5)(torch.zeros(3, 5)).shape
    torch.Size([3])
    """
    layers: list[nn.Module] = []
    width = features
    with _seeded(seed, torch.device("cpu")):
        for next_width in hidden:
            layers += [nn.Linear(width, next_width), nn.ReLU()]
            width = next_width
        layers += [nn.Linear(width, 1), nn.Flatten(0)]
    return nn.Sequential(*layers)


def train(
    model: nn.Module,
    criterion: Criterion,
    training: Samples,
    validation: Samples,
    *,
    settings: TrainingSettings | None = None,
    metric: Callable[[Tensor, Tensor], Any] = average_precision_score,
    seed: int = 0,
    on_iteration: Callable[[Progress], None] | None = None,
) -> TrainingResult:
    """Train ``model`` in place with AdamW, on the device it is on, and leave it in evaluation mode with its best weights.

    Args:
        model: maps features to scores in the shape of the target.
        criterion: ``(scores, target) -> loss``, a scalar tensor.
        training: the samples of every step.
        validation: the samples of the metric, which picks the weights and the time to stop.
        settings: the budget; the defaults of :class:`TrainingSettings` when left out.
        metric: ``(scores, target) -> number``, higher is better.
        seed: for whatever is random in the network (dropout). The caller's random state is left as it was.
        on_iteration: called after each step.

    >>> target = torch.tensor([0, 1] * 8)
    >>> samples = Samples(target[:, None].float(), target)
    >>> train(build_mlp(1), nn.SoftMarginLoss(), samples, samples).best_metric
    1.0
    """
    settings = settings or TrainingSettings()
    device = _device_of(model)
    training, validation = (Samples(*(tensor.to(device) for tensor in samples)) for samples in (training, validation))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    losses: list[float] = []
    metrics: list[float] = []
    best, best_weights = 0, _copy_weights(model)
    with _seeded(seed, device):
        for iteration in range(1, settings.iterations + 1):
            losses.append(_step(model, criterion, training, optimizer))
            metrics.append(_validate(model, metric, validation))
            if best == 0 or metrics[-1] > metrics[best - 1]:
                best, best_weights = iteration, _copy_weights(model)
            if on_iteration is not None:
                on_iteration(Progress(iteration, losses[-1], metrics[-1]))
            if iteration - best >= settings.patience:
                break
    model.load_state_dict(best_weights)
    model.eval()
    return TrainingResult(tuple(losses), tuple(metrics), best)


def _step(model: nn.Module, criterion: Criterion, samples: Samples, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    optimizer.zero_grad()
    loss = criterion(model(samples.features), samples.target)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


@torch.no_grad()
def _validate(model: nn.Module, metric: Callable[[Tensor, Tensor], Any], samples: Samples) -> float:
    model.eval()
    value = float(metric(model(samples.features), samples.target))
    if math.isnan(value):
        raise ValueError("the validation metric is not a number, so it cannot choose weights; do the samples hold both classes?")
    return value


def _copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _device_of(model: nn.Module) -> torch.device:
    for parameter in model.parameters():
        return parameter.device
    raise ValueError(f"{type(model).__name__} has no parameters, so there is nothing to train")


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw random numbers from ``seed``, and give the caller's random state (CPU and CUDA) back afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"):
        torch.manual_seed(seed)
        yield
