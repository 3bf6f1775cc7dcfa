"""The programs of ratios of confusion counts, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from taskloss.kernels.ratios import best_ratios, positions_of, write_ratio_gradients
from taskloss.kernels.sort import IGNORED
from taskloss.labelings import Labelings, labeling_values_shape, read_labelings
from taskloss.layout import Layout, ranking_weights
from taskloss.lp.formulations.ratio import Coefficients, ratio_program
from taskloss.lp.objectives.objective import ProgramObjective, check_positions, labeling_samples, solve_items, solve_value
from taskloss.tasks.task import Call, Task


@dataclass(frozen=True)
class Ratio(Task):
    """One minus the largest ratio that soft labels reach."""

    target_kind: ClassVar[str] = "labels"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "weight"})
    numerator: Coefficients
    denominator: Coefficients
    margin: float
    squash: bool
    """Whether the positions are the tanh of the scores, or the scores themselves."""
    zero_division: float

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> RatioObjective:
        self.refuse_unknown(call)
        layout, labelings = read_labelings(scores, target, dims=call.dims, groups=call.groups, ignore_index=call.ignore_index)
        check_positions(scores, labelings.samples.labels != IGNORED, self.squash)
        return RatioObjective(self, layout, labelings, ranking_weights(layout, call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return labeling_values_shape(scores, target, dims, groups)


class RatioObjective(ProgramObjective):
    """One value a labeling."""

    def __init__(self, task: Ratio, layout: Layout, labelings: Labelings, weights: np.ndarray) -> None:
        self.values_shape, self.defined, self.weights = layout.values_shape, labelings.sizes > 0, weights
        self._task, self._layout, self._samples = task, layout, labelings.samples
        self._positions = labelings.samples._replace(scores=positions_of(labelings.samples.scores, task.squash))
        ratio = np.array(task.numerator), np.array(task.denominator), task.margin, task.zero_division
        self._best, self._corners = best_ratios(*self._positions, layout.rankings, *ratio)

    def values(self) -> np.ndarray:
        return 1.0 - self._best

    def gradient(self, factor: np.ndarray) -> np.ndarray:
        task, out = self._task, np.empty_like(self._samples.scores)
        write_ratio_gradients(*self._positions, self._corners, task.margin, task.squash, -factor, out)
        return out.reshape(self._layout.shape)

    def owner(self) -> np.ndarray:
        return self._layout.full_owner()

    def solved(self, scores: Tensor) -> Tensor:
        task = self._task
        closed = iter(self.values()[self.defined])

        def value(own: Tensor, positive: Tensor) -> Tensor:
            known = float(next(closed))
            if self._may_vanish(int(positive.sum()), int((~positive).sum())):
                # 0 / 0 is a matter of convention, which a program cannot know.
                return known + (own * 0.0).sum()
            phi = None if task.squash else torch.positive
            program = ratio_program(own, positive, task.numerator, task.denominator, margin=task.margin, phi=phi)
            return 1.0 + solve_value(program)

        return solve_items(scores, labeling_samples(self._layout, self._samples.labels), self.defined, value)

    def _may_vanish(self, positives: int, negatives: int) -> bool:
        """Whether some labels of so many samples have a denominator of zero."""
        tp, fp, fn, tn = self._task.denominator
        return min(tp, fn) * positives + min(fp, tn) * negatives == 0.0
