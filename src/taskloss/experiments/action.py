"""Table 1 and figure 4 of Song et al. (2016): action classification with flipped labels."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from taskloss import metrics
from taskloss._storage import replace_file
from taskloss.experiments.action_page import PROTOCOLS, make_page
from taskloss.experiments.action_paper import METHODS, NOISE
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.feature_cache import cached_arrays
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.methods import METHODS as CRITERIA
from taskloss.experiments.page import Page, read_text
from taskloss.experiments.pretrained import load_squeezenet
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.voc_action import UNKNOWN, read_persons, split_thirds
from taskloss.training import Progress, TrainingData, TrainingSettings, seeded, train

HIDDEN = 32
EPSILONS = (0.1, 1.0, 10.0, 100.0)
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
DECAYS = (0.01, 1.0)
EVERY = 5
"""Iterations between two measurements of validation and test."""
SCORED = 256
"""Number of persons that are scored at once."""


class ClassHeads(nn.Module):
    """One network with a hidden layer for each class, all in one product: ``(n, features) -> (n, classes)``."""

    def __init__(self, features: int, classes: int, hidden: int, seed: int) -> None:
        super().__init__()
        with seeded(seed, torch.device("cpu")):
            self.hidden = nn.Linear(features, classes * hidden)
            self.output = nn.Parameter((2 * torch.rand(classes, hidden) - 1) / math.sqrt(hidden))
            self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor) -> Tensor:
        units = self.hidden(x).relu().view(len(x), *self.output.shape)
        return (units * self.output).sum(2) + self.bias


class Parts(NamedTuple):
    """The thirds of the persons: features, and labels of which some are flipped in training and validation."""

    training: TrainingData
    validation: TrainingData
    test: TrainingData


def flip_known(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return the labels ``(n, classes)`` with this share of the known ones of each class flipped, whatever their value."""
    flipped = labels.copy()
    for column in flipped.T:
        known = np.flatnonzero(column != UNKNOWN)
        chosen = rng.permutation(known)[: round(share * len(known))]
        column[chosen] = 1 - column[chosen]
    return flipped


def split_persons(features: Tensor, labels: np.ndarray, image: np.ndarray, noise: float, seed: int) -> Parts:
    """Return the thirds; a seed stands for a split and for the flipped labels."""
    thirds = split_thirds(image, seed)
    rng = np.random.default_rng([seed, 1])
    parts = []
    for rows, share in zip(thirds, (noise, noise, 0.0), strict=True):
        target = torch.from_numpy(flip_known(labels[rows], share, rng))
        parts.append(TrainingData(features[torch.from_numpy(rows)], target))
    return Parts(*parts)


def class_precisions(scores: Tensor, target: Tensor) -> list[float]:
    """Return the average precision of each column, over the persons whose label is known."""
    values = []
    for column, labels in zip(scores.T, target.T, strict=True):
        known = labels != UNKNOWN
        values.append(float(metrics.average_precision_score(column[known], labels[known])))
    return values


def features_path(files: Files) -> Path:
    """Return the file of the cached features."""
    return files.cache / "voc_action-squeezenet.npz"


def make_features(runner: Runner) -> None:
    """Compute the features of all persons by the pretrained network, unless they are cached."""

    def make() -> dict[str, np.ndarray]:
        persons = read_persons(runner.files.data_folder())
        network = load_squeezenet(runner.files.data_folder()).eval()
        batches: list[Tensor] = []
        done = 0
        with runner.show("features", len(persons)) as report, torch.no_grad():
            for pixels in persons.crops(32):
                batches.append(network.features(pixels.float()))
                done += len(pixels)
                report(done, "features", None)
        return {"features": torch.cat(batches).numpy(), "labels": persons.labels, "image": persons.image}

    cached_arrays(features_path(runner.files), make)


def run_heads(cell: Cell, files: Files) -> Record:
    """Train the heads of all classes on the cached features."""
    with np.load(features_path(files), allow_pickle=False) as arrays:
        features, labels, image = torch.from_numpy(arrays["features"]), arrays["labels"], arrays["image"]
    parts = split_persons(features, labels, image, cell["noise"], cell["seed"])
    mean, deviation = parts.training.features.mean(0), parts.training.features.std(0) + 1e-6
    training, validation, test = (part._replace(features=(part.features - mean) / deviation) for part in parts)
    model = ClassHeads(features.shape[1], labels.shape[1], HIDDEN, cell["seed"])
    measured = {1, *range(EVERY, cell["iterations"] + 1, EVERY), cell["iterations"]}
    curve = PrecisionCurve(model, validation, test, measured)
    settings = TrainingSettings(iterations=cell["iterations"], learning_rate=cell["rate"], weight_decay=cell["decay"])
    criterion = CRITERIA[cell["method"]](cell["weight"], ignore_index=UNKNOWN, reduction="sum")
    train(model, criterion, training, None, settings=settings, seed=cell["seed"], on_iteration=curve.measure)
    return curve.record()


class PrecisionCurve:
    """Average precisions of validation and test along a run, class by class.

    Args:
        model: the network that is trained.
        validation: samples that choose the iteration of early stopping.
        test: samples that are reported.
        iterations: when to measure; the last one is the end of the run.
        path: a file for the values, so that a run that continues from a checkpoint has those of its beginning.
    """

    def __init__(
        self,
        model: nn.Module,
        validation: TrainingData,
        test: TrainingData,
        iterations: Collection[int],
        path: Path | None = None,
    ) -> None:
        self._model, self._parts, self._iterations, self._path = model, (validation, test), iterations, path
        self._values: dict[int, list[list[float]]] = {}
        if path is not None and path.exists():
            self._values = {int(iteration): values for iteration, values in json.loads(path.read_bytes()).items()}

    def measure(self, progress: Progress) -> None:
        """Measure the network after an iteration, if this is one of those."""
        if progress.iteration in self._iterations:
            self._measure(progress.iteration)

    def _measure(self, iteration: int) -> None:
        self._values[iteration] = [class_precisions(_score(self._model, part.features), part.target) for part in self._parts]
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(self._values).encode())

    def record(self) -> Record:
        """Return validation and test AP of each class, after the last iteration and at the class's best validation AP."""
        last = max(self._iterations)
        if last not in self._values:
            self._measure(last)  # The run was killed after its last step.
        measured = sorted(self._values)
        validation, test = (np.array([self._values[iteration][part] for iteration in measured]) for part in (0, 1))
        best, classes = validation.argmax(0), np.arange(validation.shape[1])
        return {
            "fixed": {"validation": _rounded(validation[-1]), "test": _rounded(test[-1])},
            "early": {"validation": _rounded(validation[best, classes]), "test": _rounded(test[best, classes])},
            "stopped": [measured[index] for index in best],
            "curve": {"iteration": measured, "validation": _rounded(validation.mean(1)), "test": _rounded(test.mean(1))},
        }


@torch.no_grad()
def _score(model: nn.Module, features: Tensor) -> Tensor:
    model.eval()
    device = next(model.parameters()).device
    return torch.cat([model(part.to(device)).cpu() for part in features.split(SCORED)])


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 4) for value in values]


@dataclass(frozen=True)
class Action(Experiment):
    """Heads on cached features of a pretrained SqueezeNet; settings tuned on the first seed."""

    seeds: int = 3
    iterations: int = 300

    name: ClassVar[str] = "action"
    title: ClassVar[str] = "Action classification of PASCAL VOC 2012 with flipped labels"
    source: ClassVar[str] = "Song et al. 2016, table 1 and figure 4; older version, table 1"

    def run(self, runner: Runner, seeds: int) -> Results:
        make_features(runner)
        tuning = runner.run(
            "tuning on the first seed",
            run_heads,
            [self._cell(noise, method, weight, rate, decay, 0) for noise, method, weight, rate, decay in self._grid()],
        )
        chosen = {protocol: choose_settings(tuning, protocol) for protocol in PROTOCOLS}
        cells = {
            protocol: [{**cell, "seed": seed} for cell in settings for seed in range(seeds)]
            for protocol, settings in chosen.items()
        }
        return {
            "size": asdict(self),
            "tuning": [in_short(record) for record in tuning],
            **{protocol: runner.run(title, run_heads, cells[protocol]) for protocol, title in PROTOCOLS.items()},
        }

    def _grid(self) -> list[tuple[float, str, float, float, float]]:
        return [
            (noise, method, weight, rate, decay)
            for noise in NOISE
            for method in METHODS
            for weight in (EPSILONS if method == "pos-AP" else (1.0,))
            for rate in RATES
            for decay in DECAYS
        ]

    def _cell(self, noise: float, method: str, weight: float, rate: float, decay: float, seed: int) -> Cell:
        return {
            "experiment": self.name,
            "iterations": self.iterations,
            "noise": noise,
            "method": method,
            "weight": weight,
            "rate": rate,
            "decay": decay,
            "seed": seed,
        }

    def make_page(self, results: Results) -> Page:
        return make_page(self, results, network=read_text("action-features").format(hidden=HIDDEN, iterations=self.iterations))


def choose_settings(tuning: Sequence[Record], protocol: str) -> list[Cell]:
    """Return the cell with the highest mean validation AP under a protocol, for each share of flipped labels and each method."""
    keys = ("experiment", "iterations", "noise", "method", "weight", "rate", "decay", "seed")
    best: dict[tuple[float, str], Record] = {}
    for record in tuning:
        key = (record["noise"], record["method"])
        if key not in best or fmean(record[protocol]["validation"]) > fmean(best[key][protocol]["validation"]):
            best[key] = record
    return [{name: record[name] for name in keys} for record in best.values()]


def in_short(record: Record) -> Record:
    """Return settings and means of a run, without its classes and its curve."""
    short = {key: record[key] for key in ("noise", "method", "weight", "rate", "decay", "seed", "seconds")}
    for protocol in PROTOCOLS:
        short[protocol] = {part: round(fmean(values), 4) for part, values in record[protocol].items()}
    return short
