"""A forest by hand, random boosters of LightGBM, and the evaluation of a forest in plain Python."""

from __future__ import annotations

import lightgbm
import numpy as np

from taskloss.trees import Forest

LARGEST_ZERO = float(np.float32(1e-35))
"""What LightGBM reads as zero."""


def three_leaves() -> Forest:
    """Column 0 up to 1.5, or NaN: then leaf 20 for the categories 1 and 9 of column 1, leaf 30 for others; else leaf 10."""
    return Forest(
        features=2,
        splits=np.array([[2]]),
        feature=np.array([0, 1], np.int32),
        threshold=np.array([1.5, 0.0]),
        zero_left=np.array([1, 0], np.uint8),
        nan_left=np.array([1, 0], np.uint8),
        children=np.array([[1, -1], [-2, -3]], np.int32),
        leaf_value=np.array([10.0, 20.0, 30.0]),
        category_bytes=np.array([0, 2], np.int32),
        categories=np.array([0b10, 0b10], np.uint8),
    )


def random_table(rng: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    """Return numbers of many kinds, and the columns that hold categories."""
    rows, features = int(rng.integers(30, 400)), int(rng.integers(1, 8))
    table = rng.normal(size=(rows, features)) * 10.0 ** rng.integers(-2, 3)
    for share, value in ((0.2, np.nan), (0.3, 0.0), (0.1, np.inf), (0.1, -np.inf), (0.1, 1e-36), (0.1, -1e-34)):
        if rng.random() < 0.4:
            table[rng.random(table.shape) < share] = value
    categorical = [column for column in range(features) if rng.random() < 0.4]
    for column in categorical:
        table[:, column] = rng.integers(-1 if rng.random() < 0.3 else 0, rng.choice([2, 5, 40, 300]), rows)
        if rng.random() < 0.5:
            table[rng.random(rows) < 0.1, column] = np.nan
    return table, categorical


def random_booster(rng: np.random.Generator, table: np.ndarray, categorical: list[int]) -> lightgbm.Booster:
    """Return a booster with settings of all kinds, fitted to a target that depends on every column."""
    objective = str(rng.choice(["binary", "regression", "poisson", "multiclass", "multiclassova"]))
    classes = int(rng.integers(2, 5)) if objective.startswith("multiclass") else 1
    signal = np.nansum(np.where(np.isfinite(table), np.sign(table) * np.log1p(np.abs(table)), 0.3), axis=1)
    rank = np.argsort(np.argsort(signal + rng.normal(size=len(table))))
    target = rank / len(table) if objective in ("regression", "poisson") else rank * max(classes, 2) // len(table)
    settings = {
        "objective": objective,
        "num_class": classes,
        "boosting": str(rng.choice(["gbdt", "dart", "rf"])),
        "bagging_freq": 1,
        "bagging_fraction": 0.7,
        "num_leaves": int(rng.integers(2, 40)),
        "min_data_in_leaf": int(rng.integers(1, 10)),
        "min_data_in_bin": 1,
        "max_bin": int(rng.choice([3, 15, 255])),
        "min_gain_to_split": float(rng.choice([0.0, 0.0, 0.0, 1e9])),
        "min_data_per_group": 1,
        "cat_smooth": 1.0,
        "max_cat_to_onehot": int(rng.choice([1, 4, 100])),
        "zero_as_missing": bool(rng.random() < 0.3),
        "use_missing": bool(rng.random() < 0.8),
        "seed": int(rng.integers(1000)),
        "num_threads": 1,
        "verbosity": -1,
    }
    return lightgbm.train(settings, lightgbm.Dataset(table, target, categorical_feature=categorical), int(rng.integers(1, 12)))


def unusual_table(rng: np.random.Generator, forest: Forest, rows: int) -> np.ndarray:
    """Return values at the thresholds and next to them, at the bounds of zero and of int32, unknown categories and the like."""
    zeros = [0.0, -0.0, 5e-324, 1e-36, LARGEST_ZERO, -LARGEST_ZERO, np.nextafter(LARGEST_ZERO, 1.0), -1.1e-35]
    categories = [-1.0, -0.5, 0.5, 1.0, 7.9, 8.0, 31.0, 32.0, 63.99, 299.0, 2.0**31 - 1, 2.0**31, -(2.0**31), 2.0**32 + 1]
    extremes = [np.nan, np.inf, -np.inf, 1e300, -1e300, 1e308, 1e19]
    values = np.array([*zeros, *categories, *extremes, *forest.threshold, *np.nextafter(forest.threshold, np.inf)])
    return rng.choice(values, (rows, forest.features))


def walked_scores(forest: Forest, table: np.ndarray) -> np.ndarray:
    """Return the raw scores ``(n, outputs)`` by following each row through each tree, with every index checked."""
    scores = np.zeros((len(table), forest.outputs))
    categories = np.split(forest.categories, np.cumsum(forest.category_bytes))
    for row, values in enumerate(np.where(np.abs(table) <= LARGEST_ZERO, 0.0, table)):
        first_split = first_leaf = 0
        for tree, splits in enumerate(forest.splits.ravel()):
            node = 0 if splits else -1
            for _ in range(splits + 1):
                if node < 0:
                    break
                assert node < splits
                split = first_split + node
                node = forest.children[split, 0 if _goes_left(forest, split, categories[split], values) else 1]
            assert -1 - splits <= node < 0
            scores[row, tree % forest.outputs] += forest.leaf_value[first_leaf - 1 - node]
            first_split, first_leaf = first_split + splits, first_leaf + splits + 1
    return scores


def _goes_left(forest: Forest, split: int, categories: np.ndarray, values: np.ndarray) -> bool:
    assert 0 <= forest.feature[split] < forest.features
    value = values[forest.feature[split]]
    if len(categories):
        members = np.flatnonzero(np.unpackbits(categories, bitorder="little"))
        return bool(np.isfinite(value) and value > -1 and int(value) in members)
    if np.isnan(value):
        return bool(forest.nan_left[split])
    return bool(forest.zero_left[split] if value == 0 else value <= forest.threshold[split])
