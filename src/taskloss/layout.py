"""The calling forms of rankings: which samples belong to which ranking, and which shape the values have.

Scores of any shape are ranked along one axis, ``dim``; ``groups`` further divides that axis into queries. The values, one a
ranking, have the shape of the scores with ``dim`` removed, or with ``dim`` replaced by the groups in sorted order:

========================  ==============  ===============
scores                    options         values
========================  ==============  ===============
``(n,)``                                  ``()``
``(n, C)`` multi-label                    ``(C,)``
``(Q, D)`` reranking      ``dim=1``       ``(Q,)``
``(n,)`` with G queries   ``groups``      ``(G,)``
``(n, C)``                ``groups``      ``(G, C)``
========================  ==============  ===============
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from taskloss import _checks
from taskloss.kernels.interleaving import natural_counts
from taskloss.kernels.sort import IGNORED, TwoLists, split_by_label


@dataclass(frozen=True)
class Layout:
    """Where the rankings of one input lie."""

    shape: tuple[int, ...]
    """Shape of the scores."""
    values_shape: tuple[int, ...]
    """Shape of one value a ranking."""
    owner: np.ndarray
    """Ranking of each sample of the flattened scores, int64; empty when there is only one ranking."""
    samples: int
    """Length of the ranked axis."""

    @property
    def rankings(self) -> int:
        return prod(self.values_shape)

    def full_owner(self) -> np.ndarray:
        """``owner``, spelled out for a single ranking too."""
        return self.owner if len(self.owner) else np.zeros(prod(self.shape), np.int64)


def values_shape(shape: tuple[int, ...], dim: int, groups: int | None) -> tuple[int, ...]:
    """Shape of one value a ranking: ``dim`` removed, or replaced by the number of groups.

    >>> values_shape((100, 5), 0, None), values_shape((100, 5), 0, 3)
    ((5,), (3, 5))
    """
    dim = _checks.check_dim(dim, len(shape))
    return (*shape[:dim], *(() if groups is None else (groups,)), *shape[dim + 1 :])


def lay_out(shape: tuple[int, ...], dim: int = 0, groups: np.ndarray | None = None) -> Layout:
    """The rankings of scores of this shape.

    >>> layout = lay_out((2, 3), dim=1)
    >>> layout.values_shape, layout.owner.tolist()
    ((2,), [0, 0, 0, 1, 1, 1])
    """
    dim = _checks.check_dim(dim, len(shape))
    before, samples, after = shape[:dim], shape[dim], shape[dim + 1 :]
    if groups is None and len(shape) == 1:
        return Layout(shape, (), np.empty(0, np.int64), samples)
    if groups is None:
        numbers, count = np.zeros(samples, np.int64), 1
    else:
        _checks.check_groups(groups, samples)
        numbers, count = _number_groups(groups)
    outer, inner = prod(before), prod(after)
    result = values_shape(shape, dim, None if groups is None else count)
    if outer * count * inner == 1:
        return Layout(shape, result, np.empty(0, np.int64), samples)
    owner = (np.arange(outer)[:, None, None] * count + numbers[:, None]) * inner + np.arange(inner)
    return Layout(shape, result, owner.reshape(-1), samples)


def _number_groups(groups: np.ndarray) -> tuple[np.ndarray, int]:
    """Ids to their places among the sorted distinct ids, and how many there are."""
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
    """An array or tensor, on any device and of any dtype, as a numpy array; half precision widened to float32."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype.is_floating_point and value.dtype.itemsize < 4:
            value = value.float()
        return value.cpu().numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float16 else array


@dataclass(frozen=True)
class Rankings:
    """The rankings of one batch of binary relevance; R of them, P positives in all."""

    lists: TwoLists
    above: np.ndarray
    """The prediction's least counts: negatives scored above each positive, shape ``(P,)``."""
    at_or_above: np.ndarray
    """The prediction's greatest counts, shape ``(P,)``."""
    positives: np.ndarray
    """How many each ranking has, shape ``(R,)``."""
    negatives: np.ndarray
    relevant: np.ndarray
    """Relevant items, those missing from the list included; at least 1, float64."""
    undefined: np.ndarray
    """Rankings with one class only and no relevant item missing, bool."""

    @property
    def sizes(self) -> np.ndarray:
        """Samples of each ranking, shape ``(R,)``."""
        return self.positives + self.negatives


def read_rankings(
    scores: np.ndarray,
    target: np.ndarray,
    *,
    dim: int = 0,
    groups: np.ndarray | None = None,
    ignore_index: int | None = None,
    num_relevant: np.ndarray | None = None,
) -> tuple[Layout, Rankings]:
    """Check binary input in any calling form, sort it and count."""
    _checks.check_shapes(scores, target)
    layout = lay_out(scores.shape, dim, groups)
    labels, kept = _binary_labels(target, ignore_index)
    _checks.check_finite(scores, kept)
    if kept is not None:
        scores = np.where(kept, scores, scores.dtype.type(0))
    flat = np.ascontiguousarray(scores).reshape(-1)
    lists = split_by_label(flat, labels.reshape(-1), layout.owner, layout.rankings)
    positives, negatives = lists.positive_counts(), lists.negative_counts()
    relevant = _relevant_counts(layout, positives, num_relevant)
    undefined = ((positives == 0) | (negatives == 0)) & (relevant == positives)
    above, at_or_above = natural_counts(lists)
    return layout, Rankings(lists, above, at_or_above, positives, negatives, np.maximum(relevant, 1.0), undefined)


def _binary_labels(target: np.ndarray, ignore_index: int | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels as the kernels take them, and which samples count (None when all do)."""
    if target.dtype == np.bool_ and ignore_index is None:
        return np.ascontiguousarray(target).view(np.uint8), None
    positive = np.ascontiguousarray(target == 1)
    known = positive | (target == 0)
    if ignore_index is None:
        _checks.check_binary(target, known)
        return positive.view(np.uint8), None
    ignored = target == ignore_index
    _checks.check_binary(target, known | ignored)
    labels = positive.view(np.uint8)
    labels[ignored] = IGNORED
    return labels, ~ignored


def _relevant_counts(layout: Layout, positives: np.ndarray, num_relevant: np.ndarray | None) -> np.ndarray:
    """How many relevant items each ranking has, retrieved or not; shape ``(R,)``, float64."""
    if num_relevant is None:
        return positives.astype(np.float64)
    if num_relevant.shape not in ((), layout.values_shape):
        raise ValueError(
            f"num_relevant has shape {num_relevant.shape}; expected one number, or one a ranking, shape {layout.values_shape}"
        )
    counts = np.broadcast_to(num_relevant, layout.values_shape).reshape(-1)
    _checks.check_num_relevant(counts, positives)
    return counts.astype(np.float64)


def ranking_weights(layout: Layout, weight: np.ndarray | None) -> np.ndarray:
    """The weight of each ranking in a mean or sum; shape ``(R,)``, float64."""
    if weight is None:
        return np.ones(layout.rankings)
    _checks.check_weight(weight, layout.values_shape, layout.shape, layout.samples)
    return weight.reshape(-1).astype(np.float64)
