"""Which update of the direct loss learns costs for decisions, and why the positive one does not.

A linear predictor maps 5 features of a day to the costs of a decision; the true costs are a polynomial of degree 4 of a linear
map of the features (the generator of Elmachtoub and Grigas, 2022, as PyEPO has it), multiplied by uniform noise from ``1 -
noise`` to ``1 + noise``. Two decisions: ``knapsack``, the linear relaxation of 20 items and two capacities, and ``path``, the
shortest path through a 5 x 5 grid, right and down, with 40 edges. 400 days of training, 100 of them in each of 300 steps of
Adam, 1000 days of test.

Methods: the squared error of the costs, SPO+, the perturbed losses with their defaults, and the direct loss of the regret with
each update and epsilon 1 and 10. ``refined`` starts where the squared error ends; ``fixed norm`` divides the predicted scores
by their norm and multiplies them by that of the first step. Each runs with the learning rates 0.01 and 0.1; the one with the
lower mean regret on the days of training is reported.

Columns: the regret on the test days in percent of the cost of the best decisions, mean and standard deviation over the seeds; the
norm of the scores of a day at the last step, relative to the first one; the share of the days of the last step whose gradient is
zero; and for the updates what they minimize. With ``M(s) = max <s, psi>`` that is the mean over the days of training of
``(M(s + eps c) - M(s)) / eps`` for the positive update, of ``(M(s) - M(s - eps c)) / eps`` for the negative one, and of the mean
of both for the central one, less the cost of the best decisions and in percent of it: at the scores that were learned, and at the
true costs, whose regret is zero, scaled to the same norm in each day.

    python -m benchmarks.decision_updates --output decision_updates.json

It takes some minutes; ``--seeds 1 --problems path`` is a part of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import taskloss as tl
from taskloss import decisions

RATES = (0.01, 0.1)
NOISES = (0.0, 0.5)
EPSILONS = (1.0, 10.0)
UPDATES = ("positive", "negative", "central")
COLUMNS = ("growth", "zero", "learned", "at the true costs")
DAYS, TEST_DAYS, STEPS, BATCH = 400, 1000, 300, 100

Criterion = Callable[[Tensor, Tensor], Tensor]
Record = dict[str, Any]


class Days(NamedTuple):
    """Features and true costs of days, and what solves a day."""

    solver: Callable[[np.ndarray], np.ndarray]
    features: Tensor
    costs: Tensor

    def objective(self, scores: Tensor, update: str, epsilon: float) -> float:
        """Return what an update minimizes, less the cost of the best decisions and in percent of it."""
        s, costs = scores.detach().double().numpy(), self.costs.double().numpy()
        above, middle, below = (self._largest_sum(s + weight * costs) for weight in (epsilon, 0.0, -epsilon))
        value = {"positive": above - middle, "negative": middle - below, "central": (above - below) / 2}[update] / epsilon
        best = -self._largest_sum(-costs)
        return 100 * (value - best) / abs(best)

    def _largest_sum(self, scores: np.ndarray) -> float:
        """Return the sum over the days of ``max <scores, psi>``."""
        return float((scores * self.solver(scores)).sum())

    def regret(self, scores: Tensor) -> float:
        """Return the excess cost of the decisions in percent of the cost of the best ones."""
        costs = self.costs.double().numpy()
        best = (costs * self.solver(-costs)).sum()
        return float(100 * ((costs * self.solver(scores.detach().double().numpy())).sum() - best) / abs(best))


def make_days(problem: str, noise: float, seed: int) -> tuple[Days, Days]:
    """Return the days of training and of test."""
    rng = np.random.RandomState(seed)  # As the generator of PyEPO draws them.
    size, solver = 40, tl.solvers.ShortestPath(tl.solvers.grid_edges(5, 5))
    if problem == "knapsack":
        size, solver = 20, tl.solvers.Knapsack(rng.choice(range(300, 800), size=(2, 20)) / 100, [20.0, 20.0], relaxed=True)
    mixing = rng.binomial(1, 0.5, (size, 5))
    x = rng.normal(0, 1, (DAYS + TEST_DAYS, 5))
    costs = ((x @ mixing.T / np.sqrt(5) + 3) ** 4 + 1) / 3.5**4 * rng.uniform(1 - noise, 1 + noise, (len(x), size))
    if problem == "knapsack":
        costs = -np.ceil(5 * costs)
    features, target = torch.tensor(x).float(), torch.tensor(costs).float()
    return Days(solver, features[:DAYS], target[:DAYS]), Days(solver, features[DAYS:], target[DAYS:])


def squared_error(scores: Tensor, costs: Tensor) -> Tensor:
    """Return the mean squared error of the costs, minus the scores."""
    return ((scores + costs) ** 2).mean()


def make_criteria(solver: Callable[[np.ndarray], np.ndarray]) -> dict[str, Criterion]:
    """Return the losses by the name of the method."""
    # The checks of the answers would take as long as the solver.
    task = tl.Structured(solver, loss="regret", batched=True, on_worse="ignore")
    spo_plus = decisions.SPOPlusLoss(solver, batched=True, on_worse="ignore")
    criteria: dict[str, Criterion] = {
        "squared error": squared_error,
        "SPO+": lambda scores, costs: spo_plus(-scores, costs),
        "Fenchel-Young": decisions.PerturbedFenchelYoungLoss(task),
        "I-MLE": decisions.ImplicitMLELoss(task),
        "AI-MLE": decisions.AdaptiveImplicitMLELoss(task),
        "perturbed optimizer": decisions.PerturbedOptimizerLoss(task),
        "perturbed direct, 10": decisions.PerturbedDirectLoss(task, epsilon=10.0),
        "identity": decisions.IdentityLoss(task),
    }
    for epsilon in EPSILONS:
        for update in UPDATES:
            criteria[f"{update}, {epsilon:g}"] = tl.DirectLoss(task, epsilon=epsilon, update=update)
    for kind in ("refined", "fixed norm"):
        criteria[f"positive, 1, {kind}"] = tl.DirectLoss(task, update="positive")
    return criteria


def run_once(problem: str, noise: float, method: str, rate: float, seed: int) -> Record:
    """Train one predictor; return its regrets, the growth of the scores and the share of zero gradients."""
    training, test = make_days(problem, noise, seed)
    torch.manual_seed(seed)
    net = nn.Linear(5, training.costs.shape[1])
    if method.endswith("refined"):
        train(net, training, squared_error, 0.1)
    norms, zero = train(net, training, make_criteria(training.solver)[method], rate, method.endswith("fixed norm"))
    regrets = [part.regret(net(part.features)) for part in (training, test)]
    record = {"training": regrets[0], "test": regrets[1], "growth": norms[-1] / norms[0], "zero": zero}
    update = method.split(",")[0]
    if update not in UPDATES:
        return record
    epsilon, scores = float(method.split(",")[1]), net(training.features)
    if method.endswith("fixed norm"):
        scores = with_norm(scores, norms[0])
    perfect = with_norm(-training.costs, scores.norm(dim=1, keepdim=True))
    values = [training.objective(points, update, epsilon) for points in (scores, perfect)]
    return {**record, "learned": values[0], "at the true costs": values[1]}


def with_norm(scores: Tensor, norm: Tensor | float) -> Tensor:
    """Return the scores of each day, scaled to this norm."""
    return norm * scores / scores.norm(dim=1, keepdim=True)


def train(net: nn.Module, days: Days, criterion: Criterion, rate: float, fixed_norm: bool = False) -> tuple[list[float], float]:
    """Return the mean norm of the scores of a day in each step, and the share of days without a gradient in the last one."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(0)
    norms, gradient = [], torch.empty(0)
    for _ in range(STEPS):
        rows = torch.randperm(DAYS, generator=generator)[:BATCH]
        scores = net(days.features[rows])
        norms.append(scores.detach().norm(dim=1).mean().item())
        if fixed_norm:
            scores = with_norm(scores, norms[0])
        optimizer.zero_grad()
        (gradient,) = torch.autograd.grad(criterion(scores, days.costs[rows]), scores, retain_graph=True)
        scores.backward(gradient)
        optimizer.step()
    return norms, (gradient == 0).all(dim=1).double().mean().item()


def summarize(records: list[Record]) -> Record:
    """Return the means over the seeds at the learning rate with the lower mean regret of training."""
    by_rate = [[record for record in records if record["rate"] == rate] for rate in RATES]
    best = min(by_rate, key=lambda runs: statistics.mean(run["training"] for run in runs))
    values = [run["test"] for run in best]
    return {
        "rate": best[0]["rate"],
        "regret": statistics.mean(values),
        "over_seeds": statistics.stdev(values) if len(values) > 1 else None,
        **{name: statistics.mean(run[name] for run in best) for name in best[0] if name in COLUMNS},
    }


def print_row(title: str, summary: Record) -> None:
    """Print one row of the table."""
    spread = "" if summary["over_seeds"] is None else f" +- {summary['over_seeds']:.2f}"
    others = "".join(f"  {name} {summary[name]:6.2f}" for name in COLUMNS if name in summary)
    print(f"{title:<40} {summary['regret']:8.2f}{spread:<9} rate {summary['rate']:<5}{others}", flush=True)


def main() -> None:
    """Run all methods on all problems, print a row for each and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=("knapsack", "path"), default=["knapsack", "path"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="JSON file for the table and the records")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "the (positive update of|gradient of this loss is zero)", UserWarning)
    start = time.perf_counter()
    records: list[Record] = []
    summary: dict[str, Record] = {}
    for problem in arguments.problems:
        for noise in NOISES:
            for method in make_criteria(make_days(problem, noise, 0)[0].solver):
                cell = {"problem": problem, "noise": noise, "method": method}
                runs = [
                    {**cell, "rate": rate, "seed": seed, **run_once(problem, noise, method, rate, seed)}
                    for rate in RATES
                    for seed in range(arguments.seeds)
                ]
                records += runs
                title = f"{problem}, noise {noise:g}, {method}"
                summary[title] = summarize(runs)
                print_row(title, summary[title])
    print(f"{time.perf_counter() - start:.0f} s in all")
    if arguments.output:
        arguments.output.write_text(json.dumps({"summary": summary, "records": records}, indent=1))


if __name__ == "__main__":
    main()
