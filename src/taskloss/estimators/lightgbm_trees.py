"""Trees as a member of an ensemble, grown by LightGBM: gradient-boosted ones, stopped by the exact metric, or a random forest.

LightGBM has an objective of its own: the log loss of two classes or of each label, the multinomial log loss of several classes,
LambdaRank for queries. After each round of boosting the exact metric of the held-out samples is computed, and the round is kept
by the rule that keeps a step of a network. A random forest cannot have too many trees, so it keeps all of them; it is grown on
random samples of the rows, by the same objective, but grades count by their squared error, whatever the query.

The table is read as it is: trees need no scaling, and a missing value (NaN) has a branch of its own. After the training only the
trees remain, as arrays, so a model that is read from a file predicts the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from taskloss.estimators.methods import RANDOM_FOREST, TREE_METHODS
from taskloss.estimators.problem import Problem
from taskloss.training import Progress, TrainingData, TrainingResult, TrainingSettings, is_better
from taskloss.trees import Forest


@dataclass(frozen=True)
class TreeSettings:
    """Settings of trees that differ from LightGBM's.

    Small trees are far better where positives are rare or labels are wrong, and large ones where there are rows enough to grow
    them, so the number of leaves follows the number of rows.
    """

    fixed: dict[str, Any]
    rows_per_leaf: int
    min_leaves: int
    max_leaves: int

    def for_rows(self, rows: int) -> dict[str, Any]:
        """Return LightGBM's parameters for trees that are grown on this many rows.

        >>> [BOOSTING_SETTINGS.for_rows(rows)["num_leaves"] for rows in (300, 8_000, 100_000)]
        [7, 26, 63]
        """
        return {**self.fixed, "num_leaves": min(max(rows // self.rows_per_leaf, self.min_leaves), self.max_leaves)}


BOOSTING_SETTINGS = TreeSettings(
    {"learning_rate": 0.05, "min_data_in_leaf": 10, "bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.8},
    rows_per_leaf=300,
    min_leaves=7,
    max_leaves=63,
)
# Trees of a forest are larger than boosted ones, since their errors average out, but not grown to the end, where they would learn
# the wrong labels.
RANDOM_FOREST_SETTINGS = TreeSettings(
    {"boosting": "rf", "min_data_in_leaf": 5, "bagging_fraction": 0.632, "bagging_freq": 1, "feature_fraction_bynode": 0.5},
    rows_per_leaf=100,
    min_leaves=31,
    max_leaves=255,
)
EMPTY_BAG = 1e-9
"""Largest probability that a tree of a forest gets no row at all: all its scores would be NaN."""
FOREST_TREES = 100
"""Number of trees of a random forest, if the largest number of rounds allows it."""
ROUNDS_PER_STEP = 3
"""A round of small trees changes the scores less than a step of a network, so there may be more of them."""
PATIENCE = 50
"""Rounds without a better metric before the end, or the patience of the networks if that is shorter."""
LEAST_ROUNDS = 20
"""Rounds that are not compared, because the metric of a small fold may be highest by chance after a few trees."""
MOST_ROWS_OF_QUERY, MOST_GRADE = 10_000, 30
"""The limits of LambdaRank."""


@dataclass(frozen=True)
class Trees:
    """The trees of a member: one forest, or one per label."""

    forests: tuple[Forest, ...]
    outputs: int | None
    """As in :class:`Problem`."""

    def raw_scores(self, table: np.ndarray) -> np.ndarray:
        """Return the scores of float64 rows ``(n, d)``, in the shape that the problem needs."""
        scores = [forest.raw_scores(table) for forest in self.forests]
        return scores[0] if self.outputs is None or scores[0].ndim == 2 else np.column_stack(scores)


def grow_trees(
    problem: Problem,
    training: TrainingData,
    held_out: TrainingData,
    *,
    settings: TrainingSettings,
    seed: int,
    threads: int,
    on_round: Callable[[Progress], None] | None,
    rows: int | None = None,
) -> tuple[Trees, TrainingResult]:
    """Grow the trees of a member, by the method of the problem; the features are the table itself, float64.

    ``rows`` is the number of different training rows, which sets the size of the trees, where some of them are copies.
    The loss that is reported after a round is LightGBM's own of the training samples; of LambdaRank, one minus its NDCG.
    """
    is_random_forest = problem.method == RANDOM_FOREST
    boosters = _boosters(problem, training, len(training.target) if rows is None else rows, seed, threads)
    table = held_out.features.numpy()
    total = np.zeros((len(table), problem.outputs or 1))
    losses: list[float] = []
    metrics: list[float] = []
    best, patience = 0, min(settings.patience, PATIENCE)
    most = max_steps(problem.method, settings.iterations)
    window, least = min(settings.smoothing, most), min(LEAST_ROUNDS, most)
    while len(metrics) < most and (best == 0 or len(metrics) - best < patience):
        finished = [booster.update() for booster in boosters]
        if all(finished) and metrics:  # None finds a split any more.
            break
        total += np.column_stack([_newest(booster, table, len(metrics)) for booster in boosters])
        scores = torch.from_numpy(total / (len(metrics) + 1) if is_random_forest else total)
        metrics.append(problem.metric(scores if problem.outputs else scores[:, 0], held_out.target, **held_out.options()))
        losses.append(float(np.mean([_training_loss(booster) for booster in boosters])))
        if is_random_forest or (len(metrics) >= least and is_better(metrics, best, window)):
            best = len(metrics)
        if on_round is not None:
            on_round(Progress(len(metrics), losses[-1], metrics[-1]))
    best = best or len(metrics)
    forests = [Forest.from_lightgbm(booster, best) for booster in boosters]
    if is_random_forest:
        forests = [replace(forest, leaf_value=forest.leaf_value / len(forest.splits)) for forest in forests]
    return Trees(tuple(forests), problem.outputs), TrainingResult(tuple(losses), tuple(metrics), best)


def max_steps(method: str, iterations: int) -> int:
    """Return the largest number of steps of a method: ``iterations`` steps of a network, or rounds of trees."""
    if method not in TREE_METHODS:
        return iterations
    return min(ROUNDS_PER_STEP * iterations, FOREST_TREES) if method == RANDOM_FOREST else ROUNDS_PER_STEP * iterations


def _newest(booster: Any, table: np.ndarray, done: int) -> np.ndarray:
    """Return what the newest round of a booster adds to the scores; ``done`` rounds came before."""
    if booster.current_iteration() <= done:
        return np.zeros((len(table), booster.num_model_per_iteration()))
    added = np.asarray(booster.predict(table, raw_score=True, start_iteration=done, num_iteration=1))
    return added.reshape(len(table), -1)


def _training_loss(booster: Any) -> float:
    value, higher_is_better = booster.eval_train()[0][2:4]
    return 1.0 - value if higher_is_better else value


def _boosters(problem: Problem, training: TrainingData, rows: int, seed: int, threads: int) -> list[Any]:
    """Return one booster, or one per label, without trees."""
    import lightgbm

    of_method = RANDOM_FOREST_SETTINGS if problem.method == RANDOM_FOREST else BOOSTING_SETTINGS
    common: dict[str, Any] = {
        **of_method.for_rows(rows),
        "seed": seed,
        "num_threads": threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    table, target = training.features.numpy(), training.target.numpy()
    if problem.method == RANDOM_FOREST:
        common["bagging_fraction"] = max(common["bagging_fraction"], 1.0 - EMPTY_BAG ** (1.0 / len(target)))
    weights = None if training.weights is None else training.weights.numpy()
    order, sizes = np.arange(len(target)), None
    objective: dict[str, Any] = {"objective": "binary", "metric": "binary_logloss"}
    columns = [target]
    if problem.exclusive:
        objective = {"objective": "multiclass", "metric": "multi_logloss", "num_class": problem.outputs}
        columns = [target if problem.chooses_class else target.argmax(1)]
    elif problem.outputs is not None:
        columns = list(target.T)
    elif training.groups is not None and problem.method != RANDOM_FOREST and _suits_lambdarank(training):
        # LightGBM wants the rows of a query next to each other.
        order = np.argsort(training.groups.numpy(), kind="stable")
        sizes = np.unique(training.groups.numpy(), return_counts=True)[1]
        objective = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [10]}
    elif problem.task.target_kind == "graded":
        objective = {"objective": "regression", "metric": "l2"}
    parameters = {**common, **objective}
    return [
        lightgbm.Booster(
            parameters,
            lightgbm.Dataset(
                table[order],
                column[order],
                group=sizes,
                weight=None if weights is None else weights[order],
                params=parameters,
            ),
        )
        for column in columns
    ]


def _suits_lambdarank(training: TrainingData) -> bool:
    """Whether LambdaRank takes these queries: their grades are small whole numbers, and none has too many rows."""
    _, sizes = training.groups.unique(return_counts=True)  # type: ignore[union-attr]
    grades = training.target
    return bool(sizes.max() <= MOST_ROWS_OF_QUERY and (grades == grades.round()).all() and grades.max() <= MOST_GRADE)
