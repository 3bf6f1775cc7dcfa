"""Targets and queries for the tests of the batch samplers."""

from __future__ import annotations

import itertools

import torch


def rare_target(n: int, positives: int, seed: int = 0) -> torch.Tensor:
    target = torch.zeros(n, dtype=torch.int64)
    target[torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:positives]] = 1
    return target


def epoch_of(sampler) -> list[list[int]]:
    return list(sampler)


def flat(batches: list[list[int]]) -> list[int]:
    return sorted(itertools.chain.from_iterable(batches))


def ranks_of(make, count: int) -> list:
    return [make(num_replicas=count, rank=rank) for rank in range(count)]


def random_queries(count: int, largest: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, largest + 1, (count,), generator=generator)
    ids = torch.repeat_interleave(torch.arange(count) * 3 - 50, sizes)
    return ids[torch.randperm(len(ids), generator=generator)]


TARGET = rare_target(300, 20)
