"""Models in DistributedDataParallel: one average of the gradients, however many batches a process has; errors reach all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import taskloss as tl

UNEVEN, ONE_WITHOUT = ([0, 1, 2], [3]), ([0, 1, 2, 3], [])
"""Batches of each of two processes."""


def example() -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
    model.unused = nn.Parameter(torch.zeros(2))
    return model, [(torch.randn(6, 4), torch.arange(6) % 2) for _ in range(4)]


def total(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(scores, target.float(), reduction="sum")


def check_form(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A criterion that gathers needs the same types and shapes in all processes."""
    assert (scores.dtype, target.dtype, target.shape) == (torch.float32, torch.int64, scores.shape)
    return total(scores, target)


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model, batches = example()
    wrapped = DistributedDataParallel(model)
    results: dict[str, Any] = {}

    def run(name: str, parts: Any, criterion: Any = total) -> None:
        try:
            tl.full_batch_backward(wrapped, [batches[number] for number in parts[rank]], criterion)
        except Exception as error:
            results[f"{name} error"] = f"{type(error).__name__}: {error}"
        results[name] = {key: None if p.grad is None else p.grad.clone() for key, p in model.named_parameters()}

    model[1].running_mean += rank  # As after an epoch in which every process saw other batches.
    run("uneven", UNEVEN)
    results["buffers"] = {key: buffer.clone() for key, buffer in model.named_buffers()}
    run("accumulated", UNEVEN)
    wrapped.zero_grad()
    run("one without", ONE_WITHOUT, check_form)
    wrapped.zero_grad()
    with wrapped.no_sync():
        run("local", ONE_WITHOUT)
    wrapped.zero_grad()
    batches.append((torch.zeros(2, 9), torch.zeros(2)))
    run("bad batch", ([4], [0]))
    batches.append((torch.zeros(2, 4), torch.zeros(2, 2)))
    run("bad target", ([0, 5], [0]))

    gathering = tl.DirectLoss("average_precision", sync=True)
    run("bad criterion", UNEVEN, lambda scores, target: gathering(scores, target + 3 * rank))
    # An ordinary step of DDP still works afterwards.
    total(wrapped(batches[rank][0]) + 0.0 * model.unused.sum(), batches[rank][1]).backward()
    results["ordinary"] = model[0].weight.grad.clone()

    def fails_once(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if rank == 0:
            raise ValueError("a bug of the caller")
        return gathering(scores, target)

    run("failed before the exchange", UNEVEN, fails_once)
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def alone(part: list[int]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return what a process computes without the other: the gradient of the first layer, and the buffers."""
    model, batches = example()
    if part:
        tl.full_batch_backward(model, [batches[number] for number in part], total)
    return model[0].weight.grad if part else torch.zeros(8, 4), dict(model.named_buffers())


def test_uneven_batches_and_errors(tmp_path: Path):
    mp.spawn(work, (str(tmp_path),), nprocs=2)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    uneven = (alone(UNEVEN[0])[0] + alone(UNEVEN[1])[0]) / 2
    everything = alone(ONE_WITHOUT[0])[0]
    for rank, result in enumerate(results):
        torch.testing.assert_close(result["uneven"]["0.weight"], uneven)
        torch.testing.assert_close(result["accumulated"]["0.weight"], 2 * uneven)
        torch.testing.assert_close(result["one without"]["0.weight"], everything / 2)
        assert result["uneven"]["unused"] is None
        # The buffers of the first process, moved by the batches of this one.
        for name, buffer in alone(UNEVEN[rank])[1].items():
            torch.testing.assert_close(result["buffers"][name], buffer)
        assert "target[18] is 3" in result["bad criterion error"]
        assert result["failed before the exchange error"].startswith("ValueError: a bug" if rank == 0 else "RuntimeError: ")
        for name, own in (
            ("bad batch", "RuntimeError: mat1"),
            ("bad target", "ValueError: batch 1 has scores or targets of shape"),
        ):
            assert result[f"{name} error"].startswith(own if rank == 0 else "RuntimeError: full_batch_backward failed in another")
            assert result[name]["0.weight"] is None
        torch.testing.assert_close(result["ordinary"], results[0]["ordinary"])
    torch.testing.assert_close(results[0]["local"]["0.weight"], everything)
    assert results[1]["local"]["0.weight"] is None
    assert not any(f"{name} error" in results[0] for name in ("uneven", "accumulated", "one without", "local"))
