"""Memory and time of gradients over all the data: ``full_batch_backward``, and one loss of ten million scores.

    python -m benchmarks.scaling [memory] [time] [ten_million]

Times are ratios measured side by side. Memory is the peak beyond what the process held before, each in a process of its own;
``docs/images/full_batch_memory.py`` draws it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time as clock
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from benchmarks.measure import Row, at_most, duration, in_turn, one_thread, report
from torch import Tensor, nn

import taskloss as tl

BATCH, SIDE = 64, 32
COUNTS = (1, 2, 5, 10, 20, 50)
"""Numbers of batches whose memory is measured."""
MIB = 2**20


class Images:
    """Batches of random images that are made when they are asked for, so that the data take no memory."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(self._count):
            generator = torch.Generator().manual_seed(number)
            yield torch.randn(BATCH, 3, SIDE, SIDE, generator=generator), torch.arange(BATCH) % 5 == 0


def convolutional() -> nn.Module:
    """Return a small network for images, with batch norm and dropout."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for channels, wider in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * (SIDE // 8) ** 2, 1), nn.Flatten(0))


# --- memory -----------------------------------------------------------------------------------------------------------

METHODS = ("full_batch_backward", "all graphs held")


def step(method: str, count: int) -> None:
    """Compute the gradient of average precision over so many batches."""
    model, criterion = convolutional(), tl.DirectLoss("average_precision")
    if method == METHODS[0]:
        tl.full_batch_backward(model, Images(count), criterion)
    else:
        scores, target = zip(*((model(x), y) for x, y in Images(count)), strict=True)
        criterion(torch.cat(scores), torch.cat(target)).backward()


MEMORY_PROGRAM = """
import resource, sys
{body}
before = int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])
{measured}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def peak_memory(prepare: str, measured: str) -> int:
    """Return by how many bytes a statement raises the peak memory of a new process, after the statements that prepare it.

    The allocator of glibc is told to return large blocks to the system when they are freed. By default it soon keeps those of up
    to 32 MiB, and the peak would tell how its heap is fragmented.
    """
    command = [sys.executable, "-c", MEMORY_PROGRAM.format(body=prepare, measured=measured)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    return int(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)


def memory_of(method: str, count: int) -> int:
    """Return the peak memory of a step, beyond that of what a first call imports and compiles; the median of three processes."""
    prepare = (
        "import torch, taskloss as tl; torch.set_num_threads(1); from benchmarks.scaling import step; "
        "model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0)); "
        "tl.full_batch_backward(model, [(torch.randn(64, 2), torch.arange(64) % 5 == 0)], tl.DirectLoss('average_precision'))"
    )
    return statistics.median_low(peak_memory(prepare, f"step({method!r}, {count})") for _ in range(3))


def memory_by_count(method: str) -> dict[int, int]:
    """Return the peak memory for each number of batches, in bytes."""
    return {count: memory_of(method, count) for count in COUNTS}


def has_memory_figures() -> bool:
    """Return whether peak memory can be measured here; print that it is left out otherwise."""
    found = Path("/proc/self/status").exists()
    if not found:
        print("peak memory: needs /proc, not measured here")
    return found


def memory() -> Iterator[Row]:
    """Measure the peak memory of a gradient over more and more batches, to that over one batch."""
    if not has_memory_figures():
        return
    for method in METHODS:
        peaks = memory_by_count(method)
        for count, peak in peaks.items():
            one = peaks[1]
            target, ok = ("<= 1.3", peak <= 1.3 * one) if method == METHODS[0] else ("", True)
            yield Row(f"{method}, {count} batches", f"{peak / MIB:.0f} MiB", f"{one / MIB:.0f} MiB", peak / one, target, ok)


# --- time -------------------------------------------------------------------------------------------------------------


def wide() -> nn.Module:
    """Return a network of dense layers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1), nn.Flatten(0))


def time() -> Iterator[Row]:
    """Compare with an epoch of plain steps (one forward and one backward pass per batch), and with the floor of two and one."""
    rows = [(torch.randn(512, 256), torch.arange(512) % 5 == 0) for _ in range(20)]
    problems: list[tuple[str, nn.Module, list[tuple[Tensor, Tensor]]]] = [
        ("dense layers, 20 x 512 rows", wide(), rows),
        (f"convolutions, 10 x {BATCH} images", convolutional(), list(Images(10))),
    ]
    with one_thread():
        for what, model, batches in problems:
            ours, plain, floor = calls(model, batches)
            times = in_turn(ours, plain, clock=clock.process_time)
            yield Row(f"{what}, to a plain epoch", *map(duration, times), times[0] / times[1], "", True)
            yield at_most(f"{what}, to 2 forward and 1 backward passes", in_turn(ours, floor, clock=clock.process_time), 1.15)


def calls(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> tuple[Callable[[], None], ...]:
    """Return the gradient over all batches, a plain epoch, and one with a second forward pass without a graph."""
    criterion = tl.DirectLoss("average_precision")

    def ours() -> None:
        model.zero_grad()
        tl.full_batch_backward(model, batches, criterion)

    def plain() -> None:
        for x, target in batches:
            model.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x), target.float()).backward()

    def floor() -> None:
        with torch.no_grad():
            for x, _ in batches:
                model(x)
        plain()

    return ours, plain, floor


# --- ten million scores -----------------------------------------------------------------------------------------------

MANY = 10**7
MANY_PROGRAM = f"""
import torch, taskloss as tl
def scores_and_target(n):
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(n, generator=generator) < 0.2
    return (torch.randn(n, generator=generator) + target).requires_grad_(), target
criterion = tl.DirectLoss("average_precision")
criterion(*scores_and_target(1000)).backward()
scores, target = scores_and_target({MANY})
"""


def ten_million() -> Iterator[Row]:
    """Compute one exact gradient of average precision over ten million scores: seconds, and peak memory beyond the input."""
    namespace: dict[str, Tensor] = {}
    exec(MANY_PROGRAM, namespace)
    scores, target = namespace["scores"], namespace["target"]
    criterion = tl.DirectLoss("average_precision")
    seconds, sorting = in_turn(lambda: criterion(scores, target).backward(), lambda: torch.sort(scores.detach()))
    yield Row("10,000,000 scores, to torch.sort of them", duration(seconds), duration(sorting), seconds / sorting, "", True)
    if has_memory_figures():
        peak = peak_memory(MANY_PROGRAM, "criterion(scores, target).backward()")
        yield Row("their peak memory, in arrays of n float64", f"{peak / MIB:.0f} MiB", "", peak / (8 * MANY), "< 15", True)


PARTS = (memory, time, ten_million)

if __name__ == "__main__":
    report(__doc__, PARTS)
