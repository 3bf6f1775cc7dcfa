"""Figure 3b of Song et al. (2016): average precision on clean test labels after training on flipped ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import ClassVar

import torch
from matplotlib.figure import Figure

from taskloss.experiments.curves import difference_of, line_style, spell_settings, values_of
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.learning import (
    PROTOCOLS,
    Grid,
    Samples,
    choose,
    flip_labels,
    in_columns,
    run_levels,
    train_on,
    without_curves,
)
from taskloss.experiments.page import Claim, Page, draw_band, fill_page, make_figure, make_table
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.statistics import describe_mean, paired_difference

DIMENSIONS = 10
DEVIATION = 10.0
"""Standard deviation of a coordinate: the mean squared norm is then 1,000, where the paper's classes begin."""
POSITIVE_ABOVE, NEGATIVE_BELOW = 1200.0, 1000.0
HIDDEN = (10, 10, 10)
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4)
METHODS = ("pos-AP", "hinge-AP", "x-ent")
HALF_DECADES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
GRIDS = {
    "normal": Grid((1.0, 10.0, 100.0, 1000.0), (0.1, 1.0, 10.0, 100.0, 1000.0), HALF_DECADES),
    "torch": Grid((0.01, 0.1, 1.0, 10.0), (0.1, 1.0, 10.0, 100.0), HALF_DECADES),
    "adam": Grid((0.01, 0.1, 1.0), (0.003, 0.01, 0.03, 0.1), (0.003, 0.01, 0.03, 0.1)),
}


def make_samples(seed: int, points: int, noise: float) -> tuple[Samples, Samples]:
    """Return training samples, a share of their labels flipped, and clean test samples, drawn independently.

    Of ``points`` draws, those between the two norms belong to neither class and are left out.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Samples:
        x = DEVIATION * torch.randn(points, DIMENSIONS, generator=generator)
        norm = x.square().sum(1)
        kept = (norm > POSITIVE_ABOVE) | (norm < NEGATIVE_BELOW)
        return Samples(x[kept], (norm[kept] > POSITIVE_ABOVE).long())

    training, test = draw(), draw()
    return Samples(training.x, flip_labels(training.target, noise, generator)), test


def run_cell(cell: Cell, files: Files) -> Record:
    """Train one network."""
    training, test = make_samples(cell["seed"], cell["points"], cell["noise"])
    return train_on(cell, training, {"test": test}, hidden=HIDDEN)


@dataclass(frozen=True)
class NoiseRobustness(Experiment):
    """Three methods at five levels of label noise under three protocols."""

    seeds: int = 10
    points: int = 1000
    iterations: int = 300

    name: ClassVar[str] = "noise-robustness"
    title: ClassVar[str] = "Flipped labels: direct loss against hinge and cross-entropy"
    source: ClassVar[str] = "Song et al. 2016, figure 3b"

    def run(self, runner: Runner, seeds: int) -> Results:
        base = {"experiment": self.name, "points": self.points, "iterations": self.iterations}
        records = run_levels(runner, run_cell, base, GRIDS, METHODS, NOISE, seeds)
        return {
            "size": asdict(self),
            "chosen": list(map(without_curves, choose(records, "protocol", "method", "noise", "seed"))),
            "searched": in_columns(records),
        }

    def make_page(self, results: Results) -> Page:
        chosen = results["chosen"]
        tables = "\n\n".join(
            f"### {title[0].upper()}{title[1:]}\n\n{_table_of(chosen, protocol)}" for protocol, title in PROTOCOLS.items()
        )
        size = {"points": self.points, "iterations": self.iterations}
        return fill_page(self.name, _claims(chosen), {self.name: _draw(chosen)}, source=self.source, tables=tables, **size)


def _table_of(chosen: Sequence[Record], protocol: str) -> str:
    rows = [
        [
            method,
            *(describe_mean(values_of(chosen, "test AP", protocol=protocol, method=method, noise=noise)) for noise in NOISE),
            spell_settings(chosen, "weight", protocol=protocol, method=method) if method == "pos-AP" else "",
        ]
        for method in METHODS
    ]
    return make_table(["method", *(f"{100 * noise:.0f}%" for noise in NOISE), "epsilon"], rows)


def _claims(chosen: Sequence[Record]) -> list[Claim]:
    claims = []
    for protocol, title in PROTOCOLS.items():
        for rival in METHODS[1:]:
            gains = {noise: difference_of(chosen, "test AP", "pos-AP", rival, protocol=protocol, noise=noise) for noise in NOISE}
            noisy = [
                fmean(values)
                for values in zip(*(_gains(chosen, protocol, rival, noise) for noise in NOISE if noise), strict=True)
            ]
            over_all = paired_difference(noisy, [0.0] * len(noisy))
            each = ", ".join(f"{100 * gain.mean:+.1f}" for gain in gains.values())
            own = "" if rival == "hinge-AP" else " (not in the paper)"
            text = f"With flipped labels pos-AP is above {rival}{own}."
            where = f", mean over 10 to 40%, {title} (by level {each})"
            claims.append(Claim.that_first_is_better(text, "pos-AP", rival, over_all, where))
            if rival == "hinge-AP":
                growth = paired_difference(noisy, _gains(chosen, protocol, rival, 0.0))
                text = "The gain over hinge-AP is larger with noise than without."
                claims.append(Claim.that_first_is_better(text, "gain with noise", "gain without", growth, f", {title}"))
    return claims


def _gains(chosen: Sequence[Record], protocol: str, rival: str, noise: float) -> list[float]:
    """Return the gain of pos-AP over the rival, for each seed."""
    ours, theirs = (values_of(chosen, "test AP", protocol=protocol, method=method, noise=noise) for method in ("pos-AP", rival))
    return [a - b for a, b in zip(ours, theirs, strict=True)]


def _draw(chosen: Sequence[Record]) -> Figure:
    figure, axes = make_figure(len(PROTOCOLS))
    for ax, (protocol, title) in zip(axes, PROTOCOLS.items(), strict=True):
        for method in METHODS:
            curves = zip(
                *(values_of(chosen, "test AP", protocol=protocol, method=method, noise=noise) for noise in NOISE), strict=True
            )
            draw_band(ax, [100 * noise for noise in NOISE], list(curves), method, **line_style(method), marker="o")
        ax.set(xlabel="flipped training labels, %", ylabel="average precision on clean test labels", title=title, ylim=(0.3, 1.0))
        ax.legend()
    return figure
