"""Imbalanced binary classification: test F1 of direct F1 against cross-entropy, on clean and on noisy labels.

The same net (two hidden layers of 64 ReLU units, features made normal by their quantiles) is trained full batch by AdamW with
either loss, at most 300 steps. Of each set, 40% of the rows are the test set, and 30% of the rest are for validation. Validation
F1, at the threshold that is best for it, stops each run, and that threshold is used on the test set, for both losses. There are
three conditions:

- ``clean``: the labels as they are;
- ``flips``: 20% of the training and validation labels are flipped, whatever their class. Where positives are rare, most labels
  that say positive are then wrong, and F1 of such labels is highest where nearly everything is called positive;
- ``swaps``: 20% of the positives become negative and as many negatives positive, so that the share of positives stays.

The test labels are never changed.

Direct F1 begins with 50 of its 300 steps on cross-entropy, since from a fresh net its first steps often call all samples
negative or all positive. Then the bias is moved so that score 0 is the threshold with the best training F1: after
cross-entropy, all of the rare positives may have scores below 0, where there is no true positive and so no gradient from the
positive update. A new optimizer takes the remaining steps, because the moments that AdamW collected from the smaller gradients
of cross-entropy would make the first steps of direct F1 too large. Only these later steps are candidates for the weights that
are kept.

The settings (eight for each loss) are chosen once per condition by the validation F1, mean over three of the sets and two
seeds; the table gives means over all sets and over the sets that were not used for the choice. Sets of more than 10,000 rows
are cut to a random 10,000 first.

    pip install -e '.[cli,estimators]'
    python -m benchmarks.fscore --data FOLDER --output fscore.json

FOLDER holds the sets, ``bin_*.npz`` and ``keel_*.npz`` (or in ``tabular/``): X (n, d), y 0/1. With ``--output``, finished runs
are kept beside it in a ``.jsonl`` file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.cells import Cells, Record
from benchmarks.splits import Split, cross_entropy, split_samples
from rich.progress import Progress
from torch import Tensor, nn

import taskloss as tl
from taskloss.training import Criterion, TrainingData, TrainingSettings, build_mlp, train

NAMES = (
    *("bin_adult", "bin_annthyroid", "bin_mammography", "bin_pageblocks", "bin_pendigits", "bin_satimage2", "bin_shuttle"),
    *("bin_thyroid", "bin_wilt", "keel_ecoli3", "keel_pima", "keel_winequality_white_3_vs_7", "keel_yeast4"),
)
CHOOSING = ("bin_wilt", "keel_pima", "keel_yeast4")
CHOOSING_SEEDS = 2
CONDITIONS = ("clean", "flips", "swaps")
NOISE = 0.2
MOST_ROWS = 10_000
ITERATIONS, PATIENCE = 300, 75
WARM_UP, WARM_UP_RATE = 50, 0.01

Settings = dict[str, Any]


METHODS = ("direct F1", "cross-entropy")
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "direct F1": {
        **{"learning_rate": (0.003, 0.01), "weight_decay": (0.01,)},
        **{"epsilon": (1.0, 3.0), "update": ("positive", "negative")},
    },
    "cross-entropy": {"learning_rate": (0.001, 0.003, 0.01, 0.03), "weight_decay": (0.01, 1.0)},
}


def all_settings(method: str) -> list[Settings]:
    """Return every setting of the grid of a method."""
    return [dict(zip(GRIDS[method], values, strict=True)) for values in itertools.product(*GRIDS[method].values())]


def find_data(folder: Path) -> Path:
    """Return the folder of the sets, given that folder or the one above it."""
    for path in (folder, folder / "tabular"):
        if all((path / f"{name}.npz").is_file() for name in NAMES):
            return path
    raise SystemExit(
        f"--data {folder}: expected a folder that holds {NAMES[0]}.npz and the other {len(NAMES) - 1} sets, or tabular/"
    )


def read_set(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read features and labels, at most ``MOST_ROWS`` rows."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        features, target = file["X"].astype(np.float64), file["y"].astype(np.int64)
    rows = np.random.default_rng(0).permutation(len(target))[:MOST_ROWS]
    return features[rows], target[rows]


def corrupt(target: Tensor, condition: str, rng: np.random.Generator) -> Tensor:
    """Return the labels of a condition.

    >>> target = torch.tensor([1] * 10 + [0] * 90)
    >>> [int((corrupt(target, condition, np.random.default_rng(0)) != target).sum()) for condition in CONDITIONS]
    [0, 20, 4]
    """
    if condition == "clean":
        return target
    flipped = target.numpy().copy()
    if condition == "flips":
        chosen = rng.permutation(len(flipped))[: round(NOISE * len(flipped))]
    else:
        positives, negatives = (rng.permutation(np.flatnonzero(flipped == label)) for label in (1, 0))
        count = round(NOISE * len(positives))
        chosen = np.concatenate([positives[:count], negatives[:count]])
    flipped[chosen] = 1 - flipped[chosen]
    return torch.from_numpy(flipped)


def make_split(data: tuple[np.ndarray, np.ndarray], condition: str, seed: int) -> Split:
    """Split the samples by a seed, and corrupt the training and validation labels as the condition says."""
    training, validation, test = split_samples(*data, seed)
    rng = np.random.default_rng(seed)
    noisy = [TrainingData(part.features, corrupt(part.target, condition, rng)) for part in (training, validation)]
    return Split(*noisy, test)


def best_threshold(scores: Tensor, target: Tensor) -> tuple[float, float]:
    """Return the highest F1 that a threshold reaches, and the threshold: halfway between two scores, or below all of them.

    >>> best_threshold(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1, 0, 1, 0]))
    (0.8, 1.5)
    """
    values, order = scores.double().numpy(), np.argsort(-scores.double().numpy(), kind="stable")
    ranked, hits = values[order], np.cumsum(target.numpy()[order])
    f1 = 2 * hits / (np.arange(1, len(hits) + 1) + hits[-1])
    below = np.append(ranked[1:], ranked[-1] - 1)
    f1[ranked == below] = -1  # Equal scores stay on one side.
    best = int(np.argmax(f1))
    return float(f1[best]), float((ranked[best] + below[best]) / 2)


def fit(net: nn.Sequential, criterion: Criterion, split: Split, budget: TrainingSettings, seed: int) -> int:
    """Train the net in place, keep the weights with the best validation F1, and return the step they are from."""
    parts = (split.training, split.validation)
    return train(net, criterion, *parts, settings=budget, metric=lambda *pair: best_threshold(*pair)[0], seed=seed).best_iteration


@torch.no_grad()
def centre(net: nn.Sequential, samples: TrainingData) -> None:
    """Move the bias of the last layer so that score 0 is the threshold of the best F1."""
    *_, last, _ = net
    last.bias -= best_threshold(net(samples.features), samples.target)[1]


def run_once(method: str, settings: Settings, split: Split, seed: int, iterations: int) -> Record:
    """Train one net and return its validation F1, and its test F1 at the best validation threshold and at zero."""
    net = build_mlp(split.training.features.shape[1], seed=seed)
    budget = TrainingSettings(
        iterations=iterations,
        patience=PATIENCE,
        learning_rate=settings["learning_rate"],
        weight_decay=settings["weight_decay"],
    )
    if method == "cross-entropy":
        steps = fit(net, cross_entropy, split, budget, seed)
    else:
        warm_up = TrainingSettings(iterations=WARM_UP, patience=WARM_UP, learning_rate=WARM_UP_RATE)
        fit(net, cross_entropy, split, warm_up, seed)
        centre(net, split.training)
        criterion = tl.DirectLoss(tl.FScore(), epsilon=settings["epsilon"], update=settings["update"])
        steps = WARM_UP + fit(net, criterion, split, replace(budget, iterations=iterations - WARM_UP), seed)
    with torch.no_grad():
        scores = net(split.test.features).double()
        value, threshold = best_threshold(net(split.validation.features), split.validation.target)
    return {
        "validation_f1": value,
        "test_f1": float(tl.metrics.fbeta_score(scores - threshold, split.test.target)),
        "test_f1_at_zero": float(tl.metrics.fbeta_score(scores, split.test.target)),
        "steps": steps,
    }


def choose(
    method: str, condition: str, cases: list[tuple[str, int]], run: Callable[..., Record]
) -> tuple[Settings, list[Record]]:
    """Return the settings with the highest validation F1, mean over cases (set, seed), and the means of all settings."""
    means = []
    for settings in all_settings(method):
        cells = [run(name, condition, method, settings, seed) for name, seed in cases]
        means.append({"settings": settings, "validation_f1": statistics.mean(cell["validation_f1"] for cell in cells)})
    return max(means, key=lambda mean: mean["validation_f1"])["settings"], means


def summarize(records: list[Record]) -> Record:
    """Return mean and standard deviation over the seeds of one set, condition and method."""
    row: Record = {}
    for metric in ("test_f1", "test_f1_at_zero"):
        values = [record[metric] for record in records]
        row[metric] = {"mean": statistics.mean(values), "over_seeds": statistics.stdev(values) if len(values) > 1 else None}
    return row


def print_table(condition: str, summary: dict[str, dict[str, Record]]) -> None:
    """Print each set with its spread over seeds, then means over sets, and the paired difference with its standard error."""
    print(f"\n{condition:<32}" + "".join(f"{method:>20}" for method in METHODS) + f"{'difference':>20}{'both at score 0':>22}")
    for name, row in summary.items():
        line = f"{name:<32}"
        for method in METHODS:
            values = row[method]["test_f1"]
            spread = "" if values["over_seeds"] is None else f" +- {values['over_seeds']:.4f}"
            line += f"{values['mean']:.4f}{spread}".rjust(20)
        line += f"{difference(row, 'test_f1'):>+20.4f}"
        print(line + "".join(f"{row[method]['test_f1_at_zero']['mean']:>11.4f}" for method in METHODS))
    unseen = {name: row for name, row in summary.items() if name not in CHOOSING}
    for title, rows in {f"mean of {len(summary)} sets": summary, f"mean of the {len(unseen)} not chosen on": unseen}.items():
        if not rows:
            continue
        line = f"{title:<32}"
        for method in METHODS:
            line += f"{statistics.mean(row[method]['test_f1']['mean'] for row in rows.values()):>20.4f}"
        gaps = [difference(row, "test_f1") for row in rows.values()]
        error = f" +- {statistics.stdev(gaps) / len(gaps) ** 0.5:.4f}" if len(gaps) > 1 else ""
        line += f"{statistics.mean(gaps):+.4f}{error}".rjust(20)
        for method in METHODS:
            line += f"{statistics.mean(row[method]['test_f1_at_zero']['mean'] for row in rows.values()):>11.4f}"
        print(f"{line}   higher on {sum(gap > 0 for gap in gaps)} of {len(gaps)}")


def difference(row: dict[str, Record], metric: str) -> float:
    """Return direct F1 minus cross-entropy, means over seeds."""
    ours, base = (row[method][metric]["mean"] for method in METHODS)
    return float(ours - base)


def main() -> None:
    """Choose the settings, run every set, condition and seed, print the tables and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the sets, or tabular/ with them")
    parser.add_argument("--seeds", type=int, default=3, help="splits, each with its own initial net")
    parser.add_argument("--output", type=Path, help="JSON file for the tables and records")
    parser.add_argument("--quick", action="store_true", help="one small set, few steps, one seed: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    folder = find_data(arguments.data)
    seeds, iterations = (1, WARM_UP + 5) if arguments.quick else (arguments.seeds, ITERATIONS)
    names = ("keel_pima",) if arguments.quick else NAMES
    cases = [("keel_pima", 0)] if arguments.quick else list(itertools.product(CHOOSING, range(CHOOSING_SEEDS)))
    data = {name: read_set(folder, name) for name in names}
    cells = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    make = functools.lru_cache(maxsize=8)(lambda name, condition, seed: make_split(data[name], condition, seed))
    choices, summaries, records = [], {}, []
    trials = len(cases) * sum(len(all_settings(method)) for method in METHODS)
    with Progress() as progress:
        bar = progress.add_task("", total=len(CONDITIONS) * (trials + len(names) * len(METHODS) * seeds))

        def run(name: str, condition: str, method: str, settings: Settings, seed: int) -> Record:
            progress.update(bar, description=f"{condition}, {name}, {method}")
            cell = {
                "set": name,
                "condition": condition,
                "method": method,
                "settings": settings,
                "seed": seed,
                "iterations": iterations,
            }
            record = cells.run(cell, lambda: run_once(method, settings, make(name, condition, seed), seed, iterations))
            progress.advance(bar)
            return record

        for condition in CONDITIONS:
            chosen = {}
            for method in METHODS:
                chosen[method], means = choose(method, condition, cases, run)
                choices.append({"condition": condition, "method": method, "chosen": chosen[method], "grid": means})
            summary: dict[str, dict[str, Record]] = {}
            for name in names:
                runs = {
                    method: [run(name, condition, method, chosen[method], seed) for seed in range(seeds)] for method in METHODS
                }
                summary[name] = {method: summarize(mine) for method, mine in runs.items()}
                records += [record for mine in runs.values() for record in mine]
            summaries[condition] = summary
    for choice in choices:
        print(f"{choice['condition']}, {choice['method']}: {choice['chosen']}")
    for condition, summary in summaries.items():
        print_table(condition, summary)
    print(f"{time.perf_counter() - start:.0f} s in all")
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"choices": choices, "summary": summaries, "records": records}, indent=1))


if __name__ == "__main__":
    main()
