"""Appendix A.4 of Meng et al. (2021): the gradient of the active set against that of unrolled Newton steps, on the F-score.

A second part trains the same network by both, with the paper's burn-in, and with an epsilon chosen by Mangasarian's rule. The
loss is the F-score program ``1 + c'x``; every method differs from the others by its x and its gradient alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import taskloss as tl
from taskloss import metrics, thresholds
from taskloss.datasets import load_page_blocks
from taskloss.experiments import gradient_agreement_page
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.learning import choose, without_curves
from taskloss.experiments.page import Page
from taskloss.experiments.runner import Files, Runner
from taskloss.lp import BurnIn, LinearProgram, LPLayer, PenaltyLayer, Solution, Status, choose_epsilon
from taskloss.lp.formulations import fscore_program
from taskloss.training import Criterion, TrainingData, TrainingSettings, build_mlp, train
from taskloss.training.data import Batches

BATCH = 64
SIZES = (16, 64, 256)
MARGINS = (0.0, 0.25)
"""Of the F-score program: the paper's, and the default of the losses."""
MOMENTS = {"fresh": 0.0, "middle": 0.5, "end": 1.0}
"""When the scores are taken, as a share of the training."""
PAPER_EPSILON = 0.01
EPSILONS = (1.0, 0.1, 0.01, 0.001, 1e-4, 1e-5)
"""Those of batches of 64; other batches have the paper's alone."""
RULE_BATCHES = 10
"""Number of batches of the fresh network whose least epsilon is that of the rule."""
FIRST_EPSILON = 1e-3
"""Where the burn-in starts."""
METHODS = ("exact path", "active set", "unrolled", "penalty", "burn-in", "rule")
RATES = (0.001, 0.003, 0.01, 0.03)
AGREEMENT_RATE = 0.003
PROBED = 10
"""The gradient of a training step is compared with the exact one in one of so many steps."""
BATCH_SEED = 10_000
"""Added to the seed for the batches that are compared, which are not those of the training."""

Solver = Callable[[LinearProgram], Solution]


class Parts(NamedTuple):
    """Page Blocks in three parts."""

    training: TrainingData
    validation: TrainingData
    test: TrainingData


def split_page_blocks(seed: int) -> Parts:
    """Return 60, 20 and 20% of each class; the features have mean 0 and deviation 1 on the training samples."""
    features, target = load_page_blocks()
    rng = np.random.default_rng(seed)
    rows: list[list[np.ndarray]] = [[], [], []]
    for label in (0, 1):
        of_class = rng.permutation(np.flatnonzero(target == label))
        for part, chosen in zip(rows, np.split(of_class, [int(0.6 * len(of_class)), int(0.8 * len(of_class))]), strict=True):
            part.append(chosen)
    index = [np.concatenate(part) for part in rows]
    mean, deviation = features[index[0]].mean(0), features[index[0]].std(0)
    parts = ((torch.from_numpy((features[part] - mean) / deviation), torch.from_numpy(target[part])) for part in index)
    return Parts(*(TrainingData(*part) for part in parts))


class ProgramCriterion(nn.Module):
    """The F-score program as a loss, ``1 + c'x``, with the x and the gradient of a layer."""

    def __init__(self, layer: Solver, margin: float) -> None:
        super().__init__()
        self.layer, self.margin = layer, margin
        self.optimal: list[bool] = []
        """Whether each x was an exact solution."""

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        program = fscore_program(scores.double(), target, margin=self.margin)
        solution = self.layer(program)
        self.optimal.append(solution.status is Status.OPTIMAL)
        return 1.0 + program.c @ solution.x


def exact_criterion(margin: float) -> Criterion:
    """Return the same loss in closed form."""
    return tl.lp.FScoreLoss(margin=margin)


def gradient_of(criterion: Criterion, scores: Tensor, target: Tensor) -> Tensor:
    """Return the gradient of a loss in the scores, float64."""
    leaf = scores.detach().double().requires_grad_()
    return torch.autograd.grad(criterion(leaf, target), leaf)[0]


def cosine(one: Tensor, other: Tensor) -> float | None:
    """Return the cosine of two gradients; None if one of them is zero."""
    product = float(one.norm() * other.norm())
    return float(one @ other) / product if product > 0.0 else None


# --- agreement ---------------------------------------------------------------------------------------------------------


def compare_gradients(cell: Cell, files: Files) -> Record:
    """Compare the gradients of one network, after a share of its training, batch by batch."""
    training = split_page_blocks(cell["seed"]).training
    model, margin = build_mlp(training.features.shape[1], seed=cell["seed"]), cell["margin"]
    steps = round(MOMENTS[cell["moment"]] * cell["iterations"])
    if steps:
        settings = TrainingSettings(iterations=steps, learning_rate=AGREEMENT_RATE, batch_size=BATCH)
        train(model, exact_criterion(margin), training, None, settings=settings, seed=cell["seed"])
    batches = Batches(training, cell["size"], BATCH_SEED + cell["seed"])
    with torch.no_grad():
        scored = [(model.eval()(batch.features), batch.target) for batch in map(batches.of_step, range(cell["batches"]))]
    exact = [gradient_of(exact_criterion(margin), *batch) for batch in scored]
    vertex = [gradient_of(ProgramCriterion(LPLayer(), margin), *batch) for batch in scored]
    record: Record = {
        "without gradient": sum(not bool(gradient.any()) for gradient in exact),
        "vertex to exact": _summary(vertex, exact),
        "by epsilon": [_at_epsilon(epsilon, margin, scored, exact, vertex) for epsilon in cell["epsilons"]],
    }
    if cell["size"] == BATCH:
        verified, bare = ([_rule(batch, margin, verify) for batch in scored[:RULE_BATCHES]] for verify in (True, False))
        record["rule"] = {"verified": verified, "bare": bare}
    return record


def _at_epsilon(
    epsilon: float, margin: float, scored: Sequence[Any], exact: Sequence[Tensor], vertex: Sequence[Tensor]
) -> Record:
    """Return how the gradients of all batches agree at one epsilon."""
    penalty_loss = ProgramCriterion(PenaltyLayer(epsilon), margin)
    penalty = [gradient_of(penalty_loss, *batch) for batch in scored]
    unrolled = [gradient_of(ProgramCriterion(LPLayer("unrolled", epsilon=epsilon), margin), *batch) for batch in scored]
    right = [index for index, optimal in enumerate(penalty_loss.optimal) if optimal]
    return {
        "epsilon": epsilon,
        "right constraints": round(len(right) / len(scored), 4),
        "penalty to unrolled": _summary(penalty, unrolled),
        "vertex to unrolled": _summary(vertex, unrolled),
        "unrolled to exact": _summary(unrolled, exact),
        "unrolled to exact, right constraints": _summary([unrolled[i] for i in right], [exact[i] for i in right]),
    }


def _summary(ones: Sequence[Tensor], others: Sequence[Tensor]) -> list[float] | None:
    """Return mean and least cosine of those pairs of gradients that are not zero; None if there are none."""
    cosines = [value for value in map(cosine, ones, others) if value is not None]
    return [round(fmean(cosines), 6), round(min(cosines), 6)] if cosines else None


def _rule(batch: tuple[Tensor, Tensor], margin: float, verify: bool) -> float:
    program = fscore_program(batch[0].double(), batch[1], margin=margin)
    return float(f"{choose_epsilon(program, verify=verify).epsilon:.6g}")


# --- training ----------------------------------------------------------------------------------------------------------


def train_network(cell: Cell, files: Files) -> Record:
    """Train one network by one method."""
    parts, margin = split_page_blocks(cell["seed"]), cell["margin"]
    model = build_mlp(parts.training.features.shape[1], seed=cell["seed"])
    batches = Batches(parts.training, BATCH, cell["seed"])
    # The first call compiles what is not compiled yet, and the time of a step should not tell.
    gradient_of(_make_criterion(cell["method"], margin, model, batches), *_scored(model, batches, 0))
    criterion = _make_criterion(cell["method"], margin, model, batches)
    probe = Probe(criterion, exact_criterion(margin))
    settings = TrainingSettings(iterations=cell["iterations"], learning_rate=cell["rate"], batch_size=BATCH)
    start = time.process_time()
    train(model, probe, parts.training, None, settings=settings, seed=cell["seed"])
    seconds = (time.process_time() - start - probe.seconds) / cell["iterations"]
    with torch.no_grad():
        validation, test = (model(part.features) for part in (parts.validation, parts.test))
    threshold = thresholds.for_f_score(validation, parts.validation.target).threshold
    record: Record = {
        "chosen_by": _f_score(validation, parts.validation.target),
        "test F": _f_score(test, parts.test.target),
        "test F, tuned": _f_score(test - threshold, parts.test.target),
        "milliseconds": round(1000 * seconds, 3),
        "curves": probe.cosines,
    }
    if isinstance(criterion, ProgramCriterion):
        record["optimal"] = round(fmean(criterion.optimal), 4)
        if isinstance(criterion.layer, PenaltyLayer):
            record["epsilon"] = float(f"{criterion.layer.epsilon.item():.4g}")
            record["burn-in iterations"] = int(criterion.layer.iterations)
    return record


def _f_score(scores: Tensor, target: Tensor) -> float:
    return round(float(metrics.fbeta_score(scores, target)), 5)


@torch.no_grad()
def _scored(model: nn.Module, batches: Batches, step: int) -> tuple[Tensor, Tensor]:
    batch = batches.of_step(step)
    return model(batch.features), batch.target


def _make_criterion(method: str, margin: float, model: nn.Module, batches: Batches) -> Criterion:
    if method == "exact path":
        return exact_criterion(margin)
    if method == "rule":
        epsilon = min(_rule(_scored(model, batches, step), margin, verify=True) for step in range(RULE_BATCHES))
        return ProgramCriterion(PenaltyLayer(epsilon), margin)
    layers: dict[str, Solver] = {
        "active set": LPLayer(),
        "unrolled": LPLayer("unrolled", epsilon=PAPER_EPSILON),
        "penalty": PenaltyLayer(PAPER_EPSILON),
        "burn-in": PenaltyLayer(FIRST_EPSILON, burn_in=BurnIn()),
    }
    return ProgramCriterion(layers[method], margin)


class Probe(nn.Module):
    """A criterion whose gradient is compared with the exact one now and then."""

    def __init__(self, criterion: Criterion, exact: Criterion) -> None:
        super().__init__()
        self._criterion, self._exact, self._calls = criterion, exact, 0
        self.cosines: list[float | None] = []
        self.seconds = 0.0
        """Processor time of the comparisons."""

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        loss: Tensor = self._criterion(scores, target)
        if self._calls % PROBED == 0:
            start = time.process_time()
            (gradient,) = torch.autograd.grad(loss, scores, retain_graph=True)
            value = cosine(gradient.double(), gradient_of(self._exact, scores, target))
            self.cosines.append(None if value is None else round(value, 5))
            self.seconds += time.process_time() - start
        self._calls += 1
        return loss


@dataclass(frozen=True)
class GradientAgreement(Experiment):
    """Gradients of one network at three moments, and six ways to train it, with and without a margin."""

    seeds: int = 10
    compared_seeds: int = 3
    """Seeds of the comparison of gradients, at most; all seeds are trained."""
    batches: int = 100
    iterations: int = 300

    name: ClassVar[str] = "gradient-agreement"
    title: ClassVar[str] = "The gradient of the active set and that of unrolled Newton steps"
    source: ClassVar[str] = "Meng et al. 2021, appendix A.4; section 3.2, burn-in; section 4, choice of epsilon"

    def run(self, runner: Runner, seeds: int) -> Results:
        base = {"experiment": self.name, "iterations": self.iterations}
        compared = [
            {
                **base,
                "seed": seed,
                "margin": margin,
                "moment": moment,
                "size": size,
                "batches": self.batches,
                "epsilons": epsilons,
            }
            for seed in range(min(seeds, self.compared_seeds))
            for margin in MARGINS
            for moment in MOMENTS
            for size in SIZES
            for epsilons in [list(EPSILONS) if size == BATCH else [PAPER_EPSILON]]
        ]
        agreement = runner.run("agreement", compare_gradients, compared)
        trained = [
            {**base, "seed": seed, "margin": margin, "method": method, "rate": rate}
            for seed in range(seeds)
            for margin in MARGINS
            for method in METHODS
            for rate in RATES
        ]
        records = runner.run("training", train_network, trained)
        return {
            "size": asdict(self),
            "agreement": agreement,
            "chosen": choose(records, "margin", "method", "seed"),
            "searched": [without_curves(record) for record in records],
        }

    def make_page(self, results: Results) -> Page:
        return gradient_agreement_page.make_page(self, results)
