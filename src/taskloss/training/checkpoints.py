"""Checkpoints: the state of a run on disk, from which a run that was killed continues to exactly the same weights."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from taskloss import _checks, _storage
from taskloss.training.data import TrainingData
from taskloss.training.settings import TrainingSettings

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """The file for the state of a run, and how often it is written. If the file exists, the run continues from it."""

    path: Path
    every: int = 50
    """Number of steps between two writes; the state at the end of the run is written too."""

    def __post_init__(self) -> None:
        _checks.check_count("every", self.every)


@dataclass
class RunState:
    """Everything that a run depends on besides its input; a checkpoint holds this."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    average: nn.Module | None
    """The running mean of the weights, if there is one."""
    best_weights: Weights
    best: int = 0
    """The step of the best weights, counted from 1; 0 while there are none."""
    losses: list[float] = field(default_factory=list)
    metrics: list[float] = field(default_factory=list)

    def write(self, path: Path, run: str) -> None:
        """Write the state; ``run`` is the digest of the run's input, and a run with another digest refuses the file."""
        tensors = {f"best.{name}": tensor for name, tensor in self.best_weights.items()}
        for kind, module in (("model", self.model), ("average", self.average)):
            if module is not None:
                tensors.update({f"{kind}.{name}": tensor for name, tensor in module.state_dict().items()})
        for number, entry in self.optimizer.state_dict()["state"].items():
            tensors.update({f"optimizer.{number}.{name}": tensor for name, tensor in entry.items()})
        tensors["random.cpu"] = torch.get_rng_state()
        device = next(self.model.parameters()).device
        if device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(device)
        path.parent.mkdir(parents=True, exist_ok=True)
        _storage.write_tensors(path, tensors, {"run": run, "best": self.best, "losses": self.losses, "metrics": self.metrics})

    def read(self, path: Path, run: str) -> None:
        """Restore the state in ``path``, and torch's random state with it."""
        tensors, facts = _storage.read_tensors(path)
        if facts.get("run") != run:
            raise ValueError(
                f"the checkpoint {path} belongs to another run: the data, the settings, the network, the loss or the seed have "
                "changed. Remove it to start anew, or restore what it was made with"
            )
        device = next(self.model.parameters()).device
        self.best_weights = {name: tensor.to(device) for name, tensor in _storage.tensors_under(tensors, "best").items()}
        self.model.load_state_dict(_storage.tensors_under(tensors, "model"))
        if self.average is not None:
            self.average.load_state_dict(_storage.tensors_under(tensors, "average"))
        state: dict[int, Weights] = {}
        for key, tensor in _storage.tensors_under(tensors, "optimizer").items():
            number, _, name = key.partition(".")
            state.setdefault(int(number), {})[name] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.best, self.losses, self.metrics = facts["best"], facts["losses"], facts["metrics"]
        torch.set_rng_state(tensors["random.cpu"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], device)


def describe_run(
    model: nn.Module,
    criterion: Any,
    training: TrainingData,
    validation: TrainingData | None,
    settings: TrainingSettings,
    metric: Any,
    seed: int,
) -> str:
    """Return a digest of the input of a run, taken before its first step; the same run started again has the same digest."""
    digest = hashlib.sha256()
    text = repr((asdict(settings), seed, model, _name(criterion), _name(metric)))
    # The addresses of functions differ between processes.
    digest.update(re.sub(r" at 0x[0-9a-f]+", "", text).encode())
    tensors: list[Tensor | None] = [*model.state_dict().values(), *training, *(validation or ())]
    for tensor in tensors:
        if tensor is not None:
            digest.update(repr((tensor.shape, tensor.dtype)).encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _name(function: Any) -> Any:
    """Return what identifies a function in the digest: a module itself, the object and name of a method, or a function's name."""
    if isinstance(function, nn.Module):
        return function
    return getattr(function, "__self__", None), getattr(function, "__qualname__", type(function).__name__)
