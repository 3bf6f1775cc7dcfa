"""Figure 1 of the supplement of Song et al. (2016): nine methods on linearly separable data, clean and with flipped labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from matplotlib.figure import Figure

from taskloss.experiments.curves import difference_of, draw_curves, spell_settings, values_of
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.learning import Grid, Samples, choose, flip_labels, in_columns, run_levels, train_on, without_curves
from taskloss.experiments.methods import DIRECT, METHODS
from taskloss.experiments.page import Claim, Page, add_legend, fill_page, make_figure, make_table
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.statistics import Difference, describe_mean

DIMENSIONS = 10
NOISE = (0.0, 0.2)
GRIDS = {
    "normal": Grid((0.1, 1.0, 10.0), (0.1, 1.0, 10.0, 100.0), (0.01, 0.1, 1.0, 10.0)),
    "adam": Grid((0.1, 1.0), (0.01, 0.1), (0.01, 0.1)),
}
PROTOCOLS = {"normal": "gradient descent", "adam": "AdamW with early stopping"}


def make_samples(seed: int, points: int, noise: float) -> tuple[Samples, dict[str, Samples]]:
    """Return training samples, a share of their labels flipped, and test samples with clean and with flipped labels.

    A point is positive if the sum of its coordinates is above zero. Half of the points train.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, DIMENSIONS, generator=generator)
    target = (x.sum(1) > 0).long()
    flipped = flip_labels(target, noise, generator)
    train, test = slice(None, points // 2), slice(points // 2, None)
    return Samples(x[train], flipped[train]), {
        "clean": Samples(x[test], target[test]),
        "flipped": Samples(x[test], flipped[test]),
    }


def run_cell(cell: Cell, files: Files) -> Record:
    """Train one linear model without bias."""
    training, tests = make_samples(cell["seed"], cell["points"], cell["noise"])
    return train_on(cell, training, tests, hidden=())


@dataclass(frozen=True)
class Linear(Experiment):
    """Nine methods on separable data, with and without noise, under two protocols."""

    seeds: int = 5
    points: int = 20_000
    iterations: int = 200

    name: ClassVar[str] = "linear"
    title: ClassVar[str] = "A linear model on linearly separable data"
    source: ClassVar[str] = "Song et al. 2016, supplement, figure 1; older version, figures 4 and 5 (AP and accuracy)"

    def run(self, runner: Runner, seeds: int) -> Results:
        base = {"experiment": self.name, "points": self.points, "iterations": self.iterations}
        records = run_levels(runner, run_cell, base, GRIDS, METHODS, NOISE, seeds)
        return {
            "size": asdict(self),
            "chosen": [
                record if record["protocol"] == "normal" else without_curves(record)
                for record in choose(records, "protocol", "method", "noise", "seed")
            ],
            "searched": in_columns(records),
        }

    def make_page(self, results: Results) -> Page:
        chosen = results["chosen"]
        tables = "\n\n".join(
            f"### {100 * noise:.0f}% of the labels flipped, {title}\n\n{_table_of(chosen, noise, protocol)}"
            for noise in NOISE
            for protocol, title in PROTOCOLS.items()
        )
        size = {"points": self.points, "iterations": self.iterations}
        return fill_page(self.name, _claims(chosen), {self.name: _draw(chosen)}, source=self.source, tables=tables, **size)


def _table_of(chosen: Sequence[Record], noise: float, protocol: str) -> str:
    keys = {"test AP": "clean AP", "accuracy": "clean accuracy"}
    if noise:
        keys["test AP, flipped labels"] = "flipped AP"
    rows = []
    for method in METHODS:
        where = {"protocol": protocol, "method": method, "noise": noise}
        early = [
            record["curves"]["clean AP"][record["iterations measured"].index(10)]
            for record in chosen
            if "curves" in record and all(record[key] == value for key, value in where.items())
        ]
        rows.append(
            [
                method,
                *(describe_mean(values_of(chosen, key, **where), 3 if key == "clean AP" else 1) for key in keys.values()),
                *([describe_mean(early)] if early else []),
                spell_settings(chosen, "weight", **where) if method in DIRECT else "",
                spell_settings(chosen, "rate", **where),
            ]
        )
    return make_table(["method", *keys, *(["after 10"] if protocol == "normal" else []), "epsilon", "learning rate"], rows)


def _claims(chosen: Sequence[Record]) -> list[Claim]:
    clean, noisy = ({"protocol": "normal", "noise": noise} for noise in NOISE)

    def difference(key: str, first: str, second: str, where: dict[str, Any]) -> Difference:
        return replace(difference_of(chosen, key, first, second, **where), digits=3)

    better = difference("clean AP", "neg-AP", "pos-AP", clean)
    perceptron = difference("clean AP", "per-AP", "pos-AP", clean)
    alike = difference("flipped AP", "neg-AP", "per-AP", noisy)
    behind = difference("flipped AP", "pos-AP", "neg-AP", noisy)
    return [
        Claim.that_first_is_better("Without noise the negative update is slightly better.", "neg-AP", "pos-AP", better),
        Claim(
            "Without noise the perceptron does well.",
            f"per-AP against pos-AP: {perceptron}",
            perceptron.mean > -SMALL,
        ),
        Claim(
            "With noise, negative update and perceptron are alike.", f"neg-AP against per-AP: {alike}", abs(alike.mean) < SMALL
        ),
        Claim.that_first_is_better("With noise both do worse than the positive update.", "pos-AP", "neg-AP", behind),
    ]


SMALL = 0.005
"""Differences of AP below half a point count as none."""


def _draw(chosen: Sequence[Record]) -> Figure:
    figure, axes = make_figure(2, 2)
    panels = (
        (0.0, "clean AP", "average precision on the test set", "no noise"),
        (0.0, "clean accuracy", "accuracy on the test set", "no noise"),
        (0.2, "flipped AP", "average precision on the test set", "20% flipped, in the test set too"),
        (0.2, "flipped accuracy", "accuracy on the test set", "20% flipped, in the test set too"),
    )
    for ax, (noise, key, label, title) in zip(axes, panels, strict=True):
        runs = [record for record in chosen if record["protocol"] == "normal" and record["noise"] == noise]
        draw_curves(ax, runs, key, METHODS)
        ax.set(xlabel="iteration", ylabel=label, title=title, xscale="symlog", xlim=(0, None), ylim=(0.4, 1.01))
    add_legend(figure, axes[0])
    return figure
