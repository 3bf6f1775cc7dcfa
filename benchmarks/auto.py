"""The default of the estimators, ``method="auto"``, against each of its parts and against boosting: test metric and fit time.

The methods:

- ``auto``: the blend of five ensembles, with the default settings of the estimators;
- ``cross_entropy``, ``direct``, ``hinge``, ``lightgbm``, ``random_forest``: each of these ensembles alone, five members on the
  same folds. They are the parts of the same fit, with the threshold that a fit of their own chooses; a test holds the two to be
  equal;
- ``nothing dropped``, ``nothing dropped, no forest``, ``equal weights``, ``best part``, ``best subset``, ``greedy``: other blends
  of the same parts. The first two weigh networks and trees by one half each. The last three are chosen by the metric of the
  held-out scores: one part; the plain mean of some; weights by adding, twenty times, the part that helps most;
- ``LightGBM tuned``: as in ``benchmarks/boosting.py``: four settings of the trees, at most 300 rounds at a rate of 0.05, stopped
  by the exact metric on 30% of the training samples; the setting with the best validation metric is tested;
- ``HistGradientBoosting``: scikit-learn's, with its default settings, on all training samples; for metrics of labels
  its threshold is chosen by ``TunedThresholdClassifierCV``.

Of at most 4,000 random rows of each table, 40% are the test set. In the condition ``noise``, 20% of the labels of the others are
flipped, for every method the same. Test labels are never changed. ``F1 by MCC`` is the test F1 of models that are trained,
stopped and given a threshold by Matthews' correlation. Seconds are those of the processor, for the fit alone.

How ``auto`` blends and how it grows trees was chosen by test AP on the same tables with other splits (seeds 100 to 102); the
random forest, and when a part is dropped, also on problems of other tables (one class against the rest), the latter by F1 and
recall too. ``--choosing`` runs these splits and those of the problems that share no rows with the tables.

    pip install -e '.[cli,boosting]'
    python -m benchmarks.auto --data FOLDER --output auto.json
    python -m benchmarks.auto --data FOLDER --choosing --seeds 2 --output choosing.json

FOLDER holds the sets, ``bin_*.npz`` and ``keel_*.npz`` (or in ``tabular/``): X (n, d), y 0/1; ``--choosing`` needs those of
several classes, ``mc_*.npz``. With ``--output``, finished runs are kept beside it in a ``.jsonl`` file, and a second call goes on
from there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import torch
from benchmarks.boosting import PATIENCE, RATE, ROUNDS, VALIDATION, all_trees
from benchmarks.cells import Cells, Record
from benchmarks.estimators import NAMES, TEST, find_data, flip, read_set
from rich.progress import Progress
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import TunedThresholdClassifierCV, train_test_split

import taskloss as tl
from taskloss.estimators import TaskLossClassifier, blend, lightgbm_trees
from taskloss.estimators.blend import weigh_parts
from taskloss.estimators.decisions import choose_threshold, is_thresholded
from taskloss.estimators.methods import AUTO_METHODS, RANDOM_FOREST
from taskloss.estimators.problem import best_value
from taskloss.tasks import Task


class Goal(NamedTuple):
    """The metric to train for and to choose thresholds by, and the metric of the test."""

    trained: Task
    tested: Task
    scikit_learn: str
    """Name of the first metric in scikit-learn."""


GOALS = {
    "AP": Goal(tl.AveragePrecision(), tl.AveragePrecision(), "average_precision"),
    "F1": Goal(tl.FScore(), tl.FScore(), "f1"),
    "recall at 1% FPR": Goal(tl.RecallAtFPR(0.01), tl.RecallAtFPR(0.01), ""),
    "F1 by MCC": Goal(tl.MCC(), tl.FScore(), "matthews_corrcoef"),
}
ORDER = (
    (("AP", "clean"), ("AP", "noise")),
    (("F1", "clean"), ("recall at 1% FPR", "clean")),
    (("F1", "noise"), ("F1 by MCC", "noise")),
    (("F1 by MCC", "clean"), ("recall at 1% FPR", "noise")),
)
"""What is run first: a pair at a time, split by split, so that what an interrupted run has makes a table."""
CHOOSING = (
    *("mc_glass:2", "mc_glass:5", "mc_glass:0", "mc_krvsk:5", "mc_krvsk:11", "mc_krvsk:16", "mc_krvsk:13"),
    *("mc_vehicle:0", "mc_vehicle:1", "mc_vowel:4"),
)
"""Table and positive class."""
FIRST_CHOOSING_SEED = 100
MOST_ROWS = 4_000
TUNED, SCIKIT_LEARN = "LightGBM tuned", "HistGradientBoosting"
OTHER_BLENDS = ("nothing dropped", "nothing dropped, no forest", "equal weights", "best part", "best subset", "greedy")
GREEDY_STEPS = 20
METHODS = ("auto", *AUTO_METHODS, *OTHER_BLENDS, TUNED, SCIKIT_LEARN)

Data = tuple[np.ndarray, np.ndarray]
Result = tuple[float, float]
"""Test metric and processor seconds of the fit."""


class TimedClassifier(TaskLossClassifier):
    """The classifier, which notes the time of each part and its held-out scores."""

    def _fit_part(self, plan: Any, data: Any) -> Any:
        start = time.process_time()
        part, scores, known = super()._fit_part(plan, data)
        self.__dict__.setdefault("noted", {})[part.problem.method] = (time.process_time() - start, scores[known], known)
        return part, scores, known


def defaults_of(settings: Record) -> Record:
    """Return what a fit with these settings depends on besides its data, for the cells of finished runs."""
    parameters = {key: str(given) for key, given in TaskLossClassifier(**settings).get_params().items()}
    constants = {
        name: str(getattr(module, name))
        for module in (lightgbm_trees, blend)
        for name in vars(module)
        if name.isupper() and isinstance(getattr(module, name), int | float | tuple | lightgbm_trees.TreeSettings)
    }
    return {**parameters, **constants, "parts": AUTO_METHODS}


def value(task: Task, scores: np.ndarray, target: np.ndarray, threshold: float) -> float:
    """Return the metric of test scores; a metric of labels uses the threshold."""
    return float(task.score(np.asarray(scores, np.float64) - (threshold if is_thresholded(task) else 0.0), target))


def fit_auto(goal: Goal, training: Data, test: Data, seed: int, settings: Record) -> dict[str, Result]:
    """Fit the blend; return its result and those of its parts."""
    task, tested = goal.trained, goal.tested
    model = TimedClassifier(task, random_state=seed, pos_label=1, **settings)
    start = time.process_time()
    model.fit(*training)
    seconds_of_all = time.process_time() - start
    features = model.features_.transform(test[0])
    results = {"auto": (value(tested, model.decision_function(test[0]), test[1], 0.0), seconds_of_all)}
    held_out_scores, test_scores = [], []
    for part in model.ensemble_.parts:
        seconds, held_out, known = model.noted[part.problem.method]
        threshold = choose_threshold(task, held_out, training[1][known])
        scores = part.scores(features, test[0])
        results[part.problem.method] = (value(tested, scores, test[1], threshold), seconds)
        held_out_scores.append(part.standardize(held_out))
        test_scores.append(part.standardize(scores))
    blends = {
        "nothing dropped": np.array(weigh_parts(model.ensemble_.parts, [True] * len(AUTO_METHODS))),
        "nothing dropped, no forest": np.array(
            weigh_parts(model.ensemble_.parts, [method != RANDOM_FOREST for method in AUTO_METHODS])
        ),
        **choose_weights(task, np.array(held_out_scores), training[1][known]),
    }
    for name, weights in blends.items():
        threshold = choose_threshold(task, weights @ held_out_scores, training[1][known])
        results[name] = (value(tested, weights @ test_scores, test[1], threshold), seconds_of_all)
    return results


def choose_weights(task: Task, scores: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
    """Return the weights of the parts by rule; those that are chosen are best for the held-out scores ``(parts, n)``."""
    parts = np.eye(len(scores))
    subsets = [np.mean(chosen, axis=0) for size in range(1, len(parts) + 1) for chosen in itertools.combinations(parts, size)]

    def best(candidates: Iterable[np.ndarray]) -> np.ndarray:
        return max(candidates, key=lambda weights: _best(task, weights @ scores, target))

    greedy = np.zeros(len(parts))
    for _ in range(GREEDY_STEPS):
        greedy = best(greedy + part for part in parts)
    chosen = {"best part": best(parts), "best subset": best(subsets), "greedy": greedy / GREEDY_STEPS}
    return {"equal weights": subsets[-1], **chosen}


def fit_tuned(goal: Goal, training: Data, test: Data, seed: int) -> Result:
    """Fit LightGBM with each setting of the trees; return the result of the one with the best validation metric."""
    task = goal.trained
    start = time.process_time()
    fitted, held_out, target, held_out_target = train_test_split(
        *training, test_size=VALIDATION, stratify=training[1], random_state=seed
    )
    fixed = {"metric": "None", "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1, "seed": seed}
    trials = []
    for trees in all_trees("LightGBM"):
        samples = lightgbm.Dataset(fitted, target)
        model = lightgbm.train(
            {**fixed, **trees, "objective": "binary", "learning_rate": RATE},
            samples,
            ROUNDS,
            valid_sets=[lightgbm.Dataset(held_out, held_out_target, reference=samples)],
            feval=lambda scores, _: ("metric", _best(task, scores, held_out_target), True),
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )
        scores = np.asarray(model.predict(held_out, raw_score=True))
        trials.append((_best(task, scores, held_out_target), model, choose_threshold(task, scores, held_out_target)))
    _, model, threshold = max(trials, key=lambda trial: trial[0])
    seconds = time.process_time() - start
    return value(goal.tested, model.predict(test[0], raw_score=True), test[1], threshold), seconds


def _best(task: Task, scores: np.ndarray, target: np.ndarray) -> float:
    """Return the metric, that of labels at its best threshold."""
    return best_value(task, scores, target) if is_thresholded(task) else float(task.score(scores, target))


def fit_scikit_learn(goal: Goal, training: Data, test: Data, seed: int) -> Result:
    """Fit scikit-learn's boosting with its default settings."""
    start = time.process_time()
    model: Any = HistGradientBoostingClassifier(random_state=seed)
    if is_thresholded(goal.trained):
        model = TunedThresholdClassifierCV(model, scoring=goal.scikit_learn, cv=5, random_state=seed).fit(*training)
        scores = model.predict(test[0]) - 0.5
    else:
        scores = model.fit(*training).decision_function(test[0])
    return value(goal.tested, scores, test[1], 0.0), time.process_time() - start


def run_once(data: Data, metric: str, condition: str, seed: int, settings: Record) -> Record:
    """Fit every method to one split."""
    goal = GOALS[metric]
    seen, test, seen_target, test_target = train_test_split(*data, test_size=TEST, stratify=data[1], random_state=seed)
    training = seen, flip(seen_target, seed) if condition == "noise" else seen_target
    results = fit_auto(goal, training, (test, test_target), seed, settings)
    results[TUNED] = fit_tuned(goal, training, (test, test_target), seed)
    results[SCIKIT_LEARN] = fit_scikit_learn(goal, training, (test, test_target), seed)
    return {"test": {name: result[0] for name, result in results.items()}, "cpu": {name: r[1] for name, r in results.items()}}


def summarize(records: list[Record]) -> dict[str, Record]:
    """Return for each method the mean in percent, the lead of ``auto`` with its standard error over the sets, and the worst set.

    The worst set is the one on which ``auto`` is farthest behind, with the standard error of that difference over the seeds.
    """
    sets = sorted({record["set"] for record in records})
    summary: dict[str, Record] = {}
    for method in METHODS:
        values = {name: [100 * r["test"][method] for r in records if r["set"] == name] for name in sets}
        leads = {name: [100 * (r["test"]["auto"] - r["test"][method]) for r in records if r["set"] == name] for name in sets}
        means = {name: statistics.mean(lead) for name, lead in leads.items()}
        worst = min(means, key=lambda name: means[name])
        summary[method] = {
            "mean": statistics.mean(map(statistics.mean, values.values())),
            "lead": statistics.mean(means.values()),
            "error_of_lead": _error(list(means.values())),
            "worst_set": worst,
            "worst": means[worst],
            "error_of_worst": _error(leads[worst]),
            "cpu": statistics.mean(record["cpu"][method] for record in records),
            "sets": len(sets),
            "runs": len(records),
        }
    return summary


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def print_tables(records: list[Record]) -> dict[str, dict[str, Record]]:
    """Print a table per metric and condition."""
    tables = {}
    for metric, condition in itertools.chain(*ORDER):
        chosen = [record for record in records if (record["metric"], record["condition"]) == (metric, condition)]
        if not chosen:
            continue
        tables[f"{metric}, {condition}"] = rows = summarize(chosen)
        title = f"test {metric}, %, {condition}, {rows['auto']['sets']} tables"
        print(f"\n{title:<48}{'mean':>7}{'lead of auto':>18}{'worst table':>52}{'CPU s':>8}")
        for method, row in rows.items():
            lead, worst = (f"{row[k]:+.2f} +- {row[f'error_of_{k}']:.2f}" for k in ("lead", "worst"))
            print(f"{method:<48}{row['mean']:>7.2f}{lead:>18}{row['worst_set'] + ' ' + worst:>52}{row['cpu']:>8.1f}")
    return tables


def main() -> None:
    """Run every set, condition, metric and seed, print the tables and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the sets, or tabular/ with them")
    parser.add_argument("--seeds", type=int, default=5, help="splits of each table")
    parser.add_argument("--choosing", action="store_true", help="the splits that the blend was chosen on")
    parser.add_argument("--output", type=Path, help="JSON file for the tables and records")
    parser.add_argument("--quick", action="store_true", help="one small set, few steps, one seed: does it run?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    folder = find_data(arguments.data)
    names, first_seed = ((*NAMES, *CHOOSING), FIRST_CHOOSING_SEED) if arguments.choosing else (NAMES, 0)
    names = (("mc_glass:5",) if arguments.choosing else ("keel_pima",)) if arguments.quick else names
    seeds = range(first_seed, first_seed + (1 if arguments.quick else arguments.seeds))
    settings = {"members": 2, "max_iter": 5} if arguments.quick else {}
    defaults = defaults_of(settings)
    store = Cells(arguments.output and arguments.output.with_suffix(".jsonl"))

    @functools.lru_cache(maxsize=len(names))
    def read(name: str) -> Data:
        table, _, positive = name.partition(":")
        features, target = read_set(folder, table)
        target = (target == int(positive)).astype(np.int64) if positive else target
        return features[:MOST_ROWS], target[:MOST_ROWS]

    cases = [case for pair in (ORDER[:2] if arguments.choosing else ORDER) for case in itertools.product(seeds, pair, names)]
    records = []
    with Progress() as progress:
        bar = progress.add_task("", total=len(cases))
        for seed, (metric, condition), name in cases:
            progress.update(bar, description=f"{metric}, {condition}, seed {seed}, {name}")
            cell = {"set": name, "metric": metric, "condition": condition, "seed": seed, "defaults": defaults}
            run = functools.partial(run_once, read(name), metric, condition, seed, settings)
            records.append(store.run(cell, run))
            progress.advance(bar)
    summary = print_tables(records)
    print(f"{time.perf_counter() - start:.0f} s in all")
    store.write_summary(arguments.output, summary)


if __name__ == "__main__":
    main()
