"""Table 2 of Meng et al. (2021): the influence of epsilon on the AUC, in the two ways in which the table can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, ClassVar

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from taskloss.experiments.auc import EPSILON, TUNED_AT, RampOfProbabilities, measure_auc
from taskloss.experiments.curves import difference_of, spell_settings, values_of
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.image_training import (
    QUICK_ITERATIONS,
    QUICK_RATES,
    binary_parts,
    cache_images,
    load_parts,
    run_tuned,
    train_network,
)
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.lp_paper import EPSILON as TABLE_2
from taskloss.experiments.lp_paper import RATIOS
from taskloss.experiments.page import Claim, Page, draw_band, fill_page, make_figure, make_table
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.statistics import describe_mean

SET = "cat_dog"
READINGS = {"margin": "epsilon is the margin of the program", "penalty": "epsilon is the penalty of the Newton method"}


class PenaltyRamp(nn.Module):
    r"""The ramp of all pairs of probabilities, made from the solution of the Newton method at a finite epsilon.

    The program has one variable z per pair, with ``z >= d`` and ``z >= 0`` for ``d = margin - gap``. The method minimizes

    .. math:: \tfrac{1}{2} (d - z)_+^2 + \tfrac{1}{2} (-z)_+^2 + \epsilon z,

    takes the violated constraints for active, and solves their equations in the sense of least squares. Where d is at least
    epsilon, only the first constraint is violated, so z is d; where it is at most minus epsilon only the second one, so z is 0;
    between, both are, and z is ``d / 2``. The loss is ``1 - mean((margin - z)_+) / margin``.
    """

    def __init__(self, margin: float, epsilon: float) -> None:
        super().__init__()
        self.margin, self.epsilon = margin, epsilon

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits ``(n,)``."""
        probabilities = scores.sigmoid()
        z = self.solution(probabilities[target == 1, None] - probabilities[None, target == 0])
        return 1 - (self.margin - z).relu().mean() / self.margin

    def solution(self, gap: Tensor) -> Tensor:
        """Return z for the gaps of pairs."""
        d = self.margin - gap
        return torch.where(d >= self.epsilon, d, torch.where(d <= -self.epsilon, 0.0, d / 2))


def run_cell(cell: Cell, files: Files) -> Record:
    """Train one network, and measure its AUC."""
    parts = binary_parts(load_parts(files, SET, cell["side"], cell["seed"]), cell["ratio"], cell["seed"])
    epsilon = cell["epsilon"]
    criterion = RampOfProbabilities(epsilon) if cell["reading"] == "margin" else PenaltyRamp(EPSILON, epsilon)
    model, _ = train_network(cell, files, parts.training, criterion)
    return measure_auc(model, parts)


@dataclass(frozen=True)
class AUCEpsilon(Experiment):
    """Three values of epsilon in two readings."""

    seeds: int = 3
    network: str = "small"
    side: int = 32
    iterations: int = QUICK_ITERATIONS
    rates: tuple[float, ...] = QUICK_RATES
    ratios: tuple[float, ...] = (0.91, 0.5)

    name: ClassVar[str] = "auc-epsilon"
    title: ClassVar[str] = "AUC: the influence of epsilon"
    source: ClassVar[str] = "Meng et al. 2021, table 2"

    def run(self, runner: Runner, seeds: int) -> Results:
        cache_images(runner, [SET], self.side)
        base = {"network": self.network, "side": self.side, "iterations": self.iterations, "experiment": self.name, "set": SET}
        cells = [
            {**base, "method": f"{reading} {epsilon:g}", "reading": reading, "epsilon": epsilon, "ratio": ratio, "seed": seed}
            for reading, epsilon, ratio, seed in product(READINGS, TABLE_2, self.ratios, range(seeds))
        ]
        records, tried = run_tuned(runner, run_cell, cells, lambda cell: cell["ratio"] == TUNED_AT, self.rates)
        return {"size": asdict(self), "records": records, "tried": tried}

    def make_page(self, results: Results) -> Page:
        tables = "\n\n".join(
            f"### If {title}\n\n{_table_of(results['records'], reading, self.ratios)}" for reading, title in READINGS.items()
        )
        return fill_page(
            self.name,
            _claims(results["records"], self.ratios),
            {self.name: _draw(results["records"], self.ratios)},
            source=self.source,
            tables=tables,
            **results["size"],
        )


def _where(reading: str, epsilon: float, ratio: float) -> dict[str, Any]:
    return {"reading": reading, "epsilon": epsilon, "ratio": ratio}


def _table_of(records: Sequence[Record], reading: str, ratios: Sequence[float]) -> str:
    header = ["epsilon"]
    for ratio in ratios:
        header += [f"{100 * ratio:.0f}%, paper", f"{100 * ratio:.0f}%, ours"]
    rows = []
    for epsilon, paper in TABLE_2.items():
        row = [f"{epsilon:g}"]
        for ratio in ratios:
            ours = values_of(records, "test AUC", **_where(reading, epsilon, ratio))
            row += [f"{paper[RATIOS.index(ratio)]}", describe_mean(ours)]
        rows.append([*row, spell_settings(records, "rate", reading=reading, epsilon=epsilon)])
    return make_table([*header, "learning rate"], rows)


def _claims(records: Sequence[Record], ratios: Sequence[float]) -> list[Claim]:
    claims = []
    for reading, ratio, other in product(READINGS, ratios, (0.1, 0.001)):
        column = RATIOS.index(ratio)
        paper = TABLE_2[EPSILON][column] - TABLE_2[other][column]
        text = f"At {100 * ratio:.0f}% positives epsilon {EPSILON:g} is better than {other:g} (paper {paper:+.1f}), {reading}."
        first, second = f"{reading} {EPSILON:g}", f"{reading} {other:g}"
        difference = difference_of(records, "test AUC", first, second, ratio=ratio)
        claims.append(Claim.that_first_is_better(text, first, second, difference))
    return claims


def _draw(records: Sequence[Record], ratios: Sequence[float]) -> Figure:
    figure, axes = make_figure(len(ratios))
    for ax, ratio in zip(axes, ratios, strict=True):
        epsilons = sorted(TABLE_2)
        ax.plot(epsilons, [TABLE_2[epsilon][RATIOS.index(ratio)] for epsilon in epsilons], "o:", color="#888888", label="paper")
        for reading, colour in zip(READINGS, ("#0b6cb8", "#d1495b"), strict=True):
            columns = [values_of(records, "test AUC", **_where(reading, epsilon, ratio)) for epsilon in epsilons]
            curves = [[100 * value for value in curve] for curve in zip(*columns, strict=True)]
            draw_band(ax, epsilons, curves, f"ours, {reading}", colour, marker="o")
        ax.set_xscale("log")
        ax.set(xlabel="epsilon", ylabel="test AUC, %", title=f"Cat&Dog, {100 * ratio:.0f}% positives", ylim=(50, 92))
        ax.legend(fontsize=8)
    return figure
