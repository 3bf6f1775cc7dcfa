"""One exact gradient of average precision over the scores of several processes: time and peak memory of each process.

    python -m benchmarks.distributed [--samples 10000000] [--processes 1 2 4]

Every process holds an equal share of the scores (float32, a fifth of them positive, targets bool) and evaluates the union of all.
The processes run on this machine, talk over the loopback with gloo, and share its cores: with more processes than cores, the time
is that of several evaluations one after the other. "gather" is the exchange alone; peak memory is what a process holds beyond its
own scores.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

import taskloss as tl

REPEATS = 3
MIB = 2**20


def resident_memory() -> int:
    """Return the bytes that this process holds now."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def seconds_of(call: Callable[[], object]) -> float:
    """Return the median time of a call that all ranks begin together."""
    times = []
    for _ in range(REPEATS):
        dist.barrier()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def work(samples: int) -> None:
    """Measure as one rank; the first prints the largest figures of all."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(rank)
    own = samples // world
    target = torch.rand(own, generator=generator) < 0.2
    scores = (torch.randn(own, generator=generator) + target).requires_grad_()
    criterion = tl.DirectLoss("average_precision", sync=True)
    criterion(scores[:1000], target[:1000]).backward()
    dist.barrier()
    before = resident_memory()
    criterion(scores, target).backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    figures = [
        seconds_of(lambda: criterion(scores, target).backward()),
        seconds_of(lambda: tl.distributed.gather(scores, target)),
        peak / MIB,
    ]
    largest = torch.tensor(figures)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    if rank == 0:
        whole, gather, memory = largest.tolist()
        print(f"{world:>9}{samples:>14,}{whole:>12.2f} s{gather:>10.2f} s{memory:>12.0f} MiB", flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Start the processes and print one row per number of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10**7)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        return work(arguments.samples)
    print(f"{'processes':>9}{'scores':>14}{'gradient':>14}{'gather':>12}{'peak memory':>16}", flush=True)
    for count in arguments.processes:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        command = [*launcher, "-m", "benchmarks.distributed", f"--samples={arguments.samples}"]
        subprocess.run(command, check=True, env={"OMP_NUM_THREADS": "1", **os.environ})
    return None


if __name__ == "__main__":
    main()
