"""Rankings of graded relevance: reading grades, and the discount of each sample's rank when samples are sorted by a key."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.ranking.terms import discount
from taskloss.kernels.sums import order_free_sum, order_free_sums_by_owner

LARGEST_GRADE = 50
"""Above it the exponential gain ``2**grade - 1`` loses all the others."""


@kernel
def read_grades(scores, target, ignore, ignored, exponential, owner, rankings):
    """Read scores and grades; those of ignored samples become zero.

    Args:
        scores: float32 or float64 ``(n,)``.
        target: array ``(n,)`` of any real type.
        ignore: whether targets equal to ``ignored`` are left out.
        ignored: a whole number.
        exponential: whether the gain is ``2**grade - 1`` or the grade.
        owner: int64 ``(n,)``, the ranking of each sample; empty when there is only one ranking.
        rankings: the number R of rankings.

    Returns:
        Scores and gains, float64 ``(n,)``; which samples are ignored, bool ``(n,)``; which rankings have several gains, bool
        ``(R,)``; whether all the scores and grades that count are valid.
    """
    keys, gains, left_out = np.zeros(len(scores), np.float64), np.zeros(len(scores), np.float64), np.zeros(len(scores), np.bool_)
    lowest, highest = np.full(rankings, np.inf), np.full(rankings, -np.inf)
    valid = True
    for i in range(len(scores)):
        if ignore and target[i] == ignored:
            left_out[i] = True
            continue
        grade = np.float64(target[i])
        if not (np.isfinite(scores[i]) and grade >= 0.0) or (exponential and grade > LARGEST_GRADE):
            valid = False
        keys[i] = scores[i]
        gains[i] = np.exp2(grade) - 1.0 if exponential else grade
        r = owner[i] if len(owner) > 0 else 0
        lowest[r], highest[r] = min(lowest[r], gains[i]), max(highest[r], gains[i])
    several = np.empty(rankings, np.bool_)
    for r in range(rankings):
        several[r] = lowest[r] < highest[r]
    return keys, gains, left_out, several, valid


def rank_discounts(keys: np.ndarray, ignored: np.ndarray, owner: np.ndarray, rankings: int, cut: int) -> np.ndarray:
    """Return ``d(rank)`` of each sample within its ranking, the highest key first; zero beyond rank ``cut``.

    Samples with equal keys share the mean discount of their ranks; ignored samples have none.

    >>> rank_discounts(np.array([0.5, 2.0, 0.5]), np.zeros(3, bool), np.empty(0, np.int64), 1, 3).round(4).tolist()
    [0.5655, 1.0, 0.5655]
    """
    return _rank_discounts(np.argsort(-keys), keys, ignored, owner, rankings, cut)


@kernel
def _rank_discounts(order, keys, ignored, owner, rankings, cut):
    """Deal the sorted samples out to their rankings, then walk each ranking by groups of equal keys."""
    start = np.zeros(rankings + 1, np.int64)
    for i in range(len(keys)):
        if not ignored[i]:
            start[(owner[i] if len(owner) > 0 else 0) + 1] += 1
    for r in range(rankings):
        start[r + 1] += start[r]
    index, end = np.empty(start[-1], np.int64), start.copy()
    for i in order:
        if not ignored[i]:
            r = owner[i] if len(owner) > 0 else 0
            index[end[r]] = i
            end[r] += 1
    result = np.zeros(len(keys), np.float64)
    for r in range(rankings):
        first = start[r]
        while first < start[r + 1]:
            last = first
            total = 0.0
            while last < start[r + 1] and keys[index[last]] == keys[index[first]]:
                rank = last - start[r] + 1
                if rank <= cut:
                    total += discount(np.float64(rank))
                last += 1
            for k in range(first, last):
                result[index[k]] = total / (last - first)
            first = last
    return result


def sums_by_ranking(values: np.ndarray, factors: np.ndarray, owner: np.ndarray, rankings: int) -> np.ndarray:
    """Return the sum of ``values * factors`` of each ranking, float64 ``(R,)``; the order of the samples does not matter.

    ``owner`` is the ranking of each sample, empty when there is only one ranking.
    """
    if rankings == 1:
        return _sum_of_products(values, factors)
    return order_free_sums_by_owner(values * factors, owner, rankings)


@kernel
def _sum_of_products(values, factors):
    """Return the sum of ``values * factors``, float64 ``(1,)``."""
    products, result = np.empty(len(values), np.float64), np.empty(1, np.float64)
    for i in range(len(values)):
        products[i] = values[i] * factors[i]
    result[0] = order_free_sum(products)
    return result
