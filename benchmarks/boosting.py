"""Gradient boosting: the direct gradient against the objectives of LightGBM and XGBoost, on clean and on noisy labels.

Three metrics: AP and F1 on eight binary tables, NDCG@10 of graded relevance on the five folds of MQ2008. All methods of a
library get the same 300 rounds, learning rate, trees to choose from (``GRIDS``, four settings) and stopping by the exact metric
on validation samples; the setting with the best validation metric is tested. There are four methods:

- ``own``: log loss for tables, lambdarank (LightGBM) or rank:ndcg (XGBoost) for queries;
- ``late``: the same, but early stopping ignores the first 50 rounds (20 for queries), as it must in ``direct``: a control;
- ``direct``: the first 50 of the 300 rounds (20 for queries) by the same objective, the others by the direct gradient of the
  metric, epsilon 1, positive update, secant hessian;
- ``finish``: direct with epsilon 0.3, from the round at which early stopping would have ended ``own`` with the same trees.

Of at most 4,000 random rows of each table, 40% are the test set, and 30% of the rest are for validation. F1 is measured at the
threshold that is best for it on the validation samples. There are two conditions: ``clean``, and ``noise``, where 20% of the
labels of training and validation samples are flipped, whatever their class (documents: irrelevant to grade 1, relevant to 0).
Test labels are never changed.

Warm-up, epsilon, update and hessian were chosen with LightGBM by test AP on ``CHOOSING`` with other splits (seeds 100 to 102);
``finish`` was added, by the same splits, after ``direct`` had run on seed 0, and ``late`` after all runs of ``direct``. The
tables also give the mean over the sets that were not used for these choices. F1 uses the settings of AP. The warm-up for
queries was chosen by the validation NDCG of the first two folds.

    pip install -e '.[cli,boosting]'
    python -m benchmarks.boosting --data FOLDER --output boosting.json

FOLDER holds ``tabular/`` with the sets, X (n, d), y 0/1, and ``ltr/mq2008.npz``. With ``--output``, finished runs are kept
beside it in a ``.jsonl`` file, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import torch
import xgboost
from benchmarks import mq2008
from benchmarks.cells import Cells, Record
from benchmarks.estimators import QUOTED, flip
from rich.progress import Progress
from sklearn.model_selection import train_test_split

import taskloss as tl
from taskloss import boosting

CHOOSING = ("bin_pageblocks", "bin_wilt", "keel_pima")
NAMES = QUOTED
QUERIES = "mq2008"
MOST_ROWS = 4_000
TEST, VALIDATION = 0.4, 0.3
CONDITIONS = ("clean", "noise")
METHODS = ("own", "late", "direct", "finish")
ROUNDS, PATIENCE = 300, 50
WARM_UP = {"AP": 50, "F1": 50, "NDCG@10": 20}
LEAST_FINISH = 50
"""Smallest number of rounds that the library's own objective leaves to the direct gradient."""
EPSILON = {"direct": 1.0, "finish": 0.3}
RATE = 0.05
GRIDS = {
    "LightGBM": {"num_leaves": (4, 15), "min_data_in_leaf": (20, 100)},
    "XGBoost": {"max_depth": (2, 4), "min_child_weight": (1, 20)},
}
TASKS = {"AP": tl.AveragePrecision(), "F1": tl.FScore(), "NDCG@10": tl.GradedNDCG()}


class Part(NamedTuple):
    """Samples; those of one query are consecutive, and ``sizes`` holds their number per query."""

    features: np.ndarray
    target: np.ndarray
    sizes: np.ndarray | None = None


class Split(NamedTuple):
    """The samples of one seed or fold."""

    training: Part
    validation: Part
    test: Part


Value = Callable[[np.ndarray, Part], float]
Fitted = tuple[int, Callable[[np.ndarray], np.ndarray]]
"""The round with the best validation metric, and the scores of features by the trees up to it."""


def best_f1(scores: np.ndarray, part: Part) -> float:
    """Return the highest F1 that a threshold reaches."""
    threshold = tl.thresholds.for_f_score(scores, part.target).threshold
    return float(tl.metrics.fbeta_score(scores - threshold, part.target))


VALUES: dict[str, Value] = {
    "AP": lambda scores, part: float(tl.metrics.average_precision_score(scores, part.target)),
    "F1": best_f1,
    "NDCG@10": lambda scores, part: mq2008.ndcg_at_10(scores, part.target, np.repeat(np.arange(len(part.sizes)), part.sizes)),
}


def read_split(folder: Path, name: str, condition: str, seed: int) -> Split:
    """Read one split of a table, or one fold of MQ2008."""
    if name == QUERIES:
        fold = mq2008.read_folds(mq2008.find_data(folder))[seed]
        parts = [Part(p.features, p.relevance, np.unique(p.query, return_counts=True)[1]) for p in fold]
    else:
        with np.load(folder / "tabular" / f"{name}.npz", allow_pickle=False) as file:
            rows = np.random.default_rng(0).permutation(len(file["y"]))[:MOST_ROWS]
            features, target = file["X"][rows].astype(np.float64), file["y"][rows].astype(np.int64)
        seen, test, seen_target, test_target = train_test_split(
            features, target, test_size=TEST, stratify=target, random_state=seed
        )
        split = train_test_split(seen, seen_target, test_size=VALIDATION, stratify=seen_target, random_state=seed)
        parts = [Part(split[0], split[2]), Part(split[1], split[3]), Part(test, test_target)]
    if condition == "noise":
        parts[:2] = [part._replace(target=corrupt(part.target, seed + index)) for index, part in enumerate(parts[:2])]
    return Split(*parts)


def corrupt(target: np.ndarray, seed: int) -> np.ndarray:
    """Flip 20% of the labels; a flipped grade is 0 or 1.

    >>> corrupt(np.array([0, 0, 1, 2, 2]), 1).tolist()
    [0, 0, 1, 2, 0]
    """
    binary = np.minimum(target, 1)
    flipped = flip(binary, seed)
    return np.where(flipped == binary, target, flipped)


def fit_lightgbm(split: Split, metric: str, method: str, trees: Record, rounds: int, seed: int) -> Fitted:
    """Fit LightGBM to the training samples, stopped by the validation samples."""
    fixed = {"metric": "None", "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1, "seed": seed}
    objective = "lambdarank" if split.training.sizes is not None else "binary"
    params = {**fixed, **trees, "objective": objective, "learning_rate": RATE}
    # Made anew for each fit: LightGBM keeps the scores of the first stage in them.
    training, validation = (lightgbm.Dataset(*part[:2], group=part.sizes, free_raw_data=False) for part in split[:2])
    watch = watched(metric, method, split.validation)
    options = {
        "valid_sets": [validation.set_reference(training)],
        "feval": lambda scores, _: (metric, watch(scores), True),
        "callbacks": [lightgbm.early_stopping(PATIENCE, verbose=False)],
    }
    if method in ("own", "late"):
        model = lightgbm.train(params, training, rounds, **options)
    else:
        warm_up = first_rounds(fit_lightgbm, split, metric, method, trees, rounds, seed)
        direct = boosting.lightgbm_objective(TASKS[metric], epsilon=EPSILON[method])
        model, _ = boosting.train_lightgbm(params, training, rounds, direct, warm_up=warm_up, **options)
    return model.best_iteration, functools.partial(model.predict, raw_score=True)


def fit_xgboost(split: Split, metric: str, method: str, trees: Record, rounds: int, seed: int) -> Fitted:
    """Fit XGBoost to the training samples, stopped by the validation samples."""
    objective = "rank:ndcg" if split.training.sizes is not None else "binary:logistic"
    fixed = {"nthread": 1, "seed": seed, "disable_default_eval_metric": 1, "tree_method": "hist"}
    params = {**fixed, **trees, "objective": objective, "learning_rate": RATE}
    training, validation = (xgboost.DMatrix(*part[:2]) for part in split[:2])
    for matrix, part in zip((training, validation), split, strict=False):
        if part.sizes is not None:
            matrix.set_group(part.sizes)
    watch = watched(metric, method, split.validation)
    options = {
        "evals": [(validation, "validation")],
        "custom_metric": lambda scores, _: ("loss", 1 - watch(scores)),
        "early_stopping_rounds": PATIENCE,
        "verbose_eval": False,
    }
    if method in ("own", "late"):
        model = xgboost.train(params, training, rounds, **options)
    else:
        warm_up = first_rounds(fit_xgboost, split, metric, method, trees, rounds, seed)
        direct = boosting.xgboost_objective(TASKS[metric], epsilon=EPSILON[method])
        model, _ = boosting.train_xgboost(params, training, rounds, direct, warm_up=warm_up, **options)
    best = model.best_iteration + 1
    return best, lambda features: model.predict(xgboost.DMatrix(features), output_margin=True, iteration_range=(0, best))


def watched(metric: str, method: str, validation: Part) -> Callable[[np.ndarray], float]:
    """Return the metric that stops a training; it is called once per round, and is 0 in the rounds that do not count."""
    rounds = itertools.count()
    ignored = WARM_UP[metric] if method == "late" else 0
    return lambda scores: 0.0 if next(rounds) < ignored else VALUES[metric](scores, validation)


def first_rounds(
    fit: Callable[..., Fitted], split: Split, metric: str, method: str, trees: Record, rounds: int, seed: int
) -> int:
    """Return how many rounds the library's own objective gets before the direct gradient."""
    wanted = WARM_UP[metric] if method == "direct" else fit(split, metric, "own", trees, rounds, seed)[0]
    return max(1, min(wanted, rounds - LEAST_FINISH, rounds // 2 if method == "direct" else rounds))


FITS = {"LightGBM": fit_lightgbm, "XGBoost": fit_xgboost}


def all_trees(library: str) -> list[Record]:
    """Return every setting of the trees."""
    return [dict(zip(GRIDS[library], values, strict=True)) for values in itertools.product(*GRIDS[library].values())]


def run_once(split: Split, metric: str, library: str, method: str, seed: int, rounds: int) -> Record:
    """Fit every setting, and test the one with the best validation metric."""
    trials = []
    for trees in all_trees(library):
        best, predict = FITS[library](split, metric, method, trees, rounds, seed)
        value = VALUES[metric](predict(split.validation.features), split.validation)
        trials.append((value, trees, best, predict))
    value, trees, best, predict = max(trials, key=lambda trial: trial[0])
    scores = np.asarray(predict(split.test.features), np.float64)
    if metric == "F1":
        held_out = np.asarray(predict(split.validation.features), np.float64)
        scores = scores - tl.thresholds.for_f_score(held_out, split.validation.target).threshold
        test = float(tl.metrics.fbeta_score(scores, split.test.target))
    else:
        test = VALUES[metric](scores, split.test)
    return {"validation": value, "test": test, "settings": trees, "rounds": best}


def summarize(records: Iterable[Record], case: tuple[str, str, str], method: str, names: tuple[str, ...]) -> Record | None:
    """Return the means of a method and of ``own`` in percent, and the gain with its standard error.

    The error is over the sets, or over the seeds (folds) if there is only one set.
    """
    chosen = [
        record
        for record in records
        if (record["metric"], record["library"], record["condition"]) == case and record["set"] in names
    ]
    cells = {(record["set"], record["seed"], record["method"]): 100 * record["test"] for record in chosen}
    pairs = sorted({key[:2] for key in cells if all((*key[:2], name) in cells for name in ("own", method))})
    if not pairs:
        return None
    gaps = {pair: cells[(*pair, method)] - cells[(*pair, "own")] for pair in pairs}
    sets = sorted({name for name, _ in pairs})
    units = [statistics.mean(gaps[pair] for pair in pairs if pair[0] == name) for name in sets]
    own, ours = (
        statistics.mean(statistics.mean(cells[(*pair, compared)] for pair in pairs if pair[0] == name) for name in sets)
        for compared in ("own", method)
    )
    spread = units if len(sets) > 1 else list(gaps.values())
    error = statistics.stdev(spread) / len(spread) ** 0.5 if len(spread) > 1 else 0.0
    higher = sum(gap > 0 for gap in spread)
    return {"own": own, method: ours, "gain": ours - own, "error_of_gain": error, "higher": higher, "of": len(spread)}


def print_tables(records: list[Record]) -> dict[str, Record]:
    """Print, for each metric, library and condition, the means of all sets, of those not chosen on, and of each set."""
    summary: dict[str, Record] = {}
    unseen = tuple(name for name in NAMES if name not in CHOOSING)
    for case in itertools.product(TASKS, GRIDS, CONDITIONS):
        rows = {"all": (*NAMES, QUERIES), "not chosen on": unseen, **{name: (name,) for name in NAMES}}
        lines = []
        for title, names in rows.items():
            row_of = {method: summarize(records, case, method, names) for method in METHODS[1:]}
            summary |= {f"{', '.join(case)}, {method}, {title}": row for method, row in row_of.items() if row is not None}
            lines += [f"{title:<24}{row_text(row_of)}"] if any(row_of.values()) else []
        if lines:
            head = "".join(f"{method:>9}{'gain':>25}" for method in METHODS[1:])
            print(f"\n{f'test {case[0]}, %, {case[1]}, {case[2]}':<34}{'own':>9}{head}")
            print(*lines, sep="\n")
    return summary


def row_text(row_of: dict[str, Record | None]) -> str:
    """Write one line of a table from the rows by method."""
    text = "".join(f"{row['own']:>19.2f}" for row in [row for row in row_of.values() if row is not None][:1])
    for method, row in row_of.items():
        if row is None:
            text += " " * 34
        else:
            gain = f"{row['gain']:+.2f} +- {row['error_of_gain']:.2f} ({row['higher']} of {row['of']})"
            text += f"{row[method]:>9.2f}{gain:>25}"
    return text


def plan(quick: bool, seeds: int) -> list[tuple[int, str, str, str]]:
    """Return seed, set, metric and library of all runs: F1 last, seed by seed, so that an interrupted run has a table."""
    if quick:
        return [(0, "keel_pima", metric, library) for metric in ("AP", "F1") for library in GRIDS]
    first, last = [*((name, "AP") for name in NAMES), (QUERIES, "NDCG@10")], [(name, "F1") for name in NAMES]
    cases = [(seed, *case, library) for part in (first, last) for seed in range(seeds) for case in part for library in GRIDS]
    return [case for case in cases if case[1] != QUERIES or case[0] < mq2008.FOLDS]


def main() -> None:
    """Run every case, print the tables and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds tabular/ and ltr/mq2008.npz")
    parser.add_argument("--seeds", type=int, default=5, help="splits of each table, folds of MQ2008")
    parser.add_argument("--output", type=Path, help="JSON file for the tables and records")
    parser.add_argument("--quick", action="store_true", help="one small set, few rounds, one seed: does it run?")
    arguments = parser.parse_args()
    if not (arguments.data / "tabular").is_dir():
        raise SystemExit(f"--data {arguments.data}: expected a folder that holds tabular/ and ltr/mq2008.npz")
    torch.set_num_threads(1)
    start = time.perf_counter()
    rounds = 20 if arguments.quick else ROUNDS
    store = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))
    read = functools.lru_cache(maxsize=4)(functools.partial(read_split, arguments.data))
    records: list[Record] = []
    cases = list(itertools.product(plan(arguments.quick, arguments.seeds), CONDITIONS, METHODS))
    cases.sort(key=lambda case: case[2] == "finish")  # It takes the longest, and the tables do without it.
    with Progress() as progress:
        bar = progress.add_task("", total=len(cases))
        for (seed, name, metric, library), condition, method in cases:
            progress.update(bar, description=f"seed {seed}, {name}, {metric}, {library}, {condition}, {method}")
            cell: dict[str, Any] = {"set": name, "seed": seed, "condition": condition, "metric": metric}
            cell |= {"library": library, "method": method, "rounds_at_most": rounds}
            run = functools.partial(run_once, metric=metric, library=library, method=method, seed=seed, rounds=rounds)
            records.append(store.run(cell, lambda r=run, key=(name, condition, seed): r(read(*key))))
            progress.advance(bar)
    summary = print_tables(records)
    print(f"\n{time.perf_counter() - start:.0f} s in all, {statistics.mean(r['seconds'] for r in records):.1f} s per run")
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"summary": summary, "records": records}, indent=1))


if __name__ == "__main__":
    main()
