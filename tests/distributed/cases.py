"""Losses to train over processes, with data that one process would hold as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import taskloss as tl

SAMPLES = 40
SHARDS = {1: [40], 2: [31, 9], 3: [18, 0, 22], 4: [17, 0, 14, 9]}
"""Samples of each rank. Of four ranks one has none; the last of two and of four has no positives."""
FEATURES = 5

_generator = torch.Generator().manual_seed(0)
INPUTS = torch.randn(SAMPLES, FEATURES, dtype=torch.float64, generator=_generator)
NOISE = torch.randn(SAMPLES, 12, dtype=torch.float64, generator=_generator)
BINARY = (INPUTS[:, 0] + NOISE[:, 0] > 0.8).long()
BINARY[-9:] = 0
QUERIES = torch.arange(SAMPLES) * 7 % 5 + 100
"""Five queries; each has samples on every rank that has samples."""


def rows(tensor: Tensor, rank: int, world: int) -> Tensor:
    """Return the rows of a rank."""
    start = sum(SHARDS[world][:rank])
    return tensor[start : start + SHARDS[world][rank]]


def of_queries(values: Tensor, rank: int, world: int) -> Tensor:
    """Return the values of the queries that a rank holds, in sorted order of their ids."""
    held = torch.unique(rows(QUERIES, rank, world)) - 100
    return values[held]


def shared(value: Any, rank: int, world: int) -> Any:
    """Return what all ranks have."""
    return value


Split = Callable[[Any, int, int], Any]


@dataclass
class Case:
    """A criterion, the shape of the scores of one sample, the target of all samples, and options of the call."""

    criterion: nn.Module
    target: Tensor
    shape: tuple[int, ...] = ()
    options: dict[str, tuple[Any, Split]] = field(default_factory=dict)
    """By name: the value that one process would pass, and how to find that of a rank."""
    steps: int = 20

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        outputs = int(torch.tensor(self.shape).prod()) if self.shape else 1
        return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, outputs)).double()

    def scores(self, model: nn.Module, inputs: Tensor) -> Tensor:
        return model(inputs).reshape(len(inputs), *self.shape)

    def local_options(self, rank: int, world: int) -> dict[str, Any]:
        return {name: split(value, rank, world) for name, (value, split) in self.options.items()}

    def train_in_one_process(self, steps: int | None = None) -> nn.Module:
        model = self.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        options = {name: value for name, (value, _) in self.options.items()}
        for _ in range(steps or self.steps):
            optimizer.zero_grad()
            self.criterion(self.scores(model, INPUTS), self.target, sync=False, **options).backward()
            optimizer.step()
        return model


MULTI_LABEL = (INPUTS[:, :3] + NOISE[:, :3] > 0.5).long()
GRADES = (NOISE[:, 3:7] + INPUTS[:, :1] > 0.3).long()
CLASSES = (INPUTS[:, :4] + NOISE[:, :4]).argmax(1)
IMAGES = (INPUTS[:, :1] + NOISE[:, :9] > 0).long().reshape(SAMPLES, 3, 3)
IMAGES[:, 0, 0] = 255
MATCHINGS = torch.eye(3, dtype=torch.float64)[torch.stack([row[:3].argsort() for row in NOISE])]
PER_QUERY = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5])
PER_SAMPLE = 0.5 + NOISE[:, 0].abs()
RELEVANT = torch.zeros(5, dtype=torch.int64).index_add(0, QUERIES - 100, BINARY) + torch.tensor([0, 2, 1, 0, 3])


def scaled_tanh(scores: Tensor) -> Tensor:
    return torch.tanh(2.0 * scores)


CASES = {
    "average_precision": Case(tl.DirectLoss("average_precision", sync=True), BINARY),
    "queries": Case(
        tl.DirectLoss("average_precision", sync=True),
        BINARY,
        options={"groups": (QUERIES, rows), "weight": (PER_QUERY, of_queries), "num_relevant": (RELEVANT, of_queries)},
    ),
    "ndcg": Case(tl.DirectLoss("ndcg", update="negative", sync=True), BINARY, options={"num_relevant": (30, shared)}),
    "f_score": Case(tl.DirectLoss("f_score", sync=True), BINARY),
    "multi_label": Case(
        tl.DirectLoss("average_precision", sync=True, reduction="sum"),
        MULTI_LABEL,
        (3,),
        {"weight": (torch.tensor([1.0, 2.0, 3.0]), shared)},
    ),
    "reranking": Case(tl.DirectLoss("graded_ndcg", dim=1, sync=True), GRADES, (4,), {"weight": (PER_SAMPLE, rows)}),
    "multi_class": Case(tl.DirectLoss(tl.MultiClass(), sync=True, ignore_index=3), CLASSES, (4,), {"weight": (PER_SAMPLE, rows)}),
    "structured_hinge": Case(tl.StructuredHingeLoss("average_precision", sync=True), BINARY),
    "images": Case(tl.DirectLoss("jaccard", sync=True, ignore_index=255), IMAGES, (3, 3)),
    "pooled_images": Case(tl.DirectLoss("jaccard", sync=True, ignore_index=255, dim=(0, 1, 2)), IMAGES, (3, 3)),
    "matching": Case(tl.DirectLoss(tl.Structured(tl.solvers.Assignment(), batched=True), sync=True), MATCHINGS, (3, 3)),
    "auc_program": Case(tl.lp.AUCLoss(sync=True), BINARY, options={"groups": (QUERIES, rows)}),
    "f_score_program": Case(tl.lp.FScoreLoss(sync=True, phi=scaled_tanh), BINARY),
    "f_score_by_solver": Case(tl.lp.FScoreLoss(sync=True, solver="lp"), BINARY, steps=3),
}
