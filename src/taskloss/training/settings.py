"""The budget of a training run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from taskloss import _checks

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The budget of a training run, with the defaults of everything in this library that trains."""

    iterations: int = 400
    """Largest number of steps; without validation samples, their number."""
    patience: int = 100
    """Stop after this many steps without a better validation metric."""
    optimizer: str = "adamw"
    """``"adamw"``, or ``"sgd"``: plain gradient descent, without momentum."""
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    """Share of the weights that AdamW takes away, times the learning rate; the factor of the squared weights, by 1/2, for SGD."""
    decay_after: tuple[int, ...] = ()
    """Numbers of steps after which the learning rate is multiplied by ``decay``; by default it stays as it is."""
    decay: float = 1 / 3
    batch_size: int = 32_768
    """Up to this many training samples, each step sees all of them; beyond, stratified batches of about this size."""
    backward_rows: int | None = None
    """Backpropagate a step in parts of this many samples, by :func:`taskloss.full_batch_backward`: the same gradient, in the
    memory of one part, for a second forward pass. By default a step is backpropagated at once."""
    averaging: float = 0.0
    """Decay of a running mean of the weights; the mean is validated and kept instead of the last step's weights. 0 for none."""
    smoothing: int = 1
    """Compare steps by the validation metric averaged over this many steps, because single steps can look better than they are on
    a small validation set. Steps with fewer steps before them are not kept, unless the run has no others."""

    def __post_init__(self) -> None:
        for name in ("iterations", "patience", "batch_size", "smoothing"):
            _checks.check_count(name, getattr(self, name))
        if self.backward_rows is not None:
            _checks.check_count("backward_rows", self.backward_rows)
        _checks.check_choice("optimizer", self.optimizer, tuple(OPTIMIZERS))
        _checks.check_positive("learning_rate", self.learning_rate)
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be finite and not negative, got {self.weight_decay!r}")
        for step in self.decay_after:
            _checks.check_count("decay_after", step)
        _checks.check_positive("decay", self.decay)
        if not 0 <= self.averaging < 1:
            raise ValueError(
                f"averaging must be at least 0 and below 1, got {self.averaging!r}; 0.95 is a mean of about 20 steps"
            )

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer of the model's parameters."""
        return OPTIMIZERS[self.optimizer](model.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)

    def rate_of_step(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0.

        >>> settings = TrainingSettings(learning_rate=1.0, decay_after=(2, 5), decay=0.5)
        >>> [settings.rate_of_step(step) for step in (0, 1, 2, 4, 5)]
        [1.0, 1.0, 0.5, 0.5, 0.25]
        """
        return self.learning_rate * self.decay ** sum(step >= end for end in self.decay_after)
