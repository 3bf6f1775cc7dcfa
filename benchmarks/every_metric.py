"""Every metric with every method of the estimators against cross-entropy, to see whether any of them fails.

    python -m benchmarks.every_metric --data ../shared/data/tabular --output every_metric.json

One network per fit (``members=1``), the settings of the estimators as they come, the same splits for all: cross-entropy is
stopped by the same metric and gets the same threshold. A cell is the difference to cross-entropy in points of the test metric,
with its standard error over the splits; cells more than three standard errors (and one point) below zero are listed at the end.
Runs are kept one by one beside the output file, so an interrupted script continues.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from pathlib import Path

import numpy as np
import torch
from benchmarks.cells import Cells
from sklearn.model_selection import train_test_split

import taskloss as tl
from taskloss.estimators import TaskLossClassifier

TABLES = ("bin_wilt", "bin_thyroid", "bin_mammography", "bin_annthyroid", "bin_pageblocks", "keel_yeast4")
METHODS = ("direct", "direct_negative", "hinge", "lp")
METRICS: dict[str, tl.Task] = {
    "average_precision": tl.AveragePrecision(),
    "average_precision_at_50": tl.AveragePrecision(at=50),
    "ndcg": tl.NDCG(),
    "ndcg_at_50": tl.NDCG(at=50),
    "roc_auc": tl.ROCAUC(),
    "partial_auc_0.05": tl.PartialAUC(max_fpr=0.05),
    "recall_at_fpr_0.01": tl.RecallAtFPR(fpr=0.01),
    "precision_at_recall_0.8": tl.PrecisionAtRecall(recall=0.8),
    "recall_at_precision_0.8": tl.RecallAtPrecision(precision=0.8),
    "precision_at_50": tl.PrecisionAtK(k=50),
    "recall_at_50": tl.RecallAtK(k=50),
    "reciprocal_rank": tl.ReciprocalRank(),
    "f_score": tl.FScore(),
    "jaccard": tl.Jaccard(),
    "g_mean": tl.GMean(),
    "mcc": tl.MCC(),
    "balanced_error": tl.BalancedError(),
    "zero_one": tl.ZeroOne(),
}
WITH_PROGRAM = ("roc_auc", "f_score", "jaccard", "precision_at_recall_0.8", "recall_at_precision_0.8")
"""Metrics that ``method="lp"`` has a loss for."""


def metric_of_fit(data: Path, table: str, metric: str, method: str, seed: int) -> dict[str, float]:
    """Return the test metric of one network, in percent."""
    arrays = np.load(data / f"{table}.npz")
    features, target = arrays["X"].astype(np.float32), arrays["y"].astype(np.int64)
    training, test, training_target, test_target = train_test_split(
        features, target, test_size=0.3, stratify=target, random_state=seed
    )
    model = TaskLossClassifier(METRICS[metric], method=method, members=1, random_state=seed).fit(training, training_target)
    return {"metric_value": 100.0 * float(model.score(test, test_target))}


def main() -> None:
    """Run all cells, print a table per method, and list what is clearly below cross-entropy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tabular"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=list(METRICS), metavar="METRIC")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), metavar="TABLE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cells = Cells(None if arguments.output is None else arguments.output.with_suffix(".jsonl"))

    def value(table: str, metric: str, method: str, seed: int) -> float:
        cell = {"table": table, "metric": metric, "method": method, "seed": seed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(cells.run(cell, lambda: metric_of_fit(arguments.data, **cell))["metric_value"])

    summary = []
    for metric in arguments.metrics:
        for table in arguments.tables:
            base = [value(table, metric, "cross_entropy", seed) for seed in range(arguments.seeds)]
            shown = []
            for method in METHODS if metric in WITH_PROGRAM else METHODS[:-1]:
                gains = [value(table, metric, method, seed) - base[seed] for seed in range(arguments.seeds)]
                error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
                row = {"metric": metric, "table": table, "method": method, "gain": statistics.mean(gains), "error": error}
                summary.append(row)
                shown.append(f"{method} {row['gain']:+.1f} +- {error:.1f}")
            print(f"{metric}, {table}: cross-entropy {statistics.mean(base):.1f}; {', '.join(shown)}", flush=True)
    below = [row for row in summary if row["gain"] < -max(1.0, 3.0 * row["error"])]
    print(f"\n{len(below)} of {len(summary)} cells are more than three standard errors and one point below cross-entropy")
    for row in sorted(below, key=lambda row: row["gain"]):
        print(f"  {row['method']} for {row['metric']} on {row['table']}: {row['gain']:+.1f} +- {row['error']:.1f}")
    for method in METHODS:
        gains = [row["gain"] for row in summary if row["method"] == method]
        if gains:
            print(f"{method}: mean gain {statistics.mean(gains):+.2f} over {len(gains)} cells")
    cells.write_summary(arguments.output, summary)


if __name__ == "__main__":
    main()
