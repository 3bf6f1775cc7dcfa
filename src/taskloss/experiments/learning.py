"""One training run of the synthetic experiments: full batch, with a curve of the test metrics, under one of three protocols.

The protocols:

- ``normal``: the paper's. Plain gradient descent, a fixed number of iterations, initial weights from N(0, 1) as the teacher's.
- ``torch``: the same with the initial weights that torch gives a layer.
- ``adam``: today's habits. AdamW, initial weights of torch, a fifth of the training samples kept for validation; the run stops
  after 100 iterations without a better validation AP and keeps the best weights.

The paper chooses the settings of a method by the AP on the training set at the end, so the first two do that; the last one
chooses by the validation AP.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from taskloss import metrics, thresholds
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.methods import DIRECT, METHODS
from taskloss.experiments.runner import Run, Runner
from taskloss.training import Criterion, Progress, TrainingData, TrainingSettings, build_mlp, seeded, train

PROTOCOLS = {
    "normal": "gradient descent from N(0, 1) weights",
    "torch": "gradient descent from torch's initial weights",
    "adam": "AdamW with early stopping",
}
VALIDATION = 5
"""One of so many training samples is kept for validation under ``adam``."""


STUDENT_SEED = 100_000
"""Added to the seed of the data for the initial weights: with the same seed, a student could begin as a copy of its teacher."""


class Samples(NamedTuple):
    """Points ``(n, d)`` and their labels ``(n,)``."""

    x: Tensor
    target: Tensor


class Grid(NamedTuple):
    """The settings that are searched: weights and learning rates of the direct losses, and learning rates of the others."""

    direct_weights: Sequence[float]
    direct_rates: Sequence[float]
    other_rates: Sequence[float]
    other_weights: Sequence[float] = (1.0,)
    """Margins of the hinge and temperatures of the cross-entropy; the paper does not tune them."""


def plan_cells(base: Cell, protocol: str, methods: Iterable[str], grid: Grid) -> list[Cell]:
    """Return a cell for every setting of every method: its weight and its learning rate."""
    return [
        {**base, "protocol": protocol, "method": method, "weight": weight, "rate": rate}
        for method in methods
        for weight in (grid.direct_weights if method in DIRECT else grid.other_weights)
        for rate in (grid.direct_rates if method in DIRECT else grid.other_rates)
    ]


def run_levels(
    runner: Runner,
    function: Run,
    base: Cell,
    grids: Mapping[str, Grid],
    methods: Iterable[str],
    levels: Iterable[float],
    seeds: int,
) -> list[Record]:
    """Run the grid of each protocol on every seed and share of flipped labels, one protocol after another."""
    records: list[Record] = []
    for protocol, grid in grids.items():
        cells = [
            cell
            for seed, noise in product(range(seeds), levels)
            for cell in plan_cells({**base, "seed": seed, "noise": noise}, protocol, methods, grid)
        ]
        records += runner.run(PROTOCOLS[protocol], function, cells)
    return records


def flip_labels(target: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return the labels with this share of them flipped, whatever their class: a fixed number, drawn at random."""
    flipped = target.clone()
    chosen = torch.randperm(len(target), generator=generator)[: round(share * len(target))]
    flipped[chosen] = 1 - flipped[chosen]
    return flipped


def choose(records: Sequence[Record], *by: str) -> list[Record]:
    """Return the record with the highest ``chosen_by`` of each group that agrees in the keys ``by``, the first of equals."""

    def group(record: Record) -> tuple[str, ...]:
        return tuple(str(record[key]) for key in by)

    # The order of the groups is that of their first records.
    order = {key: index for index, key in reversed(list(enumerate(map(group, records))))}
    ranked = sorted(records, key=lambda record: order[group(record)])
    return [max(members, key=lambda record: record["chosen_by"]) for _, members in groupby(ranked, key=group)]


def without_curves(record: Record) -> Record:
    """Return the record without its curves."""
    return {key: value for key, value in record.items() if key not in ("curves", "iterations measured")}


def in_columns(records: Sequence[Record]) -> dict[str, Any]:
    """Return the numbers of all runs as a table of columns and rows, without curves: a file of thousands of runs stays small."""
    left_out = {"experiment", "points", "iterations", "curves", "iterations measured", "deviation of the scores", "diverged"}
    columns = [key for key in records[0] if key not in left_out]
    return {"columns": columns, "rows": [[_short(record.get(key)) for key in columns] for record in records]}


def _short(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value


def curve_iterations(iterations: int) -> list[int]:
    """Return the iterations at which the test metrics are measured: dense at the beginning, then fifty equal steps."""
    step = max(1, iterations // 50)
    return sorted(
        {0, *(number for number in (1, 2, 5, 10, 20, 50) if number < iterations), *range(step, iterations + 1, step), iterations}
    )


def train_or_diverge(
    model: nn.Module, criterion: Criterion, data: TrainingData, validation: TrainingData | None, **options: Any
) -> bool:
    """Train a network, and return whether its scores are finite at the end; the losses end a run that diverges by an error."""
    try:
        train(model, criterion, data, validation, **options)
    except ValueError:
        if scores_are_finite(model, data.features):
            raise  # Another error, and a mistake of ours.
    return scores_are_finite(model, data.features)


@torch.no_grad()
def scores_are_finite(model: nn.Module, features: Tensor) -> bool:
    """Whether all scores of the samples are finite."""
    return bool(model(features).isfinite().all())


def train_on(cell: Cell, training: Samples, tests: dict[str, Samples], *, hidden: Sequence[int]) -> Record:
    """Train a network as the cell says, and return the record of the run.

    Args:
        cell: ``method``, ``weight``, ``rate``, ``protocol``, ``iterations`` and ``seed``.
        training: the samples to learn from.
        tests: samples to test on, by name.
        hidden: widths of the hidden layers; empty for a linear model without bias.
    """
    run = _Run(
        cell, training, tests, _initial_network(training.x.shape[1], hidden, cell["protocol"], STUDENT_SEED + cell["seed"])
    )
    settings = TrainingSettings(
        iterations=cell["iterations"],
        optimizer="adamw" if run.validation else "sgd",
        learning_rate=cell["rate"],
        weight_decay=0.0,
    )
    run.measure(0)
    criterion = METHODS[cell["method"]](cell["weight"])
    train_or_diverge(
        run.model, criterion, run.fitted, run.validation, settings=settings, seed=cell["seed"], on_iteration=run.on_iteration
    )
    return run.record()


class _Run:
    """A run and what it has measured so far."""

    def __init__(self, cell: Cell, training: Samples, tests: dict[str, Samples], model: nn.Module) -> None:
        self.model, self._training, self._tests = model, training, tests
        held_out = len(training.target) // VALIDATION if cell["protocol"] == "adam" else 0
        self.validation = TrainingData(*(part[:held_out] for part in training)) if held_out else None
        self.fitted = TrainingData(*(part[held_out:] for part in training))
        self._measured = set(curve_iterations(cell["iterations"]))
        self._best_metric = -math.inf
        self._iterations: list[int] = []
        self._curves: dict[str, list[float]] = {f"{name} {metric}": [] for name in tests for metric in ("AP", "accuracy")}

    def on_iteration(self, progress: Progress) -> None:
        self._best_metric = max(self._best_metric, progress.metric) if self.validation else self._best_metric
        if progress.iteration in self._measured:
            self.measure(progress.iteration)

    def measure(self, iteration: int) -> None:
        """Add a point to the curves, unless the run has diverged."""
        values = self._test()
        if values is not None:
            self._iterations.append(iteration)
            for name, value in values.items():
                self._curves[name].append(value)

    def record(self) -> Record:
        """Return the record: test metrics at the end, the value that settings are chosen by, and the curves."""
        final, scores = self._test(), self.scores(self._training.x)
        if final is None or scores is None:
            return {"diverged": True, "chosen_by": 0.0, **dict.fromkeys(self._curves, 0.0)}
        train_ap = float(metrics.average_precision_score(scores, self._training.target))
        return {
            "diverged": False,
            "chosen_by": self._best_metric if self.validation else train_ap,
            "training AP": round(train_ap, 5),
            "deviation of the scores": float(f"{scores.std().item():.3g}"),
            **final,
            "iterations measured": self._iterations,
            "curves": self._curves,
        }

    def _test(self) -> dict[str, float] | None:
        scores = self.scores(self._training.x)
        if scores is None:
            return None
        threshold = thresholds.for_cost(scores, self._training.target, false_positive=1, false_negative=1).threshold
        values = {}
        for name, test in self._tests.items():
            tested = self.scores(test.x)
            if tested is None:
                return None
            values[f"{name} AP"] = round(float(metrics.average_precision_score(tested, test.target)), 5)
            right = (tested > threshold) == (test.target == 1)
            values[f"{name} accuracy"] = round(right.double().mean().item(), 5)
        return values

    @torch.no_grad()
    def scores(self, x: Tensor) -> Tensor | None:
        """Return the scores of the points, or None if some are not finite."""
        scores = self.model(x)
        return scores if bool(scores.isfinite().all()) else None


def _initial_network(features: int, hidden: Sequence[int], protocol: str, seed: int) -> nn.Module:
    model: nn.Module = build_mlp(features, hidden=hidden, seed=seed)
    if not hidden:
        model = nn.Sequential(nn.Linear(features, 1, bias=False), nn.Flatten(0))
    if protocol == "normal" or not hidden:
        with seeded(seed, torch.device("cpu")), torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
    return model


def teacher_network(features: int, hidden: Sequence[int], generator: torch.Generator) -> nn.Module:
    """Return a ReLU network with weights and biases from N(0, 1)."""
    model = build_mlp(features, hidden=hidden)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model.requires_grad_(False)
