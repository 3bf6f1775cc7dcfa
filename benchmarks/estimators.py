"""The classifier with its default settings: test AP of direct AP against cross-entropy, on clean and on noisy labels.

Both methods get the same ensemble of the same networks, the same splits, seeds, steps and stopping by exact AP; only the loss
differs. Of at most 8,000 random rows of each set, 40% are the test set. There are two conditions: ``clean``, and ``noise``, where
20% of the labels of the other 60%, from which training and held-out samples are taken, are flipped, whatever their class. Test
labels are never changed.

Nothing is tuned on a set. The defaults were chosen on ``CHOOSING``, with other splits (seeds 100 to 102); the table also gives
the mean over the sets that were not used for that. ``QUOTED`` names eight sets for which figures of other methods are known, with
three seeds; the table has their mean on the same terms (rows, seeds 0 to 2).

    pip install -e '.[cli,estimators]'
    python -m benchmarks.estimators --data FOLDER --output estimators.json

FOLDER holds the sets, ``bin_*.npz`` and ``keel_*.npz`` (or in ``tabular/``): X (n, d), y 0/1. With ``--output``, finished runs
are kept beside it in a ``.jsonl`` file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path

import numpy as np
from benchmarks.cells import Cells, Record
from rich.progress import Progress
from sklearn.model_selection import train_test_split

from taskloss.estimators import TaskLossClassifier
from taskloss.metrics import average_precision_score

CHOOSING = ("bin_pageblocks", "bin_pendigits", "bin_satimage2", "keel_yeast4")
QUOTED = (
    *("bin_mammography", "bin_annthyroid", "bin_pageblocks", "bin_wilt", "bin_thyroid", "bin_satimage2"),
    *("keel_yeast4", "keel_pima"),
)
QUOTED_SEEDS = 3
NAMES = (
    *("bin_adult", "bin_annthyroid", "bin_mammography", "bin_pageblocks", "bin_pendigits", "bin_satimage2", "bin_shuttle"),
    *("bin_thyroid", "bin_wilt", "keel_ecoli3", "keel_page_blocks0", "keel_pima", "keel_winequality_white_3_vs_7", "keel_yeast4"),
)
METHODS = ("direct", "cross_entropy")
CONDITIONS = ("clean", "noise")
NOISE = 0.2
MOST_ROWS = 8_000
TEST = 0.4

Runs = dict[tuple[str, str, str, int], Record]
"""Records by set, condition, method and seed."""


def find_data(folder: Path) -> Path:
    """Return the folder of the sets, given that folder or the one above it."""
    for path in (folder, folder / "tabular"):
        if all((path / f"{name}.npz").is_file() for name in NAMES):
            return path
    raise SystemExit(f"--data {folder}: expected a folder with {NAMES[0]}.npz and the other {len(NAMES) - 1} sets, or tabular/")


def read_set(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read features and labels, at most ``MOST_ROWS`` rows."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        features, target = file["X"].astype(np.float64), file["y"].astype(np.int64)
    rows = np.random.default_rng(0).permutation(len(target))[:MOST_ROWS]
    return features[rows], target[rows]


def flip(target: np.ndarray, seed: int) -> np.ndarray:
    """Flip 20% of the labels.

    >>> int((flip(np.arange(100) % 2, 0) != np.arange(100) % 2).sum())
    20
    """
    rows = np.random.default_rng(seed).permutation(len(target))[: round(NOISE * len(target))]
    flipped = target.copy()
    flipped[rows] = 1 - flipped[rows]
    return flipped


def run_once(data: tuple[np.ndarray, np.ndarray], condition: str, method: str, seed: int, settings: Record) -> Record:
    """Fit one estimator and return its AP on the test samples."""
    seen, test, seen_target, test_target = train_test_split(*data, test_size=TEST, stratify=data[1], random_state=seed)
    if condition == "noise":
        seen_target = flip(seen_target, seed)
    model = TaskLossClassifier(method=method, random_state=seed, **settings).fit(seen, seen_target)
    steps = statistics.mean(result.best_iteration for result in model.history_)
    return {"test_ap": float(average_precision_score(model.decision_function(test), test_target)), "steps": steps}


def mean_of(cells: Runs, names: tuple[str, ...], condition: str, method: str, seeds: int) -> float:
    """Return the mean over sets of the mean over seeds."""
    return statistics.mean(
        statistics.mean(cells[name, condition, method, seed]["test_ap"] for seed in range(seeds)) for name in names
    )


def print_tables(cells: Runs, names: tuple[str, ...], seeds: int) -> dict[str, Record]:
    """Print each set in percent, then means over sets, with the paired difference and its standard error over the sets."""
    summary: dict[str, Record] = {}
    print(f"{'test AP, %':<34}" + "".join(f"{f'{condition}: {m}':>22}" for condition in CONDITIONS for m in (*METHODS, "gain")))
    unseen = tuple(name for name in names if name not in CHOOSING)
    quoted = tuple(name for name in QUOTED if name in names)
    rows = {name: ((name,), seeds) for name in names}
    rows |= {"mean of all": (names, seeds), "mean of those not chosen on": (unseen, seeds)}
    rows |= {"mean of the eight, 3 seeds": (quoted, min(seeds, QUOTED_SEEDS))}
    for title, (members, count) in rows.items():
        if not members:
            continue
        line, summary[title] = f"{title:<34}", {}
        for condition in CONDITIONS:
            direct, other = (100 * mean_of(cells, members, condition, method, count) for method in METHODS)
            units = members if len(members) > 1 else tuple((members[0], seed) for seed in range(count))
            gaps = [_gap(cells, unit, condition, count) for unit in units]
            error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
            line += f"{direct:>22.2f}{other:>22.2f}{f'{direct - other:+.2f} +- {error:.2f}':>22}"
            summary[title][condition] = {"direct": direct, "cross_entropy": other, "error_of_gain": error}
        print(line)
    return summary


def _gap(cells: Runs, unit: str | tuple[str, int], condition: str, seeds: int) -> float:
    """Return the gain on a set, or on one seed of a set, in percent."""
    name, chosen = (unit, range(seeds)) if isinstance(unit, str) else (unit[0], range(unit[1], unit[1] + 1))
    values = [[cells[name, condition, method, seed]["test_ap"] for seed in chosen] for method in METHODS]
    return 100 * (statistics.mean(values[0]) - statistics.mean(values[1]))


def main() -> None:
    """Run every set, condition, method and seed, print the tables and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the sets, or tabular/ with them")
    parser.add_argument("--seeds", type=int, default=5, help="splits, each with its own networks")
    parser.add_argument("--output", type=Path, help="JSON file for the tables and records")
    parser.add_argument("--quick", action="store_true", help="one small set, few steps, one seed: does it run?")
    arguments = parser.parse_args()
    start = time.perf_counter()
    folder = find_data(arguments.data)
    names, seeds = (("keel_pima",), 1) if arguments.quick else (NAMES, arguments.seeds)
    settings = {"members": 2, "max_iter": 5} if arguments.quick else {}
    data = {name: read_set(folder, name) for name in names}
    defaults = {key: str(value) for key, value in TaskLossClassifier(**settings).get_params().items() if key != "method"}
    store = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    cells: Runs = {}
    with Progress() as progress:
        bar = progress.add_task("", total=len(names) * len(CONDITIONS) * len(METHODS) * seeds)
        # The quoted sets first, then seed by seed: what an interrupted run has makes a table.
        cases = sorted(itertools.product(range(seeds), names, CONDITIONS, METHODS), key=lambda case: case[1] not in QUOTED)
        for seed, name, condition, method in cases:
            progress.update(bar, description=f"seed {seed}, {name}, {condition}, {method}")
            cell = {"set": name, "condition": condition, "method": method, "seed": seed, "defaults": defaults}
            key = (name, condition, method, seed)
            cells[key] = store.run(cell, lambda case=key: run_once(data[case[0]], *case[1:], settings))
            progress.advance(bar)
    summary = print_tables(cells, names, seeds)
    print(
        f"{time.perf_counter() - start:.0f} s in all, {statistics.mean(cell['seconds'] for cell in cells.values()):.1f} s per fit"
    )
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"summary": summary, "records": list(cells.values())}, indent=1))


if __name__ == "__main__":
    main()
