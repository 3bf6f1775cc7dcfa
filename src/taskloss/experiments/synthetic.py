"""Figure 3 of Song et al. (2016): nine methods on the data of a random network, and the scale of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

import torch
from matplotlib.figure import Figure

from taskloss.experiments.curves import difference_of, draw_curves, spell_settings, values_of
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.learning import (
    PROTOCOLS,
    Grid,
    Samples,
    choose,
    in_columns,
    plan_cells,
    teacher_network,
    train_on,
    without_curves,
)
from taskloss.experiments.methods import DIRECT, METHODS
from taskloss.experiments.page import Claim, Page, add_legend, fill_page, make_figure, make_table
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.statistics import describe_mean, paired_difference

DIMENSIONS = 10
HIDDEN = (10, 10, 10)
HALF_DECADES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
GRIDS = {
    "normal": Grid((1.0, 10.0, 100.0), (1.0, 10.0, 100.0, 1000.0), HALF_DECADES),
    "torch": Grid((0.001, 0.01, 0.1, 1.0), (1.0, 10.0, 100.0), (0.1, 0.3, 1.0, 3.0, 10.0)),
    "adam": Grid((0.01, 0.1, 1.0), (0.001, 0.003, 0.01, 0.03, 0.1), (0.001, 0.003, 0.01, 0.03, 0.1)),
}
"""The settings that were searched, by protocol."""
COMPARED = {"normal": tuple(METHODS), "torch": ("pos-AP", "neg-AP", "hinge-AP", "per-AP", "x-ent"), "adam": tuple(METHODS)}
"""The methods of each protocol."""
SCALES = {
    "hinge-AP": Grid((), (), (0.01, 0.03, 0.1, 0.3, 1.0, 3.0), (10.0, 100.0)),
    "x-ent": Grid((), (), (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0), (10.0, 100.0)),
}
"""Controls from N(0, 1) weights: margins of the hinge and temperatures of the cross-entropy, beside 1."""


def make_samples(seed: int, points: int) -> tuple[Samples, Samples]:
    """Return training and test samples, half of the points each; the fifth that a random network scores highest is positive."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        teacher = teacher_network(DIMENSIONS, HIDDEN, generator)
        x = torch.randn(points, DIMENSIONS, generator=generator)
        scores = teacher(x)
        ranked = scores.sort(descending=True).values
        # A network whose units are dead gives equal scores, and no top fifth.
        if ranked[points // 5 - 1] > ranked[points // 5]:
            break
    target = (scores >= ranked[points // 5 - 1]).long()
    return Samples(x[: points // 2], target[: points // 2]), Samples(x[points // 2 :], target[points // 2 :])


def run_cell(cell: Cell, files: Files) -> Record:
    """Train one network."""
    training, test = make_samples(cell["seed"], cell["points"])
    return train_on(cell, training, {"test": test}, hidden=HIDDEN)


@dataclass(frozen=True)
class Synthetic(Experiment):
    """Nine methods under three protocols, and controls of the scale of the scores."""

    seeds: int = 5
    points: int = 20_000
    iterations: int = 1000

    name: ClassVar[str] = "synthetic"
    title: ClassVar[str] = "Nine losses on the ranking of a random network"
    source: ClassVar[str] = "Song et al. 2016, figure 3a; older version, figure 3 (AP and accuracy)"

    def run(self, runner: Runner, seeds: int) -> Results:
        records: list[Record] = []
        for protocol, grid in GRIDS.items():
            cells = [cell for seed in range(seeds) for cell in plan_cells(self._base(seed), protocol, COMPARED[protocol], grid)]
            records += runner.run(PROTOCOLS[protocol], run_cell, cells)
        controls = [
            cell
            for seed in range(seeds)
            for method, grid in SCALES.items()
            for cell in plan_cells(self._base(seed), "normal", [method], grid)
        ]
        scaled = [record for record in records if record["protocol"] == "normal" and record["method"] in SCALES]
        scaled += runner.run("controls of the scale", run_cell, controls)
        return {
            "size": asdict(self),
            "chosen": choose(records, "protocol", "method", "seed"),
            "scaled": list(map(without_curves, choose(scaled, "method", "seed"))),
            "searched": in_columns([*records, *scaled]),
        }

    def _base(self, seed: int) -> Cell:
        return {"experiment": self.name, "seed": seed, "points": self.points, "iterations": self.iterations}

    def make_page(self, results: Results) -> Page:
        chosen, scaled = results["chosen"], results["scaled"]
        tables = "\n\n".join(
            f"### {title[0].upper()}{title[1:]}\n\n{_table_of(chosen, protocol, self.iterations)}"
            for protocol, title in PROTOCOLS.items()
        )
        return fill_page(
            self.name,
            _claims(chosen, scaled),
            {self.name: _draw(chosen)},
            source=self.source,
            points=self.points,
            iterations=self.iterations,
            tables=tables,
            scaled=_table_of_scales(chosen, scaled),
        )


def _table_of(chosen: Sequence[Record], protocol: str, iterations: int) -> str:
    header = ["method", "test AP", *(["after 100"] if protocol != "adam" else []), "accuracy", "training AP"]
    rows = []
    for method in COMPARED[protocol]:
        where = {"protocol": protocol, "method": method}
        early = [_after(record, 100) for record in chosen if record["protocol"] == protocol and record["method"] == method]
        rows.append(
            [
                method,
                describe_mean(values_of(chosen, "test AP", **where)),
                *([describe_mean(early)] if protocol != "adam" else []),
                describe_mean(values_of(chosen, "test accuracy", **where)),
                describe_mean(values_of(chosen, "training AP", **where)),
                spell_settings(chosen, "weight", **where) if method in DIRECT else "",
                spell_settings(chosen, "rate", **where),
            ]
        )
    return make_table([*header, "epsilon", "learning rate"], rows)


def _after(record: Record, iteration: int) -> float:
    """Return the test AP after so many iterations, or at the last point of the curve before."""
    if record["diverged"]:
        return 0.0
    last = max(index for index, measured in enumerate(record["iterations measured"]) if measured <= iteration)
    return record["curves"]["test AP"][last]


def _table_of_scales(chosen: Sequence[Record], scaled: Sequence[Record]) -> str:
    rows = []
    for method in SCALES:
        fixed = values_of(chosen, "test AP", protocol="normal", method=method)
        tuned = values_of(scaled, "test AP", method=method)
        difference = paired_difference(tuned, fixed)
        weights = spell_settings(scaled, "weight", method=method)
        rows.append([method, describe_mean(fixed), describe_mean(tuned), str(difference), weights])
    return make_table(["method", "test AP at 1", "test AP, tuned", "difference", "chosen"], rows)


def _claims(chosen: Sequence[Record], scaled: Sequence[Record]) -> list[Claim]:
    claims = []
    for protocol, title in PROTOCOLS.items():
        for rival in ("x-ent", "hinge-AP", "neg-AP"):
            difference = difference_of(chosen, "test AP", "pos-AP", rival, protocol=protocol)
            claims.append(Claim.that_first_is_better(f"pos-AP is ahead of {rival}, {title}.", "pos-AP", rival, difference))
    for method in SCALES:
        difference = paired_difference(
            values_of(chosen, "test AP", protocol="normal", method="pos-AP"), values_of(scaled, "test AP", method=method)
        )
        text = f"pos-AP stays ahead of {method} when its scale is tuned too (not in the paper)."
        claims.append(Claim.that_first_is_better(text, "pos-AP", f"{method}, tuned", difference))
    pairs = (
        ("The perceptron does poorly.", "pos-AP", "per-AP"),
        ("The direct 0-1 loss does not work well.", "x-ent", "pos-01"),
        ("hinge-AP is better than hinge-01.", "hinge-AP", "hinge-01"),
    )
    for text, first, second in pairs:
        difference = difference_of(chosen, "test AP", first, second, protocol="normal")
        claims.append(Claim.that_first_is_better(text, first, second, difference, f", {PROTOCOLS['normal']}"))
    return claims


def _draw(chosen: Sequence[Record]) -> Figure:
    figure, axes = make_figure(3)
    panels = (
        ("normal", "test AP", "average precision on the test set"),
        ("normal", "test accuracy", "accuracy on the test set"),
        ("torch", "test AP", "average precision on the test set"),
    )
    for ax, (protocol, key, label) in zip(axes, panels, strict=True):
        draw_curves(ax, [record for record in chosen if record["protocol"] == protocol], key, COMPARED[protocol])
        ax.set(xlabel="iteration", ylabel=label, title=PROTOCOLS[protocol], ylim=(0.1 if key == "test AP" else 0.75, 1.0))
    add_legend(figure, axes[0])
    return figure
