"""The budget of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from taskloss import _checks


@dataclass(frozen=True)
class TrainingSettings:
    """The budget of a training run, with the defaults of everything in this library that trains."""

    iterations: int = 400
    """Largest number of steps."""
    patience: int = 100
    """Stop after this many steps without a better validation metric."""
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    batch_size: int = 32_768
    """Up to this many training samples, each step sees all of them; beyond, stratified batches of about this size."""
    averaging: float = 0.0
    """Decay of a running mean of the weights; the mean is validated and kept instead of the last step's weights. 0 for none."""
    smoothing: int = 1
    """Compare steps by the validation metric averaged over this many steps, because single steps can look better than they are on
    a small validation set. Steps with fewer steps before them are not kept, unless the run has no others."""

    def __post_init__(self) -> None:
        for name in ("iterations", "patience", "batch_size", "smoothing"):
            _checks.check_count(name, getattr(self, name))
        _checks.check_positive("learning_rate", self.learning_rate)
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be finite and not negative, got {self.weight_decay!r}")
        if not 0 <= self.averaging < 1:
            raise ValueError(
                f"averaging must be at least 0 and below 1, got {self.averaging!r}; 0.95 is a mean of about 20 steps"
            )
