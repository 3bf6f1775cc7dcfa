"""Training on the metric programs: each loss of ``tl.lp`` against cross-entropy, by the loss's own metric, on imbalanced tables.

The same net (two hidden layers of 64 ReLU units, features made normal by their quantiles) is trained full batch by AdamW with
either loss, at most 200 steps. Of each set, 40% of the rows are the test set, and 30% of the rest are for validation. The metric
on the validation rows stops each run, and picks one of four settings for each method, set and seed. F-score, Jaccard and the
accuracy in which a positive counts as ten negatives need a threshold: the best one on the validation rows, for both methods.
The other metrics are metrics of rankings.

    pip install -e '.[cli,estimators]'
    python -m benchmarks.lp_losses --data FOLDER --output lp_losses.json

FOLDER holds the sets as ``.npz`` (or in ``tabular/``): X (n, d), y. With ``--output``, finished runs are kept beside it in a
``.jsonl`` file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.cells import Cells, Record
from benchmarks.fscore import read_set
from benchmarks.splits import Split, cross_entropy, split_samples
from torch import Tensor, nn

import taskloss as tl
from taskloss.training import Criterion, TrainingSettings, build_mlp, train

BINARY_SETS = ("bin_annthyroid", "bin_mammography", "bin_pageblocks", "bin_wilt", "keel_yeast4")
CLASS_SETS = ("mc_glass", "mc_newthyroid", "mc_pageblocks", "mc_yeast")
ITERATIONS, PATIENCE = 200, 50
BOUND = 0.8

Settings = dict[str, Any]
Metric = Callable[[Tensor, Tensor], float]


class Ratio(NamedTuple):
    """A metric of labels: the coefficients of tp, fp, fn, tn in its numerator and its denominator."""

    numerator: tuple[float, float, float, float]
    denominator: tuple[float, float, float, float]

    def of(self, *counts: Any) -> Any:
        """Return the ratio for confusion counts tp, fp, fn, tn, scalars or arrays."""
        numerator, denominator = (sum(c * count for c, count in zip(part, counts, strict=True)) for part in self)
        return numerator / denominator

    def at(self, threshold: float, scores: Tensor, target: Tensor) -> float:
        """Return the ratio when scores above the threshold are predicted positive."""
        predicted, positive = scores > threshold, target > 0
        pairs = ((predicted, positive), (predicted, ~positive), (~predicted, positive), (~predicted, ~positive))
        return float(self.of(*(int((first & second).sum()) for first, second in pairs)))

    def best(self, scores: Tensor, target: Tensor) -> tuple[float, float]:
        """Return the highest value that a threshold reaches, and the threshold: halfway between two scores, or below all.

        >>> F1.best(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1, 0, 1, 0]))
        (0.8, 1.5)
        """
        values = scores.double().numpy()
        order = np.argsort(-values, kind="stable")
        ranked, tp = values[order], np.cumsum(target.numpy()[order])
        fp = np.arange(1, len(tp) + 1) - tp
        reached = self.of(tp, fp, tp[-1] - tp, fp[-1] - fp)
        below = np.append(ranked[1:], ranked[-1] - 1)
        reached[ranked == below] = -1  # Equal scores stay on one side.
        best = int(np.argmax(reached))
        return float(reached[best]), float((ranked[best] + below[best]) / 2)


F1 = Ratio((2, 0, 0, 0), (2, 1, 1, 0))
JACCARD = Ratio((1, 0, 0, 0), (1, 1, 1, 0))
WEIGHTED = Ratio((10, 0, 0, 1), (10, 1, 10, 1))
"""Accuracy in which a positive counts as ten negatives."""


@dataclass(frozen=True)
class Contest:
    """A loss and the metric it is made for: a metric of rankings, or a ``Ratio`` of labels."""

    metric: Metric | Ratio
    make: Callable[..., Criterion]
    grid: dict[str, tuple[Any, ...]]
    """Settings of the loss other than the learning rate."""
    sets: tuple[str, ...] = BINARY_SETS


CONTESTS = {
    "AUC, hinge": Contest(tl.metrics.roc_auc_score, tl.lp.AUCLoss, {"margin": (0.3, 1.0)}),
    "AUC, ramp": Contest(tl.metrics.roc_auc_score, functools.partial(tl.lp.AUCLoss, form="ramp"), {"margin": (0.3, 1.0)}),
    "F1": Contest(F1, tl.lp.FScoreLoss, {"margin": (0.25, 0.5)}),
    "F1, no margin": Contest(F1, tl.lp.FScoreLoss, {"margin": (0.0,)}),
    "Jaccard": Contest(JACCARD, tl.lp.JaccardLoss, {"margin": (0.25, 0.5)}),
    "weighted accuracy": Contest(WEIGHTED, functools.partial(tl.lp.RatioLoss, *WEIGHTED), {"margin": (0.25, 0.5)}),
    f"precision at recall {BOUND}": Contest(
        lambda scores, target: float(tl.metrics.precision_at_recall_score(scores, target, recall=BOUND)),
        functools.partial(tl.lp.PrecisionAtRecallLoss, BOUND),
        {"margin": (0.25, 0.5)},
    ),
    f"recall at precision {BOUND}": Contest(
        lambda scores, target: float(tl.metrics.recall_at_precision_score(scores, target, precision=BOUND)),
        functools.partial(tl.lp.RecallAtPrecisionLoss, BOUND),
        {"margin": (0.25, 0.5)},
    ),
    "AUC-mu": Contest(tl.metrics.auc_mu_score, tl.lp.MultiClassAUCLoss, {"margin": (0.3, 1.0)}, CLASS_SETS),
    "one-vs-all AUC": Contest(
        tl.metrics.one_vs_rest_auc_score,
        functools.partial(tl.lp.MultiClassAUCLoss, "one_vs_all"),
        {"margin": (0.3, 1.0)},
        CLASS_SETS,
    ),
}
METHODS = ("program", "cross-entropy")


def all_settings(contest: Contest, method: str) -> list[Settings]:
    """Return every setting that is tried."""
    grid: dict[str, tuple[Any, ...]] = {"learning_rate": (0.003, 0.01)}
    grid |= contest.grid if method == "program" else {"weight_decay": (0.01, 1.0)}
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def build_net(split: Split, seed: int) -> nn.Module:
    """Return a net with one score per sample, or one per class."""
    features, classes = split.training.features.shape[1], int(split.training.target.max()) + 1
    net = build_mlp(features, seed=seed)
    if classes == 2:
        return net
    *body, last, _ = net
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(*body, nn.Linear(last.in_features, classes))


def run_once(contest: Contest, method: str, settings: Settings, split: Split, seed: int, iterations: int) -> Record:
    """Train one net and return its metric on the validation and on the test rows."""
    net = build_net(split, seed)
    options = dict(settings)
    budget = TrainingSettings(
        iterations=iterations,
        patience=PATIENCE,
        learning_rate=options.pop("learning_rate"),
        weight_decay=options.pop("weight_decay", 0.01),
    )
    baseline = cross_entropy if contest.sets is BINARY_SETS else nn.functional.cross_entropy
    criterion = contest.make(**options) if method == "program" else baseline
    parts = split.training, split.validation
    metric = contest.metric
    watched = (lambda scores, target: metric.best(scores, target)[0]) if isinstance(metric, Ratio) else metric
    result = train(net, criterion, *parts, settings=budget, metric=watched, seed=seed)
    with torch.no_grad():
        scores, validation = net(split.test.features).double(), net(split.validation.features)
    if isinstance(metric, Ratio):
        test = metric.at(metric.best(validation, split.validation.target)[1], scores, split.test.target)
    else:
        test = metric(scores, split.test.target)
    return {"validation": result.best_metric, "test": float(test), "steps": result.best_iteration}


def best_run(contest: Contest, name: str, method: str, seed: int, run: Callable[..., Record]) -> Record:
    """Return the run with the settings that are best on the validation rows."""
    return max(
        (run(method, settings, seed) for settings in all_settings(contest, method)), key=lambda record: record["validation"]
    )


def print_table(title: str, summary: dict[str, dict[str, list[float]]]) -> None:
    """Print the means over seeds of each set, then the paired difference over sets."""
    print(f"\n{title:<28}" + "".join(f"{method:>16}" for method in METHODS) + f"{'difference':>20}")
    gaps = []
    for name, row in summary.items():
        means = [statistics.mean(row[method]) for method in METHODS]
        paired = [a - b for a, b in zip(*(row[method] for method in METHODS), strict=True)]
        gaps.append(statistics.mean(paired))
        error = f" +- {statistics.stdev(paired) / len(paired) ** 0.5:.4f}" if len(paired) > 1 else ""
        print(f"{name:<28}" + "".join(f"{mean:>16.4f}" for mean in means) + f"{gaps[-1]:+.4f}{error}".rjust(20))
    means = [statistics.mean(statistics.mean(row[method]) for row in summary.values()) for method in METHODS]
    error = f" +- {statistics.stdev(gaps) / len(gaps) ** 0.5:.4f}" if len(gaps) > 1 else ""
    mean_gap = f"{statistics.mean(gaps):+.4f}{error}"
    print(f"{'mean':<28}" + "".join(f"{mean:>16.4f}" for mean in means) + mean_gap.rjust(20), end="")
    print(f"   higher on {sum(gap > 0 for gap in gaps)} of {len(gaps)}")


def find_data(folder: Path) -> Path:
    """Return the folder of the sets, given that folder or the one above it."""
    for path in (folder, folder / "tabular"):
        if all((path / f"{name}.npz").is_file() for name in (*BINARY_SETS, *CLASS_SETS)):
            return path
    raise SystemExit(
        f"--data {folder}: expected a folder that holds {', '.join((*BINARY_SETS, *CLASS_SETS))} as .npz, or tabular/"
    )


def main() -> None:
    """Run every contest, print the tables and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the sets, or tabular/ with them")
    parser.add_argument("--seeds", type=int, default=3, help="splits, each with its own initial net")
    parser.add_argument("--output", type=Path, help="JSON file for the tables and records")
    parser.add_argument("--quick", action="store_true", help="one small set per contest, few steps, one seed: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    folder = find_data(arguments.data)
    seeds, iterations = (1, 3) if arguments.quick else (arguments.seeds, ITERATIONS)
    cells = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    make = functools.lru_cache(maxsize=8)(lambda name, seed: split_samples(*read_set(folder, name), seed))
    summaries: dict[str, dict[str, dict[str, list[float]]]] = {}
    for title, contest in CONTESTS.items():
        summary: dict[str, dict[str, list[float]]] = {}
        for name in contest.sets[-1:] if arguments.quick else contest.sets:

            def run(method: str, settings: Settings, seed: int, name: str = name, title: str = title) -> Record:
                metric = title.split(",")[0]
                # Cross-entropy does not know which form of a program it is compared with.
                label = title if method == "program" else metric
                cell = {
                    "contest": label,
                    "set": name,
                    "method": method,
                    "settings": settings,
                    "seed": seed,
                    "iterations": iterations,
                }
                contest = CONTESTS[title]
                return cells.run(cell, lambda: run_once(contest, method, settings, make(name, seed), seed, iterations))

            records = {method: [best_run(contest, name, method, seed, run) for seed in range(seeds)] for method in METHODS}
            summary[name] = {method: [record["test"] for record in mine] for method, mine in records.items()}
        summaries[title] = summary
        print_table(title, summary)
    print(f"\n{time.perf_counter() - start:.0f} s in all")
    cells.write_summary(arguments.output, summaries)


if __name__ == "__main__":
    main()
