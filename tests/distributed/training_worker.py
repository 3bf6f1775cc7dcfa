"""One rank of a training over processes; started by torchrun, writes what it found as JSON."""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import taskloss as tl
from tests.distributed.cases import CASES, INPUTS, Case, rows
from tests.distributed.running import report

STEPS_BY_BATCHES = 3


def largest_difference(ours: nn.Module, theirs: nn.Module) -> float:
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    return max(float((one - other).detach().abs().max()) for one, other in pairs)


def train(case: Case, rank: int, world: int) -> nn.Module:
    model = DistributedDataParallel(case.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    inputs, target, options = rows(INPUTS, rank, world), rows(case.target, rank, world), case.local_options(rank, world)
    for _ in range(case.steps):
        optimizer.zero_grad()
        case.criterion(case.scores(model, inputs), target, **options).backward()
        optimizer.step()
    return model.module


def train_by_batches(case: Case, rank: int, world: int) -> nn.Module:
    """Train by gradients over all batches of all ranks; the rank without samples has no batches."""
    model = DistributedDataParallel(case.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    options = case.local_options(rank, world)
    samples = {"x": rows(INPUTS, rank, world), "y": rows(case.target, rank, world)}
    if "groups" in options:
        samples["groups"] = options.pop("groups")
    size = len(samples["x"])
    batches = [{name: part[i : i + 8] for name, part in samples.items()} for i in range(0, size, 8)]
    for _ in range(STEPS_BY_BATCHES):
        optimizer.zero_grad()
        tl.full_batch_backward(
            model,
            batches,
            case.criterion,
            inputs="x",
            target="y",
            groups="groups" if "groups" in case.options else None,
            options=options,
            scores=lambda output: output.reshape(len(output), *case.shape),
        )
        optimizer.step()
    return model.module


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    rank, world = dist.get_rank(), dist.get_world_size()
    results = {}
    for name, case in CASES.items():
        model, alone = train(case, rank, world), case.train_in_one_process()
        by_batches = largest_difference(train_by_batches(case, rank, world), case.train_in_one_process(STEPS_BY_BATCHES))
        results[name] = {
            "difference": largest_difference(model, alone),
            "difference by batches": by_batches,
            "moved": largest_difference(model, case.model()),
        }
    report(sys.argv[1], rank, results)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
