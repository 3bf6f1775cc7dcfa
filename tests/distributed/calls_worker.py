"""One rank of three that make calls of many kinds, right and wrong; started by torchrun, writes what it found as JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import taskloss as tl
from tests.distributed.cases import BINARY, CASES, INPUTS, MULTI_LABEL, NOISE, PER_QUERY, QUERIES, SHARDS, of_queries, rows
from tests.distributed.running import error_of, report

SCORES = INPUTS @ torch.tensor([1.0, 0.5, -0.5, 0.2, 0.0], dtype=torch.float64)
ap = tl.functional.direct_loss


def scaled_tanh(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda scores: torch.tanh(factor * scores)


def tanh_with_a_device(device: torch.device) -> Callable[[Tensor], Tensor]:
    """A function that captures what may differ between ranks, and has a set of strings, whose order differs."""
    return lambda scores: torch.tanh(scores.to(device if device.type in {"cuda", "mps", "xpu"} else "cpu"))


def gradient_of(loss: Tensor, scores: Tensor) -> list[float]:
    loss.backward()
    assert scores.grad is not None
    return scores.grad.tolist()


class Rank:
    """The calls of one rank."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.target, self.groups = self.own(BINARY), self.own(QUERIES)
        members = [0, 2]
        self.pair = dist.new_group(members)
        self.alone = [dist.new_group([other]) for other in range(world)][rank]

    def own(self, tensor: Tensor) -> Tensor:
        return rows(tensor, self.rank, self.world)

    def scores(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return a leaf."""
        return self.own(SCORES).to(dtype).clone().requires_grad_()

    def results(self) -> dict[str, Any]:
        """Return what right calls give; the tests compare it with one process."""
        mean, summed, alone, half = (self.scores(), self.scores(), self.scores(), self.scores(torch.float16))
        many = self.own(NOISE[:, :3]).clone().requires_grad_()
        per_query = ap(self.scores(), self.target, "average_precision", groups=self.groups, sync=True, reduction="none")
        results = {
            "mean": gradient_of(ap(mean, self.target, "average_precision", sync=True), mean),
            "sum": gradient_of(ap(summed, self.target, "average_precision", sync=True, gradient_reduction="sum"), summed),
            "half": gradient_of(ap(half, self.target, "average_precision", sync=True) * 1024.0, half),
            "of_one_rank": gradient_of(ap(alone, self.target, "average_precision", process_group=self.alone), alone),
            "per_query": per_query.tolist(),
            "per_label": ap(many, self.own(MULTI_LABEL), "f_score", sync=True, reduction="none").tolist(),
            "per_row": ap(many, self.own(MULTI_LABEL), "average_precision", dim=1, sync=True, reduction="none").tolist(),
            "turned_off": tl.DirectLoss("average_precision", sync=True)(mean, self.target, sync=False).item(),
            "captured": tl.lp.fscore_loss(
                mean, self.target, phi=tanh_with_a_device(torch.device("cpu", self.rank)), sync=True
            ).item(),
            "no_samples": ap(self.scores()[:0], self.target[:0], "average_precision", sync=True).item(),
            "gathered": [tensor.tolist() for tensor in tl.distributed.gather(self.scores(), self.target, self.groups)],
            "compiled": torch.compile(tl.DirectLoss("average_precision", sync=True), backend="eager")(mean, self.target).item(),
        }
        results["sharded"] = [self.error_of_sharded_gradient("mean"), self.error_of_sharded_gradient("sum")]
        if self.rank != 1:
            results["pair"] = ap(self.scores(), self.target, "average_precision", process_group=self.pair).item()
        return {**results, "elsewhere": self.value_elsewhere()}

    def error_of_sharded_gradient(self, gradient_reduction: str) -> float:
        """Return the largest difference of the gradient of a model that FSDP has sharded to that of one process."""
        case = CASES["average_precision"]
        model, alone = case.model(), case.model()
        case.criterion(case.scores(alone, INPUTS), BINARY, sync=False).backward()
        fully_shard(model, mesh=init_device_mesh("cpu", (self.world,)))
        if gradient_reduction == "sum":
            model.set_gradient_divide_factor(1.0)
        scores = case.scores(model, self.own(INPUTS))
        case.criterion(scores, self.target, gradient_reduction=gradient_reduction).backward()
        pairs = zip(model.parameters(), alone.parameters(), strict=True)
        return max(float((ours.grad.full_tensor() - theirs.grad).abs().max()) for ours, theirs in pairs)

    def value_elsewhere(self) -> list[Any]:
        """Return the loss of scores on another device, which gloo does not serve, and its device; nothing can run after it."""
        from tests.another_device.device import NAME  # It changes torch for the whole process.

        loss = ap(self.own(SCORES).to(NAME), self.target.to(NAME), "average_precision", sync=True)
        return [loss.cpu().item(), loss.device.type]

    def errors(self) -> dict[str, Any]:
        """Return what wrong calls raise; one rank or several are wrong, the others are right."""
        wrong, scores, target = self.rank == 2, self.scores(), self.target
        other = self.scores(torch.float32) if wrong else scores
        with_nan = self.own(SCORES).clone()
        with_nan[3 * wrong : 4 * wrong] = math.nan
        weights = of_queries(PER_QUERY, self.rank, self.world) + (torch.arange(len(torch.unique(self.groups))) == 3) * wrong

        def call(scores: Any = scores, target: Any = target, task: Any = "average_precision", **options: Any) -> Any:
            return error_of(lambda: ap(scores, target, task, sync=True, **options))

        costs = torch.ones(6, 6) - torch.eye(6)
        costs[0, 1] += self.rank
        classes = torch.zeros(len(target), 6, dtype=torch.float64)
        padding = self.own(NOISE[:, : 6 + wrong])
        no_group = {} if self.rank != 1 else {"group": error_of(lambda: ap(scores, target, "ndcg", process_group=self.pair))}
        return {
            "nan": call(with_nan),
            "infinite": call(self.own(SCORES).abs() * (math.inf if self.rank else 1.0)),
            "type": call(scores.tolist() if wrong else scores),
            "dtype": call(other),
            "target_dtype": call(target=target.bool() if wrong else target),
            "trailing_shape": call(padding, (padding > 0).long(), dim=1),
            "axes": call(scores[:, None] if wrong else scores, target[:, None] if wrong else target),
            "length": call(scores[1:] if wrong else scores),
            "swapped": call(target if wrong else scores, scores.detach() if wrong else target),
            "task": call(task="ndcg" if wrong else "average_precision"),
            "task_setting": call(task=tl.PrecisionAtK(5 + wrong)),
            "costs": call(classes, torch.zeros(len(target), dtype=torch.int64), tl.MultiClass(costs)),
            "epsilon": call(epsilon=1.0 + wrong),
            "update": call(update="negative" if wrong else "positive"),
            "reduction": call(reduction="sum" if wrong else "mean"),
            "unknown_reduction": call(reduction="median" if wrong else "mean"),
            "gradient_reduction": call(gradient_reduction="sum" if wrong else "mean"),
            "groups_missing": call(groups=None if wrong else self.groups),
            "group_sizes": call(groups=torch.tensor([len(target) - 1, 1]) if wrong else self.groups),
            "query_weights": call(groups=self.groups, weight=weights),
            "query_weights_length": call(groups=self.groups, weight=PER_QUERY[: 2 + self.rank]),
            "shared_weight": call(self.own(NOISE[:, :2]), self.own(MULTI_LABEL[:, :2]), weight=torch.tensor([1.0, 2.0 + wrong])),
            "labels": call(target=target * (1 + wrong)),
            "one_sample": call(torch.zeros(6), torch.tensor(0), "multi_class"),
            "one_instance": call(
                torch.zeros(3, 3), torch.eye(3), tl.Structured(tl.solvers.Assignment(), batch_dims=0, batched=True)
            ),
            "gather_shape": error_of(lambda: tl.distributed.gather(scores, target[wrong:])),
            "gather_and_loss": error_of(
                lambda: tl.distributed.gather(scores) if wrong else ap(scores, target, "ndcg", sync=True)
            ),
            "phi": error_of(lambda: tl.lp.fscore_loss(scores, target, phi=torch.exp, sync=True)),
            "function": error_of(lambda: tl.lp.fscore_loss(scores, target, phi=scaled_tanh(1.0 + self.rank), sync=True)),
            "solver": error_of(lambda: tl.lp.auc_loss(scores, target, solver="lp" if wrong else "exact", sync=True)),
            **no_group,
        }


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    rank = Rank(dist.get_rank(), dist.get_world_size())
    assert len(rank.target) == SHARDS[rank.world][rank.rank]
    report(sys.argv[1], rank.rank, {"errors": rank.errors(), "results": rank.results()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
