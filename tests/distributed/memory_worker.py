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
    report(sys.argv[1], rank, {"differences": differences, "weighted": weighted, "errors": errors_of_one_rank(rank)})
    dist.destroy_process_group()


def errors_of_one_rank(rank: int) -> dict[str, list[str] | None]:
    """Return the error of calls in which one of the two ranks errs, by what it does."""
    scores, target, groups = torch.tensor([0.3, 0.1, 0.2]), torch.tensor([1, 0, 1]), torch.tensor([0, 0, 1])
    calls = {
        "dtype": ((scores.double(), target), {}),
        "length": ((scores, target[:2]), {}),
        "array": ((scores, target.numpy()), {}),
        "num_relevant": ((scores, target), {"num_relevant": 3}),
        "dim": ((scores, target), {"dim": 1}),
        "ignore_index": ((scores, target), {"ignore_index": "none"}),
        "weight": ((scores, target), {"weight": torch.tensor(2.0)}),
        "groups": ((scores, target), {"groups": groups}),
    }
    errors = {}
    for name, (data, options) in calls.items():
        memory = tl.ScoreMemory(tl.DirectLoss("average_precision"), batches=2)
        memory(scores, target, sync=True)
        arguments, more = (data, options) if rank == 1 else ((scores, target), {})
        errors[name] = error_of(lambda: memory(*arguments, sync=True, **more))  # noqa: B023  # Called at once.
        assert memory.sizes.tolist() == [6], "nothing was remembered"
    restored, settings = (tl.ScoreMemory(tl.DirectLoss("average_precision"), batches=batches) for batches in (2, 2 + rank))
    if rank == 0:
        restored.load_state_dict(memory.state_dict())
    errors["restored"] = error_of(lambda: restored(scores, target, sync=True))
    errors["batches"] = error_of(lambda: settings(scores, target, sync=True))
    return errors


if __name__ == "__main__":
    main()
