"""Samples, and how a step gets some of them.

A metric of a batch is not the metric of the data. Where all the samples fit, a step sees them all. Where they do not, a batch
should look like the whole: each kind of target gets its share of every batch, and queries stay in one piece.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Samples(NamedTuple):
    """Inputs of the network and their target, one row a sample; query ids for criteria and metrics that take ``groups=``."""

    features: Tensor
    target: Tensor
    groups: Tensor | None = None

    def to(self, device: torch.device) -> Samples:
        groups = None if self.groups is None else self.groups.to(device)
        return Samples(self.features.to(device), self.target.to(device), groups)

    def rows(self, index: Tensor) -> Samples:
        return Samples(self.features[index], self.target[index], None if self.groups is None else self.groups[index])

    def options(self) -> dict[str, Tensor]:
        """What criteria and metrics are given besides scores and target."""
        return {} if self.groups is None else {"groups": self.groups}


class Batches:
    """The rows of every step: a function of the seed and the number of the step, so that a resumed run needs no other state."""

    def __init__(self, samples: Samples, batch_size: int, seed: int) -> None:
        self._samples = samples
        self._seed = seed
        self._order: Callable[[np.random.Generator], list[np.ndarray]]
        self._number = -(-len(samples.target) // batch_size)
        """Of batches in an epoch; 1 means that a step sees all the samples."""
        if self._number > 1 and samples.groups is None:
            kinds = np.unique(samples.target.cpu().numpy(force=True), axis=0, return_inverse=True)[1].reshape(-1)
            self._order = lambda rng: np.array_split(stratified_order(kinds, rng), self._number)
        elif self._number > 1 and samples.groups is not None:
            queries, number = np.unique(samples.groups.cpu().numpy(force=True), return_inverse=True)
            self._number = min(self._number, len(queries))
            self._order = lambda rng: whole_queries(number, self._number, rng)
        self._epoch: Callable[[int], list[Tensor]] = lru_cache(maxsize=1)(self._make_epoch)

    def of_step(self, step: int) -> Samples:
        """The samples of a step, counted from 0."""
        if self._number == 1:
            return self._samples
        epoch, place = divmod(step, self._number)
        return self._samples.rows(self._epoch(epoch)[place])

    def _make_epoch(self, epoch: int) -> list[Tensor]:
        device = self._samples.target.device
        return [torch.from_numpy(rows).to(device) for rows in self._order(np.random.default_rng([self._seed, epoch]))]


def stratified_order(kinds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random order in which every stretch holds each kind in its share, up to one sample at either end.

    The j-th of the m samples of a kind, in random order, is put at ``(j + u) / m`` with one random u a kind.

    >>> order = stratified_order(np.repeat([0, 1], [90, 10]), np.random.default_rng(0))
    >>> [int((part >= 90).sum()) for part in np.array_split(order, 5)]
    [2, 2, 2, 2, 2]
    """
    counts = np.bincount(kinds)
    shuffled = rng.permutation(len(kinds))
    by_kind = shuffled[np.argsort(kinds[shuffled], kind="stable")]
    number = np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = (number + np.repeat(rng.random(len(counts)), counts)) / np.repeat(counts, counts)
    return by_kind[np.argsort(places, kind="stable")]


def whole_queries(queries: np.ndarray, batches: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows of batches with equally many queries each, at random, every query in one piece.

    >>> [len(rows) for rows in whole_queries(np.array([0, 0, 1, 1, 2, 2, 3, 3]), 2, np.random.default_rng(0))]
    [4, 4]
    """
    parts = np.array_split(rng.permutation(int(queries.max()) + 1), batches)
    return [np.flatnonzero(np.isin(queries, part)) for part in parts]
