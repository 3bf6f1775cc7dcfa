"""The programs of the areas of several classes, by sorting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from taskloss import _output_checks
from taskloss.class_layout import ClassBatch, read_classes
from taskloss.kernels.pairs import class_pairs, sum_class_pairs
from taskloss.kernels.sort import split_by_label
from taskloss.lp.formulations.auc import pairwise_program
from taskloss.lp.formulations.auc_mu import class_gaps
from taskloss.lp.objectives.areas import PairSums, solve_pairs
from taskloss.lp.objectives.objective import ProgramObjective
from taskloss.tasks.multiclass import CostMatrix
from taskloss.tasks.task import Call, Task


@dataclass(frozen=True)
class ClassAreas(Task):
    """Hinge or ramp of the pairs of samples of AUC-mu, or of each class against the rest; one item for the whole batch."""

    target_kind: ClassVar[str] = "class"
    options: ClassVar[frozenset[str]] = frozenset({"ignore_index"})
    margin: float
    ramp: bool
    kind: str
    cost: CostMatrix | None

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> ClassAreaObjective:
        self.refuse_unknown(call)
        batch = read_classes(scores, target, call.ignore_index)
        if self.cost is not None:
            _output_checks.check_cost_fits(self.cost.values, batch.classes)
        return ClassAreaObjective(self, batch)

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return ()


class ClassAreaObjective(ProgramObjective):
    """The mean over the pairs of classes, or over the classes, that have samples on both sides."""

    def __init__(self, task: ClassAreas, batch: ClassBatch) -> None:
        self._task, self._batch = task, batch
        kept = batch.kept
        self._kept = None if kept.all() else kept
        self._target = batch.target.reshape(-1) if self._kept is None else batch.target.reshape(-1)[kept]
        present = np.count_nonzero(np.bincount(self._target, minlength=batch.classes))
        self.values_shape, self.defined, self.weights = (), np.array([present > 1]), np.ones(1)
        self._sums: PairSums | None = None

    def _rows(self) -> np.ndarray:
        """Scores ``(n, K)`` of the samples that count."""
        rows = np.ascontiguousarray(np.moveaxis(self._batch.scores, 1, 2)).reshape(-1, self._batch.classes)
        return rows if self._kept is None else rows[self._kept]

    def _pair_sums(self) -> PairSums:
        if self._sums is None:
            rows, classes = self._rows(), self._batch.classes
            # Differences of large float32 scores may not fit into float32.
            if rows.dtype == np.float32 and (self._task.cost is not None or float(np.abs(rows).max(initial=0.0)) > 1e37):
                rows = rows.astype(np.float64)
            if self._task.kind == "one_vs_all":
                labels = np.arange(classes) == self._target[:, None]
                owner = np.tile(np.arange(classes), len(rows))
                lists = split_by_label(rows.reshape(-1), labels.reshape(-1).view(np.uint8), owner, classes)
            else:
                merits = rows if self._task.cost is None else _merits(rows, self._task.cost.values)
                largest = merits.dtype.type(np.finfo(merits.dtype).max / 4)
                pairs, labels, owner = class_pairs(merits, self._target, classes, largest)
                lists = split_by_label(pairs, labels, owner, classes * (classes - 1) // 2)
            self._entries, self._work = (len(lists.positives) + len(lists.negatives)), rows.dtype
            self._sums = PairSums(lists, self._task.margin, self._task.ramp)
            counts = lists.positive_counts() * lists.negative_counts()
            self._share = (counts > 0) / max(np.count_nonzero(counts), 1)
        return self._sums

    def values(self) -> np.ndarray:
        sums = self._pair_sums()
        return np.array([np.where(self._share > 0, sums.values * self._share, 0.0).sum()])

    def gradient(self, factor: np.ndarray) -> np.ndarray:
        sums, batch = self._pair_sums(), self._batch
        entries = sums.gradient(factor[0] * self._share, self._entries, self._work)
        if self._task.kind == "one_vs_all":
            rows = entries.reshape(-1, batch.classes)
        else:
            rows = sum_class_pairs(entries, self._target, batch.classes)
            if self._task.cost is not None:
                rows = -rows @ self._task.cost.values.T
        outer, classes, inner = batch.scores.shape
        if self._kept is not None:
            full = np.zeros((outer * inner, classes), rows.dtype)
            full[self._kept] = rows
            rows = full
        moved = np.ascontiguousarray(np.moveaxis(rows.reshape(outer, inner, classes), 2, 1))
        return moved.astype(batch.scores.dtype, copy=False).reshape(batch.shape)

    def owner(self) -> np.ndarray:
        return np.zeros(self._batch.scores.size, np.int64)

    def solved(self, scores: Tensor) -> Tensor:
        rows = scores.reshape(self._batch.scores.shape).movedim(1, 2).reshape(-1, self._batch.classes)
        rows = rows if self._kept is None else rows[torch.from_numpy(self._kept).to(rows.device)]
        if not self.defined[0]:
            return (rows * 0.0).sum()[None]
        cost = None if self._task.cost is None else self._task.cost.values
        groups = class_gaps(rows, torch.from_numpy(self._target).to(rows.device), self._task.kind, cost)
        weights = torch.cat([torch.full_like(gaps, 1.0 / (len(groups) * len(gaps))) for gaps in groups])
        program = pairwise_program(torch.cat(groups), self._task.margin, weights)
        return solve_pairs(program, self._task.margin, self._task.ramp)[None]


def _merits(rows: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Minus the cost of each decision; scores so large that it would overflow are cut."""
    limit = np.finfo(rows.dtype).max / (8.0 * len(cost) * max(1.0, float(cost.max())))
    return -np.clip(rows, -limit, limit) @ cost
