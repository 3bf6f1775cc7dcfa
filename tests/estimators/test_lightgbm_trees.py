"""Trees as members: equal to ``lightgbm.train``; boosted ones are stopped by the exact metric, a random forest keeps all."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.estimators.lightgbm_trees import (
    BOOSTING_SETTINGS,
    FOREST_TREES,
    LEAST_ROUNDS,
    PATIENCE,
    RANDOM_FOREST_SETTINGS,
    ROUNDS_PER_STEP,
    TreeSettings,
    grow_trees,
)
from taskloss.estimators.problem import Problem
from taskloss.training import TrainingData, TrainingSettings

FIXED = {"seed": 3, "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1}


def table(rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 5))
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 + 0.3 * rng.normal(size=rows)


def grow(problem: Problem, target: np.ndarray, *, iterations: int = 300, groups=None, weights=None, on_round=None):
    """Grow trees on the first 250 rows, stopped by the others."""
    X, _ = table()
    data = TrainingData(*(None if part is None else torch.from_numpy(np.asarray(part)) for part in (X, target, groups, weights)))
    settings = TrainingSettings(iterations=iterations, patience=150, smoothing=10)
    parts = (data.rows(torch.arange(250)), data.rows(torch.arange(250, 400)))
    return grow_trees(problem, *parts, settings=settings, seed=3, threads=1, on_round=on_round)


def booster(
    objective: dict, target: np.ndarray, rounds: int, *, trees: TreeSettings = BOOSTING_SETTINGS, **options
) -> lightgbm.Booster:
    X, _ = table()
    return lightgbm.train(
        {**FIXED, **trees.for_rows(250), **objective}, lightgbm.Dataset(X[:250], target[:250], **options), rounds
    )


def test_two_classes():
    """The oracle computes the metric after each round anew, and chooses the round by the definition of the rule."""
    X, value = table()
    y = (value > 1.5).astype(int)
    told = []
    trees, result = grow(Problem(tl.AveragePrecision(), "lightgbm", 1.0), y, on_round=told.append)
    rounds = len(result.metrics)
    model = booster({"objective": "binary"}, y, rounds)
    curve = [
        float(tl.metrics.average_precision_score(model.predict(X[250:], raw_score=True, num_iteration=n), y[250:]))
        for n in range(1, rounds + 1)
    ]
    np.testing.assert_allclose(result.metrics, curve)
    means = {n: np.mean(curve[n - 10 : n]) for n in range(LEAST_ROUNDS, rounds + 1)}
    assert result.best_iteration == min(n for n in means if np.isclose(means[n], max(means.values()), rtol=0, atol=1e-12))
    assert rounds in (result.best_iteration + PATIENCE, 300 * ROUNDS_PER_STEP)
    best = result.best_iteration
    np.testing.assert_array_equal(trees.raw_scores(X), model.predict(X, raw_score=True, num_iteration=best))
    odds = 1 / (1 + np.exp(-model.predict(X[:250], raw_score=True, num_iteration=best)))
    log_loss = -np.mean(np.where(y[:250] == 1, np.log(odds), np.log(1 - odds)))
    assert result.losses[best - 1] == pytest.approx(log_loss)
    assert [progress.metric for progress in told] == list(result.metrics)
    assert [progress.iteration for progress in told] == list(range(1, rounds + 1))


@pytest.mark.parametrize(("method", "leaves"), [("lightgbm", 20), ("random_forest", 60)])
def test_more_rows_grow_larger_trees(method, leaves):
    X, value = table(6_400)
    data = TrainingData(torch.from_numpy(X), torch.from_numpy((value > 1.5).astype(int)))
    parts = (data.rows(torch.arange(6_000)), data.rows(torch.arange(6_000, 6_400)))
    problem, settings = Problem(tl.AveragePrecision(), method, 1.0), TrainingSettings(iterations=10)
    trees, _ = grow_trees(problem, *parts, settings=settings, seed=3, threads=1, on_round=None)
    assert trees.forests[0].splits.max() + 1 == leaves


def test_few_rounds():
    _, value = table()
    _, result = grow(Problem(tl.AveragePrecision(), "lightgbm", 1.0), (value > 1.5).astype(int), iterations=2)
    assert (len(result.metrics), result.best_iteration) == (6, 6)


def test_weights():
    X, value = table()
    y, weights = (value > 1.5).astype(int), np.linspace(0.5, 1.5, 400)
    trees, result = grow(Problem(tl.AveragePrecision(), "lightgbm", 1.0), y, weights=weights)
    model = booster({"objective": "binary"}, y, result.best_iteration, weight=weights[:250])
    np.testing.assert_array_equal(trees.raw_scores(X), model.predict(X, raw_score=True))


@pytest.mark.parametrize("task", [tl.AveragePrecision(), tl.MultiClass()])
def test_several_classes(task):
    """Classes of a metric of lists come as columns, those of a task on classes as indices."""
    X, value = table()
    y = np.digitize(value, [0.3, 1.5])
    target = y if isinstance(task, tl.MultiClass) else np.eye(3, dtype=int)[y]
    trees, result = grow(Problem(task, "lightgbm", 1.0, 3, exclusive=True), target)
    model = booster({"objective": "multiclass", "num_class": 3}, y, result.best_iteration)
    scores = model.predict(X, raw_score=True)
    np.testing.assert_array_equal(trees.raw_scores(X), scores)
    log_odds = scores[250:] - np.log(np.exp(scores[250:]).sum(1, keepdims=True))
    expected = (
        float(task.score(scores[250:], y[250:]))
        if isinstance(task, tl.MultiClass)
        else np.mean([tl.metrics.average_precision_score(log_odds[:, k], (y[250:] == k).astype(int)) for k in range(3)])
    )
    assert result.best_metric == pytest.approx(expected)


def test_labels_share_the_round():
    X, value = table()
    Y = np.column_stack([value > 1.5, value < 0.0]).astype(int)
    trees, result = grow(Problem(tl.AveragePrecision(), "lightgbm", 1.0, 2), Y)
    models = [booster({"objective": "binary"}, column, result.best_iteration) for column in Y.T]
    scores = np.column_stack([model.predict(X, raw_score=True) for model in models])
    np.testing.assert_array_equal(trees.raw_scores(X), scores)
    mean = np.mean([tl.metrics.average_precision_score(s, t) for s, t in zip(scores[250:].T, Y[250:].T, strict=True)])
    assert result.best_metric == pytest.approx(mean)


def test_queries_in_any_order_are_for_lambdarank():
    X, value = table()
    grades = np.clip(np.round(value), 0, 3)
    groups = np.where(np.arange(400) < 250, np.arange(400) % 25, 25 + np.arange(400) % 15)
    trees, result = grow(Problem(tl.GradedNDCG(), "lightgbm", 1.0), grades, groups=groups)
    order = np.argsort(groups[:250], kind="stable")
    dataset = lightgbm.Dataset(X[:250][order], grades[:250][order], group=[10] * 25)
    model = lightgbm.train(
        {**FIXED, **BOOSTING_SETTINGS.for_rows(250), "objective": "lambdarank"}, dataset, result.best_iteration
    )
    np.testing.assert_array_equal(trees.raw_scores(X), model.predict(X, raw_score=True))


@pytest.mark.parametrize("grouped", [True, False])
def test_grades_that_lambdarank_refuses_are_for_regression(grouped):
    X, value = table()
    grades = np.clip(value, 0, 3)
    groups = np.arange(400) // 10 if grouped else None
    trees, result = grow(Problem(tl.GradedNDCG(), "lightgbm", 1.0), grades, groups=groups)
    model = booster({"objective": "regression"}, grades, result.best_iteration)
    np.testing.assert_array_equal(trees.raw_scores(X), model.predict(X, raw_score=True))


def test_a_random_forest_keeps_all_trees():
    """Its scores are the mean over the trees, and its metric after n rounds is that of the mean over n of them."""
    X, value = table()
    y = (value > 1.5).astype(int)
    trees, result = grow(Problem(tl.AveragePrecision(), "random_forest", 1.0), y)
    assert len(result.metrics) == result.best_iteration == FOREST_TREES
    model = booster({"objective": "binary"}, y, FOREST_TREES, trees=RANDOM_FOREST_SETTINGS)
    each = np.array([model.predict(X, raw_score=True, start_iteration=n, num_iteration=1) for n in range(FOREST_TREES)])
    np.testing.assert_allclose(trees.raw_scores(X), each.mean(0), rtol=1e-12)
    for n in (1, 7, FOREST_TREES):
        assert result.metrics[n - 1] == pytest.approx(tl.metrics.average_precision_score(each[:n, 250:].mean(0), y[250:]))


def test_a_random_forest_of_several_classes():
    X, value = table()
    y = np.digitize(value, [0.3, 1.5])
    trees, result = grow(
        Problem(tl.AveragePrecision(), "random_forest", 1.0, 3, exclusive=True), np.eye(3, dtype=int)[y], iterations=5
    )
    model = booster({"objective": "multiclass", "num_class": 3}, y, 15, trees=RANDOM_FOREST_SETTINGS)
    scores = model.predict(X, raw_score=True) / 15
    np.testing.assert_allclose(trees.raw_scores(X), scores, rtol=1e-12)
    log_odds = scores[250:] - np.log(np.exp(scores[250:]).sum(1, keepdims=True))
    areas = [tl.metrics.average_precision_score(log_odds[:, k], (y[250:] == k).astype(int)) for k in range(3)]
    assert result.best_metric == pytest.approx(np.mean(areas))


@pytest.mark.parametrize(("task", "objective"), [(tl.GradedNDCG(), "regression"), (tl.NDCG(), "binary")])
def test_a_random_forest_predicts_grades_whatever_their_query(task, objective):
    X, value = table()
    grades = np.clip(np.round(value), 0, 3) if objective == "regression" else (value > 0.5).astype(int)
    trees, _ = grow(Problem(task, "random_forest", 1.0), grades, groups=np.arange(400) // 10)
    model = booster({"objective": objective}, grades, FOREST_TREES, trees=RANDOM_FOREST_SETTINGS)
    np.testing.assert_allclose(trees.raw_scores(X), model.predict(X, raw_score=True) / FOREST_TREES, rtol=1e-12)


@pytest.mark.parametrize("method", ["lightgbm", "random_forest"])
def test_a_table_without_splits(method):
    """Six rows allow no leaf of ten, and no two of five: all scores are equal."""
    X, y = np.arange(12.0).reshape(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])
    data = TrainingData(torch.from_numpy(X), y)
    problem = Problem(tl.AveragePrecision(), method, 1.0)
    trees, result = grow_trees(problem, data, data, settings=TrainingSettings(), seed=0, threads=1, on_round=None)
    assert len(set(trees.raw_scores(X))) == 1
    assert len(result.metrics) == result.best_iteration == (1 if method == "lightgbm" else FOREST_TREES)


def test_no_tree_of_a_few_rows_is_empty():
    """A tree of a random forest that got no row at all would be NaN, and LightGBM draws each of the four rows by itself."""
    X, y = np.arange(4.0)[:, None], torch.arange(4) % 3 == 0
    data, problem = TrainingData(torch.from_numpy(X), y.long()), Problem(tl.AveragePrecision(), "random_forest", 1.0)
    for seed in range(10):
        trees, _ = grow_trees(problem, data, data, settings=TrainingSettings(), seed=seed, threads=1, on_round=None)
        assert np.isfinite(trees.raw_scores(X)).all()
