"""Other networks in the classifier: test AP and fit time of each variant against the default ensemble of five perceptrons.

Each variant changes one thing: widths, depth, activation, normalization, dropout, learning rate, weight decay, averaging; a
numerical embedding of each column (piecewise linear in its quantiles, or periodic; Gorishniy et al. 2022); or several networks in
one (``tabm``: members that share their weights but for a vector of factors on the inputs and an output layer, Gorishniy et al.
2024; ``packed``: members that share nothing). The last two give k scores per sample: the loss is the mean of the k losses, the
score is the mean of the k standardized scores, and its AP stops the training.

Of at most 4,000 random rows of each set, 40% are the test set. There are two conditions: ``clean``, and ``noise``, where 20%
of the labels of the other 60% are flipped. A gain is over the default network on the same split, as the mean over sets, each the
mean over the losses (cross-entropy and direct) and the splits, with its standard error over the sets. Fit times are CPU times.
``--methods auto`` measures the blend; its trees then see the embedding too, beside the columns that it is made of.

    pip install -e '.[cli,estimators]'
    python -m benchmarks.networks --data FOLDER --output networks.json [--variants piecewise ...] [--sets ...] [--seeds 100 101]

FOLDER holds the sets as in ``benchmarks/estimators.py``. With ``--output``, finished runs are kept beside it in a ``.jsonl``
file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.cells import Cells, Record
from benchmarks.estimators import CONDITIONS, NAMES, TEST, find_data, flip, read_set
from rich.progress import Progress
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from taskloss.estimators import TaskLossClassifier
from taskloss.estimators.features import FeatureMap
from taskloss.estimators.methods import AUTO
from taskloss.estimators.problem import Problem
from taskloss.metrics import average_precision_score
from taskloss.tasks import Task

FAST = ("keel_yeast4", "keel_pima", "keel_ecoli3", "bin_wilt", "bin_thyroid", "bin_mammography")
"""The sets of the first screening."""
METHODS = ("cross_entropy", "direct")
MOST_ROWS = 4_000
DEFAULT = "default"


# --- networks ---------------------------------------------------------------------------------------------------------


def perceptron(
    features: int,
    outputs: int,
    *,
    hidden: Sequence[int] = (64, 64),
    activation: Callable[[], nn.Module] = nn.ReLU,
    normalized: bool = False,
) -> nn.Sequential:
    """Return a perceptron with another activation, or with layer normalization before it."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((features, *hidden)):
        layers += [nn.Linear(before, after), *([nn.LayerNorm(after)] if normalized else []), activation()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], outputs))


class Residual(nn.Module):
    """A layer that is added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.layer(features).relu()


def residual(features: int, outputs: int) -> nn.Sequential:
    """Return a perceptron of three layers, of which two are residual."""
    return nn.Sequential(nn.Linear(features, 64), nn.ReLU(), Residual(64), Residual(64), nn.Linear(64, outputs))


class ScaledLinear(nn.Module):
    """A linear layer whose weights start from N(0, 1) and are divided by the root of the width.

    So the width does not decide how far a step of Adam moves the outputs.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(outputs, features)), nn.Parameter(torch.randn(outputs))

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.linear(features, self.weight / self.weight.shape[1] ** 0.5, self.bias)


class LearnedScale(nn.Module):
    """A factor per column that is learned six times as fast as the weights."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.full((features,), 1 / 6))

    def forward(self, features: Tensor) -> Tensor:
        return features * (6 * self.factors)


def scaled(features: int, outputs: int) -> nn.Sequential:
    """Return a perceptron in the parametrization of RealMLP (Holzmueller et al. 2024), with its activation."""
    hidden = (ScaledLinear(features, 64), nn.SELU(), ScaledLinear(64, 64), nn.SELU())
    return nn.Sequential(LearnedScale(features), *hidden, ScaledLinear(64, outputs))


class PeriodicEmbedding(nn.Module):
    """Each column beside three sums of 16 cosines of it, with learned frequencies and phases."""

    def __init__(self, features: int, deviation: float) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.randn(features, 16) * deviation)
        self.phase = nn.Parameter((torch.rand(features, 16) * 2 - 1) * torch.pi)
        self.weight = nn.Parameter((torch.rand(features, 16, 3) * 2 - 1) / 4)
        self.bias = nn.Parameter(torch.zeros(features, 3))

    def forward(self, features: Tensor) -> Tensor:
        waves = torch.cos(2 * torch.pi * self.frequency * features[:, :, None] + self.phase)
        sums = torch.einsum("nif,ifw->niw", waves, self.weight) + self.bias
        return torch.cat([features, sums.flatten(1)], 1)


def periodic(features: int, outputs: int, *, deviation: float = 0.1) -> nn.Sequential:
    """Return a perceptron behind a periodic embedding."""
    return nn.Sequential(PeriodicEmbedding(features, deviation), perceptron(4 * features, outputs))


class TabM(nn.Module):
    """Several perceptrons that share their weights, but for the signs or factors of the inputs and the output layer."""

    def __init__(self, features: int, members: int, hidden: Sequence[int] = (64, 64)) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.randint(0, 2, (members, features)).float() * 2 - 1)
        self.layers = nn.ModuleList(nn.Linear(*widths) for widths in itertools.pairwise((features, *hidden)))
        self.weight = nn.Parameter((torch.rand(members, hidden[-1], 1) * 2 - 1) / hidden[-1] ** 0.5)
        self.bias = nn.Parameter(torch.zeros(members, 1, 1))

    def forward(self, features: Tensor) -> Tensor:
        values = features * self.factors[:, None]
        for layer in self.layers:
            values = layer(values).relu()
        return torch.baddbmm(self.bias, values, self.weight)[:, :, 0].T


class Packed(nn.Module):
    """Several small perceptrons, evaluated together."""

    def __init__(self, features: int, members: int, hidden: Sequence[int] = (32, 32)) -> None:
        super().__init__()
        widths = list(itertools.pairwise((features, *hidden, 1)))
        self.weights = nn.ParameterList((torch.rand(members, *pair) * 2 - 1) / pair[0] ** 0.5 for pair in widths)
        self.biases = nn.ParameterList((torch.rand(members, 1, b) * 2 - 1) / a**0.5 for a, b in widths)

    def forward(self, features: Tensor) -> Tensor:
        values = features.expand(len(self.weights[0]), *features.shape)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True), 1):
            values = torch.baddbmm(bias, values, weight)
            values = values.relu() if number < len(self.weights) else values
        return values[:, :, 0].T


# --- the piecewise linear embedding -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piecewise:
    """The piecewise linear encoding of each column by its quantiles.

    Where a column lies between two neighbouring quantiles tells one feature, from ``-span`` to ``span``; the first and the last
    have no end outside. ``plain`` keeps the column itself beside them.
    """

    bins: int = 8
    span: float = 0.2
    plain: bool = True

    def fit(self, table: np.ndarray) -> list[np.ndarray]:
        """Return the distinct quantiles of each column: two values, as in an indicator, make one bin."""
        return [np.unique(np.quantile(column, np.linspace(0, 1, self.bins + 1))) for column in table.T]

    def transform(self, edges: list[np.ndarray], table: np.ndarray) -> np.ndarray:
        """Return the encoded columns.

        >>> edges = [np.array([0.0, 1.0, 3.0])]
        >>> Piecewise(span=1.0).transform(edges, np.array([[0.5], [2.0], [4.0]])).tolist()
        [[0.5, 0.0, -1.0], [2.0, 1.0, 0.0], [4.0, 1.0, 2.0]]
        """
        parts = [table] if self.plain else []
        for column, knots in zip(table.T, edges, strict=True):
            share = (column[:, None] - knots[:-1]) / np.diff(knots)
            low, high = np.zeros(len(knots) - 1), np.ones(len(knots) - 1)
            low[:1], high[-1:] = -np.inf, np.inf
            parts.append(self.span * (2 * share.clip(low, high) - 1))
        return np.concatenate(parts, axis=1)


# --- variants -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """A change of the classifier."""

    settings: Record = field(default_factory=dict)
    embedding: Piecewise | None = None
    scores: int = 1
    """Number of scores per sample, whose mean is the score."""


VARIANTS: dict[str, Variant] = {
    DEFAULT: Variant(),
    "32 wide": Variant({"hidden": (32, 32)}),
    "256 wide": Variant({"hidden": (256, 256)}),
    "3 layers": Variant({"hidden": (64, 64, 64)}),
    "residual": Variant({"module": residual}),
    "normalized": Variant({"module": partial(perceptron, normalized=True)}),
    "silu": Variant({"module": partial(perceptron, activation=nn.SiLU)}),
    "scaled": Variant({"module": scaled, "learning_rate": 1e-2}),
    "rate 1e-2": Variant({"learning_rate": 1e-2}),
    "rate 1e-2, averaged": Variant({"learning_rate": 1e-2, "averaging": 0.95}),
    "decay 1": Variant({"weight_decay": 1.0}),
    "dropout": Variant({"dropout": 0.2}),
    "periodic": Variant({"module": periodic}),
    "piecewise alone": Variant(embedding=Piecewise(span=0.5, plain=False)),
    "piecewise, 0.5": Variant(embedding=Piecewise(span=0.5)),
    "piecewise": Variant(embedding=Piecewise()),
    "piecewise, 0.1": Variant(embedding=Piecewise(span=0.1)),
    "piecewise, 16 bins": Variant(embedding=Piecewise(bins=16)),
    "piecewise, 32 wide": Variant({"hidden": (32, 32)}, Piecewise()),
    "tabm, 2 x 4": Variant({"module": TabM, "members": 2}, scores=4),
    "packed, 5 x 4": Variant({"module": Packed}, scores=4),
}


@dataclass(frozen=True)
class MeanProblem(Problem):
    """Several scores of one target, each with its own loss; the metric judges the mean of the standardized scores."""

    def metric(self, scores: Tensor, target: Tensor, groups: Tensor | None = None, weight: Tensor | None = None) -> float:
        standardized = (scores - scores.mean(0)) / scores.std(0).clamp_min(1e-9)
        return Problem(self.task, self.method, self.epsilon).metric(standardized.mean(1), target[:, 0], groups, weight)


class MeanClassifier(TaskLossClassifier):
    """The classifier of a variant with several scores, fitted to as many copies of the target."""

    def _problem(self, task: Task) -> Problem:
        return MeanProblem(**vars(super()._problem(task)))


def fit_variant(variant: Variant, seen: np.ndarray, target: np.ndarray, **settings: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Fit a variant and return its scoring function."""
    settings = variant.settings | settings
    embedding, features = variant.embedding, FeatureMap.fit(seen, "quantile")
    edges = [] if embedding is None else embedding.fit(features.transform(seen).numpy())

    def prepare(table: np.ndarray) -> np.ndarray:
        return table if embedding is None else embedding.transform(edges, features.transform(table).numpy())

    if embedding is not None:
        settings["scaling"] = "none"
    if variant.scores == 1:
        model = TaskLossClassifier(**settings).fit(prepare(seen), target)
        return lambda table: model.decision_function(prepare(table))
    several = MeanClassifier(**settings).fit(prepare(seen), np.tile(target[:, None], variant.scores))
    # The thresholds of decision_function are shifts, which do not change the order of the mean.
    return lambda table: several.decision_function(prepare(table)).mean(1)


# --- runs and tables -----------------------------------------------------------------------------------------------------


def read_rows(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read features and labels, at most ``MOST_ROWS`` rows."""
    features, target = read_set(folder, name)
    return features[:MOST_ROWS], target[:MOST_ROWS]


def split_of(data: tuple[np.ndarray, np.ndarray], condition: str, seed: int) -> tuple[np.ndarray, ...]:
    """Return training rows and labels, then test rows and labels."""
    seen, test, target, truth = train_test_split(*data, test_size=TEST, stratify=data[1], random_state=seed)
    return seen, flip(target, seed) if condition == "noise" else target, test, truth


def run_once(data: tuple[np.ndarray, np.ndarray], condition: str, method: str, seed: int, name: str, settings: Record) -> Record:
    """Fit one variant and return its test AP and the CPU seconds of the fit."""
    seen, target, test, truth = split_of(data, condition, seed)
    start = time.process_time()
    score = fit_variant(VARIANTS[name], seen, target, method=method, random_state=seed, **settings)
    seconds = time.process_time() - start
    return {"test_ap": float(average_precision_score(score(test), truth)), "cpu_seconds": seconds}


def gain_of(records: Iterable[Record], condition: str, variant: str, default: str) -> tuple[float, float]:
    """Return the mean gain in percent over the default, and its standard error over the sets."""
    values = {(r["set"], r["method"], r["seed"], r["variant"]): r["test_ap"] for r in records if r["condition"] == condition}
    gaps: dict[str, list[float]] = {}
    for (name, *rest, of), value in values.items():
        other = values.get((name, *rest, default))
        if of == variant and other is not None:
            gaps.setdefault(name, []).append(100 * (value - other))
    means = [statistics.mean(gap) for gap in gaps.values()]
    return statistics.mean(means), statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else 0.0


def print_table(records: Sequence[Record], variants: Sequence[str], methods: Sequence[str], default: str) -> Record:
    """Print the gains of each variant by method and over all methods, and its CPU time relative to the default."""
    columns = [(f"{method} " if method else "", condition) for method in (*methods, "") for condition in CONDITIONS]
    print(f"{'gain in test AP, %':<24}" + "".join(f"{method + condition:>22}" for method, condition in columns) + f"{'time':>8}")
    summary: Record = {}
    for variant in variants:
        row = summary[variant] = {}
        for method, condition in columns:
            chosen = [r for r in records if not method or r["method"] == method.strip()]
            row[method + condition] = gain_of(chosen, condition, variant, default)
        seconds = {
            name: statistics.mean(r["cpu_seconds"] for r in records if r["variant"] == name) for name in (variant, default)
        }
        row["time"] = seconds[variant] / seconds[default]
        cells = [f"{gain:+.2f} +- {error:.2f}" for gain, error in (row[method + condition] for method, condition in columns)]
        print(f"{variant:<24}" + "".join(f"{cell:>22}" for cell in cells) + f"{row['time']:>8.2f}")
    return summary


def main() -> None:
    """Run every set, condition, method, seed and variant, print the table and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the sets, or tabular/ with them")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100], help="splits, each with its own networks")
    parser.add_argument("--sets", nargs="+", choices=NAMES, default=FAST, help="names of the sets")
    parser.add_argument("--methods", nargs="+", choices=(*METHODS, AUTO), default=METHODS, help="how the networks are trained")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=tuple(VARIANTS), help="names of the variants")
    parser.add_argument("--output", type=Path, help="JSON file for the table and the records")
    parser.add_argument("--quick", action="store_true", help="one small set, few steps, one seed: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    folder = find_data(arguments.data)
    seeds, names = ([0], ("keel_pima",)) if arguments.quick else (arguments.seeds, tuple(arguments.sets))
    settings = {"members": 1, "max_iter": 3} if arguments.quick else {}
    variants = tuple(dict.fromkeys((DEFAULT, *arguments.variants)))
    data = {name: read_rows(folder, name) for name in names}
    run_once(data[names[0]], "clean", "direct", 0, DEFAULT, {"members": 1, "max_iter": 2})  # The kernels are compiled untimed.
    store = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    cases = list(itertools.product(seeds, names, CONDITIONS, arguments.methods, variants))
    records = []
    with Progress() as progress:
        bar = progress.add_task("", total=len(cases))
        for seed, name, condition, method, variant in cases:
            progress.update(bar, description=f"seed {seed}, {name}, {condition}, {method}, {variant}")
            cell = {"set": name, "condition": condition, "method": method, "seed": seed, "variant": variant} | settings
            run = partial(run_once, data[name], condition, method, seed, variant, settings)
            records.append(store.run(cell, run))
            progress.advance(bar)
    summary = print_table(records, variants[1:], arguments.methods, DEFAULT)
    print(f"{time.perf_counter() - start:.0f} s in all")
    store.write_summary(arguments.output, summary)


if __name__ == "__main__":
    main()
