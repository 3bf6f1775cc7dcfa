"""Gradient boosting by LightGBM, where it is installed: on its own objective and on the metric, stopped by the exact metric."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from taskloss.boosting import lightgbm_objective, train_lightgbm
from taskloss.cli.metric import Metric
from taskloss.cli.outcome import Outcome, Part
from taskloss.estimators.decisions import choose_threshold

OWN, DIRECT = "lightgbm", "direct_lightgbm"
ROUNDS, PATIENCE, WARM_UP = 500, 50, 50
METHODS = {
    OWN: (
        "LightGBM",
        f"gradient boosting of decision trees by LightGBM: log loss (LambdaRank for queries), up to {ROUNDS} trees of 31 leaves, "
        f"learning rate 0.05, stopped after {PATIENCE} trees without a better validation metric",
    ),
    DIRECT: ("direct LightGBM", f"the same with the direct gradient of the metric after the first {WARM_UP} trees"),
}
"""By the name of an option: the name in tables, and what it is."""


def is_installed() -> bool:
    """Whether LightGBM can be imported."""
    return importlib.util.find_spec("lightgbm") is not None


def fit_boosting(
    key: str,
    training: Part,
    test: Part,
    metric: Metric,
    *,
    validation_fraction: float,
    seed: int,
    on_progress: Callable[[float], None],
) -> Outcome:
    """Train on a part of ``training``, stop by the rest of it, and score ``test``; ``key`` is one of ``METHODS``."""
    import lightgbm

    fitted, held_out = _split(training, validation_fraction, seed)
    course: list[float] = []
    skipped = WARM_UP if key == DIRECT else 0

    def value(scores: np.ndarray) -> float:
        threshold = _threshold(metric, scores, held_out) if metric.of_labels else None
        return metric.value(scores - (threshold or 0.0), held_out.target, held_out.groups)

    def exact(scores: np.ndarray, _: Any) -> tuple[str, float, bool]:
        course.append(value(scores))
        on_progress(min(1.0, (skipped + len(course)) / ROUNDS))
        return "exact", course[-1], True

    settings = {
        "objective": "binary" if training.groups is None else "lambdarank",
        "metric": "None",
        "learning_rate": 0.05,
        "num_leaves": 31,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    dataset = _dataset(fitted, metric, key)
    options: dict[str, Any] = {
        "valid_sets": [_dataset(held_out, metric, key, reference=dataset)],
        "feval": exact,
        "callbacks": [lightgbm.early_stopping(PATIENCE, verbose=False)],
    }
    if key == OWN:
        model = lightgbm.train(settings, dataset, ROUNDS, **options)
    else:
        model, _ = train_lightgbm(settings, dataset, ROUNDS, lightgbm_objective(metric.task), warm_up=WARM_UP, **options)
    scores = np.asarray(model.predict(test.features, raw_score=True))
    threshold = _threshold(metric, np.asarray(model.predict(held_out.features, raw_score=True)), held_out)
    # Only the log loss makes scores that are log-odds.
    probabilities = expit(scores) if key == OWN and training.groups is None else None
    best = skipped + int(np.argmax(course)) + 1
    # Stopping does not look at the warm-up; a reader of the learning curve does.
    first = [
        value(np.asarray(model.predict(held_out.features, raw_score=True, num_iteration=trees)))
        for trees in range(1, skipped + 1)
    ]
    return Outcome(scores, probabilities, threshold, first + course, best)


def _dataset(part: Part, metric: Metric, key: str, **options: Any) -> Any:
    """For LightGBM; the direct gradient of a metric of binary relevance takes grades as relevant or not."""
    import lightgbm

    graded = key == OWN or metric.task.target_kind == "graded"
    target = part.target if graded else (part.target > 0).astype(np.int64)
    return lightgbm.Dataset(part.features, target, group=_sizes(part), free_raw_data=False, **options)


def _split(part: Part, fraction: float, seed: int) -> tuple[Part, Part]:
    """For training and for validation; the rows of a query stay together, in order of their queries."""
    rows = np.arange(len(part.target))
    if part.groups is None:
        fitted, held_out = train_test_split(rows, test_size=fraction, stratify=part.target, random_state=seed)
        return _take(part, fitted), _take(part, held_out)
    fitted, held_out = next(GroupShuffleSplit(1, test_size=fraction, random_state=seed).split(rows, groups=part.groups))
    fitted, held_out = (chosen[np.argsort(part.groups[chosen], kind="stable")] for chosen in (fitted, held_out))
    return _take(part, fitted), _take(part, held_out)


def _take(part: Part, rows: np.ndarray) -> Part:
    return Part(part.features[rows], part.target[rows], None if part.groups is None else part.groups[rows])


def _sizes(part: Part) -> np.ndarray | None:
    return None if part.groups is None else np.unique(part.groups, return_counts=True)[1]


def _threshold(metric: Metric, scores: np.ndarray, held_out: Part) -> float | None:
    """The best threshold for the metric; queries have none."""
    return None if held_out.groups is not None else choose_threshold(metric.task, scores, held_out.target)
