"""The folds of an ensemble: how samples are dealt, and which rows each member trains on and holds out."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state


def first_seed(random_state: Any) -> int:
    """Return the seed of the folds and of the first member; the seeds of the others follow it."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def label_strata(labels: np.ndarray) -> np.ndarray:
    """Return the index of each row among the distinct rows of labels ``(n, C)``.

    The rows are sorted by the rarest label first, so that this label is spread over the folds most evenly.
    """
    return np.unique(labels[:, np.argsort(labels.sum(0))], axis=0, return_inverse=True)[1].reshape(-1)


def query_strata(relevance: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return 1 for each query that holds more and less relevant rows, so that its metric is defined, else 0.

    >>> query_strata(np.array([0, 1, 1, 1, 0]), np.array([0, 0, 1, 1, 2])).tolist()
    [1, 0, 0]
    """
    highest, lowest = np.full(query.max() + 1, -np.inf), np.full(query.max() + 1, np.inf)
    np.maximum.at(highest, query, relevance)
    np.minimum.at(lowest, query, relevance)
    return (highest > lowest).astype(np.int64)


def deal_folds(strata: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Return the fold of each sample; every stratum is spread over the folds evenly, up to one sample.

    >>> np.bincount(deal_folds(np.repeat([0, 1], [90, 10]), 5, np.random.default_rng(0))[90:]).tolist()
    [2, 2, 2, 2, 2]
    """
    shuffled = rng.permutation(len(strata))
    by_stratum = shuffled[np.argsort(strata[shuffled], kind="stable")]
    fold = np.empty(len(strata), np.int64)
    fold[by_stratum] = np.arange(len(strata)) % folds
    return fold


def make_splits(strata: np.ndarray, members: int, folds: int, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows to train on and the rows to hold out for each member; with one fold, both are all rows."""
    if folds < 2:
        return [(np.arange(len(strata)), np.arange(len(strata)))] * members
    splits: list[tuple[np.ndarray, np.ndarray]] = []
    while len(splits) < members:
        fold = deal_folds(strata, folds, rng)
        splits += [(np.flatnonzero(fold != index), np.flatnonzero(fold == index)) for index in range(folds)]
    return splits[:members]
