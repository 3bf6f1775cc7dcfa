"""How large the trees of the classifier should be: test AP by the number of leaves and of training rows.

The classifier has one method, ``"lightgbm"`` or ``"random_forest"``, and its default settings, but for the number of leaves,
which is fixed; ``by rows`` is the default, where it follows the number of rows. Each problem is a table of more than 26,667
rows, or one of its classes against the rest. 40% of the rows are the test set; the training rows are drawn from the others. In
the condition ``noise``, 20% of their labels are flipped. The rule for the number of leaves was chosen on the split of seed 100.

    pip install -e '.[estimators,cli]'
    python -m benchmarks.tree_sizes --data FOLDER --output tree_sizes.json

FOLDER holds the sets as in ``benchmarks/estimators.py``, and ``mc_krvsk.npz``. With ``--output``, finished runs are
kept beside it in a ``.jsonl`` file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from benchmarks.auto import defaults_of
from benchmarks.cells import Cells, Record
from benchmarks.estimators import CONDITIONS, TEST, find_data, flip
from rich.progress import Progress
from sklearn.model_selection import train_test_split

from taskloss.estimators import TaskLossClassifier, lightgbm_trees
from taskloss.metrics import average_precision_score

PROBLEMS = ("bin_adult", "mc_krvsk:11", "mc_krvsk:13", "mc_krvsk:16")
"""Table and positive class."""
ROWS = (4_000, 8_000, 16_000)
LEAVES: dict[str, tuple[int | None, ...]] = {"lightgbm": (7, 15, 31, 63, None), "random_forest": (31, 63, 127, 255, None)}
"""Numbers of leaves; None for the default."""
SETTINGS = {"lightgbm": "BOOSTING_SETTINGS", "random_forest": "RANDOM_FOREST_SETTINGS"}

Data = tuple[np.ndarray, np.ndarray]


def read_problem(folder: Path, name: str) -> Data:
    """Read features and 0/1 labels."""
    table, _, positive = name.partition(":")
    with np.load(folder / f"{table}.npz", allow_pickle=False) as file:
        return file["X"].astype(np.float64), (file["y"] == int(positive or 1)).astype(np.int64)


def run_once(data: Data, rows: int, condition: str, method: str, leaves: int | None, seed: int, settings: Record) -> Record:
    """Fit one classifier; return its test AP in percent and the processor seconds of the fit."""
    seen, test, seen_target, test_target = train_test_split(*data, test_size=TEST, stratify=data[1], random_state=seed)
    features, _, target, _ = train_test_split(seen, seen_target, train_size=rows, stratify=seen_target, random_state=seed)
    target = flip(target, seed) if condition == "noise" else target
    sizes = getattr(lightgbm_trees, SETTINGS[method])
    sizes = sizes if leaves is None else replace(sizes, min_leaves=leaves, max_leaves=leaves)
    start = time.process_time()
    with patch.object(lightgbm_trees, SETTINGS[method], sizes):
        model = TaskLossClassifier(method=method, random_state=seed, pos_label=1, **settings).fit(features, target)
    seconds = time.process_time() - start
    return {"test": 100 * float(average_precision_score(model.decision_function(test), test_target)), "cpu": seconds}


def print_table(records: list[Record]) -> dict[str, Record]:
    """Print a line per method, number of rows and condition, with the mean over problems and seeds for each number of leaves."""
    summary: dict[str, Record] = {}
    for method, rows, condition in itertools.product(LEAVES, ROWS, CONDITIONS):
        chosen = [r for r in records if (r["method"], r["rows"], r["condition"]) == (method, rows, condition)]
        if not chosen:
            continue
        title = f"{method}, {rows:,} rows, {condition}"
        summary[title] = {}
        for leaves in LEAVES[method]:
            of_leaves = [record for record in chosen if record["leaves"] == leaves]
            summary[title][leaves or "by rows"] = {
                key: statistics.mean(record[key] for record in of_leaves) for key in ("test", "cpu")
            }
        cells = (f"{leaves}: {row['test']:.1f} ({row['cpu']:.1f} s)" for leaves, row in summary[title].items())
        print(f"{title:<38}" + "".join(f"{cell:>24}" for cell in cells))
    return summary


def main() -> None:
    """Run every problem, number of rows, condition and number of leaves, print the table and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the sets, or tabular/ with them")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds of the splits")
    parser.add_argument("--output", type=Path, help="JSON file for the table and the records")
    parser.add_argument("--quick", action="store_true", help="one problem, few rounds: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    folder = find_data(arguments.data)
    problems, all_rows = (PROBLEMS[1:2], ROWS[:1]) if arguments.quick else (PROBLEMS, ROWS)
    settings = {"members": 1, "max_iter": 3} if arguments.quick else {}
    read = functools.lru_cache(maxsize=1)(functools.partial(read_problem, folder))
    store = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    defaults = defaults_of(settings)
    choices = [(method, leaves) for method, several in LEAVES.items() for leaves in several]
    cases = list(itertools.product(problems, arguments.seeds, all_rows, CONDITIONS, choices))
    records = []
    with Progress() as progress:
        bar = progress.add_task("", total=len(cases))
        for name, seed, rows, condition, (method, leaves) in cases:
            progress.update(bar, description=f"{name}, seed {seed}, {rows} rows, {condition}, {method}, {leaves or 'by rows'}")
            cell = {"set": name, "seed": seed, "rows": rows, "condition": condition, "method": method, "leaves": leaves}
            cell["defaults"] = defaults
            run = functools.partial(run_once, read(name), rows, condition, method, leaves, seed, settings)
            records.append(store.run(cell, run))
            progress.advance(bar)
    summary = print_table(records)
    print(f"{time.perf_counter() - start:.0f} s in all")
    store.write_summary(arguments.output, summary)


if __name__ == "__main__":
    main()
