"""The training loop: it stops early by the exact metric and keeps the best weights, or runs a fixed number of steps.

The metrics of this library do not decompose over samples, so the natural step sees all samples at once. The loop knows neither
the loss nor the metric: a criterion is any ``(scores, target) -> loss``, so a baseline and a direct loss get the same budget,
seed and stopping rule.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from taskloss.full_batch import full_batch_backward
from taskloss.metrics import average_precision_score
from taskloss.training.checkpoints import Checkpoint, RunState, Weights, describe_run
from taskloss.training.data import Batches, TrainingData
from taskloss.training.networks import seeded
from taskloss.training.settings import TrainingSettings

Criterion = Callable[..., Tensor]
Metric = Callable[..., Any]

SCORED_ROWS = 4096
"""Number of validation samples that the network scores at once; with more, the activations leave the processor's cache."""


class Progress(NamedTuple):
    """The progress of a run, as the loop reports it after each step."""

    iteration: int
    """Number of steps done so far."""
    loss: float
    metric: float
    """Validation metric; NaN without validation samples."""


@dataclass(frozen=True)
class TrainingResult:
    """Losses and metrics of a run; the network itself holds the weights of the best iteration."""

    losses: tuple[float, ...]
    """Value of the criterion before each step."""
    metrics: tuple[float, ...]
    """Validation metric after each step; a step that was not validated (see :func:`train`) repeats the value before it. Empty
    without validation samples."""
    best_iteration: int
    """The first step, counted from 1, after which the validation metric (its mean over the last ``smoothing`` steps) was
    highest; the last step without validation samples."""

    @property
    def best_metric(self) -> float:
        """Validation metric of the weights that are kept; NaN without validation samples."""
        return self.metrics[self.best_iteration - 1] if self.metrics else math.nan


def train(
    model: nn.Module,
    criterion: Criterion,
    training: TrainingData,
    validation: TrainingData | None,
    *,
    settings: TrainingSettings | None = None,
    metric: Metric = average_precision_score,
    seed: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
    on_iteration: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> TrainingResult:
    """Train ``model`` in place, on its own device, and leave it in evaluation mode with its best weights.

    Without validation samples, the run takes all its steps, and the last weights are kept.

    With them, the metric is computed after every step. Where they outnumber a batch, that would take longer than the training, so
    it is then computed after as many steps as it takes to train on that many samples, and after the last one.

    Args:
        model: maps features to scores in the shape of the target.
        criterion: ``(scores, target) -> loss``, a scalar tensor; it is also given ``groups=`` where the data has groups.
        training: the samples to train on; each step sees all of them, up to ``settings.batch_size``.
        validation: the samples of the metric, which chooses the weights and the time to stop; None for a fixed number of steps.
        settings: the budget; the defaults of :class:`TrainingSettings` when left out.
        metric: ``(scores, target) -> number``, higher is better; it is given ``groups=`` like the criterion.
        seed: seed of the batches and of randomness in the network (dropout). The caller's random state is left unchanged.
        optimizer: a new optimizer of the model's parameters, for methods that bring their own; it sets its learning rates itself.
            By default that of the settings.
        on_iteration: called after each step.
        checkpoint: the file for the state of the run. If it exists, the run continues from it, and ends with the same weights,
            bit by bit, as a run that was never interrupted (on the same machine with the same number of threads; randomness
            that a network draws from elsewhere than torch is not restored).

    >>> from taskloss.training import build_mlp
    >>> target = torch.tensor([0, 1] * 8)
    >>> data = TrainingData(target[:, None].float(), target)
    >>> train(build_mlp(1), nn.SoftMarginLoss(), data, data).best_metric
    1.0
    """
    settings = settings or TrainingSettings()
    device = _device_of(model)
    training, validation = training.to(device), None if validation is None else validation.to(device)
    batches = Batches(training, settings.batch_size, seed)
    interval = -(-len(validation.target) // batches.size) if validation else 0
    run = describe_run(model, criterion, training, validation, settings, metric, seed) if checkpoint else ""
    state = _begin(model, optimizer or settings.make_optimizer(model), settings)
    with seeded(seed, device):
        if checkpoint is not None and checkpoint.path.exists():
            state.read(checkpoint.path, run)
        while not _is_over(state, settings):
            if optimizer is None:
                _set_rate(state.optimizer, settings.rate_of_step(len(state.losses)))
            state.losses.append(_step(model, criterion, batches.of_step(len(state.losses)), state.optimizer, settings))
            _update_average(state, settings.averaging)
            done = len(state.losses)
            if validation is None:
                state.best = done
            elif done % interval == 0 or done in (1, settings.iterations):
                state.metrics.append(_validate(state.average or model, metric, validation, settings.batch_size))
                if is_better(state.metrics, state.best, min(settings.smoothing, settings.iterations)):
                    state.best, state.best_weights = done, _copy_weights(state.average or model)
            else:
                state.metrics.append(state.metrics[-1])
            if checkpoint is not None and (done % checkpoint.every == 0 or _is_over(state, settings)):
                state.write(checkpoint.path, run)
            if on_iteration is not None:
                on_iteration(Progress(done, state.losses[-1], state.metrics[-1] if state.metrics else math.nan))
    model.load_state_dict(state.best_weights if validation else _copy_weights(state.average or model))
    model.eval()
    return TrainingResult(tuple(state.losses), tuple(state.metrics), state.best)


def _begin(model: nn.Module, optimizer: torch.optim.Optimizer, settings: TrainingSettings) -> RunState:
    average = copy.deepcopy(model) if settings.averaging else None
    return RunState(model, optimizer, average, _copy_weights(model))


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _is_over(state: RunState, settings: TrainingSettings) -> bool:
    done = len(state.losses)
    return done >= settings.iterations or (state.best > 0 and done - state.best >= settings.patience)


def is_better(metrics: Sequence[float], best: int, window: int) -> bool:
    """Whether the mean metric of the last ``window`` steps is higher than at the step ``best``, which is 0 if there is none.

    The first steps, which have too few steps before them, are not candidates: a single lucky value of a network that has hardly
    been trained could beat every later mean.
    """
    step = len(metrics)
    if step < window:
        return False
    last, highest = (sum(metrics[end - window : end]) for end in (step, best or step))
    return best == 0 or last > highest


def _step(
    model: nn.Module, criterion: Criterion, batch: TrainingData, optimizer: torch.optim.Optimizer, settings: TrainingSettings
) -> float:
    model.train()
    optimizer.zero_grad()
    if settings.backward_rows is None:
        loss = criterion(model(batch.features), batch.target, **batch.options())
        loss.backward()
    else:
        parts = list(zip(*(tensor.split(settings.backward_rows) for tensor in (batch.features, batch.target)), strict=True))
        loss = full_batch_backward(model, parts, lambda scores, target: criterion(scores, target, **batch.options()))
    optimizer.step()
    return loss.item()


@torch.no_grad()
def _update_average(state: RunState, decay: float) -> None:
    """Move the mean weights toward the new ones; the first steps count equally, so the initial weights drop out at once."""
    if state.average is None:
        return
    steps = len(state.losses)
    share = max(1.0 - decay, 1.0 / steps)
    for mean, value in zip(state.average.state_dict().values(), state.model.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value, share)
        else:
            mean.copy_(value)


@torch.no_grad()
def _validate(model: nn.Module, metric: Metric, validation: TrainingData, batch_size: int) -> float:
    model.eval()
    scores = torch.cat([model(part) for part in torch.split(validation.features, min(batch_size, SCORED_ROWS))])
    value = float(metric(scores, validation.target, **validation.options()))
    if math.isnan(value):
        raise ValueError(
            "the validation metric is NaN, so it cannot choose weights; check that the validation samples hold both classes"
        )
    return value


def _copy_weights(model: nn.Module) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _device_of(model: nn.Module) -> torch.device:
    for parameter in model.parameters():
        return parameter.device
    raise ValueError(f"{type(model).__name__} has no parameters, so there is nothing to train")
