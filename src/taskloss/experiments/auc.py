"""Table 1 of Meng et al. (2021): the area under the ROC curve with imbalanced classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

import taskloss as tl
from taskloss import metrics
from taskloss.experiments.auc_page import make_page
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.image_training import (
    BATCH,
    QUICK_ITERATIONS,
    QUICK_RATES,
    SETS,
    Parts,
    binary_parts,
    cache_images,
    load_parts,
    run_tuned,
    score_images,
    train_network,
)
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.lp_paper import RATIOS
from taskloss.experiments.page import Page
from taskloss.experiments.runner import Files, Runner
from taskloss.peers import PPDLoss, ProximalPrimalDual
from taskloss.training import Criterion

EPSILON = 0.01
"""The paper's margin between probabilities."""
TUNED_AT = 0.91
"""The ratio at which the learning rate of a method is chosen."""
SAME_STEPS = 200
"""Steps of the runs that compare the linear program with its fast path."""


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy of 0/1 labels."""
    return functional.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))


class RampOfProbabilities(nn.Module):
    """The paper's loss of the program's solution: the ramp of all pairs of probabilities."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.ramp = tl.lp.AUCLoss(epsilon, form="ramp")

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits ``(n,)``."""
        return self.ramp(scores.sigmoid(), target)


CRITERIA: dict[str, Callable[[], Criterion]] = {
    "x-ent": lambda: cross_entropy,
    "PPD-SG": PPDLoss,
    "PPD-AdaGrad": PPDLoss,
    "LP ramp": lambda: RampOfProbabilities(EPSILON),
    "LP hinge": tl.lp.AUCLoss,
    "direct": lambda: tl.DirectLoss("roc_auc"),
}
"""The methods; each run has a criterion of its own, since some have a state."""


def run_cell(cell: Cell, files: Files) -> Record:
    """Train one network, and measure its AUC."""
    parts = binary_parts(load_parts(files, cell["set"], cell["side"], cell["seed"]), cell["ratio"], cell["seed"])
    criterion = CRITERIA[cell["method"]]()
    make_optimizer = partial(_proximal, criterion, cell) if isinstance(criterion, PPDLoss) else None
    model, _ = train_network(cell, files, parts.training, criterion, make_optimizer=make_optimizer)
    return measure_auc(model, parts)


def _proximal(criterion: PPDLoss, cell: Cell, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of Liu et al.; its stages end about where the paper's learning rates fall."""
    return ProximalPrimalDual(
        model.parameters(),
        criterion,
        learning_rate=cell["rate"],
        stage_length=max(1, cell["iterations"] // 20),
        adagrad=cell["method"] == "PPD-AdaGrad",
    )


def measure_auc(model: nn.Module, parts: Parts) -> Record:
    """Return the AUC of validation and test; one half, which is that of no ranking, for a network that diverged."""
    scores = [score_images(model, part.pixels) for part in (parts.validation, parts.test)]
    if not all(bool(part.isfinite().all()) for part in scores):
        return {"diverged": True, "chosen_by": 0.5, "test AUC": 0.5}
    validation, test = (float(metrics.roc_auc_score(part, images.labels)) for part, images in zip(scores, parts[1:], strict=True))
    return {"diverged": False, "chosen_by": round(validation, 5), "test AUC": round(test, 5)}


def run_losses(cell: Cell, files: Files) -> Record:
    """Train by the hinge of the program, solved as the cell says, and return the losses of all steps."""
    parts = binary_parts(load_parts(files, cell["set"], cell["side"], cell["seed"]), cell["ratio"], cell["seed"])
    model, losses = train_network(cell, files, parts.training, tl.lp.AUCLoss(solver=cell["solver"]))
    return {**measure_auc(model, parts), "losses": [round(loss, 6) for loss in losses]}


@dataclass(frozen=True)
class AUC(Experiment):
    """Six methods on four data sets with different shares of negatives dropped."""

    seeds: int = 3
    network: str = "small"
    side: int = 32
    iterations: int = QUICK_ITERATIONS
    rates: tuple[float, ...] = QUICK_RATES
    ratios: tuple[float, ...] = (0.91, 0.5)
    all_ratios: tuple[str, ...] = ("cat_dog",)
    """The data sets that run at all ratios of the paper."""

    name: ClassVar[str] = "auc"
    title: ClassVar[str] = "AUC of imbalanced classes: the linear program against its rivals"
    source: ClassVar[str] = "Meng et al. 2021, table 1"

    def run(self, runner: Runner, seeds: int) -> Results:
        cache_images(runner, SETS, self.side)
        base = {"network": self.network, "side": self.side, "iterations": self.iterations}
        cells = [
            {"experiment": self.name, "set": name, "ratio": ratio, "method": method, "seed": seed, **base}
            for name, method, seed in product(SETS, CRITERIA, range(seeds))
            for ratio in (RATIOS if name in self.all_ratios else self.ratios)
        ]
        records, tried = run_tuned(runner, run_cell, cells, lambda cell: cell["ratio"] == TUNED_AT, self.rates)
        same = {**base, "experiment": "same losses", "set": "cat_dog", "ratio": TUNED_AT, "seed": 0, "rate": 0.1}
        same["iterations"] = SAME_STEPS
        solvers = runner.run("solvers", run_losses, [{**same, "solver": solver} for solver in ("exact", "lp")])
        return {"size": asdict(self), "batch": BATCH, "records": records, "tried": tried, "solvers": solvers}

    def make_page(self, results: Results) -> Page:
        return make_page(self, results)
