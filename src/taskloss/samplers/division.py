"""The division of one epoch into batches, in numpy: stratified, with a minimum of positives, or of whole queries."""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np


def stratified_order(strata: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a random order in which every stretch holds each stratum in its share, up to one sample at either end.

    The j-th of the m samples of a stratum, in random order, is placed at ``(j + u) / m`` with one random u per stratum.

    >>> order = stratified_order(np.repeat([0, 1], [90, 10]), np.random.default_rng(0))
    >>> [int((part >= 90).sum()) for part in np.array_split(order, 5)]
    [2, 2, 2, 2, 2]
    """
    counts = np.bincount(strata)
    shuffled = rng.permutation(len(strata))
    by_stratum = shuffled[np.argsort(strata[shuffled], kind="stable")]
    j = np.arange(len(strata)) - np.repeat(np.cumsum(counts) - counts, counts)
    position = (j + np.repeat(rng.random(len(counts)), counts)) / np.repeat(counts, counts)
    return by_stratum[np.argsort(position, kind="stable")]


def stratified_batches(
    strata: np.ndarray,
    batches: int,
    rng: np.random.Generator,
    labels: np.ndarray | None = None,
    min_positives: int = 0,
    batch_size: int | None = None,
) -> list[np.ndarray]:
    """Divide all samples into random batches of (nearly) equal size that hold each stratum in its share.

    Args:
        strata: the stratum of each sample, ``(n,)`` whole numbers from 0.
        batches: number of batches.
        rng: source of randomness.
        labels: which sample is a positive of which label, bool ``(n, C)``; needed for ``min_positives``.
        min_positives: each batch gets at least so many positives of each label, or all of them where there are fewer. Positives
            are repeated where they do not go round.
        batch_size: largest size of a batch; samples for which the repetitions leave no room are left out. None for no bound.

    >>> [rows.tolist() for rows in stratified_batches(np.array([0, 0, 0, 0, 1, 1]), 2, np.random.default_rng(0))]
    [[3, 2, 5], [0, 1, 4]]
    """
    reserved = [np.empty(0, np.int64)] * batches
    if labels is not None and min_positives:
        reserved = _reserve_positives(labels, batches, min_positives, rng)
    sizes = np.array([len(rows) for rows in reserved])
    free = np.ones(len(strata), bool)
    free[np.concatenate(reserved)] = False
    rest = np.flatnonzero(free)
    capacity = len(rest) if batch_size is None else batches * batch_size - int(sizes.sum())
    rest = rest[stratified_order(strata[rest], rng)][:capacity]
    parts = np.split(rest, np.cumsum(_fill_levels(sizes, len(rest)))[:-1])
    return [np.concatenate(pair) for pair in zip(reserved, parts, strict=True)]


def batches_needed(totals: np.ndarray, units: int, batch_size: int, minimum: int) -> int:
    """Return the least number of batches that hold all samples and the repeated positives; ``totals`` are those per label."""
    if minimum and not totals.any():
        raise ValueError(f"no sample is positive, so no batch can hold min_positives={minimum} of them")
    reserved = int(np.minimum(totals, minimum).sum())
    if minimum and reserved >= batch_size:
        raise ValueError(
            f"batch_size={batch_size} leaves no room beside min_positives={minimum} of {int((totals > 0).sum())} labels; raise "
            "batch_size or lower min_positives"
        )
    batches = -(-units // batch_size)
    while True:
        repeated = int(np.maximum(np.minimum(totals, minimum) * batches - totals, 0).sum())
        if (needed := -(-(units + repeated) // batch_size)) <= batches:
            return batches
        batches = needed


def _reserve_positives(labels: np.ndarray, batches: int, minimum: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Choose the positives that each batch needs, label by label, those with the fewest positives first.

    A positive of several labels counts for all of them. Every positive is used once before any of its label is repeated, and no
    batch holds a sample twice.
    """
    chosen: list[list[int]] = [[] for _ in range(batches)]
    counts = np.zeros((batches, labels.shape[1]), np.int64)
    used = np.zeros(len(labels), bool)
    totals = labels.sum(0)
    for label in np.argsort(totals, kind="stable"):
        positives = np.flatnonzero(labels[:, label])
        queue = deque(rng.permutation(positives[~used[positives]]).tolist())
        enough = min(minimum, len(positives))
        for batch, members in enumerate(chosen):
            passed_over = []
            while counts[batch, label] < enough:
                if not queue:
                    queue.extend(rng.permutation(positives).tolist())
                sample = queue.popleft()
                if sample in members:
                    passed_over.append(sample)
                else:
                    members.append(sample)
                    counts[batch] += labels[sample]
                    used[sample] = True
            queue.extendleft(reversed(passed_over))
    return [np.array(rows, np.int64) for rows in chosen]


def _fill_levels(sizes: np.ndarray, count: int) -> np.ndarray:
    """Return how many of ``count`` samples each batch gets on top of its size, so that the final sizes are as equal as possible.

    >>> _fill_levels(np.array([0, 0, 0]), 8).tolist(), _fill_levels(np.array([1, 5, 2]), 4).tolist()
    ([3, 3, 2], [3, 0, 1])
    """
    low, high = int(sizes.min()), int(sizes.max()) + -(-count // len(sizes))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if np.maximum(middle - sizes, 0).sum() >= count else (middle + 1, high)
    fill = np.maximum(low - sizes, 0)
    filled = np.flatnonzero(fill)
    fill[filled[len(filled) - (int(fill.sum()) - count) :]] -= 1
    return fill


def rows_of_queries(queries: np.ndarray, batches: list[np.ndarray]) -> list[np.ndarray]:
    """Return the rows of batches of queries, in ascending order; ``queries`` numbers the query of each row from 0.

    >>> [rows.tolist() for rows in rows_of_queries(np.array([0, 1, 0, 2]), [np.array([2, 0]), np.array([1])])]
    [[0, 2, 3], [1]]
    """
    of_query = np.split(np.argsort(queries, kind="stable"), np.cumsum(np.bincount(queries))[:-1])
    return [np.sort(np.concatenate([of_query[query] for query in batch])) for batch in batches]


def pack_queries(sizes: np.ndarray, batches: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Divide queries among batches of nearly equally many samples: each goes to the batch that has the fewest so far.

    The queries come in random order, but those of a higher power of two of samples first: see :func:`packed_batches_needed`.
    """
    order = rng.permutation(len(sizes))
    order = order[np.argsort(-_size_class(sizes)[order], kind="stable")]
    loads = [(0, batch) for batch in range(batches)]
    members: list[list[int]] = [[] for _ in range(batches)]
    for query in order.tolist():
        load, batch = heapq.heappop(loads)
        members[batch].append(query)
        heapq.heappush(loads, (load + int(sizes[query]), batch))
    return [np.array(members[batch], np.int64) for batch in rng.permutation(batches)]


def packed_batches_needed(sizes: np.ndarray, max_samples: int) -> int:
    """Return a number of batches for which no batch of :func:`pack_queries` can exceed ``max_samples``; larger numbers do too.

    A query of s samples goes to the batch with the fewest, which has at most the mean of what has been placed before. So that
    batch then has at most ``floor(placed / batches) + s`` samples, or s while there are empty batches. It suffices to look at the
    last and largest query of each class.
    """
    classes, needed = _size_class(sizes), 1
    for size_class in np.unique(classes):
        largest, placed = int(sizes[classes == size_class].max()), sizes[classes >= size_class]
        shared = (int(placed.sum()) - largest) // (max_samples - largest + 1) + 1
        needed = max(needed, min(len(placed), shared))
    return needed


def _size_class(sizes: np.ndarray) -> np.ndarray:
    return np.floor(np.log2(sizes)).astype(np.int64)
