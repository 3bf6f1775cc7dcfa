"""Data to train on or to validate with, and its division into batches.

The metric of a batch is not the metric of the data. Where all the samples fit into a step, the step sees all of them. Where they
do not, a batch should resemble the whole: every target value has its share of each batch, and no query is split.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class TrainingData(NamedTuple):
    """Inputs of the network and their target, with one row per sample."""

    features: Tensor
    target: Tensor
    groups: Tensor | None = None
    """Query id of each sample, for criteria and metrics that take ``groups=``."""
    weights: Tensor | None = None
    """Weight of each sample, the same for all samples of a query, for criteria and metrics that take ``weight=``."""

    def to(self, device: torch.device) -> TrainingData:
        """Return the data on a device."""
        # mypy does not see that the parts keep their order.
        return TrainingData(*(None if part is None else part.to(device) for part in self))  # type: ignore[arg-type]

    def rows(self, index: Tensor) -> TrainingData:
        """Return the samples of these indices."""
        # index_select copies rows several times faster than indexing does. (mypy: as above.)
        return TrainingData(*(None if part is None else part.index_select(0, index) for part in self))  # type: ignore[arg-type]

    def options(self) -> dict[str, Tensor]:
        """Return the keyword arguments of criteria and metrics besides scores and target; queries have one weight each."""
        options = {} if self.groups is None else {"groups": self.groups}
        if self.weights is not None:
            options["weight"] = self.weights if self.groups is None else _per_query(self.weights, self.groups)
        return options


def _per_query(weights: Tensor, groups: Tensor) -> Tensor:
    """Return the weight of each query, the queries in sorted order of their ids."""
    queries, index = groups.unique(return_inverse=True)
    return weights.new_empty(len(queries)).index_put((index,), weights)


class Batches:
    """The rows of each step: a function of the seed and the step alone, so a resumed run needs no other state."""

    def __init__(self, data: TrainingData, batch_size: int, seed: int) -> None:
        self._data = data
        self._seed = seed
        self._order: Callable[[np.random.Generator], list[np.ndarray]]
        self._batches = -(-len(data.target) // batch_size)
        """Number of batches in an epoch; 1 means that each step sees all the samples."""
        if self._batches > 1 and data.groups is None:
            strata = np.unique(data.target.cpu().numpy(force=True), axis=0, return_inverse=True)[1].reshape(-1)
            self._order = lambda rng: np.array_split(stratified_order(strata, rng), self._batches)
        elif self._batches > 1 and data.groups is not None:
            queries, index = np.unique(data.groups.cpu().numpy(force=True), return_inverse=True)
            self._batches = min(self._batches, len(queries))
            self._order = lambda rng: whole_queries(index, self._batches, rng)
        self.size = -(-len(data.target) // self._batches)
        """Number of samples in a batch, the largest where they differ (batches of whole queries: the mean)."""
        self._epoch: Callable[[int], list[Tensor]] = lru_cache(maxsize=1)(self._make_epoch)

    def of_step(self, step: int) -> TrainingData:
        """Return the samples of a step, counted from 0."""
        if self._batches == 1:
            return self._data
        epoch, batch = divmod(step, self._batches)
        return self._data.rows(self._epoch(epoch)[batch])

    def _make_epoch(self, epoch: int) -> list[Tensor]:
        device = self._data.target.device
        return [torch.from_numpy(rows).to(device) for rows in self._order(np.random.default_rng([self._seed, epoch]))]


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


def whole_queries(queries: np.ndarray, batches: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the rows of random batches with equally many queries each; no query is split.

    >>> [len(rows) for rows in whole_queries(np.array([0, 0, 1, 1, 2, 2, 3, 3]), 2, np.random.default_rng(0))]
    [4, 4]
    """
    parts = np.array_split(rng.permutation(int(queries.max()) + 1), batches)
    return [np.flatnonzero(np.isin(queries, part)) for part in parts]
