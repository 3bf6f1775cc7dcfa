"""Compare every method of the estimators with cross-entropy on every metric, to find methods that fail.

Each method has one member (``members=1``) and the settings of the estimators as they come. The splits are the same for
all methods; cross-entropy is stopped by the same metric and its threshold is chosen for it. Of at most 4,000 random rows of each
table, 40% are the test set. The metrics are those that are registered for 0/1 labels; ``dice`` is ``f_score``.

A gain is the difference to cross-entropy in points of the test metric, a cell the mean gain on one table, with its standard error
over the splits. Cells that are below zero by more than one point and three standard errors are listed. With five independent
splits that would happen by chance in at most 2% of the cells in which a method is as good as cross-entropy.

A fresh network may put few positives or none into the top of the list that the metric judges; the others have no gradient. The
estimators check that, and begin with steps of cross-entropy then. ``direct, no check`` is the direct loss without this check.

    pip install -e '.[cli,estimators]'
    python -m benchmarks.every_metric --data FOLDER --output every_metric.json [--metrics ...] [--seeds 5]

FOLDER holds the sets as in ``benchmarks/estimators.py``. With ``--output``, finished runs are kept beside it in a ``.jsonl``
file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from benchmarks.auto import Goal, defaults_of, fit_auto
from benchmarks.cells import Cells, Record
from benchmarks.estimators import find_data
from benchmarks.networks import read_rows, split_of
from rich.progress import Progress

import taskloss as tl
from taskloss.estimators import TaskLossClassifier, ensemble
from taskloss.estimators.methods import LOSSES_BY_METHOD
from taskloss.estimators.problem import Problem
from taskloss.tasks import Task

TABLES = ("bin_wilt", "bin_thyroid", "bin_mammography", "bin_annthyroid", "bin_pageblocks", "keel_yeast4")
METRICS: dict[str, Task] = {
    "average_precision": tl.AveragePrecision(),
    "average_precision:at=50": tl.AveragePrecision(at=50),
    "ndcg": tl.NDCG(),
    "ndcg:at=50": tl.NDCG(at=50),
    "roc_auc": tl.ROCAUC(),
    "partial_auc:max_fpr=0.05": tl.PartialAUC(max_fpr=0.05),
    "recall_at_fpr:fpr=0.01": tl.RecallAtFPR(fpr=0.01),
    "precision_at_recall:recall=0.8": tl.PrecisionAtRecall(recall=0.8),
    "recall_at_precision:precision=0.8": tl.RecallAtPrecision(precision=0.8),
    "precision_at_k:k=50": tl.PrecisionAtK(k=50),
    "recall_at_k:k=50": tl.RecallAtK(k=50),
    "reciprocal_rank": tl.ReciprocalRank(),
    "f_score": tl.FScore(),
    "jaccard": tl.Jaccard(),
    "g_mean": tl.GMean(),
    "mcc": tl.MCC(),
    "balanced_error": tl.BalancedError(),
    "zero_one": tl.ZeroOne(),
}
BASE = "cross_entropy"
NO_CHECK = "direct, no check"
METHODS = ("direct", "direct_positive", "direct_negative", "direct_central", "hinge", "lp", "lightgbm", "random_forest", "auto")
LEAST_GAP = 1.0
"""A cell that is less than this below cross-entropy is not listed, whatever its error."""
STANDARD_ERRORS = 3.0


def methods_of(task: Task) -> list[str]:
    """Return the methods of the metric besides those that ``"auto"`` trains; the default update is ``"direct"``.

    >>> methods_of(tl.FScore()), methods_of(tl.NDCG())
    (['direct_positive', 'direct_negative', 'lp'], ['direct_negative', 'direct_central'])
    """
    updates = [f"direct_{update}" for update in ("positive", "negative", "central") if update != task.default_update]
    try:
        LOSSES_BY_METHOD["lp"](task, 1.0)
    except ValueError:
        return updates
    return [*updates, "lp"]


def run_once(data: tuple[np.ndarray, np.ndarray], metric: str, seed: int, settings: Record) -> Record:
    """Fit every method to one split; return the test metric of each, in percent."""
    task = METRICS[metric]
    rows, target, test, truth = split_of(data, "clean", seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A stuck network is what we look for, and its metric shows it.
        results = fit_auto(Goal(task, task, ""), (rows, target), (test, truth), seed, {"members": 1, **settings})
        values = {name: results[name][0] for name in (BASE, *METHODS) if name in results}

        def fit_alone(method: str) -> float:
            model = TaskLossClassifier(task, method=method, members=1, random_state=seed, pos_label=1, **settings)
            return float(model.fit(rows, target).score(test, truth))

        values |= {method: fit_alone(method) for method in methods_of(task)}
        if not Problem(task, "direct", 1.0).needs_warm_up:  # Else the warm-up does not depend on the check.
            with patch.object(ensemble, "_starts_stuck", lambda *_: False):
                values[NO_CHECK] = fit_alone("direct")
    return {"test": {method: 100.0 * float(value) for method, value in values.items()}}


def summarize(records: list[Record]) -> list[Record]:
    """Return one row per metric, table and method: the gain over cross-entropy, its error, and the value of cross-entropy."""
    rows = []
    for metric, table in itertools.product(METRICS, TABLES):
        tests = [record["test"] for record in records if (record["metric"], record["set"]) == (metric, table)]
        for method in METHODS:
            gains = [test[method] - test[BASE] for test in tests if method in test]
            if gains:
                error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
                base = statistics.mean(test[BASE] for test in tests)
                gain = statistics.mean(gains)
                below = len(gains) > 2 and gain < -LEAST_GAP and gain < -STANDARD_ERRORS * error
                row = {"metric": metric, "table": table, "method": method, BASE: base, "gain": gain, "error": error}
                rows.append({**row, "below": below})
    return rows


def print_tables(rows: list[Record]) -> None:
    """Print the mean gain over the tables per metric and method, and every cell that is clearly below cross-entropy."""
    print(f"{'gain over cross-entropy, points':<36}{'level':>6}" + "".join(f"{method:>17}" for method in METHODS))
    for metric in [*dict.fromkeys(row["metric"] for row in rows), "all"]:
        chosen = [row for row in rows if metric in (row["metric"], "all")]
        base = statistics.mean(row[BASE] for row in chosen if row["method"] == "direct")  # Every metric has this method.
        line = f"{metric:<36}{base:>6.1f}"
        for method in METHODS:
            of_method = [row for row in chosen if row["method"] == method]
            # The metrics of a table are related, so its mean gain is one observation.
            gains = [
                statistics.mean(row["gain"] for row in of_method if row["table"] == table)
                for table in dict.fromkeys(row["table"] for row in of_method)
            ]
            error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
            line += f"{f'{statistics.mean(gains):+.1f} +- {error:.1f}' if gains else '':>17}"
        print(line)
    for method in METHODS:
        of_method = [row for row in rows if row["method"] == method]
        below = sorted((row for row in of_method if row["below"]), key=lambda row: row["gain"])
        print(f"\n{method}: {len(below)} of {len(of_method)} cells are clearly below cross-entropy")
        for row in below:
            print(f"  {row['metric']:<36}{row['table']:<18}{row[BASE]:>6.1f}  {row['gain']:+.1f} +- {row['error']:.1f}")


def find_stuck(records: list[Record]) -> list[Record]:
    """Return the splits on which the direct loss without the check ends below half of the metric of cross-entropy."""
    return [
        {key: record[key] for key in ("metric", "set", "seed")} | {key: test[key] for key in (BASE, NO_CHECK, "direct")}
        for record in records
        for test in [record["test"]]
        if NO_CHECK in test and test[NO_CHECK] < 0.5 * test[BASE]
    ]


def print_stuck(records: list[Record], stuck: list[Record]) -> None:
    """Print the means of the metrics that the check concerns, and each stuck run before and after."""
    print(f"\n{'direct loss before and after the check for a gradient':<60}{BASE:>15}{NO_CHECK:>19}{'direct':>9}")
    checked = [record for record in records if NO_CHECK in record["test"]]
    for metric in dict.fromkeys(record["metric"] for record in checked):
        tests = [record["test"] for record in checked if record["metric"] == metric]
        base, before, after = (statistics.mean(test[key] for test in tests) for key in (BASE, NO_CHECK, "direct"))
        print(f"{f'{metric}, mean of {len(tests)} runs':<60}{base:>15.1f}{before:>19.1f}{after:>9.1f}")
    for row in stuck:
        where = f"{row['metric']}, {row['set']}, seed {row['seed']}"
        print(f"{where:<60}{row[BASE]:>15.1f}{row[NO_CHECK]:>19.1f}{row['direct']:>9.1f}")


def main() -> None:
    """Run every metric, table and split, print the tables and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the sets, or tabular/ with them")
    parser.add_argument("--seeds", type=int, default=5, help="splits of each table")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=list(METRICS), metavar="METRIC")
    parser.add_argument("--output", type=Path, help="JSON file for the table and the records")
    parser.add_argument("--quick", action="store_true", help="one small set, few steps, one seed: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    folder = find_data(arguments.data)
    tables, seeds = (("keel_yeast4",), 1) if arguments.quick else (TABLES, arguments.seeds)
    settings = {"max_iter": 3} if arguments.quick else {}
    defaults = defaults_of({"members": 1, **settings})
    read = functools.lru_cache(maxsize=len(tables))(functools.partial(read_rows, folder))
    store = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    cases = list(itertools.product(range(seeds), arguments.metrics, tables))
    records = []
    with Progress() as progress:
        bar = progress.add_task("", total=len(cases))
        for seed, metric, table in cases:
            progress.update(bar, description=f"seed {seed}, {metric}, {table}")
            cell = {"set": table, "metric": metric, "seed": seed, "defaults": defaults}
            records.append(store.run(cell, functools.partial(run_once, read(table), metric, seed, settings)))
            progress.advance(bar)
    rows = summarize(records)
    print_tables(rows)
    stuck = find_stuck(records)
    print_stuck(records, stuck)
    print(f"{time.perf_counter() - start:.0f} s in all")
    store.write_summary(arguments.output, {"gains": rows, "stuck": stuck})


if __name__ == "__main__":
    main()
