"""The trees of a fitted LightGBM model, from the text that its ``model_to_string`` writes.

The text holds the arrays of LightGBM itself, every float with 17 digits; ``dump_model`` would replace infinite thresholds. It is
read from a model in memory only, never from a file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_CATEGORICAL, _DEFAULT_LEFT = 1, 2
"""Bits of LightGBM's ``decision_type``; the bits above them are the type of missing values."""
_ZERO_IS_MISSING, _NAN_IS_MISSING = 1, 2


def read_trees(booster: Any, num_iteration: int | None) -> dict[str, Any]:
    """Return the fields of a :class:`taskloss.trees.forest.Forest`."""
    text = booster.model_to_string(num_iteration=num_iteration)
    blocks = text.partition("\ntree_sizes=")[2].partition("\nend of trees\n")[0].split("\nTree=")[1:]
    trees = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
    if not trees:
        raise ValueError("the booster has no trees; train it for at least one iteration")
    if any(int(tree.get("is_linear", "0")) for tree in trees):
        raise ValueError("trees with linear models in their leaves cannot be stored; train with linear_tree=False")
    decision = _joined(trees, "decision_type", np.int64)
    threshold = _joined(trees, "threshold", np.float64)
    categorical, default_left = decision & _CATEGORICAL > 0, decision & _DEFAULT_LEFT > 0
    missing = decision >> 2
    zero_left = np.where(missing == _ZERO_IS_MISSING, default_left, threshold >= 0.0)
    # LightGBM reads NaN as zero unless it is what is missing.
    nan_left = np.where(missing == _NAN_IS_MISSING, default_left, zero_left)
    splits = np.array([int(tree["num_leaves"]) - 1 for tree in trees], np.int64)
    category_sets = [categories for tree in trees for categories in _category_sets(tree)]
    return {
        "features": booster.num_feature(),
        "splits": splits.reshape(-1, booster.num_model_per_iteration()),
        "feature": _joined(trees, "split_feature", np.int32),
        "threshold": np.where(categorical, 0.0, threshold),
        "zero_left": (zero_left & ~categorical).astype(np.uint8),
        "nan_left": (nan_left & ~categorical).astype(np.uint8),
        "children": np.stack([_joined(trees, "left_child", np.int32), _joined(trees, "right_child", np.int32)], axis=1),
        "leaf_value": _joined(trees, "leaf_value", np.float64),
        "category_bytes": np.array([len(categories) for categories in category_sets], np.int32),
        "categories": np.concatenate([np.empty(0, np.uint8), *category_sets]),
    }


def _joined(trees: list[dict[str, str]], name: str, dtype: type[np.generic]) -> np.ndarray:
    """Return one array of all trees, one after another."""
    return np.array([number for tree in trees for number in tree[name].split()], dtype)


def _category_sets(tree: dict[str, str]) -> list[np.ndarray]:
    """Return for each split the bits of the categories that go left, as bytes; none for splits of numbers."""
    boundaries = np.array(tree.get("cat_boundaries", "").split(), np.int64)
    words = np.array(tree.get("cat_threshold", "").split(), "<u4")
    sets = []
    for decision, threshold in zip(tree["decision_type"].split(), tree["threshold"].split(), strict=True):
        categorical = int(decision) & _CATEGORICAL
        # The threshold of a split of categories is the index of its set.
        k = int(threshold) if categorical else 0
        sets.append(words[boundaries[k] : boundaries[k + 1]].view(np.uint8) if categorical else np.empty(0, np.uint8))
    return sets
