"""Trees of LightGBM as arrays, checked once so that evaluating them is safe whatever a file holds."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taskloss._checks import check_count
from taskloss.trees.lightgbm_text import read_trees
from taskloss.trees.scores_kernel import sum_leaf_values

_DTYPES = {
    "splits": np.dtype(np.int64),
    "feature": np.dtype(np.int32),
    "threshold": np.dtype(np.float64),
    "zero_left": np.dtype(np.uint8),
    "nan_left": np.dtype(np.uint8),
    "children": np.dtype(np.int32),
    "leaf_value": np.dtype(np.float64),
    "category_bytes": np.dtype(np.int32),
    "categories": np.dtype(np.uint8),
}
"""The arrays of a :class:`Forest`, which are also the tensors of a file."""


@dataclass(frozen=True, eq=False)
class Forest:
    """The trees of a model of LightGBM: T trees with S splits and S + T leaves in all, those of a tree next to one another.

    A split sends a row to its left or right child. A split of numbers sends values up to its threshold to the left; where zero
    and NaN go is stored, which covers all of LightGBM's types of missing values. A split of categories sends the members of
    its set to the left and everything else, NaN too, to the right.

    The constructor copies and checks the arrays, and raises a ValueError unless each tree is a tree: each of its splits and
    leaves below exactly one split, which stands before it. The arrays are read-only, so a forest stays valid.
    """

    features: int
    """Number of columns of the table."""
    splits: np.ndarray
    """Number of splits of each tree, int64 ``(iterations, outputs)``; the trees of an iteration stand next to one another."""
    feature: np.ndarray
    """The column that each split reads, int32 ``(S,)``."""
    threshold: np.ndarray
    """Values up to this go left, float64 ``(S,)``; infinite thresholds are allowed. Not used where a split has categories."""
    zero_left: np.ndarray
    """1 where zero goes left, else 0, uint8 ``(S,)``. Not used where a split has categories."""
    nan_left: np.ndarray
    """1 where NaN goes left, else 0, uint8 ``(S,)``. Not used where a split has categories."""
    children: np.ndarray
    """Left and right child, int32 ``(S, 2)``: ``c >= 0`` is split c of the same tree, ``c < 0`` its leaf ``-1 - c``."""
    leaf_value: np.ndarray
    """What a leaf adds to the score, float64 ``(S + T,)``."""
    category_bytes: np.ndarray
    """Number of bytes of each split's set of categories, int32 ``(S,)``; 0 for a split of numbers."""
    categories: np.ndarray
    """The sets one after another, uint8 ``(B,)``: category c is in a set if bit ``c % 8`` of its byte ``c // 8`` is 1."""

    def __post_init__(self) -> None:
        check_count("features", self.features)
        for name, dtype in _DTYPES.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                raise _unusable(f"{name} must be an array of {dtype}, got {getattr(array, 'dtype', type(array).__name__)}")
            array = array.copy(order="C")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        self._check_lengths()
        self._check_splits()
        self._check_children()
        self._check_leaf_values()

    @property
    def outputs(self) -> int:
        """Number of raw scores per row: one, or one per class."""
        return self.splits.shape[1]

    @classmethod
    def from_lightgbm(cls, booster: Any, num_iteration: int | None = None) -> Forest:
        """Copy the trees of a LightGBM ``Booster``.

        Args:
            booster: the fitted booster; that of a ``LGBMClassifier`` is its ``booster_``.
            num_iteration: the number of iterations to keep, 0 or less for all. None keeps what ``Booster.predict`` uses: those up
                to the best iteration if training was stopped early, else all.
        """
        if not hasattr(booster, "model_to_string"):
            raise TypeError(f"expected a lightgbm.Booster, got {type(booster).__name__}; estimators have one in .booster_")
        if num_iteration is not None and not isinstance(num_iteration, numbers.Integral):
            raise TypeError(f"num_iteration must be a whole number or None, got {type(num_iteration).__name__}")
        return cls(**read_trees(booster, None if num_iteration is None else int(num_iteration)))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], *, features: int) -> Forest:
        """Make a forest of what :meth:`tensors` returned, and check all of it.

        Args:
            tensors: the tensors by name. No content, however edited, gets past the checks and then reads outside the arrays or
                does not end: it raises a ValueError that says what is wrong.
            features: the number of columns of the table that the trees will read.
        """
        if set(tensors) != set(_DTYPES):
            raise _unusable(f"expected the tensors {sorted(_DTYPES)}, got {sorted(tensors)}")
        for name, tensor in tensors.items():
            expected = torch.from_numpy(np.empty(0, _DTYPES[name])).dtype
            if tensor.dtype != expected:
                raise _unusable(f"{name} must be a tensor of {expected}, got {tensor.dtype}")
        return cls(features=features, **{name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return the arrays as tensors, copies, for a file; all but the number of features, which belongs to the table."""
        return {name: torch.from_numpy(getattr(self, name).copy()) for name in _DTYPES}

    def raw_scores(self, table: Any) -> np.ndarray:
        """Return what ``Booster.predict(table, raw_score=True)`` returns, to the last bit.

        Args:
            table: a matrix of numbers ``(n, features)``, NaN where a value is missing, categories as the numbers of training. As
                in LightGBM, whole numbers are rounded to float32, so pass float64 for those above 2^24.

        Returns:
            float64 ``(n,)``, or ``(n, outputs)`` with several outputs.
        """
        matrix = np.asarray(table)
        if matrix.dtype.kind not in "biuf":
            raise TypeError(f"the table must be a matrix of real numbers, got dtype {matrix.dtype}; encode the columns")
        if matrix.ndim != 2 or matrix.shape[1] != self.features:
            raise ValueError(f"the table must have shape (rows, {self.features}) as in training, got {matrix.shape}")
        if matrix.dtype != np.float64:
            matrix = matrix.astype(np.float32)
        scores = sum_leaf_values(
            np.ascontiguousarray(matrix, np.float64),
            _starts(self.splits.ravel()),
            self.feature,
            self.threshold,
            self.zero_left,
            self.nan_left,
            self.children,
            self.leaf_value,
            _starts(self.category_bytes),
            self.categories,
            self.outputs,
        )
        return scores[:, 0] if self.outputs == 1 else scores

    def _check_lengths(self) -> None:
        if self.splits.ndim != 2 or self.splits.size == 0:
            raise _unusable(f"splits must have shape (iterations, outputs) with at least one tree, got {self.splits.shape}")
        splits, trees = self.feature.size, self.splits.size
        for name in ("feature", "threshold", "zero_left", "nan_left", "category_bytes"):
            self._check_shape(name, (splits,))
        self._check_shape("children", (splits, 2))
        self._check_shape("leaf_value", (splits + trees,))
        # Each number is bounded first, so that the sums cannot overflow.
        self._check_range("splits", 0, splits)
        if self.splits.sum() != splits:
            raise _unusable(f"splits must add up to the {splits} splits of feature, got {self.splits.sum()}")
        self._check_range("category_bytes", 0, self.categories.size)
        self._check_shape("categories", (int(self.category_bytes.sum(dtype=np.int64)),))

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        if getattr(self, name).shape != shape:
            raise _unusable(f"{name} must have shape {shape}, got {getattr(self, name).shape}")

    def _check_range(self, name: str, least: int, greatest: int) -> None:
        array = getattr(self, name)
        wrong = array[(array < least) | (array > greatest)]
        if wrong.size:
            raise _unusable(f"{name} must be from {least} to {greatest}, got {wrong[0]}")

    def _check_splits(self) -> None:
        self._check_range("feature", 0, self.features - 1)
        self._check_range("zero_left", 0, 1)
        self._check_range("nan_left", 0, 1)
        if np.isnan(self.threshold).any():
            raise _unusable("threshold must be a number, got NaN")

    def _check_children(self) -> None:
        """Check that each split and leaf of a tree but its root is the child of exactly one split, which stands before it."""
        splits = self.splits.ravel()
        tree = np.repeat(np.arange(len(splits)), splits)
        first = _starts(splits)[tree]
        index = np.arange(len(tree)) - first
        children = self.children.astype(np.int64)
        beyond = np.where(children < 0, -1 - children > splits[tree][:, None], children >= splits[tree][:, None])
        if beyond.any():
            raise _unusable(f"children must be splits or leaves of their own tree, got {children[beyond][0]}")
        # A child after its parent: so no path returns to a split, and none is longer than the tree.
        early = (children >= 0) & (children <= index[:, None])
        if early.any():
            raise _unusable(f"children that are splits must stand after their parent, got {children[early][0]}")
        # Splits come first, leaves after them.
        place = np.where(children < 0, len(tree) + first[:, None] + tree[:, None] - 1 - children, first[:, None] + children)
        parents = np.bincount(place.ravel(), minlength=len(tree) + len(self.leaf_value))
        if len(tree) and parents.max() > 1:
            raise _unusable("children must name each split and leaf once, but one has several parents")

    def _check_leaf_values(self) -> None:
        if not np.isfinite(self.leaf_value).all():
            raise _unusable("leaf_value must be finite, got infinity or NaN")
        first_leaf = _starts(self.splits.ravel())[:-1] + np.arange(self.splits.size)
        largest = np.maximum.reduceat(np.abs(self.leaf_value), first_leaf).reshape(self.splits.shape)
        with np.errstate(over="ignore"):
            if not np.isfinite(largest.sum(axis=0)).all():
                raise _unusable("leaf_value must be small enough for finite sums over the trees")


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Return where parts of these lengths begin, and where the last one ends, int64 ``(len(lengths) + 1,)``."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _unusable(reason: str) -> ValueError:
    cure = "If they are from a file, it is damaged: save the model again. If they were just trained, training has diverged"
    return ValueError(f"the trees cannot be used: {reason}. {cure}")
