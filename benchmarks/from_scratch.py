"""Which update trains a fresh network: steps without a gradient, and the final metric, for every task and update.

A small network is trained by Adam from its random initial weights, without a warm-up, on mini-batches. A step counts as *zero*
if the gradient of the loss is zero for all scores of its batch although the metric of the batch is below 1. The metric is that
of the task, on test samples with clean labels; labels are predicted at score 0, as the loss does. There are five problems:

- ``segmentation``: 200 images of 32 x 32 pixels with noise and a bright ellipse (4 to 10% of the pixels), one labeling per
  image, three convolutions, 150 steps of 16 images;
- ``table``: the Page Blocks data (9.5% positive), two hidden layers of 64 units, 380 steps of 128 rows; one ranking or labeling
  per batch;
- ``queries``: 300 queries of 20 documents with graded relevance, one ranking per query, 200 steps of 32 queries;
- ``classes``: the digits of scikit-learn (8 x 8 pixels, ten classes), 250 steps of 64 images;
- ``structure``: matchings of two views of eight points, 300 steps of 32 instances.

Conditions: ``clean`` labels; ``flips``, where 20% of the training labels are replaced by another one (a class or a relevance by
a random other one, a matching by a random one); and for 0/1 labels ``swaps``, where 20% of the positives become negative and as
many negatives positive, so that the share of positives stays. Flips leave more wrong positives than right ones where positives
are rare, and the F-score of such labels is best where nearly everything is called positive.

Methods: the direct loss with each update, the structured hinge, the linear program where the task has one, and cross-entropy.
Each runs with the learning rates 0.001 and 0.01; the one with the higher mean metric of the training samples, with their labels
as given, is reported, mean over the seeds.

    pip install -e '.[cli,estimators]'
    python -m benchmarks.from_scratch --output from_scratch.json

Finished runs are kept beside the output in a ``.jsonl`` file, and a second call goes on from there. All of it took 100 minutes
on a busy machine; ``--problems segmentation`` runs one problem, ``--tasks f_score`` one task.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.cells import Cells, Record
from benchmarks.fscore import corrupt
from benchmarks.splits import cross_entropy, split_samples
from rich.progress import Progress
from torch import Tensor, nn

import taskloss as tl
from taskloss.datasets import load_page_blocks
from taskloss.estimators.methods import LOSSES_BY_METHOD
from taskloss.training import build_mlp

NOISE = 0.2
RATES = (0.001, 0.01)
CONDITIONS = ("clean", "flips", "swaps")
UPDATES = ("positive", "negative", "central")

Criterion = Callable[[Tensor, Tensor], Tensor]


class Samples(NamedTuple):
    """Inputs of a network and their target."""

    inputs: Tensor
    target: Tensor


@dataclass(frozen=True)
class Problem:
    """Data, network and budget that all tasks of a problem share."""

    tasks: dict[str, tl.Task]
    make_data: Callable[[int], tuple[Samples, Samples]]
    """Training and test samples of a seed."""
    add_noise: Callable[[Tensor, str, np.random.Generator], Tensor]
    build: Callable[[int], nn.Module]
    """The network of a seed."""
    cross_entropy: Criterion
    steps: int
    batch: int
    conditions: tuple[str, ...] = CONDITIONS
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the losses."""


# --- problems -----------------------------------------------------------------------------------------------------------------


def make_images(count: int, seed: int) -> Samples:
    """Return images ``(count, 32, 32)`` with one bright ellipse each, and its mask."""
    rng = np.random.default_rng(seed)
    grid = np.arange(32)
    centre, radius = rng.uniform(8, 24, (2, count, 1, 1)), rng.uniform(3.5, 6, (2, count, 1, 1))
    inside = ((grid[:, None] - centre[0]) / radius[0]) ** 2 + ((grid - centre[1]) / radius[1]) ** 2 < 1
    images = inside + rng.standard_normal(inside.shape)
    return Samples(torch.tensor(images, dtype=torch.float32), torch.tensor(inside, dtype=torch.int64))


def build_segmenter(seed: int) -> nn.Module:
    """Return a network from images to one score per pixel."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 1, 1)]
    return nn.Sequential(nn.Unflatten(1, (1, 32)), *layers, nn.Flatten(1, 2))


def make_table(seed: int) -> tuple[Samples, Samples]:
    """Return the training and test samples of the Page Blocks data."""
    split = split_samples(*load_page_blocks(), seed)
    return Samples(*split.training[:2]), Samples(*split.test[:2])


def make_queries(count: int, seed: int) -> Samples:
    """Return features ``(count, 20, 8)`` of documents, and their relevance, 0 to 3, in which high grades are rare."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((count, 20, 8))
    teacher = np.random.default_rng(99).standard_normal((2, 8))
    latent = features @ teacher[0] + np.abs(features @ teacher[1]) + rng.standard_normal((count, 20))
    grades = np.searchsorted(np.quantile(latent, [0.7, 0.85, 0.95]), latent)
    return Samples(torch.tensor(features, dtype=torch.float32), torch.tensor(grades))


def make_digits(seed: int) -> tuple[Samples, Samples]:
    """Return training and test samples of the digits."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    features, target = load_digits(return_X_y=True)
    parts = train_test_split(features / 8 - 1, target, test_size=0.4, stratify=target, random_state=seed)
    x, test_x = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    return Samples(x, torch.tensor(parts[2])), Samples(test_x, torch.tensor(parts[3]))


def make_matchings(count: int, seed: int) -> Samples:
    """Return two views ``(count, 2, 8, 4)`` of eight points, the second in another order, and the true matchings."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 8, 4, generator=generator)
    camera = torch.randn(4, 4, generator=torch.Generator().manual_seed(99))
    order = torch.rand(count, 8, generator=generator).argsort(1)
    seen = torch.tanh(points @ camera) + 0.2 * torch.randn(points.shape, generator=generator)
    seen = seen.gather(1, order[..., None].expand_as(seen))
    return Samples(torch.stack([points, seen], 1), nn.functional.one_hot(order, 8).transpose(1, 2))


class Matcher(nn.Module):
    """Two embeddings, and their inner product as the score of each pair of points."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.views = nn.ModuleList(build_mlp(4, hidden=(32,), outputs=16, seed=2 * seed + view) for view in range(2))

    def forward(self, pairs: Tensor) -> Tensor:
        """Return scores ``(count, 8, 8)``."""
        return self.views[0](pairs[:, 0]) @ self.views[1](pairs[:, 1]).transpose(1, 2)


def add_binary_noise(target: Tensor, condition: str, rng: np.random.Generator) -> Tensor:
    """Return 0/1 labels of any shape with the noise of the condition."""
    return corrupt(target.flatten(), condition, rng).reshape(target.shape)


def add_class_noise(target: Tensor, condition: str, rng: np.random.Generator) -> Tensor:
    """Return class indices or grades, of which the condition ``flips`` replaces a share by another one."""
    if condition == "clean":
        return target
    values = int(target.max()) + 1
    shift = torch.tensor(rng.integers(1, values, target.shape) * (rng.random(target.shape) < NOISE))
    return (target + shift) % values


def add_matching_noise(target: Tensor, condition: str, rng: np.random.Generator) -> Tensor:
    """Return matchings, of which the condition ``flips`` replaces a share by random ones."""
    if condition == "clean":
        return target
    points = target.shape[1]
    random = nn.functional.one_hot(torch.tensor(rng.random(target.shape[:2]).argsort(1)), points)
    return torch.where(torch.tensor(rng.random(len(target)) < NOISE)[:, None, None], random, target)


def _of_kind(*kinds: str, **changed: tl.Task) -> dict[str, tl.Task]:
    """Return the registered tasks with these kinds of target, some with other settings."""
    tasks = {name: cls() for name, cls in tl.tasks.registered().items() if cls.target_kind in kinds}
    return {name: changed.get(name, task) for name, task in tasks.items()}


PROBLEMS: dict[str, Problem] = {
    "segmentation": Problem(
        {"jaccard": tl.Jaccard(), "dice": tl.Dice()},
        lambda seed: (make_images(200, 2 * seed), make_images(200, 2 * seed + 1)),
        add_binary_noise,
        build_segmenter,
        cross_entropy,
        steps=150,
        batch=16,
    ),
    "table": Problem(
        # The first 5% of a batch and of the test set, instead of ten samples of either.
        _of_kind("binary", "labels", precision_at_k=tl.PrecisionAtK(0.05), recall_at_k=tl.RecallAtK(0.05)),
        make_table,
        add_binary_noise,
        lambda seed: build_mlp(10, seed=seed),
        cross_entropy,
        steps=380,
        batch=128,
    ),
    "queries": Problem(
        _of_kind("graded"),
        lambda seed: (make_queries(300, 2 * seed), make_queries(300, 2 * seed + 1)),
        add_class_noise,
        lambda seed: nn.Sequential(*build_mlp(8, outputs=1, seed=seed), nn.Flatten(1)),
        lambda scores, target: cross_entropy(scores, target > 0),
        steps=200,
        batch=32,
        conditions=("clean", "flips"),
        options={"dim": 1},
    ),
    "classes": Problem(
        {
            "multi_class": tl.MultiClass(),
            "multi_class, |i - j| / 9": tl.MultiClass([[abs(i - j) / 9 for j in range(10)] for i in range(10)]),
            "top_k_error, k=2": tl.TopKError(2),
        },
        make_digits,
        add_class_noise,
        lambda seed: build_mlp(64, outputs=10, seed=seed),
        nn.functional.cross_entropy,
        steps=250,
        batch=64,
        conditions=("clean", "flips"),
    ),
    "structure": Problem(
        {"structured": tl.Structured(tl.solvers.Assignment(), batched=True)},
        lambda seed: (make_matchings(500, 2 * seed), make_matchings(300, 2 * seed + 1)),
        add_matching_noise,
        Matcher,
        lambda scores, target: nn.functional.cross_entropy(scores.flatten(0, 1), target.argmax(-1).flatten()),
        steps=300,
        batch=32,
        conditions=("clean", "flips"),
    ),
}


# --- methods ------------------------------------------------------------------------------------------------------------------


def make_criteria(task: tl.Task, problem: Problem) -> dict[str, Criterion]:
    """Return the losses that apply to a task, by the name of the method."""
    criteria: dict[str, Criterion] = {
        **{update: tl.DirectLoss(task, update=update, **problem.options) for update in UPDATES},
        "hinge": tl.StructuredHingeLoss(task, **problem.options),
        "cross-entropy": problem.cross_entropy,
    }
    with contextlib.suppress(ValueError):  # of tasks without a linear program
        criteria["linear program"] = LOSSES_BY_METHOD["lp"](task, 1.0)
    return criteria


def run_once(problem: Problem, task: tl.Task, criterion: Criterion, condition: str, rate: float, seed: int) -> Record:
    """Train one network; return its zero steps and its metric on training and test samples."""
    training, test = problem.make_data(seed)
    target = problem.add_noise(training.target, condition, np.random.default_rng(seed))
    net = problem.build(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    score = functools.partial(task.score, **problem.options)
    zero = 0
    for _ in range(problem.steps):
        rows = torch.randperm(len(target), generator=generator)[: problem.batch]
        scores = net(training.inputs[rows])
        optimizer.zero_grad()
        (gradient,) = torch.autograd.grad(criterion(scores, target[rows]), scores, retain_graph=True)
        if not gradient.any():
            zero += bool(score(scores.detach(), target[rows]) < 1)
        scores.backward(gradient)
        optimizer.step()
    with torch.no_grad():
        seen, new = (net(part) for part in (training.inputs, test.inputs))
    return {"zero": zero, "steps": problem.steps, "training": score(seen, target), "test": score(new, test.target)}


def summarize(records: list[Record]) -> Record:
    """Return the means over the seeds at the learning rate with the higher mean training metric."""
    by_rate = [[record for record in records if record["rate"] == rate] for rate in RATES]
    best = max(by_rate, key=lambda runs: statistics.mean(run["training"] for run in runs))
    values = [run["test"] for run in best]
    return {
        "rate": best[0]["rate"],
        "zero": round(statistics.mean(run["zero"] for run in best)),
        "steps": best[0]["steps"],
        "test": statistics.mean(values),
        "over_seeds": statistics.stdev(values) if len(values) > 1 else None,
    }


def print_table(summary: dict[str, dict[str, Record]]) -> None:
    """Print one row per problem, task and condition, and for each method the test metric and the zero steps."""
    methods = (*UPDATES, "hinge", "linear program", "cross-entropy")
    print(f"{'test metric in % (zero steps)':<46}" + "".join(f"{method:>16}" for method in methods))
    for title, row in summary.items():
        cells = [f"{100 * row[m]['test']:.1f} ({row[m]['zero']})" if m in row else "" for m in methods]
        print(f"{title:<46}" + "".join(f"{cell:>16}" for cell in cells))


def main() -> None:
    """Run every problem, task, condition and method; print the table and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--tasks", nargs="+", help="names of tasks (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="JSON file for the table and the records")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    cells = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    rows = [
        (name, task_name, condition)
        for name in arguments.problems
        for task_name in PROBLEMS[name].tasks
        for condition in PROBLEMS[name].conditions
        if not arguments.tasks or task_name in arguments.tasks
    ]
    summary: dict[str, dict[str, Record]] = {}
    with Progress() as progress:
        bar = progress.add_task("", total=len(rows))
        for name, task_name, condition in rows:
            problem, title = PROBLEMS[name], f"{name}, {task_name}, {condition}"
            progress.update(bar, description=title)
            task = problem.tasks[task_name]
            summary[title] = {}
            for method, criterion in make_criteria(task, problem).items():
                records = []
                for rate in RATES:
                    for seed in range(arguments.seeds):
                        cell = {"problem": name, "task": task_name, "condition": condition, "method": method}
                        make = functools.partial(run_once, problem, task, criterion, condition, rate, seed)
                        records.append(cells.run({**cell, "rate": rate, "seed": seed}, make))
                summary[title][method] = summarize(records)
            progress.advance(bar)
    print_table(summary)
    print(f"{time.perf_counter() - start:.0f} s in all")
    cells.write_summary(arguments.output, summary)


if __name__ == "__main__":
    main()
