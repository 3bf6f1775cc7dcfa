"""Gradient boosting by LightGBM, if it is installed: with its own objective, or with the direct gradient of the metric."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax

from taskloss.boosting import lightgbm_objective, train_lightgbm
from taskloss.cli.method_result import MethodResult
from taskloss.cli.method_table import BOOSTING_PATIENCE, BOOSTING_ROUNDS, BOOSTING_WARM_UP, DIRECT_LIGHTGBM, LIGHTGBM
from taskloss.cli.metric import Metric
from taskloss.cli.splits import Subset, split_rows
from taskloss.estimators.decisions import choose_offsets, choose_threshold

VALIDATION_FRACTION = 0.2
"""Share of the training samples held out for early stopping: as much as each network of an ensemble holds out."""


def is_installed() -> bool:
    """Whether LightGBM can be imported."""
    return importlib.util.find_spec("lightgbm") is not None


def fit_boosting(
    method: str,
    training: Subset,
    test: Subset,
    metric: Metric,
    *,
    seed: int,
    on_progress: Callable[[float], None],
) -> MethodResult:
    """Train trees on a part of ``training``, stop by the exact metric of the rest, and predict ``test``.

    ``method`` is one of :data:`~taskloss.cli.method_table.BOOSTING_METHODS`; only LightGBM's own objective knows several classes.
    """
    import lightgbm

    several = metric.classes > 2
    fitted, held_out = _hold_out(training, seed)
    curve: list[float] = []
    warm_up = BOOSTING_WARM_UP if method == DIRECT_LIGHTGBM else 0

    def validation_metric(scores: np.ndarray) -> float:
        threshold = _threshold(metric, scores, held_out) if metric.judges_decisions else None
        return metric.value(scores - (threshold or 0.0), held_out.target, held_out.groups)

    def evaluate(scores: np.ndarray, _: Any) -> tuple[str, float, bool]:
        # LightGBM passes probabilities here, of shape (n, K) for several classes.
        curve.append(validation_metric(scores))
        on_progress(min(1.0, (warm_up + len(curve)) / BOOSTING_ROUNDS))
        return "exact", curve[-1], True

    settings = {
        "objective": "lambdarank" if training.groups is not None else "multiclass" if several else "binary",
        "num_class": metric.classes if several else 1,
        "metric": "None",
        "learning_rate": 0.05,
        "num_leaves": 31,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    dataset = _dataset(fitted, metric, method)
    options: dict[str, Any] = {
        "valid_sets": [_dataset(held_out, metric, method, reference=dataset)],
        "feval": evaluate,
        "callbacks": [lightgbm.early_stopping(BOOSTING_PATIENCE, verbose=False)],
    }
    if method == LIGHTGBM:
        model = lightgbm.train(settings, dataset, BOOSTING_ROUNDS, **options)
    else:
        objective = lightgbm_objective(metric.task)
        model, _ = train_lightgbm(settings, dataset, BOOSTING_ROUNDS, objective, warm_up=warm_up, **options)

    def score(features: np.ndarray, **trees: Any) -> np.ndarray:
        raw = np.asarray(model.predict(features, raw_score=True, **trees))
        return log_softmax(raw, axis=1) if several else raw

    offsets = choose_offsets(metric.task, score(held_out.features), held_out.target) if several else np.zeros(1)
    scores = score(test.features)
    # Early stopping ignores the warm-up, but the learning curve shows it: the sums of the first 1, 2, ... trees.
    single = [score(held_out.features, start_iteration=tree, num_iteration=1) for tree in range(warm_up)]
    warm_up_curve = [validation_metric(partial) for partial in itertools.accumulate(single)]
    # Only the log loss gives scores that are log-odds or log-probabilities.
    known = method == LIGHTGBM and training.groups is None
    return MethodResult(
        scores=scores + offsets,
        probabilities=(np.exp(scores) if several else expit(scores)) if known else None,
        threshold=_threshold(metric, score(held_out.features), held_out),
        validation_metric=warm_up_curve + curve,
        best_step=warm_up + int(np.argmax(curve)) + 1,
        score=lambda features: score(features) + offsets,
    )


def _dataset(samples: Subset, metric: Metric, method: str, **options: Any) -> Any:
    """Return the samples for LightGBM; its own objective always gets the grades."""
    import lightgbm

    target = samples.target if method == LIGHTGBM else metric.relevance(samples.target)
    sizes = None if samples.groups is None else np.unique(samples.groups, return_counts=True)[1]
    return lightgbm.Dataset(samples.features, target, group=sizes, free_raw_data=False, **options)


def _hold_out(samples: Subset, seed: int) -> tuple[Subset, Subset]:
    """Return the samples to fit and those to validate on; LightGBM wants the rows of each query next to each other."""
    parts = split_rows(samples.target, samples.groups, VALIDATION_FRACTION, seed)
    if samples.groups is not None:
        fitted, held_out = (rows[np.argsort(samples.groups[rows], kind="stable")] for rows in parts)
        parts = fitted, held_out
    return samples.take(parts[0]), samples.take(parts[1])


def _threshold(metric: Metric, scores: np.ndarray, held_out: Subset) -> float | None:
    """Return the best threshold for the metric on the held-out samples; None for queries and several classes."""
    has_none = held_out.groups is not None or metric.classes > 2
    return None if has_none else choose_threshold(metric.task, scores, held_out.target)
