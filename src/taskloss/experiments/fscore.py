"""Table 4 of Meng et al. (2021): training on the F-score, its local optimum, and what a step costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import ClassVar

import torch
from torch import Tensor, nn

import taskloss as tl
from taskloss import metrics, thresholds
from taskloss.experiments.auc import cross_entropy
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.fscore_page import make_page
from taskloss.experiments.image_training import (
    BATCH,
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
from taskloss.experiments.page import Page
from taskloss.experiments.residual_network import ARCHITECTURES, ResidualNetwork
from taskloss.experiments.runner import Files, Runner
from taskloss.peers.ap_perf import AdversarialFScoreLoss
from taskloss.peers.cvxpy_fscore import CvxpyFScoreLoss
from taskloss.training import Criterion


class MeanAdversarialLoss(nn.Module):
    """The loss of AP-Perf per sample, so that its gradients, and learning rates, are of the size of the other methods'."""

    def __init__(self) -> None:
        super().__init__()
        self.game = AdversarialFScoreLoss(tolerance=1e-4)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(n,)``."""
        return self.game(scores, target) / len(scores)


CRITERIA: dict[str, Callable[[], Criterion]] = {
    "x-ent": lambda: cross_entropy,
    "AP-Perf": MeanAdversarialLoss,
    "LP": lambda: tl.lp.FScoreLoss(margin=0.0),
    "LP, margin 1/4": tl.lp.FScoreLoss,
    "direct": lambda: tl.DirectLoss("f_score"),
    "CVXPY-SCS": lambda: CvxpyFScoreLoss(solver="SCS"),
}
"""The methods that train. ``LP`` is the paper's program, without a margin, by its fast path."""
GENERAL = "CVXPY-SCS"
"""This one solves the program of ``LP``, so it takes its learning rate."""
SLOW = "AP-Perf"
"""A run of this one takes several times as long as the others, so its learning rates are chosen on one seed."""
STARTS = {"cat_dog": 3.0}
"""The data set, and the initial bias of the output, of the runs that start where all samples are called positive."""
STUCK_KEYS = ("set", "method", "seed", "rate", "bias")
"""What such a run takes over from the run with the usual start, besides the size."""
SPEED_ROUNDS = 30
"""Steps that are timed, of all methods in turn."""


class UnrolledNewtonLoss(nn.Module):
    """One minus the F-score of the paper's program, solved by its Newton method and differentiated through the last steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = tl.lp.LPLayer(gradient="unrolled", epsilon=1e-3)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(n,)``."""
        program = tl.lp.formulations.fscore_program(scores, target, margin=0.0)
        return 1 + (program.c * self.layer(program).x).sum()


TIMED: dict[str, Callable[[], Criterion]] = {
    **CRITERIA,
    "CVXPY-Moreau": lambda: CvxpyFScoreLoss(solver="MOREAU"),
    "LP, interior point": lambda: tl.lp.FScoreLoss(margin=0.0, solver="lp"),
    "LP, unrolled Newton": UnrolledNewtonLoss,
}
"""The methods whose steps are timed."""


def run_cell(cell: Cell, files: Files) -> Record:
    """Train one network, and measure its F-score."""
    parts = binary_parts(load_parts(files, cell["set"], cell["side"], cell["seed"]), 0.5, cell["seed"])
    model, _ = train_network(cell, files, parts.training, CRITERIA[cell["method"]]())
    return measure_fscore(model, parts)


def measure_fscore(model: nn.Module, parts: Parts) -> Record:
    """Return F-scores at the threshold 0, and that of the test at the threshold that is best in validation.

    A network that diverged calls nothing positive.
    """
    validation, test = (score_images(model, part.pixels) for part in (parts.validation, parts.test))
    if not bool(validation.isfinite().all() & test.isfinite().all()):
        return {"diverged": True, "chosen_by": 0.0, "test F": 0.0, "test F, tuned threshold": 0.0, "positive": 0.0}
    threshold = thresholds.for_f_score(validation, parts.validation.labels).threshold
    return {
        "diverged": False,
        "chosen_by": round(float(metrics.fbeta_score(validation, parts.validation.labels)), 5),
        "test F": round(float(metrics.fbeta_score(test, parts.test.labels)), 5),
        "test F, tuned threshold": round(float(metrics.fbeta_score(test - threshold, parts.test.labels)), 5),
        "positive": round((test > 0).double().mean().item(), 5),
    }


def run_speed(cell: Cell, files: Files) -> Record:
    """Time the loss of a batch, forward and backward, of all methods in turn, and a whole step of the network."""
    generator = torch.Generator().manual_seed(cell["seed"])
    criteria = {name: make() for name, make in TIMED.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ("network", *criteria)}
    model = ResidualNetwork(ARCHITECTURES[cell["network"]], 1, cell["seed"])
    for _ in range(cell["rounds"] + 1):
        target = torch.randperm(BATCH, generator=generator) % 2
        scores = torch.randn(BATCH, generator=generator)
        pixels = torch.randint(256, (BATCH, 3, cell["side"], cell["side"]), generator=generator, dtype=torch.uint8)
        start = time.perf_counter()
        model(pixels).sum().backward()
        seconds["network"].append(time.perf_counter() - start)
        for name, criterion in criteria.items():
            start = time.perf_counter()
            criterion(scores.requires_grad_(), target).backward()
            seconds[name].append(time.perf_counter() - start)
    # The first round compiles and caches.
    return {"milliseconds": {name: round(1000 * statistics.median(values[1:]), 3) for name, values in seconds.items()}}


@dataclass(frozen=True)
class FScore(Experiment):
    """Six methods on four data sets with balanced classes."""

    seeds: int = 3
    network: str = "small"
    side: int = 32
    iterations: int = 300
    rates: tuple[float, ...] = QUICK_RATES

    name: ClassVar[str] = "fscore"
    title: ClassVar[str] = "Training on the F-score, and its local optimum"
    source: ClassVar[str] = "Meng et al. 2021, table 4"

    def run(self, runner: Runner, seeds: int) -> Results:
        cache_images(runner, SETS, self.side)
        base = {"experiment": self.name, "network": self.network, "side": self.side, "iterations": self.iterations}
        speed = runner.run("speed", run_speed, [{**base, "experiment": "fscore speed", "seed": 0, "rounds": SPEED_ROUNDS}])
        cells = [
            {**base, "set": name, "method": method, "seed": seed} for method, name, seed in product(CRITERIA, SETS, range(seeds))
        ]
        # Beyond the grid of rates are networks that diverge to calling everything positive, whose F-score is hard to beat.
        tuned = [cell for cell in cells if cell["method"] != GENERAL]
        records, tried = run_tuned(
            runner, run_cell, tuned, lambda cell: cell["method"] != SLOW or cell["seed"] == 0, self.rates, widened=0
        )
        rates = {(record["set"], record["method"]): record["rate"] for record in records}
        general = [{**cell, "rate": rates[cell["set"], "LP"]} for cell in cells if cell["method"] == GENERAL]
        stuck = [
            {key: value for key, value in {**record, "bias": STARTS[record["set"]]}.items() if key in (*base, *STUCK_KEYS)}
            for record in records
            if record["set"] in STARTS and record["method"] != SLOW
        ]
        return {
            "size": asdict(self),
            "batch": BATCH,
            "records": records + runner.run("cvxpylayers", run_cell, general),
            "tried": tried,
            "all positive": runner.run("from all positive", run_cell, stuck),
            "speed": speed[0]["milliseconds"],
        }

    def make_page(self, results: Results) -> Page:
        return make_page(self, results)
