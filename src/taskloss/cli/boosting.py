"""Gradient boosting by LightGBM with the direct gradient of the metric, on the folds that the estimators take."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from taskloss.boosting import lightgbm_objective, train_lightgbm
from taskloss.cli.method_result import MethodResult, mean_curve
from taskloss.cli.method_table import BOOSTING_WARM_UP, LIGHTGBM
from taskloss.cli.metric import Metric
from taskloss.cli.splits import Subset
from taskloss.estimators import EstimatorSettings
from taskloss.estimators.decisions import choose_threshold
from taskloss.estimators.folds import first_seed, label_strata, make_splits, query_strata
from taskloss.estimators.lightgbm_trees import BOOSTING_SETTINGS, PATIENCE, max_steps


def fit_direct(
    training: Subset,
    test: Subset,
    metric: Metric,
    settings: EstimatorSettings,
    *,
    seed: int,
    on_progress: Callable[[float], None],
) -> MethodResult:
    """Train one booster per member, stop it by the exact metric of the fold it holds out, and predict ``test``."""
    seed = first_seed(seed)
    splits = _split(training, metric, settings, seed)
    rounds = max(max_steps(LIGHTGBM, settings.max_iter), BOOSTING_WARM_UP + 1)
    models, curves, held_out = [], [], np.zeros(len(training.target))
    for member, rows in enumerate(splits):
        fitted, stopping = (training.take(_by_query(training, part)) for part in rows)

        def report(done: int, member: int = member) -> None:
            on_progress(min(1.0, (member + done / rounds) / len(splits)))

        model, curve = _fit_member(fitted, stopping, metric, rounds, seed + member, report)
        scores = model.predict(training.features, raw_score=True)
        location, scale = scores.mean(), scores.std() or 1.0
        models.append((model, location, scale))
        held_out[rows[1]] = ((scores - location) / scale)[rows[1]]
        curves.append(curve)

    def score(features: np.ndarray) -> np.ndarray:
        members = [(model.predict(features, raw_score=True) - location) / scale for model, location, scale in models]
        return np.asarray(np.mean(members, axis=0))

    known = np.unique(np.concatenate([rows[1] for rows in splits]))
    return MethodResult(
        scores=score(test.features),
        probabilities=None,
        threshold=None if test.groups is not None else choose_threshold(metric.task, held_out[known], training.target[known]),
        validation_metric=mean_curve(curves),
        best_step=round(float(np.mean([model.best_iteration for model, _, _ in models]))),
        score=score,
    )


def _split(training: Subset, metric: Metric, settings: EstimatorSettings, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows to train on and to hold out for each member, as the estimators deal them; no query is split."""
    rng = np.random.default_rng(seed)
    relevance = metric.relevance(training.target)
    if training.groups is None:
        strata = label_strata(np.column_stack([relevance == 0, relevance == 1]))
        return make_splits(strata, settings.members, settings.folds, rng)
    query = np.unique(training.groups, return_inverse=True)[1]
    strata = query_strata(relevance, query)
    splits = make_splits(strata, settings.members, min(settings.folds, int(strata.sum())), rng)
    return [(np.flatnonzero(np.isin(query, fitted)), np.flatnonzero(np.isin(query, held_out))) for fitted, held_out in splits]


def _by_query(samples: Subset, rows: np.ndarray) -> np.ndarray:
    """Return the rows with those of each query next to each other, as LightGBM wants them."""
    return rows if samples.groups is None else rows[np.argsort(samples.groups[rows], kind="stable")]


def _fit_member(
    fitted: Subset, held_out: Subset, metric: Metric, rounds: int, seed: int, report: Callable[[int], None]
) -> tuple[Any, list[float]]:
    """Train one booster; return it with the metric of the held-out samples after each round."""
    import lightgbm

    curve: list[float] = []

    def value(scores: np.ndarray) -> float:
        threshold = choose_threshold(metric.task, scores, held_out.target) if metric.judges_decisions else 0.0
        return metric.value(scores - threshold, held_out.target, held_out.groups)

    def evaluate(scores: np.ndarray, _: Any) -> tuple[str, float, bool]:
        curve.append(value(scores))
        report(BOOSTING_WARM_UP + len(curve))
        return "exact", curve[-1], True

    parameters = {
        **BOOSTING_SETTINGS.for_rows(len(fitted.target)),
        "objective": "lambdarank" if fitted.groups is not None else "binary",
        "metric": "None",
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    dataset = _dataset(fitted, metric)
    model, _ = train_lightgbm(
        parameters,
        dataset,
        rounds,
        lightgbm_objective(metric.task),
        warm_up=BOOSTING_WARM_UP,
        valid_sets=[_dataset(held_out, metric, reference=dataset)],
        feval=evaluate,
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )
    # Early stopping ignores the warm-up, but the learning curve shows it: the sums of the first 1, 2, ... trees.
    single = (
        np.asarray(model.predict(held_out.features, raw_score=True, start_iteration=tree, num_iteration=1))
        for tree in range(BOOSTING_WARM_UP)
    )
    return model, [value(partial) for partial in itertools.accumulate(single)] + curve


def _dataset(samples: Subset, metric: Metric, **options: Any) -> Any:
    """Return the samples for LightGBM."""
    import lightgbm

    sizes = None if samples.groups is None else np.unique(samples.groups, return_counts=True)[1]
    target = metric.relevance(samples.target)
    return lightgbm.Dataset(samples.features, target, group=sizes, free_raw_data=False, **options)
