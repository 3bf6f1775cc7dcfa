"""The program of the area under the ROC curve, by sorting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from taskloss.kernels.pairs import pair_losses, write_pair_gradients
from taskloss.kernels.sort import TwoLists
from taskloss.kernels.sums import summable_unit
from taskloss.layout import Layout, Rankings, ranked_dims, ranking_weights, read_rankings, values_shape
from taskloss.lp.formulations.auc import auc_program
from taskloss.lp.objectives.objective import ProgramObjective, ranking_samples, solve_items, solve_program, solve_value
from taskloss.lp.problem import LinearProgram
from taskloss.tasks.task import Call, Task


class PairSums:
    """The mean over the pairs of each ranking of ``(e - gap)_+`` or of ``clip(e - gap, 0, e) / e``, and its gradient."""

    def __init__(self, lists: TwoLists, margin: float, ramp: bool) -> None:
        self._lists, self._margin, self._ramp = lists, margin, ramp
        pairs = lists.positive_counts() * lists.negative_counts().astype(np.float64)
        self._scale = 1.0 / (np.maximum(pairs, 1.0) * (margin if ramp else 1.0))
        # Sums of huge scores would overflow; a power of two changes nothing else.
        self._unit = summable_unit(lists.positives, lists.negatives)
        if self._unit != 1.0:
            lists = lists._replace(positives=lists.positives * self._unit, negatives=lists.negatives * self._unit)
        sums, self._wrong, self._reach = pair_losses(lists, margin * self._unit, ramp)
        with np.errstate(over="ignore"):
            self.values: np.ndarray = sums * self._scale / self._unit

    def gradient(self, factor: np.ndarray, size: int, dtype: np.dtype) -> np.ndarray:
        """``factor[r]`` times the gradient, flat."""
        out = np.zeros(size, dtype)
        write_pair_gradients(self._lists, self._wrong, self._reach, factor * self._scale, out)
        return out


@dataclass(frozen=True)
class PairwiseArea(Task):
    """Hinge or ramp of all pairs of a positive and a negative."""

    target_kind: ClassVar[str] = "binary"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "weight"})
    margin: float
    ramp: bool

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> PairObjective:
        self.refuse_unknown(call)
        layout, rankings = read_rankings(scores, target, dims=call.dims, groups=call.groups, ignore_index=call.ignore_index)
        return PairObjective(self, layout, rankings, scores.dtype, ranking_weights(layout, call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return values_shape(scores, ranked_dims(dims), groups)


class PairObjective(ProgramObjective):
    """One value a ranking."""

    def __init__(self, task: PairwiseArea, layout: Layout, rankings: Rankings, dtype: np.dtype, weights: np.ndarray) -> None:
        self.values_shape, self.defined, self.weights = layout.values_shape, ~rankings.undefined, weights
        self._task, self._layout, self._rankings, self._dtype = task, layout, rankings, dtype
        self._sums: PairSums | None = None

    def _pair_sums(self) -> PairSums:
        if self._sums is None:
            self._sums = PairSums(self._rankings.lists, self._task.margin, self._task.ramp)
        return self._sums

    def values(self) -> np.ndarray:
        return self._pair_sums().values

    def gradient(self, factor: np.ndarray) -> np.ndarray:
        shape = self._layout.shape
        return self._pair_sums().gradient(factor, int(np.prod(shape)), self._dtype).reshape(shape)

    def owner(self) -> np.ndarray:
        return self._layout.full_owner()

    def solved(self, scores: Tensor) -> Tensor:
        def value(own: Tensor, positive: Tensor) -> Tensor:
            program = auc_program(own, positive, margin=self._task.margin)
            return solve_pairs(program, self._task.margin, self._task.ramp, 1.0 / program.num_variables)

        return solve_items(scores, ranking_samples(self._rankings), self.defined, value)


def solve_pairs(program: LinearProgram, margin: float, ramp: bool, scale: float = 1.0) -> Tensor:
    """``scale`` times the value of a program of pairs, or of the paper's ramp of its solution."""
    if not ramp:
        return scale * solve_value(program)
    z = solve_program(program, gradient="active_set").x
    # Where z = margin the pair is tied; as in the exact form it has the slope of a pair that is barely right.
    return scale * (program.c * torch.where(z <= margin, z, margin)).sum() / margin
