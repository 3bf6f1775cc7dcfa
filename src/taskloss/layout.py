"""Reading rankings: from scores and target in any calling form to sorted lists and counts.

An item is one ranking or one labeling. Its samples lie along one axis or several, ``dim``; ``groups`` divides that axis (the
first of several) into queries. The values, one per item, have the shape of the scores with these axes removed, or with the
divided axis replaced by the groups in sorted order:

===============================  =====================  ===============
scores                           options                values
===============================  =====================  ===============
``(n,)``                                                ``()``
``(n, C)`` multi-label                                  ``(C,)``
``(Q, D)`` reranking             ``dim=1``              ``(Q,)``
``(n,)`` with G queries          ``groups``             ``(G,)``
``(n, C)``                       ``groups``             ``(G, C)``
``(B, H, W)`` images             ``dim=(1, 2)``         ``(B,)``
``(B, C, H, W)``, pooled         ``dim=(0, 2, 3)``      ``(C,)``
===============================  =====================  ===============
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch

from taskloss import _checks
from taskloss.kernels.items import filled
from taskloss.kernels.ranking.reading import read_lists
from taskloss.kernels.sort import IGNORED, TwoLists, read_labels


@dataclass(eq=False)
class Layout:
    """Which item (ranking or labeling) each sample of one input belongs to. Not to be changed."""

    shape: tuple[int, ...]
    """Shape of the scores."""
    values_shape: tuple[int, ...]
    """Shape of the values, one per item."""
    rankings: int
    """How many items there are."""
    run_owner: np.ndarray
    """The item of each run, int64. The flattened scores are runs of equal length within one item; an image is one run."""
    samples: int
    """Length of the axis of the samples (the first of several)."""

    @property
    def owner(self) -> np.ndarray:
        """Item of each sample of the flattened scores, int64; empty when there is only one item."""
        return _NO_OWNER if self.rankings == 1 else self.full_owner()

    def full_owner(self) -> np.ndarray:
        """Return ``owner`` at full length, for a single item too."""
        size = prod(self.shape)
        return self.run_owner if len(self.run_owner) == size else np.repeat(self.run_owner, size // len(self.run_owner))


_NO_OWNER = np.empty(0, np.int64)
_ONE_RUN = np.zeros(1, np.int64)
_ONE_WEIGHT = np.ones(1)


def values_shape(shape: tuple[int, ...], dims: Sequence[int], groups: int | None) -> tuple[int, ...]:
    """Return the shape of the values: the axes ``dims`` removed, the first of them replaced by the number of groups if any.

    >>> values_shape((100, 5), (0,), None), values_shape((100, 5), (0,), 3), values_shape((16, 21, 64, 64), (2, 3), None)
    ((5,), (3, 5), (16, 21))
    """
    axes = _checks.check_dims(tuple(dims), len(shape))
    grouped = None if groups is None else axes[0]
    kept = ((axis, groups if axis == grouped else size) for axis, size in enumerate(shape))
    # groups is a number where it is used, which mypy does not see.
    return tuple(size for axis, size in kept if axis not in axes or axis == grouped)  # type: ignore[misc]


def lay_out(shape: tuple[int, ...], dims: Sequence[int] = (0,), groups: np.ndarray | None = None) -> Layout:
    """Find the items of scores of this shape.

    >>> layout = lay_out((2, 3), dims=(1,))
    >>> layout.values_shape, layout.owner.tolist(), layout.run_owner.tolist()
    ((2,), [0, 0, 0, 1, 1, 1], [0, 1])
    """
    axes = _checks.check_dims(tuple(dims), len(shape))
    samples, count = shape[axes[0]], None
    if groups is None and len(axes) == len(shape):
        return Layout(shape, (), 1, _ONE_RUN, samples)
    # What the index along an axis says of the item: the index itself, the number of its group, or nothing (None).
    numbers: list[np.ndarray | None] = [None if axis in axes else np.arange(size) for axis, size in enumerate(shape)]
    if groups is not None:
        _checks.check_groups(groups, samples)
        numbers[axes[0]], count = _number_groups(groups)
    result = values_shape(shape, axes, count)
    runs = max((axis + 1 for axis, number in enumerate(numbers) if number is not None), default=0)
    owner = np.zeros((1,) * runs, np.int64)
    stride = 1
    for axis in reversed(range(runs)):
        number = numbers[axis]
        if number is None:
            number = np.zeros(shape[axis], np.int64)
        else:
            number = number * stride
            stride *= shape[axis] if count is None or axis != axes[0] else count
        owner = owner + number.reshape(-1, *(1,) * (runs - axis - 1))
    return Layout(shape, result, prod(result), owner.reshape(-1), samples)


def ranked_dims(dims: Sequence[int] | None) -> Sequence[int]:
    """Return the axes of one ranking, by default the first."""
    return (0,) if dims is None else dims


def _number_groups(groups: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the index of each id among the sorted distinct ids, and the number of those."""
    if len(groups) == 0:
        return np.empty(0, np.int64), 0
    low, high = int(groups.min()), int(groups.max())
    if high - low > 4 * len(groups):
        distinct, numbers = np.unique(groups, return_inverse=True)
        return numbers.astype(np.int64), len(distinct)
    # Dense ids, the usual case: a table instead of a sort.
    shifted = (groups - groups.min()).astype(np.int64) if groups.dtype == np.uint64 else groups.astype(np.int64) - low
    present = np.zeros(high - low + 1, np.int64)
    present[shifted] = 1
    return (np.cumsum(present) - 1)[shifted], int(present.sum())


def to_numpy(value: Any) -> np.ndarray:
    """Return an array or tensor, on any device and of any dtype, as a numpy array; half precision becomes float32."""
    if isinstance(value, torch.Tensor):
        if value._is_zerotensor():
            # It represents zeros and has no memory to read.
            value = torch.zeros(value.shape, dtype=value.dtype)
        if value.dtype.is_floating_point and value.dtype.itemsize < 4:
            value = value.detach().float()
        return (value if value.is_cpu else value.cpu()).numpy(force=True)
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float16 else array


class Rankings(NamedTuple):
    """The rankings of one batch of binary relevance: R of them, P positives in all.

    The counts of an answer are the numbers ``c_i`` of negatives above each positive; see
    :mod:`taskloss.kernels.ranking.interleaving`.
    """

    lists: TwoLists
    above: np.ndarray
    """Negatives scored above each positive, int64 ``(P,)``: the least counts of the prediction."""
    at_or_above: np.ndarray
    """Negatives scored at or above each positive, int64 ``(P,)``: the greatest counts of the prediction."""
    positives: np.ndarray
    """Positives of each ranking, int64 ``(R,)``."""
    negatives: np.ndarray
    """Negatives of each ranking, int64 ``(R,)``."""
    relevant: np.ndarray
    """Relevant items of each ranking, missing ones included; at least 1, float64 ``(R,)``."""
    defined: np.ndarray
    """Rankings with both classes, or with a missing relevant item, bool ``(R,)``."""

    @property
    def undefined(self) -> np.ndarray:
        """Rankings with one class only and no missing relevant item, bool ``(R,)``."""
        return ~self.defined

    @property
    def sizes(self) -> np.ndarray:
        """Samples of each ranking, int64 ``(R,)``."""
        return self.positives + self.negatives


def read_rankings(
    scores: np.ndarray,
    target: np.ndarray,
    *,
    dims: Sequence[int] | None = None,
    groups: np.ndarray | None = None,
    ignore_index: int | None = None,
    num_relevant: np.ndarray | None = None,
) -> tuple[Layout, Rankings]:
    """Check binary relevance in any calling form, sort each ranking and count."""
    _checks.check_shapes(scores, target)
    layout = lay_out(scores.shape, ranked_dims(dims), groups)
    lists, above, at_or_above, positives, negatives, relevant, defined, finite, known = read_lists(
        scores.ravel(), target.ravel(), ignore_index is not None, ignore_index or 0, layout.owner, layout.rankings
    )
    if not (known and finite):
        _checks.check_finite(scores, binary_labels(target, ignore_index)[1])
    if num_relevant is not None:
        counts = _relevant_counts(layout, positives, num_relevant)
        relevant, defined = np.maximum(counts, 1.0), defined | (counts != positives)
    return layout, Rankings(lists, above, at_or_above, positives, negatives, relevant, defined)


def binary_labels(target: np.ndarray, ignore_index: int | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the labels as the kernels take them, in the shape of the target, and which samples count (None when all do)."""
    flat, known = read_labels(target.ravel(), ignore_index is not None, ignore_index or 0)
    labels = flat.reshape(target.shape)
    kept = None if ignore_index is None else labels != IGNORED
    if not known:
        _checks.check_binary(target, (target == 0) | (target == 1) | (labels == IGNORED))
    return labels, kept


def _relevant_counts(layout: Layout, positives: np.ndarray, num_relevant: np.ndarray) -> np.ndarray:
    """Return the number of relevant items of each ranking, retrieved or not, float64 ``(R,)``."""
    if num_relevant.shape not in ((), layout.values_shape):
        raise ValueError(
            f"num_relevant has shape {num_relevant.shape}; expected one number, or one per ranking, shape {layout.values_shape}"
        )
    counts = np.broadcast_to(num_relevant, layout.values_shape).reshape(-1)
    _checks.check_num_relevant(counts, positives)
    return counts.astype(np.float64)


def ranking_weights(layout: Layout, weight: np.ndarray | None) -> np.ndarray:
    """Return the weight of each item in a mean or sum, float64 ``(R,)``."""
    if weight is None:
        return _ONE_WEIGHT if layout.rankings == 1 else filled(layout.rankings, 1.0)
    _checks.check_weight(weight, layout.values_shape, layout.shape, layout.samples)
    return weight.reshape(-1).astype(np.float64)
