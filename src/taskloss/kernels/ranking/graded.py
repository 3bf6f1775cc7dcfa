"""Graded rankings: the discount of each sample's rank when samples are sorted by a key."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ranking.terms import discount
from taskloss.kernels.sort import IGNORED, POSITIVE, split_by_label


def place_discounts(keys: np.ndarray, ignored: np.ndarray, owner: np.ndarray, rankings: int, cut: int) -> np.ndarray:
    """Return the discount ``d(rank)`` of each sample within its ranking, the highest key first; zero beyond rank ``cut``.

    Samples with equal keys share the mean discount of their ranks. Ignored samples have no rank and get zero.

    Args:
        keys: what samples are sorted by, float64 ``(n,)``.
        ignored: samples that take no part, bool ``(n,)``.
        owner: the ranking of each sample, int64 ``(n,)``; empty when there is only one ranking.
        rankings: the number of rankings.
        cut: the last rank with a discount.

    >>> place_discounts(np.array([0.5, 2.0, 0.5]), np.zeros(3, bool), np.empty(0, np.int64), 1, 3).round(4).tolist()
    [0.5655, 1.0, 0.5655]
    """
    labels = np.where(ignored, np.uint8(IGNORED), np.uint8(POSITIVE))
    lists = split_by_label(keys, labels, owner, rankings)
    result = np.zeros(len(keys))
    _write_discounts(lists.positives, lists.positive_index, lists.positive_start, cut, result)
    return result


@kernel
def _write_discounts(keys, index, start, cut, result):
    """Write the discounts of sorted ``keys`` to ``result[index]``; ranking r owns ``keys[start[r]:start[r + 1]]``."""
    for r in range(len(start) - 1):
        first = start[r]
        while first < start[r + 1]:
            end = first
            total = 0.0
            while end < start[r + 1] and keys[end] == keys[first]:
                rank = end - start[r] + 1
                if rank <= cut:
                    total += discount(np.float64(rank))
                end += 1
            for k in range(first, end):
                result[index[k]] = total / (end - first)
            first = end
