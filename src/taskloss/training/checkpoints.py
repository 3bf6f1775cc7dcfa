"""The state of a run on disk, so that a run that was killed goes on to the very same weights."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from taskloss import _checks, _storage
from taskloss.training.samples import Samples
from taskloss.training.settings import TrainingSettings

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """Where the state of a run is kept, and how often it is written. What is there already is continued."""

    path: Path
    every: int = 50
    """Steps between two writes; the end of the run is written too."""

    def __post_init__(self) -> None:
        _checks.check_count("every", self.every)


@dataclass
class RunState:
    """All that a run depends on besides its input: what a checkpoint holds."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    average: nn.Module | None
    """The running mean of the weights, if there is one."""
    best_weights: Weights
    best: int = 0
    """The step of the best weights, from 1; 0 before the first."""
    losses: list[float] = field(default_factory=list)
    metrics: list[float] = field(default_factory=list)

    def write(self, path: Path, run: str) -> None:
        """``run`` says which run this is a state of; a later run with another one is refused."""
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
        """Take over the state in ``path``, and its random state."""
        tensors, facts = _storage.read_tensors(path)
        if facts.get("run") != run:
            raise ValueError(
                f"the checkpoint {path} belongs to another run: the data, the settings, the network, the loss or the seed have "
                "changed. Remove it to start anew, or go back to what it was made with"
            )
        device = next(self.model.parameters()).device
        self.best_weights = {name: tensor.to(device) for name, tensor in _below(tensors, "best").items()}
        self.model.load_state_dict(_below(tensors, "model"))
        if self.average is not None:
            self.average.load_state_dict(_below(tensors, "average"))
        state: dict[int, Weights] = {}
        for key, tensor in _below(tensors, "optimizer").items():
            number, _, name = key.partition(".")
            state.setdefault(int(number), {})[name] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.best, self.losses, self.metrics = facts["best"], facts["losses"], facts["metrics"]
        torch.set_rng_state(tensors["random.cpu"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], device)


def _below(tensors: Weights, kind: str) -> Weights:
    return {name.removeprefix(f"{kind}."): tensor for name, tensor in tensors.items() if name.startswith(f"{kind}.")}


def describe_run(
    model: nn.Module, criterion: Any, training: Samples, validation: Samples, settings: TrainingSettings, metric: Any, seed: int
) -> str:
    """A digest of the input of a run: equal for the same run started again, before its first step."""
    digest = hashlib.sha256()
    text = repr((asdict(settings), seed, model, _name(criterion), _name(metric)))
    # Addresses of functions differ from process to process.
    digest.update(re.sub(r" at 0x[0-9a-f]+", "", text).encode())
    tensors: list[Tensor | None] = [*model.state_dict().values(), *training, *validation]
    for tensor in tensors:
        if tensor is not None:
            digest.update(repr((tensor.shape, tensor.dtype)).encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _name(function: Any) -> Any:
    """A module tells its settings, a method its object and name, a function its name."""
    if isinstance(function, nn.Module):
        return function
    return getattr(function, "__self__", None), getattr(function, "__qualname__", type(function).__name__)
