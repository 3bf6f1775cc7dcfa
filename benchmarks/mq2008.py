"""Learning to rank on MQ2008 (LETOR 4.0; Qin and Liu 2013): test NDCG@10 and MAP over the official five folds.

The same net is trained by five losses, full batch, one ranking per query: direct NDCG of the grades, direct NDCG, direct AP,
cross-entropy of each document, and RankNet's logistic loss of the pairs of a query (Burges et al. 2005). LightGBM's lambdarank
is the reference. Graded NDCG and lambdarank learn from the grades 0, 1, 2, the other nets from relevance >= 1, and so does
lambdarank in a second row.

Every method has a grid of four settings. Validation NDCG@10 stops each run and, in each fold, chooses the settings on the first
seed, which is kept; the other seeds then run with them. LightGBM has no randomness here, so one seed. Queries without a relevant
document (220 of 784) have no metric and are left out of the means, so the figures are higher than those published with such
queries counted as zero.

    pip install -e '.[boosting,cli,estimators]'
    python -m benchmarks.mq2008 --data FOLDER --output mq2008.json

FOLDER holds ``mq2008.npz`` (or ``ltr/mq2008.npz``): X (n, 46) float, y 0/1/2, qid, and part, 1 to 5 for S1 to S5.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor, nn

import taskloss as tl
from taskloss.training import TrainingData, TrainingSettings, build_mlp, train

FOLDS = 5
ITERATIONS, PATIENCE = 300, 75
TREES, TREE_PATIENCE = 500, 50

Settings = dict[str, float]
Record = dict[str, Any]
Criterion = Callable[[Tensor, Tensor], Tensor]


class Documents(NamedTuple):
    """One part of the data, one row per document; the rows of a query are consecutive, in the order of the ids."""

    features: np.ndarray
    relevance: np.ndarray
    query: np.ndarray


class Fold(NamedTuple):
    """One of the official splits."""

    training: Documents
    validation: Documents
    test: Documents


MakeCriterion = Callable[[Documents, Settings], Criterion]


def find_data(folder: Path) -> Path:
    """Return the data file in the folder that ``--data`` names."""
    for path in (folder / "mq2008.npz", folder / "ltr" / "mq2008.npz"):
        if path.is_file():
            return path
    raise SystemExit(f"--data {folder}: expected a folder that holds mq2008.npz or ltr/mq2008.npz; neither is there")


def read_folds(path: Path) -> list[Fold]:
    """Read the folds: f trains on S_f, S_f+1, S_f+2, validates on the next part and tests on the last, as LETOR prescribes."""
    with np.load(path) as file:
        order = np.argsort(file["qid"], kind="stable")
        features, relevance, query, part = (file[name][order] for name in ("X", "y", "qid", "part"))
    folds = []
    for first in range(FOLDS):
        distance = (part.astype(int) - 1 - first) % FOLDS
        masks = (distance < 3, distance == 3, distance == 4)
        # The features are scaled to [0, 1] within each query already; the net wants unit variance, measured on training rows.
        mean, deviation = features[masks[0]].mean(0), features[masks[0]].std(0)
        scaled = (features - mean) / np.where(deviation > 0, deviation, 1)
        folds.append(Fold(*(Documents(scaled[mask], relevance[mask].astype(np.int64), query[mask]) for mask in masks)))
    return folds


def ndcg_at_10(scores: np.ndarray, relevance: np.ndarray, query: np.ndarray) -> float:
    """Return graded NDCG@10, mean over the queries with a relevant document (none has only documents of one grade above 0)."""
    return float(tl.metrics.graded_ndcg_score(scores, relevance, groups=query, at=10))


def evaluate(scores: np.ndarray, documents: Documents) -> dict[str, float]:
    """Return graded NDCG@10, and MAP of relevance >= 1 over queries with a relevant document (no query has only such ones)."""
    _, relevance, query = documents
    average_precision = tl.metrics.average_precision_score(scores, relevance >= 1, groups=query)
    return {"ndcg": ndcg_at_10(scores, relevance, query), "map": float(average_precision)}


def direct(task: str) -> MakeCriterion:
    """Return a maker of the direct loss of a task, mean over the queries; a graded task gets the grades."""
    graded = tl.tasks.as_task(task).target_kind == "graded"

    def make(training: Documents, settings: Settings) -> Criterion:
        loss, groups = tl.DirectLoss(task, epsilon=settings["epsilon"]), torch.from_numpy(training.query)
        return lambda scores, relevance: loss(scores, relevance if graded else relevance >= 1, groups=groups)

    return make


def cross_entropy(training: Documents, settings: Settings) -> Criterion:
    """Return the logistic loss of each document, whatever its query."""
    return lambda scores, relevance: nn.functional.binary_cross_entropy_with_logits(scores, (relevance >= 1).to(scores.dtype))


def ranknet(training: Documents, settings: Settings) -> Criterion:
    """Return the logistic loss of the (relevant, irrelevant) pairs of a query, mean over its pairs, then over the queries."""
    relevant, query = training.relevance >= 1, training.query
    better, worse = np.nonzero((query[:, None] == query) & relevant[:, None] & ~relevant)
    _, query_index, pairs = np.unique(query[better], return_inverse=True, return_counts=True)
    share = torch.from_numpy((1 / (pairs * len(pairs)))[query_index].astype(np.float32))
    above, below = torch.from_numpy(better), torch.from_numpy(worse)
    return lambda scores, _: (nn.functional.softplus(scores[below] - scores[above]) * share).sum()


def run_net(make: MakeCriterion, fold: Fold, settings: Settings, seed: int) -> tuple[Record, np.ndarray]:
    """Train the net with one loss; return its validation NDCG@10 and the test scores."""
    training, validation, test = (
        TrainingData(torch.from_numpy(part.features), torch.from_numpy(part.relevance)) for part in fold
    )
    net = build_mlp(training.features.shape[1], seed=seed)
    budget = TrainingSettings(
        iterations=ITERATIONS,
        patience=PATIENCE,
        learning_rate=settings["learning_rate"],
        weight_decay=settings["weight_decay"],
    )

    def metric(scores: Tensor, relevance: Tensor) -> float:
        return ndcg_at_10(scores.numpy(), relevance.numpy(), fold.validation.query)

    criterion = make(fold.training, settings)
    result = train(net, criterion, training, validation, settings=budget, metric=metric, seed=seed)
    with torch.no_grad():
        scores = net(test.features).numpy()
    return {"validation_ndcg": result.best_metric, "steps": result.best_iteration}, scores


def run_lambdarank(grades: int, fold: Fold, settings: Settings, seed: int) -> tuple[Record, np.ndarray]:
    """Train LightGBM's lambdarank on relevance cut off at ``grades``, stopped by the same NDCG@10 as the nets."""
    rate, leaves = settings["learning_rate"], int(settings["num_leaves"])
    fixed = {"n_jobs": 1, "metric": "None", "deterministic": True, "force_row_wise": True, "verbosity": -1}
    ranker = lightgbm.LGBMRanker(n_estimators=TREES, learning_rate=rate, num_leaves=leaves, random_state=seed, **fixed)
    training, validation, test = fold

    def metric(_: np.ndarray, scores: np.ndarray) -> tuple[str, float, bool]:
        return "ndcg", ndcg_at_10(scores, validation.relevance, validation.query), True

    with warnings.catch_warnings():
        # LightGBM 4.7 renames eval_set; 4.5 knows only the old name.
        warnings.filterwarnings("ignore", "The argument 'eval_set' is deprecated")
        ranker.fit(
            training.features,
            np.minimum(training.relevance, grades),
            group=np.unique(training.query, return_counts=True)[1],
            eval_set=[(validation.features, validation.relevance)],
            eval_group=[np.unique(validation.query, return_counts=True)[1]],
            eval_metric=metric,
            callbacks=[lightgbm.early_stopping(TREE_PATIENCE, verbose=False)],
        )
    record = {"validation_ndcg": ranker.best_score_["valid_0"]["ndcg"], "steps": ranker.best_iteration_}
    return record, ranker.predict(test.features)


class Method(NamedTuple):
    """A function that makes one run, the settings to choose from, and whether seeds make a difference."""

    run: Callable[[Fold, Settings, int], tuple[Record, np.ndarray]]
    grid: dict[str, tuple[float, ...]]
    random: bool = True

    def all_settings(self) -> list[Settings]:
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]


# Four settings each. At decay 1, validation preferred rate 0.01 to 0.003 for direct NDCG and AP in every fold; they vary epsilon,
# and the graded loss has their grid.
DIRECT_GRID = {"learning_rate": (0.01,), "weight_decay": (0.01, 1.0), "epsilon": (0.3, 1.0)}
PLAIN_GRID = {"learning_rate": (0.003, 0.01), "weight_decay": (0.01, 1.0)}
TREE_GRID = {"learning_rate": (0.03, 0.1), "num_leaves": (7.0, 31.0)}
METHODS = {
    "direct graded NDCG": Method(partial(run_net, direct("graded_ndcg")), DIRECT_GRID),
    "direct NDCG": Method(partial(run_net, direct("ndcg")), DIRECT_GRID),
    "direct AP": Method(partial(run_net, direct("average_precision")), DIRECT_GRID),
    "cross-entropy": Method(partial(run_net, cross_entropy), PLAIN_GRID),
    "RankNet": Method(partial(run_net, ranknet), PLAIN_GRID),
    "lambdarank": Method(partial(run_lambdarank, 2), TREE_GRID, random=False),
    "lambdarank, binary": Method(partial(run_lambdarank, 1), TREE_GRID, random=False),
}


def run_once(name: str, fold: Fold, settings: Settings, seed: int) -> Record:
    """Make one run and return its settings and test metrics."""
    start = time.perf_counter()
    record, scores = METHODS[name].run(fold, settings, seed)
    test = {f"test_{metric}": value for metric, value in evaluate(scores, fold.test).items()}
    return {"method": name, "seed": seed, "settings": settings, **record, **test, "seconds": time.perf_counter() - start}


def run_fold(name: str, fold: Fold, seeds: int, advance: Callable[[], None]) -> list[Record]:
    """Choose the settings on the first seed by validation NDCG@10; return one record per seed."""
    trials = []
    for settings in METHODS[name].all_settings():
        trials.append(run_once(name, fold, settings, 0))
        advance()
    records = [best := max(trials, key=lambda trial: trial["validation_ndcg"])]
    for seed in range(1, seeds if METHODS[name].random else 1):
        records.append(run_once(name, fold, best["settings"], seed))
        advance()
    return records


def summarize(records: list[Record], metric: str) -> dict[str, Any]:
    """Return the mean over folds of the means over seeds, and deviations over the folds and (pooled) over a fold's seeds."""
    by_fold = [[record[metric] for record in records if record["fold"] == fold] for fold in range(1, FOLDS + 1)]
    means = [statistics.mean(values) for values in by_fold]
    variances = [statistics.variance(values) for values in by_fold if len(values) > 1]
    return {
        "mean": statistics.mean(means),
        "over_folds": statistics.stdev(means),
        "over_seeds": statistics.mean(variances) ** 0.5 if variances else None,
        "folds": means,
    }


def print_table(summary: dict[str, dict[str, Any]]) -> None:
    """Print each metric with its spread, and its paired difference to cross-entropy with the standard error."""
    print(f"{'':<20}" + "".join(f"{title:^44}" for title in ("NDCG@10", "MAP")))
    print(f"{'method':<20}" + f"{'mean':>8}{'folds':>8}{'seeds':>8}{'to x-ent':>10}{'error':>8}  " * 2 + f"{'s/run':>6}")
    for name, row in summary.items():
        line = f"{name:<20}"
        for metric in ("test_ndcg", "test_map"):
            values = row[metric]
            seeds = "-" if values["over_seeds"] is None else f"{values['over_seeds']:.4f}"
            gaps = [ours - base for ours, base in zip(values["folds"], summary["cross-entropy"][metric]["folds"], strict=True)]
            error = statistics.stdev(gaps) / len(gaps) ** 0.5
            line += f"{values['mean']:>8.4f}{values['over_folds']:>8.4f}{seeds:>8}{statistics.mean(gaps):>+10.4f}{error:>8.4f}  "
        print(f"{line}{row['seconds']:>6.1f}")


def main() -> None:
    """Run every method on every fold, print the table and save the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds mq2008.npz or ltr/mq2008.npz")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each net in each fold")
    parser.add_argument("--output", type=Path, help="JSON file for the table and the records of all chosen runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    folds = read_folds(find_data(arguments.data))
    records: list[Record] = []
    runs = {name: len(method.all_settings()) + (arguments.seeds - 1 if method.random else 0) for name, method in METHODS.items()}
    with Progress() as progress:
        bar = progress.add_task("", total=len(folds) * sum(runs.values()))
        for number, fold in enumerate(folds, 1):
            for name in METHODS:
                progress.update(bar, description=f"fold {number}, {name}")
                chosen = run_fold(name, fold, arguments.seeds, lambda: progress.advance(bar))
                records += [{"fold": number, **record} for record in chosen]
    summary: dict[str, dict[str, Any]] = {}
    for name in METHODS:
        mine = [record for record in records if record["method"] == name]
        summary[name] = {metric: summarize(mine, metric) for metric in ("test_ndcg", "test_map", "validation_ndcg")}
        summary[name]["seconds"] = statistics.mean(record["seconds"] for record in mine)
    print_table(summary)
    print(f"{time.perf_counter() - start:.0f} s in all")
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"summary": summary, "records": records}, indent=1))


if __name__ == "__main__":
    main()
