"""Trees as arrays give the scores of LightGBM to the last bit, before and after a file."""

from __future__ import annotations

from pathlib import Path

import lightgbm
import numpy as np
import pytest

from taskloss._storage import read_tensors, write_tensors
from taskloss.kernels.compilation import compilation
from taskloss.precompile import _run_trees
from taskloss.trees import Forest
from tests.trees.forests import random_booster, random_table, three_leaves, unusual_table, walked_scores

QUIET = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 1, "min_data_in_bin": 1}


def test_three_leaves_by_hand():
    rows = [(2.0, 1.0), (1.5, 1.0), (1.0, 9.99), (np.nan, 1.0), (0.0, 2.0), (1.0, np.nan), (1.0, -1.0), (-np.inf, 17.0)]
    expected = [10.0, 20.0, 20.0, 20.0, 30.0, 30.0, 30.0, 30.0]
    assert three_leaves().raw_scores(rows).tolist() == expected
    assert walked_scores(three_leaves(), np.array(rows))[:, 0].tolist() == expected


def test_trees_of_several_outputs_by_hand():
    """Two iterations of two classes; each tree is one leaf, but the last: 4 for values up to 1, which NaN and zero are not."""
    forest = Forest(
        features=1,
        splits=np.array([[0, 0], [0, 1]]),
        feature=np.array([0], np.int32),
        threshold=np.array([1.0]),
        zero_left=np.array([0], np.uint8),
        nan_left=np.array([0], np.uint8),
        children=np.array([[-1, -2]], np.int32),
        leaf_value=np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        category_bytes=np.array([0], np.int32),
        categories=np.empty(0, np.uint8),
    )
    assert forest.outputs == 2
    assert forest.raw_scores([[1.0], [2.0], [0.0], [np.nan], [-1e-36]]).tolist() == [[4, 6], [4, 7], [4, 7], [4, 7], [4, 7]]


@pytest.mark.parametrize("seed", range(60))
def test_scores_are_those_of_lightgbm(seed: int, tmp_path: Path):
    rng = np.random.default_rng(seed)
    table, categorical = random_table(rng)
    booster = random_booster(rng, table, categorical)
    num_iteration = None if rng.random() < 0.7 else int(rng.integers(-1, 15))
    forest = Forest.from_lightgbm(booster, num_iteration)
    stored, _ = read_tensors(write_tensors(tmp_path / "trees.safetensors", forest.tensors(), {}))
    loaded = Forest.from_tensors(stored, features=table.shape[1])
    unusual = unusual_table(rng, forest, 300)
    whole, bits = rng.integers(-5, 400, (50, forest.features)), rng.random((9, forest.features)) < 0.5
    for rows in (table, unusual, np.asfortranarray(unusual), unusual[::-2], unusual[:1], table.astype(np.float32), whole, bits):
        expected = booster.predict(rows, raw_score=True, num_iteration=num_iteration)
        np.testing.assert_array_equal(forest.raw_scores(rows), expected, strict=True)
        np.testing.assert_array_equal(loaded.raw_scores(rows), expected, strict=True)
    np.testing.assert_array_equal(walked_scores(forest, unusual[:20]), forest.raw_scores(unusual[:20]).reshape(20, -1))


def test_random_boosters_are_of_every_kind():
    forests = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        forests.append(Forest.from_lightgbm(random_booster(rng, *random_table(rng)), 0))
    assert any(forest.outputs > 2 for forest in forests)
    assert any((forest.splits == 0).any() for forest in forests)
    assert any(np.isinf(forest.threshold).any() for forest in forests)
    assert any((forest.category_bytes > 8).any() for forest in forests)
    numeric = [(forest, forest.category_bytes == 0) for forest in forests]
    assert any((forest.zero_left != (forest.threshold >= 0))[kept].any() for forest, kept in numeric)
    assert any((forest.nan_left != forest.zero_left)[kept].any() for forest, kept in numeric)


def test_as_many_iterations_as_lightgbm_uses():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(400, 4))
    target = (table[:, 0] + rng.normal(size=400) > 0).astype(float)
    training = lightgbm.Dataset(table[:200], target[:200])
    booster = lightgbm.train(
        {**QUIET, "objective": "binary"},
        training,
        100,
        valid_sets=[lightgbm.Dataset(table[200:], target[200:], reference=training)],
        keep_training_booster=True,
        callbacks=[lightgbm.early_stopping(5, verbose=False)],
    )
    assert 0 < booster.best_iteration < booster.current_iteration()
    assert len(Forest.from_lightgbm(booster).splits) == booster.best_iteration
    assert len(Forest.from_lightgbm(booster, np.int64(3)).splits) == 3
    for num_iteration in (None, 0, -1, 1, 3, 1000):
        expected = booster.predict(table, raw_score=True, num_iteration=num_iteration)
        np.testing.assert_array_equal(Forest.from_lightgbm(booster, num_iteration).raw_scores(table), expected)


def test_rows_of_several_blocks_and_none():
    table = np.random.default_rng(0).normal(size=(1000, 3))
    booster = lightgbm.train({**QUIET, "objective": "regression"}, lightgbm.Dataset(table, table[:, 0] * table[:, 1]), 20)
    forest = Forest.from_lightgbm(booster)
    for rows in (0, 1, 255, 256, 257, 512, 1000):
        np.testing.assert_array_equal(forest.raw_scores(table)[:rows], forest.raw_scores(table[:rows]), strict=True)


def test_trees_are_copies_that_stay_as_they_were_checked():
    forest = three_leaves()
    tensors = forest.tensors()
    loaded = Forest.from_tensors(tensors, features=2)
    tensors["feature"].fill_(1000)
    forest.tensors()["children"].fill_(1000)
    assert loaded.feature.tolist() == forest.feature.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        loaded.feature[0] = 1000


def test_compilation_ahead_of_time_serves_all_trees():
    _run_trees()
    kernels = compilation.kernels
    Forest.from_tensors(three_leaves().tensors(), features=2).raw_scores(np.zeros((3, 2), np.float32))
    assert compilation.kernels == kernels


def test_what_cannot_be_stored_is_refused():
    table = np.random.default_rng(0).normal(size=(100, 2))
    linear = lightgbm.train({**QUIET, "linear_tree": True}, lightgbm.Dataset(table, table[:, 0]), 2)
    with pytest.raises(ValueError, match="linear_tree=False"):
        Forest.from_lightgbm(linear)
    estimator = lightgbm.LGBMRegressor(n_estimators=2, verbosity=-1).fit(table, table[:, 0])
    with pytest.raises(TypeError, match="got LGBMRegressor.*booster_"):
        Forest.from_lightgbm(estimator)
    with pytest.raises(TypeError, match="num_iteration must be a whole number"):
        Forest.from_lightgbm(estimator.booster_, 1.5)
    with pytest.raises(ValueError, match="no trees; train it"):
        Forest.from_lightgbm(lightgbm.Booster(QUIET, lightgbm.Dataset(table, table[:, 0])))


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (np.zeros(2), ValueError, r"shape \(rows, 2\) as in training, got \(2,\)"),
        (np.zeros((4, 3)), ValueError, r"shape \(rows, 2\) as in training, got \(4, 3\)"),
        ([["a", "b"]], TypeError, "real numbers, got dtype <U1"),
        (np.zeros((1, 2), complex), TypeError, "real numbers, got dtype complex128"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table: object, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        three_leaves().raw_scores(table)
