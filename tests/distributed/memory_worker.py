"""One rank of two with a memory of scores; compares each step with one process, and reports what differs."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

import taskloss as tl
from tests.distributed.running import error_of, report


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(0)
    differences = []
    for grouped in (False, True):
        loss = tl.DirectLoss("average_precision", ignore_index=-1)
        together, alone = (tl.ScoreMemory(loss, batches=2) for _ in range(2))
        for step in range(4):
            counts = [7 + step, 0 if step == 2 else 5]
            scores = torch.randn(sum(counts), dtype=torch.float64, generator=generator)
            target = torch.randint(-1, 2, (sum(counts),), generator=generator)
            options = {"groups": torch.randint(4, (sum(counts),), generator=generator)} if grouped else {}
            rows = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
            own, whole = scores[rows].clone().requires_grad_(), scores.clone().requires_grad_()
            value = together(own, target[rows], sync=True, **{name: part[rows] for name, part in options.items()})
            expected = alone(whole, target, **options)
            value.backward()
            expected.backward()
            pairs = {"value": (value, expected), "gradient": (own.grad, world * whole.grad[rows])}
            pairs |= {name: (part, alone.state_dict()[name]) for name, part in together.state_dict().items()}
            differences += [[grouped, step, name] for name, pair in pairs.items() if not torch.allclose(*pair, atol=1e-12)]
    weighted = error_of(lambda: together(own, target[rows], sync=True, groups=options["groups"][rows], weight=torch.ones(4)))
    other = own.detach().float() if rank == 1 else own
    report(
        sys.argv[1],
        rank,
        {"differences": differences, "weighted": weighted, "dtype": error_of(lambda: together(other, target[rows], sync=True))},
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
