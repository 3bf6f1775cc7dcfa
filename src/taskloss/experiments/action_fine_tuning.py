"""The full form of the action experiment: the whole network is fine-tuned, full batch, one class at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from taskloss.experiments.action import Action, PrecisionCurve, choose_settings, flip_known, in_short
from taskloss.experiments.action_page import PROTOCOLS, make_page
from taskloss.experiments.action_paper import METHODS, NOISE
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.methods import METHODS as CRITERIA
from taskloss.experiments.page import Page, read_text
from taskloss.experiments.pretrained import SqueezeNet, load_squeezenet
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.voc_action import CLASSES, UNKNOWN, Persons, read_persons, split_thirds
from taskloss.training import Checkpoint, TrainingData, TrainingSettings, seeded, train

EPSILONS = (1.0, 10.0)
RATES = (1e-4, 3e-4)
DECAY = 0.01
EVERY = 25
"""Iterations between two measurements of validation and test, and between two checkpoints."""
BACKWARD_ROWS = 64
"""Persons whose graph is in memory at once."""


class FineTuned(nn.Module):
    """A pretrained network with one score in place of its classes: ``(n, 3, h, w) -> (n, 1)``."""

    def __init__(self, network: SqueezeNet, seed: int) -> None:
        super().__init__()
        self.network = network
        network.conv10.requires_grad_(False)  # It is not used, and the optimizer should not move it.
        with seeded(seed, torch.device("cpu")):
            self.output = nn.Linear(network.width, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.output(self.network.features(pixels))


def run_class(cell: Cell, files: Files) -> Record:
    """Fine-tune the network for one class; a run that is killed continues from its last iteration."""
    persons = read_persons(files.data_folder())
    rng = np.random.default_rng([cell["seed"], 1])
    column = persons.classes.index(cell["class"])
    parts = []
    for rows, share in zip(split_thirds(persons.image, cell["seed"]), (cell["noise"], cell["noise"], 0.0), strict=True):
        # Flipped as in the quick form: the same seed gives the same labels.
        target = torch.from_numpy(flip_known(persons.labels[rows], share, rng)[:, [column]])
        parts.append(TrainingData(_crops(persons, rows), target))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = FineTuned(load_squeezenet(files.data_folder()), cell["seed"]).to(device)
    name = "-".join(str(cell[key]) for key in ("class", "noise", "method", "weight", "rate", "seed", "iterations"))
    checkpoint = Checkpoint(files.cache / "voc_action-fine_tuning" / f"{name}.safetensors", every=EVERY)
    # Right after the checkpoints, never with them: a run that is killed in between measures again what it has not written.
    measured = {1, *range(EVERY + 1, cell["iterations"], EVERY), cell["iterations"]}
    curve = PrecisionCurve(model, parts[1], parts[2], measured, checkpoint.path.with_suffix(".json"))
    settings = TrainingSettings(
        iterations=cell["iterations"],
        learning_rate=cell["rate"],
        weight_decay=cell["decay"],
        backward_rows=BACKWARD_ROWS,
    )
    train(
        model,
        CRITERIA[cell["method"]](cell["weight"], ignore_index=UNKNOWN, reduction="sum"),
        parts[0],
        None,
        settings=settings,
        seed=cell["seed"],
        on_iteration=curve.measure,
        checkpoint=checkpoint,
    )
    return curve.record()


def _crops(persons: Persons, rows: np.ndarray) -> Tensor:
    return torch.cat(list(persons.crops(256, rows)))


@dataclass(frozen=True)
class FineTuning(Experiment):
    """SqueezeNet fine-tuned for each class, as the paper does with AlexNet."""

    seeds: int = 1
    iterations: int = 300
    classes: tuple[str, ...] = CLASSES
    noise: tuple[float, ...] = NOISE

    name: ClassVar[str] = Action.name
    title: ClassVar[str] = Action.title
    source: ClassVar[str] = Action.source

    def run(self, runner: Runner, seeds: int) -> Results:
        grid = [
            {"noise": noise, "method": method, "weight": weight, "rate": rate}
            for noise, method, rate in product(self.noise, METHODS, RATES)
            for weight in (EPSILONS if method == "pos-AP" else (1.0,))
        ]
        tuning = self._run_classes(runner, "tuning on the first seed", [{**setting, "seed": 0} for setting in grid])
        results: Results = {"size": asdict(self), "tuning": [in_short(record) for record in tuning]}
        for protocol, title in PROTOCOLS.items():
            chosen = choose_settings(tuning, protocol)
            results[protocol] = self._run_classes(
                runner, title, [{**setting, "seed": seed} for setting in chosen for seed in range(seeds)]
            )
        return results

    def _run_classes(self, runner: Runner, stage: str, settings: Sequence[Cell]) -> list[Record]:
        """Run every class with each setting, and return one record per setting with the lists of its classes."""
        base = {"experiment": f"{self.name}, fine-tuned", "iterations": self.iterations, "decay": DECAY}
        cells = [{**base, **setting, "class": name} for setting in settings for name in self.classes]
        records = runner.run(stage, run_class, cells)
        joined = []
        for first in range(0, len(records), len(self.classes)):
            of_classes = records[first : first + len(self.classes)]
            record = {**of_classes[0], "seconds": sum(one["seconds"] for one in of_classes)}
            for protocol in PROTOCOLS:
                parts = of_classes[0][protocol]
                record[protocol] = {part: [one[protocol][part][0] for one in of_classes] for part in parts}
            del record["class"], record["curve"]
            joined.append(record)
        return joined

    def make_page(self, results: Results) -> Page:
        return make_page(self, results, network=read_text("action-fine-tuning").format(iterations=self.iterations))
