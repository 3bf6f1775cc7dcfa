"""The two sizes of batches that ``taskloss/estimators/batch_size.py`` chooses from: test AP and CPU time.

Both get the same splits (40% test), seeds, networks and number of steps. The tables are those of the collection with enough rows
for a difference, and a synthetic one.

    pip install -e '.[cli,estimators]'
    python -m benchmarks.batch_size --data FOLDER --seeds 3

FOLDER holds ``bin_*.npz`` and ``mc_*.npz`` (or in ``tabular/``): X (n, d), y (n,).
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.compare import make_table
from sklearn.model_selection import train_test_split

from taskloss.estimators import TaskLossClassifier
from taskloss.metrics import average_precision_score

TABLES = {"bin_adult": 1, "bin_shuttle": 1, "mc_krvsk": 0, "synthetic": 1}
"""The tables, and the class that is positive. Of these, mc_krvsk is too small for small batches by default."""
SYNTHETIC_ROWS = 50_000
METHODS = ("direct", "cross_entropy")
SIZES = {"32,768": 32_768, "4,096": 4_096}


def load_table(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and 0/1 labels."""
    if name == "synthetic":
        table = make_table(SYNTHETIC_ROWS)
        return pd.get_dummies(table.drop(columns="fraud")).to_numpy(np.float64), (table["fraud"] == "yes").to_numpy(np.int64)
    path = next(path for path in (folder / f"{name}.npz", folder / "tabular" / f"{name}.npz") if path.is_file())
    with np.load(path) as arrays:
        return arrays["X"].astype(np.float64), (arrays["y"] == TABLES[name]).astype(np.int64)


def run(features: np.ndarray, target: np.ndarray, method: str, size: int, seed: int) -> tuple[float, float]:
    """Return the test AP and the CPU seconds of the fit."""
    training, test, labels, test_labels = train_test_split(features, target, test_size=0.4, stratify=target, random_state=seed)
    start = time.process_time()
    model = TaskLossClassifier("average_precision", method=method, batch_size=size, random_state=seed).fit(training, labels)
    seconds = time.process_time() - start
    return average_precision_score(model.decision_function(test), test_labels), seconds


def main() -> None:
    """Run everything and print one row per table and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    heading = "".join(f"{name:>10}{'CPU s':>7}" for name in SIZES)
    print(f"{'table':<12}{'method':<15}{heading}{'difference':>18}")
    for table in TABLES:
        features, target = load_table(arguments.data, table)
        for method in METHODS:
            runs = {
                name: [run(features, target, method, size, seed) for seed in range(arguments.seeds)]
                for name, size in SIZES.items()
            }
            cells = "".join(
                f"{100 * statistics.mean(value for value, _ in results):>10.2f}{statistics.mean(s for _, s in results):>7.0f}"
                for results in runs.values()
            )
            gains = [100 * (after - before) for (before, _), (after, _) in zip(*runs.values(), strict=True)]
            error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
            print(f"{table:<12}{method:<15}{cells}{statistics.mean(gains):>+10.2f} +- {error:.2f}", flush=True)


if __name__ == "__main__":
    main()
