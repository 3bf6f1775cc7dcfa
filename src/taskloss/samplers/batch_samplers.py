"""The samplers: batches by epoch, rank and position, which a ``torch.utils.data.DataLoader`` takes as ``batch_sampler``."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from taskloss import _checks
from taskloss._warn import warn_caller
from taskloss.layout import binary_labels, to_numpy
from taskloss.samplers.division import batches_needed, pack_queries, packed_batches_needed, rows_of_queries, stratified_batches


class _EpochBatchSampler(Sampler[list[int]]):
    """Base of the samplers: the batches of one rank, by epoch, from any position."""

    # The size is private: Accelerate takes a public batch_size for the size of every batch, and drops smaller ones.
    _batch_size: int | None
    _max_samples: int | None = None
    min_positives: int

    def __init__(
        self, samples: int, batches: int, data: np.ndarray, num_replicas: int | None, rank: int | None, seed: int
    ) -> None:
        """Take the number of samples and of batches needed, and the data that the batches depend on."""
        self._by_default = num_replicas is None
        """Whether the number of processes and the rank were left to the default process group."""
        self.num_replicas, self.rank = _replicas(num_replicas, rank)
        self.seed = _checks.check_not_negative("seed", seed)
        self.epoch = 0
        self.samples = samples
        """Number of samples of the data."""
        self._batches = -(-batches // self.num_replicas) * self.num_replicas
        """Number of batches of all ranks in an epoch."""
        self._digest = zlib.crc32(np.ascontiguousarray(data).tobytes())
        self._position = 0
        """Number of batches of this epoch that were drawn."""
        self._start = 0
        """Where the next walk over the epoch begins: 0, except after ``load_state_dict``."""
        self._divided: tuple[int, list[np.ndarray]] | None = None
        """The last epoch that was divided, and its batches."""

    def _epoch_batches(self) -> list[np.ndarray]:
        if self._divided is None or self._divided[0] != self.epoch:
            self._divided = self.epoch, self._divide(np.random.default_rng([self.seed, self.epoch]))
        return self._divided[1]

    def _divide(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the rows of all batches of an epoch."""
        raise NotImplementedError  # Every sampler defines it.

    @property
    def sampler(self) -> _EpochBatchSampler:
        """This sampler itself: Lightning calls ``batch_sampler.sampler.set_epoch`` before each epoch."""
        return self

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch; it is the same for all ranks and epochs."""
        self._check_replicas()
        return self._batches // self.num_replicas

    def __iter__(self) -> Iterator[list[int]]:
        self._check_replicas()
        start, self._start = self._start, 0
        for position, rows in enumerate(self._epoch_batches()[self.rank :: self.num_replicas][start:], start + 1):
            self._position = position
            yield rows.tolist()

    def _check_replicas(self) -> None:
        """Raise if there is a process group now that was not there, or was another, when the sampler was built."""
        group = _default_group()
        if self._by_default and group is not None and group != (self.num_replicas, self.rank):
            raise ValueError(
                f"this {type(self).__name__} was built for rank {self.rank} of {self.num_replicas}, but this process is now rank "
                f"{group[1]} of {group[0]}; build the sampler after init_process_group, or pass num_replicas and rank"
            )

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; without this call, every walk has the batches of the same one.

        A call with the present epoch changes nothing, so the loop of a resumed run may begin with it.
        """
        if (number := _checks.check_not_negative("epoch", epoch)) != self.epoch:
            self.epoch, self._position, self._start = number, 0, 0

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """Return the state from which a walk continues with the next batch: the place, and the settings that it belongs to.

        Args:
            position: number of batches of this epoch that are done. By default those that were drawn; a ``DataLoader`` with
                workers draws batches ahead of the training, so pass your own count there.
        """
        position = self._position if position is None else _checks.check_not_negative("position", position)
        if position > len(self):
            raise ValueError(f"position={position} is beyond the {len(self)} batches of an epoch")
        ended = position == len(self)
        return {"epoch": self.epoch + ended, "position": 0 if ended else position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken: the next walk begins there, later ones at the beginning of their epoch."""
        changed = [
            f"{name} {state.get(name)!r} (here {own!r})" for name, own in self._identity().items() if state.get(name) != own
        ]
        if changed:
            raise ValueError(
                f"the state belongs to another sampler: {', '.join(changed)}. Build the sampler with the data and the settings "
                "of the interrupted run, or start a new epoch with set_epoch"
            )
        epoch, position = (_checks.check_not_negative(f"{name} of the state", state.get(name)) for name in ("epoch", "position"))
        if position >= len(self):
            raise ValueError(f"position of the state is {position}, but an epoch has {len(self)} batches; expected fewer")
        self.epoch, self._position, self._start = epoch, position, position

    def _identity(self) -> dict[str, Any]:
        """Return what a state belongs to, as plain values: all that the batches depend on, except for the epoch."""
        return {
            "sampler": type(self).__name__,
            "batch_size": self._batch_size,
            "max_samples": self._max_samples,
            "min_positives": self.min_positives,
            "seed": self.seed,
            "num_replicas": self.num_replicas,
            "samples": self.samples,
            "batches": len(self),
            "data": self._digest,
        }

    def occurrences(self) -> Tensor:
        """Return how often each sample occurs in this epoch, on all ranks together, int64 ``(samples,)``.

        All are 1 unless positives had to be repeated. A loss that is a mean over samples then weighs these positives more.
        """
        return torch.from_numpy(np.bincount(np.concatenate(self._epoch_batches()), minlength=self.samples))


class StratifiedBatchSampler(_EpochBatchSampler):
    """Batches that hold every target value in its share, and at least ``min_positives`` positives of each label.

    Each sample occurs once per epoch, and positives are spread evenly. Where there are too few positives for that minimum, they
    are repeated, each (nearly) equally often, and the epoch has as many more batches as that takes; :meth:`occurrences` says how
    often. No batch holds a sample twice. A label with fewer positives than the minimum has all of them in every batch; a label
    without positives has none. With several labels whose positives overlap unevenly, a few other samples may be left out of an
    epoch in favour of the repetitions.

    Args:
        target: 0/1 relevance, ``(n,)`` for one label or ``(n, C)`` for several, as a tensor or an array.
        batch_size: largest number of samples in a batch, of each rank.
        min_positives: least number of positives of each label in a batch, of each rank; 0 for stratified batches without a
            minimum.
        ignore_index: the mark of unknown labels in the target; they are no positives.
        num_replicas: number of processes; by default that of the default process group, or 1 without one.
        rank: number of this process; by default that in the default process group.
        seed: seed of all epochs, the same on all ranks.

    >>> target = torch.arange(1000) % 100 == 0                    # ten positives
    >>> sampler = StratifiedBatchSampler(target, batch_size=100, min_positives=1)
    >>> len(sampler), [int(target[rows].sum()) for rows in sampler]
    (10, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    >>> sampler = StratifiedBatchSampler(target, batch_size=100, min_positives=4)
    >>> len(sampler), sampler.occurrences()[target].tolist(), sampler.occurrences()[~target].unique().tolist()
    (11, [4, 5, 5, 4, 4, 4, 4, 5, 5, 4], [1])
    """

    def __init__(
        self,
        target: Any,
        batch_size: int,
        *,
        min_positives: int = 1,
        ignore_index: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        seed: int = 0,
    ) -> None:
        array = to_numpy(target)
        if array.ndim not in (1, 2) or not len(array):
            raise ValueError(
                f"target has shape {array.shape}; expected one label (n,) or several (n, C), and at least one sample"
            )
        self._batch_size = size = _checks.check_count("batch_size", batch_size)
        self.min_positives = _checks.check_not_negative("min_positives", min_positives)
        self._labels = (binary_labels(array, ignore_index)[0] == 1).reshape(len(array), -1)
        self._strata = np.unique(array, axis=0, return_inverse=True)[1].reshape(-1)
        totals = self._labels.sum(0)
        batches = batches_needed(totals, len(array), size, self.min_positives)
        super().__init__(len(array), batches, array, num_replicas, rank, seed)
        _check_enough("samples", len(array), self._batches)
        _warn_rare(totals, self.min_positives)

    def _divide(self, rng: np.random.Generator) -> list[np.ndarray]:
        return stratified_batches(self._strata, self._batches, rng, self._labels, self.min_positives, self._batch_size)


class QueryBatchSampler(_EpochBatchSampler):
    """Batches of whole queries, each query once per epoch, for losses that are called with ``groups=``.

    Give the size in queries (``batch_size``) or as a bound in samples (``max_samples``). With ``max_samples`` the batches have
    nearly equally many samples: the number of batches is chosen so that no epoch can exceed the bound, and queries of a similar
    size are spread among the batches.

    Args:
        groups: query id of each sample, ``(n,)`` integers in any order.
        batch_size: largest number of queries in a batch, of each rank.
        max_samples: largest number of samples in a batch, of each rank; no query may have more.
        target: relevance of each sample, ``(n,)``, for ``min_positives``: 0/1 or grades, positive above 0.
        min_positives: least number of queries in a batch that have a positive, so that at least so many rankings have a
            gradient; such queries are repeated where there are too few. It needs ``target`` and ``batch_size``.
        num_replicas: number of processes; by default that of the default process group, or 1 without one.
        rank: number of this process; by default that in the default process group.
        seed: seed of all epochs, the same on all ranks.

    >>> groups = torch.tensor([7, 7, 3, 3, 3, 9, 5, 5])
    >>> [groups[rows].tolist() for rows in QueryBatchSampler(groups, batch_size=2)]
    [[7, 7, 3, 3, 3], [9, 5, 5]]
    >>> [groups[rows].tolist() for rows in QueryBatchSampler(groups, max_samples=5)]
    [[3, 3, 3, 9], [7, 7, 5, 5]]
    """

    def __init__(
        self,
        groups: Any,
        batch_size: int | None = None,
        *,
        max_samples: int | None = None,
        target: Any = None,
        min_positives: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        seed: int = 0,
    ) -> None:
        ids = to_numpy(groups)
        _checks.check_groups(ids, ids.size)
        if not len(ids):
            raise ValueError("groups is empty; expected one query id per sample")
        if (batch_size is None) == (max_samples is None):
            raise ValueError("give the size of a batch either in queries, batch_size=, or in samples, max_samples=")
        self._batch_size = None if batch_size is None else _checks.check_count("batch_size", batch_size)
        self._max_samples = None if max_samples is None else _checks.check_count("max_samples", max_samples)
        self.min_positives = _checks.check_not_negative("min_positives", min_positives)
        names, self._queries = np.unique(ids, return_inverse=True)
        self._sizes, self._positive, data = np.bincount(self._queries), None, ids
        if self.min_positives:
            if target is None or batch_size is None:
                raise ValueError(f"min_positives={min_positives} needs target= (which samples are positive) and batch_size=")
            relevance = to_numpy(target)
            if relevance.shape != ids.shape:
                raise ValueError(f"target has shape {relevance.shape} and groups has shape {ids.shape}; expected the same shape")
            self._positive = (np.bincount(self._queries, relevance > 0) > 0)[:, None]
            data = np.stack([ids, relevance > 0])
        if self._max_samples is not None:
            if self._sizes.max() > self._max_samples:
                raise ValueError(
                    f"query {names[self._sizes.argmax()]} has {self._sizes.max()} samples, more than max_samples={max_samples}; "
                    "queries are not split, so raise max_samples or shorten the query"
                )
            batches = packed_batches_needed(self._sizes, self._max_samples)
        else:
            assert self._batch_size is not None
            totals = np.zeros(1, np.int64) if self._positive is None else self._positive.sum(0)
            batches = batches_needed(totals, len(names), self._batch_size, self.min_positives)
        super().__init__(len(ids), batches, data, num_replicas, rank, seed)
        _check_enough("queries", len(names), self._batches)

    def _divide(self, rng: np.random.Generator) -> list[np.ndarray]:
        if self._max_samples is not None:
            batches = pack_queries(self._sizes, self._batches, rng)
        else:
            strata = np.zeros(len(self._sizes), np.int64) if self._positive is None else self._positive[:, 0].astype(np.int64)
            batches = stratified_batches(strata, self._batches, rng, self._positive, self.min_positives, self._batch_size)
        return rows_of_queries(self._queries, batches)


def _replicas(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Return the number of processes and this one's, by default those of the default process group if there is one."""
    if (num_replicas is None) != (rank is None):
        raise ValueError("num_replicas and rank belong together: give both, or neither for those of the default process group")
    if num_replicas is None or rank is None:
        return _default_group() or (1, 0)
    count, number = _checks.check_count("num_replicas", num_replicas), _checks.check_not_negative("rank", rank)
    if number >= count:
        raise ValueError(f"rank={rank} is not below num_replicas={num_replicas}; ranks count from 0")
    return count, number


def _default_group() -> tuple[int, int] | None:
    """Return the size of the default process group and the rank of this process, or None without a group."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return torch.distributed.get_world_size(), torch.distributed.get_rank()


def _check_enough(what: str, units: int, batches: int) -> None:
    if units < batches:
        raise ValueError(f"there are {units} {what} for {batches} batches (one per rank and step); use fewer processes")


def _warn_rare(totals: np.ndarray, minimum: int) -> None:
    """Warn where a label cannot have its minimum."""
    rare = np.flatnonzero(totals < minimum)
    if len(rare):
        label = f"label {rare[0]} has" if len(totals) > 1 else "the target has"
        others = f" (and {len(rare) - 1} more labels have too few)" if len(rare) > 1 else ""
        warn_caller(
            f"{label} {totals[rare[0]]} positives{others}, fewer than min_positives={minimum}: every batch holds all of them. "
            "Lower min_positives, or leave labels without positives out of the target"
        )
