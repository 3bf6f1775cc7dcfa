"""Which loss for which batch size? Test AP of cross-entropy, the direct loss and the hinge of AP in batches of 32 to all rows.

The same network (two hidden layers of 64 units, AdamW) is trained by each loss with the stratified batches of the training loop.
Everything else is equal: the rows, the initial weights, 30 epochs for each size of batch, and 300 steps (so 300 passes) for all
rows. The weights with the highest validation AP are kept, which the loop computes after every step, or, where the validation rows
outnumber a batch, after as many steps as it takes to train on that many rows. Cross-entropy starts from the log-odds of the
classes. The direct loss has epsilon 1 and its default update.

The learning rate is chosen among ``RATES`` for each loss and size of batch: the rate with the highest validation AP, mean over
the tables, on the split of seed 100. The other seeds, whose test AP is reported, choose nothing.

    pip install -e '.[cli,estimators,experiments]'
    python -m benchmarks.small_batches --data FOLDER --output small_batches.json

FOLDER holds ``tabular/`` with the files of ``TABLES``, of which at most 8,000 rows are used: 40% of them for the test, 30% of the
others for validation. Finished runs are kept beside the output in a ``.jsonl`` file, and a second call goes on from there. A
difference is a mean over tables of the mean over seeds; its standard error is over the tables.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from benchmarks.cells import Cells, Record
from benchmarks.splits import Split, cross_entropy, split_samples
from benchmarks.when_it_helps import start_at
from rich.progress import Progress
from torch import Tensor

import taskloss as tl
from taskloss.metrics import average_precision_score
from taskloss.training import TrainingSettings, build_mlp, train

TABLES = ("adult", "mammography", "annthyroid", "pageblocks", "satimage2", "wilt")
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": cross_entropy,
    "direct loss of AP": tl.DirectLoss("average_precision"),
    "hinge of AP": tl.StructuredHingeLoss("average_precision"),
}
SIZES = (32, 64, 256, 1024, None)
"""Rows in a batch; None for all rows."""
RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
"""The range first ended at 0.01, then at 0.03; it was extended for all losses, since validation had chosen its end for many."""
TUNING_SEED = 100
ROWS = 8_000
EPOCHS, STEPS = 30, 300
"""Length of a run in batches, and on all rows."""


def read_split(folder: Path, name: str, seed: int, most: int) -> Split:
    """Return the split of a table by a seed, of at most this many rows."""
    with np.load(folder / "tabular" / f"bin_{name}.npz", allow_pickle=False) as arrays:
        features, target = arrays["X"].astype(np.float64), (arrays["y"] == 1).astype(np.int64)
    rows = np.random.default_rng(0).permutation(len(target))[:most]
    return split_samples(features[rows], target[rows], seed)


def run_once(split: Split, loss: str, size: int | None, rate: float, seed: int, epochs: int, steps: int) -> Record:
    """Train one network; return validation and test AP of the best weights, and the share of batches without a positive."""
    target = split.training.target
    net = build_mlp(split.training.features.shape[1], hidden=(64, 64), seed=seed)
    if loss == "cross-entropy":
        start_at(net, float(target.double().mean().logit()))
    batches = 1 if size is None else -(-len(target) // size)
    steps = steps if size is None else epochs * batches
    settings = TrainingSettings(iterations=steps, patience=steps, learning_rate=rate, batch_size=size or len(target))
    result = train(net, LOSSES[loss], split.training, split.validation, settings=settings, seed=seed)
    with torch.no_grad():
        test = average_precision_score(net(split.test.features), split.test.target)
    empty = max(0.0, 1.0 - int(target.sum()) / batches)
    return {"steps": steps, "best": result.best_iteration, "validation": result.best_metric, "test": float(test), "empty": empty}


def choose_rate(runs: Sequence[Record]) -> float:
    """Return the learning rate with the highest mean validation AP.

    >>> choose_rate([{"rate": 0.1, "validation": 0.5}, {"rate": 0.2, "validation": 0.6}, {"rate": 0.1, "validation": 0.8}])
    0.1
    """
    return max(
        dict.fromkeys(run["rate"] for run in runs),
        key=lambda rate: statistics.mean(run["validation"] for run in runs if run["rate"] == rate),
    )


def summarize(runs: Sequence[Record]) -> dict[str, Record]:
    """Return for each loss and size of batch: test AP, and its difference to cross-entropy with the standard error, in points."""
    values: dict[tuple[str, int | None], dict[str, float]] = {}
    for loss, size in itertools.product(LOSSES, SIZES):
        of_pair = [run for run in runs if (run["loss"], run["size"]) == (loss, size)]
        for table in dict.fromkeys(run["table"] for run in of_pair):
            tests = [100 * run["test"] for run in of_pair if run["table"] == table]
            values.setdefault((loss, size), {})[table] = statistics.mean(tests)
    summary = {}
    for (loss, size), by_table in values.items():
        gains = [value - values["cross-entropy", size][table] for table, value in by_table.items()]
        summary[title(loss, size)] = {
            "rate": next(run["rate"] for run in runs if (run["loss"], run["size"]) == (loss, size)),
            "mean": statistics.mean(by_table.values()),
            "gain": statistics.mean(gains),
            "error": statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None,
            "tables": by_table,
        }
    return summary


def title(loss: str, size: int | None) -> str:
    """Return the name of a loss in batches.

    >>> title("hinge of AP", 1024), title("hinge of AP", None)
    ('hinge of AP, batches of 1,024', 'hinge of AP, all rows')
    """
    return f"{loss}, all rows" if size is None else f"{loss}, batches of {size:,}"


def print_table(summary: dict[str, Record]) -> None:
    """Print a line per loss and size of batch."""
    tables = list(next(iter(summary.values()))["tables"])
    print(f"{'test AP in %':<40}{'rate':>7}{'mean':>7}{'to cross-entropy':>18}" + "".join(f"{table:>13}" for table in tables))
    for name, row in summary.items():
        gain = f"{row['gain']:+.1f}" + ("" if row["error"] is None else f" +- {row['error']:.1f}")
        values = "".join(f"{row['tables'][table]:>13.1f}" for table in tables)
        print(f"{name:<40}{row['rate']:>7g}{row['mean']:>7.1f}{gain:>18}{values}")


def main() -> None:
    """Choose the learning rates, run every seed, print the table and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds tabular/")
    parser.add_argument("--seeds", type=int, default=3, help="splits, each with its own initial network")
    parser.add_argument("--output", type=Path, help="JSON file for the table and the records")
    parser.add_argument("--quick", action="store_true", help="one small table, one seed, one epoch: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    quick = arguments.quick
    tables, rates, seeds = (("wilt",), RATES[:2], 1) if quick else (TABLES, RATES, arguments.seeds)
    rows, epochs, steps = (600, 1, 3) if quick else (ROWS, EPOCHS, STEPS)
    cells = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    read = functools.cache(functools.partial(read_split, arguments.data, most=rows))
    with Progress() as progress:
        bar = progress.add_task("", total=len(tables) * len(LOSSES) * len(SIZES) * (len(rates) + seeds))

        def run(table: str, loss: str, size: int | None, rate: float, seed: int) -> Record:
            progress.update(bar, advance=1, description=f"{table}, {title(loss, size)}, seed {seed}")
            cell = {"table": table, "loss": loss, "size": size, "rate": rate, "seed": seed, "rows": rows}
            cell |= {"epochs_of": epochs, "steps_of": steps}
            return cells.run(cell, lambda: run_once(read(table, seed), loss, size, rate, seed, epochs, steps))

        pairs = list(itertools.product(LOSSES, SIZES))
        chosen = {
            pair: choose_rate([run(table, *pair, rate, TUNING_SEED) for table, rate in itertools.product(tables, rates)])
            for pair in pairs
        }
        runs = [run(table, *pair, chosen[pair], seed) for seed, table, pair in itertools.product(range(seeds), tables, pairs)]
    summary = summarize(runs)
    print_table(summary)
    print(f"{time.process_time() - start:.0f} s in all")
    cells.write_summary(arguments.output, summary)


if __name__ == "__main__":
    main()
