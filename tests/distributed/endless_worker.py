"""One rank of a training without end; started by torchrun. It reports its process id, and later why and when it ended."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.cases import CASES, INPUTS, rows
from tests.distributed.running import report

TIMEOUT = 10
"""Seconds that a collective waits for the other ranks."""


def main() -> None:
    torch.set_num_threads(1)
    folder, case = sys.argv[1], CASES["average_precision"]
    case.train_in_one_process(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT))
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(case.model())
    inputs, target = rows(INPUTS, rank, world), rows(case.target, rank, world)
    step = 0
    try:
        while True:
            case.criterion(case.scores(model, inputs), target).backward()
            step += 1
            if step == 5:
                report(folder, rank, {"process": os.getpid()})
    except RuntimeError as error:
        report(folder, rank, {"process": os.getpid(), "error": str(error), "time": time.time()})
        raise


if __name__ == "__main__":
    main()
