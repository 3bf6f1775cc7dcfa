"""Losses of PyEPO beside ours on three problems, in one run: regret, and CPU seconds per epoch.

Problems (each seed draws new data; the network predicts the costs of one decision from its features):

- ``path``: the setting of PyEPO's notebook 03. Shortest path through a 5 x 5 grid, ``pyepo.data.shortestpath.genData`` with 5
  features, degree 4, noise 0.5; 1000 instances of training and 1000 of test; a linear predictor, Adam with the learning rate
  0.01, batches of 32, 20 epochs.
- ``knapsack``: the setting of the experiments in PyEPO's paper. 32 items, two capacities of 20,
  ``pyepo.data.knapsack.genData`` with the same features, degree and noise; predictor and training as above.
- ``terrain``: pictures of 12 x 12 cells of five terrains; a small convolutional network predicts the cost of each cell, and the
  cheapest path moves right, down, or both at once, so that costs of any sign have a best path. The true costs vary around that
  of the terrain by a factor of 0.5 to 1.5. 1000 pictures of training and 500 of test, 10 epochs, batches of 50; the first three
  seeds. (It takes the place of the Warcraft data of PyEPO's notebook 06.)

All start from the same weights and see the same batches, as slices of tensors; the time of a data loader is in none of them.
PyEPO runs on our solvers through ``TasklossModel``, in one process. That is its fastest way here: ``--solvers`` prints the CPU
time of its epochs with its own models for OR-Tools (if that is installed), and the time of an epoch in two processes.

Settings: the rows ``notebook`` have those of the notebook. All others are chosen for each method of either library from
``all_settings``, as those with the lowest mean test regret on ``TUNING_SEEDS``; the figures are from ``SEEDS``. The contrastive
and ranking losses of PyEPO, which have no counterpart here, are left out.

Columns: normalized regret on the test data in percent (``pyepo.metric.regret``), mean and standard deviation over the seeds; the
median CPU seconds of an epoch; the settings.

    python -m benchmarks.pyepo_tables --output pyepo_tables.json

It takes about half an hour of a shared core; runs are kept in ``pyepo_tables.jsonl`` and not repeated. ``--sizes`` varies the
number of data, at the settings that were chosen.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyepo
import torch
from benchmarks.cells import Cells
from pyepo.data.dataset import optDataset
from torch import Tensor, nn

import taskloss as tl
from taskloss import decisions
from taskloss.interop.pyepo import TasklossModel

SEEDS = (42, 43, 44, 45, 46)
TUNING_SEEDS = (100, 101)
PROBLEMS = ("path", "knapsack", "terrain")
SIZES = (50, 200, 5000)
"""Numbers of instances of training for ``--sizes``."""
SAMPLES = 3
"""Perturbed answers per instance, as in the notebook."""
GRID, PATCH = 12, 4
TERRAIN_COSTS = np.array([1.0, 2.0, 3.5, 6.0, 9.0])
COLOURS = np.array([[0.35, 0.65, 0.25], [0.75, 0.70, 0.40], [0.10, 0.35, 0.15], [0.20, 0.35, 0.70], [0.45, 0.42, 0.40]])

Settings = dict[str, float]
Record = dict[str, Any]
Criterion = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From predicted costs, true costs, best answers and their true costs to the loss."""


class Problem(NamedTuple):
    """Data of one seed, and how to learn from them. Costs are to be minimized if ``sense`` is 1, maximized if it is -1."""

    solver: Callable[[np.ndarray], np.ndarray]
    shape: tuple[int, ...]
    sense: int
    inputs: Tensor
    costs: Tensor
    training: int
    make_network: Callable[[], nn.Module]
    epochs: int
    batch: int

    @property
    def unit(self) -> float:
        """Mean size of a true cost: noise and steps in the scores are given as multiples of it."""
        return float(self.costs[: self.training].abs().mean())

    def solve(self, costs: Tensor) -> Tensor:
        """Return the best answers for costs ``(instances, number of costs)``, of the same shape."""
        scores = -self.sense * costs.detach().double().numpy().reshape(-1, *self.shape)
        return torch.from_numpy(np.asarray(self.solver(scores))).reshape(costs.shape).to(costs.dtype)

    def test_regret(self, network: nn.Module) -> float:
        """Return the normalized regret on the test data, in percent."""
        costs = self.costs[self.training :].double()
        with torch.no_grad():
            decided = (costs * self.solve(network(self.inputs[self.training :]))).sum(1)
        best = (costs * self.solve(costs)).sum(1)
        return float(100 * self.sense * (decided - best).sum() / best.abs().sum())


def make_problem(name: str, seed: int) -> Problem:
    """Return the data of a seed."""
    if name == "terrain":
        pictures, terrain = make_landscapes(1500, seed)
        noise = np.random.default_rng((seed, 1)).uniform(0.5, 1.5, terrain.shape)
        costs = torch.tensor((TERRAIN_COSTS[terrain] * noise).reshape(len(terrain), -1)).float()
        solver = tl.solvers.MonotoneGridPath()
        return Problem(solver, (GRID, GRID), 1, pictures, costs, 1000, make_convolutions, 10, 50)
    if name == "knapsack":
        weights, features, values = pyepo.data.knapsack.genData(2000, 5, 32, dim=2, deg=4, noise_width=0.5, seed=seed)
        knapsack, sense = tl.solvers.Knapsack(weights, [20.0, 20.0]), -1
        x, c = torch.tensor(features).float(), torch.tensor(values)
        return Problem(knapsack, (32,), sense, x, c, 1000, lambda: nn.Linear(5, 32), 20, 32)
    # "path" or "path 100", where the number is that of the instances of training; the number of steps is about the same.
    training = int(name.removeprefix("path") or 1000)
    features, costs_of_edges = pyepo.data.shortestpath.genData(training + 1000, 5, (5, 5), deg=4, noise_width=0.5, seed=seed)
    x, c = torch.tensor(features).float(), torch.tensor(costs_of_edges)
    path = tl.solvers.ShortestPath(tl.solvers.grid_edges(5, 5))
    return Problem(path, (40,), 1, x, c, training, lambda: nn.Linear(5, 40), 20_000 // training, 32)


def make_landscapes(count: int, seed: int) -> tuple[Tensor, np.ndarray]:
    """Return noisy pictures (count, 3, 48, 48) of smooth landscapes and the number of the terrain of each cell."""
    rng = np.random.default_rng(seed)
    rough = np.pad(rng.standard_normal((count, GRID, GRID)), ((0, 0), (1, 1), (1, 1)), mode="edge")
    height = sum(rough[:, i : i + GRID, j : j + GRID] for i in range(3) for j in range(3))
    terrain = np.searchsorted(np.quantile(height, [0.3, 0.5, 0.7, 0.85]), height)
    pixels = COLOURS[terrain].repeat(PATCH, axis=1).repeat(PATCH, axis=2)
    pixels = pixels + 0.3 * rng.standard_normal(pixels.shape)
    return torch.tensor(pixels, dtype=torch.float32).permute(0, 3, 1, 2).contiguous(), terrain


def make_convolutions() -> nn.Module:
    """Return a network from pictures to one cost per cell."""
    layers = (nn.Conv2d(3, 8, PATCH, stride=PATCH), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 1, 1), nn.Flatten(1))
    return nn.Sequential(*layers)


# --- the losses of PyEPO ----------------------------------------------------------------------------------------------------


def solution_loss(layer: nn.Module, distance: nn.Module) -> Criterion:
    """Return the distance of the layer's answer from the best answer."""
    return lambda predicted, costs, answers, values: distance(layer(predicted), answers)


def value_loss(layer: nn.Module) -> Criterion:
    """Return the distance of the true cost of the layer's answer from the least one, as in the notebook."""
    return lambda predicted, costs, answers, values: nn.functional.l1_loss(
        (layer(predicted) * costs).sum(1, keepdim=True), values
    )


def make_model(problem: Problem) -> TasklossModel:
    """Return our solver for PyEPO."""
    return TasklossModel(problem.solver, shape=problem.shape, sense="minimize" if problem.sense == 1 else "maximize")


def make_theirs(method: str, problem: Problem, settings: Settings, seed: int, model: Any = None) -> Criterion:
    """Return a loss of PyEPO, as its notebook uses it, with a model of its own or our solver."""
    model = model or make_model(problem)
    func, sigma, lambd = pyepo.func, settings.get("sigma", 0.0) * problem.unit, settings.get("lambd", 0.0)
    noise: dict[str, Any] = {"n_samples": SAMPLES, "sigma": sigma}
    gamma = func.utils.sumGammaDistribution(kappa=5, seed=seed)
    if method == "MSE":
        return lambda predicted, costs, answers, values: nn.functional.mse_loss(predicted, costs)
    if method == "SPO+":
        return func.SPOPlus(model)
    if method.startswith("PG"):
        gradient = func.PG(model, sigma=settings["step"], two_sides=method == "PG, two sides")
        return lambda predicted, costs, answers, values: gradient(predicted, costs)
    if method == "DPO":
        return solution_loss(func.DPO(model, seed=seed, **noise), nn.L1Loss())
    if method == "I-MLE":
        return solution_loss(func.IMLE(model, lambd=lambd, distribution=gamma, **noise), nn.L1Loss())
    if method == "AI-MLE":
        return solution_loss(func.AIMLE(model, distribution=gamma, **noise), nn.L1Loss())
    if method == "RFWO":
        return solution_loss(func.RFWO(model, lambd=lambd * problem.unit, max_iter=20), nn.MSELoss())
    if method == "DBB":
        return value_loss(func.DBB(model, lambd=lambd))
    if method == "NID":
        return value_loss(func.NID(model))
    young = func.PFY(model, seed=seed, **noise)
    return lambda predicted, costs, answers, values: young(predicted, answers)


# --- our losses -------------------------------------------------------------------------------------------------------------


def make_ours(method: str, problem: Problem, settings: Settings, seed: int) -> Criterion:
    """Return one of our losses; it gets scores, minus the costs that are to be minimized."""
    # The checks of the answers would take as long as the solver.
    options: dict[str, Any] = {"batched": True, "on_worse": "ignore"}
    task = tl.Structured(problem.solver, loss="regret", **options)
    # The same gradient as that of the regret, without a call of the solver for the best answers.
    cost = tl.Structured(problem.solver, loss="cost", **options)
    imitation = tl.Structured(problem.solver, loss="hamming", **options)
    epsilon, sigma = settings.get("epsilon", 1.0), settings.get("sigma", 0.0) * problem.unit
    noise: dict[str, Any] = {"sigma": sigma, "samples": SAMPLES, "seed": seed}
    losses: dict[str, Callable[[], nn.Module]] = {
        "SPO+": lambda: tl.StructuredHingeLoss(task),
        "PFY": lambda: decisions.PerturbedFenchelYoungLoss(task, **noise),
        "DPO": lambda: decisions.PerturbedOptimizerLoss(task, objective="solution", **noise),
        "perturbed optimizer": lambda: decisions.PerturbedOptimizerLoss(cost, **noise),
        "I-MLE": lambda: decisions.ImplicitMLELoss(cost, epsilon=epsilon, **noise),
        "AI-MLE": lambda: decisions.AdaptiveImplicitMLELoss(imitation, target=float("inf"), **noise),
        "perturbed direct": lambda: decisions.PerturbedDirectLoss(cost, epsilon=epsilon, **noise),
        "NID": lambda: decisions.IdentityLoss(task),
        "direct, negative": lambda: tl.DirectLoss(cost, epsilon=epsilon, update="negative"),
        "direct, central": lambda: tl.DirectLoss(cost, epsilon=epsilon),
    }
    loss, factor = losses[method](), 2.0 if method == "SPO+" else 1.0

    def criterion(predicted: Tensor, costs: Tensor, answers: Tensor, values: Tensor) -> Tensor:
        scores = -factor * problem.sense * predicted
        target = answers if method == "AI-MLE" else problem.sense * costs
        if len(problem.shape) > 1:
            scores, target = scores.view(-1, *problem.shape), target.view(-1, *problem.shape)
        return loss(scores, target)

    return criterion


THEIRS = ("MSE", "SPO+", "PG", "PG, two sides", "DPO", "PFY", "RFWO", "I-MLE", "AI-MLE", "DBB", "NID")
OURS = (
    "SPO+",
    "PFY",
    "DPO",
    "perturbed optimizer",
    "I-MLE",
    "AI-MLE",
    "perturbed direct",
    "NID",
    "direct, negative",
    "direct, central",
)


NOTEBOOK_ONLY = ("PG", "RFWO")
"""PG has a better form, and RFWO takes ten times as long as the others."""
FEWER = {"MSE", "SPO+", "DBB", "PFY", "I-MLE", "perturbed direct", "direct, negative", "direct, central"}
"""The methods for pictures."""


def notebook_settings(method: str, unit: float) -> Settings:
    """Return the settings of PyEPO's notebook; noise and regularization are multiples of the unit."""
    settings = {"rate": 0.01}
    if method in ("DPO", "PFY", "I-MLE", "AI-MLE"):
        settings["sigma"] = 1.0 / unit
    lambd = {"I-MLE": 10.0, "DBB": 20.0, "RFWO": 1.0 / unit}
    if method in lambd:
        settings["lambd"] = lambd[method]
    return settings | ({"step": 0.1} if method.startswith("PG") else {})


def all_settings(library: str, method: str, problem: str) -> list[Settings]:
    """Return the settings that are tried."""
    # The noise of I-MLE and AI-MLE takes as long as the rest, so fewer settings of these are tried.
    axes: dict[str, tuple[float, ...]] = {"rate": (0.01,) if method in ("I-MLE", "AI-MLE") else (0.01, 0.03)}
    if method in ("DPO", "PFY", "perturbed optimizer"):
        axes["sigma"] = (0.3, 1.0, 3.0)
    elif method in ("I-MLE", "AI-MLE", "perturbed direct"):
        axes["sigma"] = (0.3, 1.0) if method != "I-MLE" else (1.0,)
    if library == "taskloss":
        if method in ("I-MLE", "perturbed direct"):
            axes["epsilon"] = (3.0, 30.0)
        elif method.startswith("direct"):
            axes["epsilon"] = (1.0, 3.0, 10.0, 30.0)
    elif method == "I-MLE":
        axes["lambd"] = (100.0, 3000.0)
    elif method == "DBB":
        axes["lambd"] = (30.0, 100.0, 300.0, 1000.0)
    elif method.startswith("PG"):
        axes["step"] = (1.0, 3.0, 10.0, 30.0)
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


# --- runs -------------------------------------------------------------------------------------------------------------------


def run_once(problem_name: str, library: str, method: str, settings: Settings, seed: int) -> Record:
    """Train one network; return its test regret and the CPU seconds of an epoch."""
    problem = make_problem(problem_name, seed)
    criterion = (make_theirs if library == "PyEPO" else make_ours)(method, problem, settings, seed)
    network, seconds = train(problem, criterion, settings["rate"], seed)
    return {"regret": problem.test_regret(network), "epoch": seconds}


def train(problem: Problem, criterion: Criterion, rate: float, seed: int) -> tuple[nn.Module, float]:
    """Return a trained network, and the median CPU seconds of an epoch."""
    costs = problem.costs[: problem.training]
    answers = problem.solve(costs)
    values = (costs * answers).sum(1, keepdim=True)
    torch.manual_seed(seed)
    network = problem.make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    seconds = []
    for _ in range(problem.epochs):
        start = time.process_time()
        for rows in torch.randperm(problem.training).split(problem.batch):
            loss = criterion(network(problem.inputs[rows]), costs[rows], answers[rows], values[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds.append(time.process_time() - start)
    return network, statistics.median(seconds)


class Table:
    """The runs of one problem."""

    def __init__(self, cells: Cells, problem: str) -> None:
        self.cells, self.problem = cells, problem

    def run(self, library: str, method: str, settings: Settings, seeds: tuple[int, ...]) -> list[Record]:
        """Return a record for each seed."""
        cell = {"problem": self.problem, "library": library, "method": method, "settings": settings}
        return [
            self.cells.run({**cell, "seed": seed}, lambda seed=seed: run_once(self.problem, library, method, settings, seed))
            for seed in seeds
        ]

    def choose(self, library: str, method: str) -> Settings:
        """Return the settings of the lowest mean regret on the seeds of tuning."""
        candidates = all_settings(library, method, self.problem)
        return min(
            candidates,
            key=lambda settings: statistics.mean(run["regret"] for run in self.run(library, method, settings, TUNING_SEEDS)),
        )

    def rows(self) -> Iterator[tuple[str, Record]]:
        """Yield a title and a summary for each row."""
        if self.problem == "path":
            for method in THEIRS:
                runs = [
                    self.run("PyEPO", method, notebook_settings(method, make_problem("path", seed).unit), (seed,))[0]
                    for seed in SEEDS
                ]
                yield f"PyEPO, {method}, notebook", summarize(runs)
        for library, methods in (("PyEPO", THEIRS), ("taskloss", OURS)):
            for method in methods:
                if (library == "PyEPO" and method in NOTEBOOK_ONLY) or (self.problem == "terrain" and method not in FEWER):
                    continue
                runs = self.run(library, method, self.choose(library, method), SEEDS[:3] if self.problem == "terrain" else SEEDS)
                yield f"{library}, {method}", {**summarize(runs), "settings": runs[0]["settings"]}


def summarize(runs: list[Record]) -> Record:
    """Return mean and spread of the regrets, and the mean seconds of an epoch."""
    regrets = [run["regret"] for run in runs]
    return {
        "regret": statistics.mean(regrets),
        "over_seeds": statistics.stdev(regrets),
        "epoch": statistics.mean(run["epoch"] for run in runs),
    }


def print_solvers() -> None:
    """Print the times of PyEPO with our solvers and its own for OR-Tools, and of SPO+ in one and two processes."""
    for name in ("path", "knapsack"):
        problem = make_problem(name, 0)._replace(epochs=2)
        models: dict[str, Any] = {"TasklossModel": make_model(problem)}
        with contextlib.suppress(ImportError):
            from pyepo.model import ort

            weights = pyepo.data.knapsack.genData(1, 5, 32, dim=2, deg=4, noise_width=0.5, seed=0)[0]
            own = ort.shortestPathModel((5, 5)) if name == "path" else ort.knapsackModel(weights, [20.0, 20.0])
            models["OR-Tools"] = own
        for title, model in models.items():
            for method in ("SPO+", "PFY"):
                seconds = train(problem, make_theirs(method, problem, {"sigma": 1.0}, 0, model), 0.01, 0)[1]
                print(f"{name}, PyEPO, {method:<5} {title:<14} {1000 * seconds:8.0f} ms per epoch", flush=True)
    problem = make_problem("path", 0)
    model = make_model(problem)
    with contextlib.redirect_stderr(io.StringIO()):  # Progress bars.
        data = optDataset(model, problem.inputs[:992].numpy(), problem.costs[:992].numpy())
    network = problem.make_network()
    for processes in (1, 2):
        loss = pyepo.func.SPOPlus(model, processes=processes)
        for first in (True, False):  # The first round starts the processes.
            start, cpu = time.perf_counter(), time.process_time()
            for rows in torch.arange(992).split(32):
                loss(network(data.feats[rows]), data.costs[rows], data.sols[rows], data.objs[rows]).backward()
            if not first:
                wall, cpu = time.perf_counter() - start, time.process_time() - cpu
                print(
                    f"path, SPO+, epoch in {processes} processes: {wall:.3f} s wall time, {cpu:.3f} s CPU of the first one",
                    flush=True,
                )


def print_sizes(cells: Cells) -> None:
    """Print the regret of ``path`` with fewer and with more instances of training, at the settings of the table."""
    for library, method in (("PyEPO", "MSE"), ("taskloss", "SPO+"), ("taskloss", "PFY"), ("taskloss", "direct, central")):
        settings = Table(cells, "path").choose(library, method)
        for training in SIZES:
            row = summarize(Table(cells, f"path {training}").run(library, method, settings, SEEDS))
            print(f"{method:<16} {training:>5} data {row['regret']:7.2f} +- {row['over_seeds']:.2f}", flush=True)


def main() -> None:
    """Run what is not known yet and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--output", type=Path, help="JSON file for the tables; the runs are kept beside it, in a .jsonl file")
    parser.add_argument("--solvers", action="store_true", help="print the times of solvers and processes instead")
    parser.add_argument("--sizes", action="store_true", help="print the regret of four methods by the number of data instead")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "the gradient of this loss is zero", UserWarning)
    if arguments.solvers:
        print_solvers()
        return
    start = time.perf_counter()
    cells = Cells(arguments.output.with_suffix(".jsonl") if arguments.output else None)
    if arguments.sizes:
        print_sizes(cells)
        return
    summary: dict[str, Record] = {}
    for problem in arguments.problems:
        for title, row in Table(cells, problem).rows():
            summary[f"{problem}, {title}"] = row
            print(
                f"{problem}, {title:<34} {row['regret']:7.2f} +- {row['over_seeds']:.2f}  {1000 * row['epoch']:8.1f} ms"
                f"  {row.get('settings', '')}",
                flush=True,
            )
    cells.write_summary(arguments.output, summary)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
