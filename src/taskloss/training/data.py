"""Data to train on or to validate with, and its division into batches.

Where all the samples fit into a step, the step sees all of them. Where they do not, the batches are those of
:mod:`taskloss.samplers`: every target value has its share of each batch, and no query is split.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from taskloss.samplers.division import rows_of_queries, stratified_batches


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
        self._divide: Callable[[np.random.Generator], list[np.ndarray]]
        self._batches = -(-len(data.target) // batch_size)
        """Number of batches in an epoch; 1 means that each step sees all the samples."""
        if self._batches > 1 and data.groups is None:
            strata = np.unique(data.target.cpu().numpy(force=True), axis=0, return_inverse=True)[1].reshape(-1)
            self._divide = lambda rng: stratified_batches(strata, self._batches, rng)
        elif self._batches > 1 and data.groups is not None:
            queries, index = np.unique(data.groups.cpu().numpy(force=True), return_inverse=True)
            self._batches, alike = min(self._batches, len(queries)), np.zeros(len(queries), np.int64)
            self._divide = lambda rng: rows_of_queries(index, stratified_batches(alike, self._batches, rng))
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
        return [torch.from_numpy(rows).to(device) for rows in self._divide(np.random.default_rng([self._seed, epoch]))]
