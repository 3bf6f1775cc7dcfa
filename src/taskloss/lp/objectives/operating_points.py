"""The programs of precision at a recall and recall at a precision, by breakpoints after a sort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from taskloss.kernels.operating_points import operating_points
from taskloss.layout import Layout, Rankings, binary_labels, ranked_dims, ranking_weights, read_rankings, values_shape
from taskloss.lp.formulations.recall import greatest_recall_program, precision_at_recall_program, recall_at_precision_program
from taskloss.lp.objectives.objective import ProgramObjective, check_positions, ranking_samples, solve_items, solve_value
from taskloss.lp.solution import Status
from taskloss.lp.solver import solve
from taskloss.tasks.task import Call, Task


@dataclass(frozen=True)
class OperatingPoint(Task):
    """One minus the best precision with a recall, or the best recall with a precision."""

    target_kind: ClassVar[str] = "binary"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "weight"})
    bound: float
    at_recall: bool
    """Whether the bound is a recall or a precision."""
    two_sided: bool
    slack: float
    margin: float
    squash: bool

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> OperatingPointObjective:
        self.refuse_unknown(call)
        layout, rankings = read_rankings(scores, target, dims=call.dims, groups=call.groups, ignore_index=call.ignore_index)
        if not self.squash:
            kept = binary_labels(target, call.ignore_index)[1]
            check_positions(scores, np.ones(scores.shape, np.bool_) if kept is None else kept, self.squash)
        return OperatingPointObjective(self, layout, rankings, scores.dtype, ranking_weights(layout, call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return values_shape(scores, ranked_dims(dims), groups)


class OperatingPointObjective(ProgramObjective):
    """One value a ranking."""

    def __init__(self, task: OperatingPoint, layout: Layout, rankings: Rankings, dtype: np.dtype, weights: np.ndarray) -> None:
        self.values_shape, self.defined, self.weights = layout.values_shape, ~rankings.undefined, weights
        self._task, self._layout, self._rankings, self._dtype = task, layout, rankings, dtype
        lists = rankings.lists
        self._gradients = np.empty_like(lists.positives), np.empty_like(lists.negatives)
        self._values: np.ndarray = operating_points(
            lists, task.bound, task.at_recall, task.two_sided, task.slack, task.margin, task.squash, *self._gradients
        )

    def values(self) -> np.ndarray:
        return self._values

    def gradient(self, factor: np.ndarray) -> np.ndarray:
        lists = self._rankings.lists
        out = np.zeros(int(np.prod(self._layout.shape)), self._dtype)
        for places, counts, gradient in zip(
            (lists.positive_index, lists.negative_index),
            (lists.positive_counts(), lists.negative_counts()),
            self._gradients,
            strict=True,
        ):
            out[places] = gradient * np.repeat(factor, counts)
        return out.reshape(self._layout.shape)

    def owner(self) -> np.ndarray:
        return self._layout.full_owner()

    def solved(self, scores: Tensor) -> Tensor:
        task = self._task
        phi = None if task.squash else torch.positive
        form: dict[str, Any] = {"margin": task.margin, "two_sided": task.two_sided, "phi": phi}

        def value(own: Tensor, positive: Tensor) -> Tensor:
            if not task.at_recall:
                return 1.0 + solve_value(recall_at_precision_program(own, positive, task.bound, slack=task.slack, **form))
            program = precision_at_recall_program(own, positive, task.bound, **form)
            if task.two_sided and solve(program).status is Status.INFEASIBLE:
                return 1.0 + task.bound + solve_value(greatest_recall_program(own, positive, **form))
            return 1.0 + solve_value(program)

        return solve_items(scores, ranking_samples(self._rankings), self.defined, value)
