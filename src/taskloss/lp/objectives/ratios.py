"""The programs of ratios of confusion counts, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from taskloss.direct import ScaledGradient
from taskloss.kernels.addresses import BYTE, FLOAT32, FLOAT64, INT64
from taskloss.kernels.ratios import best_ratios, positions_of, ratio_of_one, write_ratio_gradients
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

    @cached_property
    def settings(self) -> np.ndarray:
        """All of them as one array: numerator, denominator, margin, squash, zero_division."""
        return np.hstack([self.numerator, self.denominator, self.margin, self.squash, self.zero_division])

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
        ratio = task.settings[:4], task.settings[4:8], task.margin, task.zero_division
        self._best, self._corners, self._counts = best_ratios(*self._positions, layout.rankings, *ratio)

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


class _WithGradient(torch.autograd.Function):
    """A number whose gradient is known."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: float, gradient: Tensor) -> Tensor:
        ctx.scores, ctx.gradient = scores, gradient
        return torch.scalar_tensor(value, dtype=scores.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            # Fails when it is differentiated again. (torch has no types for apply.)
            whole = torch.empty(0, dtype=torch.int64)
            return ScaledGradient.apply(ctx.scores, grad_outputs[0], ctx.gradient, whole), None, None  # type: ignore[no-untyped-call]
        return ctx.gradient * grad_outputs[0], None, None


# What ``_WithGradient.apply`` comes to when no transform of torch.func is active, which is looked at before.
_attach: Any = super(torch.autograd.Function, _WithGradient).apply


_KINDS = {torch.float32: FLOAT32, torch.float64: FLOAT64, torch.int64: INT64, torch.bool: BYTE, torch.uint8: BYTE}


def ratio_of_one_labeling(task: Ratio, scores: Any, target: Any) -> Tensor | None:
    """The loss of a single plain labeling by one kernel; None if this is not one, or not a good one.

    ``(n,)`` with ``(n,)``, on the CPU. In a small batch, reading the calling forms would take most of the time.
    """
    if torch.compiler.is_compiling() or _torch_is_changed():
        return None
    scores_memory, target_memory = _plain_memory(scores), _plain_memory(target)
    if (
        scores_memory is None
        or target_memory is None
        or scores.ndim != 1
        or scores.shape != target.shape
        or not scores.is_floating_point()
        or target.requires_grad
    ):
        return None
    gradient = torch.empty_like(scores)
    value = ratio_of_one(*scores_memory, *target_memory, scores.numel(), task.settings, gradient.data_ptr())
    return None if value != value else _attach(scores, value, gradient)


def _torch_is_changed() -> bool:
    """Whether tensors may have no memory of their own, or operations return something unusual: transforms, tracers, modes."""
    state = torch._C
    return bool(
        state._are_functorch_transforms_active()
        or state._len_torch_dispatch_stack()
        or state._len_torch_function_stack()
        or state._get_tracing_state()
    )


def _plain_memory(tensor: Any) -> tuple[int, int] | None:
    """Address and kind of the numbers of a tensor if they stand there one after the other, as they are, on the CPU."""
    if type(tensor) is not Tensor or not tensor.is_cpu or tensor.layout is not torch.strided:
        return None
    if not tensor.is_contiguous() or tensor.is_neg() or tensor._is_zerotensor():
        return None
    address, kind = tensor.data_ptr(), _KINDS.get(tensor.dtype)
    # An empty tensor has no address.
    return None if kind is None or not address else (address, kind)
