"""The area under the ROC curve as a linear program: loss, value and gradient by sorting or by the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from taskloss import _checks
from taskloss.kernels.sort import TwoLists
from taskloss.kernels.sums import summable_unit
from taskloss.layout import Layout, Rankings, ranked_dims, ranking_weights, read_rankings, values_shape
from taskloss.lp.formulations.auc import auc_program
from taskloss.lp.losses.auc_kernel import pair_sums, write_pair_gradients
from taskloss.lp.losses.base import (
    SOLVERS,
    ProgramCallOptions,
    ProgramLoss,
    ProgramLossOptions,
    ProgramObjective,
    optimal_value,
    program_loss,
    samples_of_rankings,
    solve_program,
    value_per_item,
)
from taskloss.lp.problem import LinearProgram
from taskloss.tasks.task import Call, Task

FORMS = ("hinge", "ramp")
PAIR_MARGIN = 1.0


class AUCLoss(ProgramLoss):
    r"""Linear program of the area under the ROC curve (Meng et al. 2021, eq. 2 and 3), solved by sorting in O(n log n).

    With ``gap = s_i - s_j`` of a positive i and a negative j and the margin e, the loss is the mean over all pairs of

    .. math:: (e - \mathrm{gap})_+ \;\;(\text{hinge}), \qquad \mathrm{clip}(1 - \mathrm{gap} / e, 0, 1) \;\;(\text{ramp}).

    The hinge is the value of the program divided by the number of pairs; the ramp is the paper's loss, made from its solution.
    The ramp, and the hinge divided by e, are upper bounds of one minus the AUC. **The ramp has no gradient in pairs that are
    ordered wrongly**: begin with the hinge. The paper takes the ramp of probabilities with a margin of 0.01.

    Args:
        margin: e, in units of the scores.
        form: ``"hinge"`` or ``"ramp"``.
        solver: ``"exact"`` (sorting), or ``"lp"``, which solves a program with one variable per pair.
        settings: see :class:`taskloss.lp.losses.base.ProgramLossOptions`.

    Call with ``(scores, target)`` and any of :class:`taskloss.lp.losses.base.ProgramCallOptions`; the shapes are those of
    rankings, see :class:`taskloss.DirectLoss`. A ranking with one class only gives zero loss and gradient.

    >>> import torch
    >>> scores = torch.tensor([0.5, 0.0, 2.0], requires_grad=True)
    >>> loss = AUCLoss()(scores, torch.tensor([1, 0, 0]))
    >>> loss.backward()
    >>> loss.item(), scores.grad.tolist()
    (1.5, [-1.0, 0.5, 0.5])
    """

    def __init__(
        self,
        margin: float = PAIR_MARGIN,
        form: str = FORMS[0],
        *,
        solver: str = SOLVERS[0],
        **settings: Unpack[ProgramLossOptions],
    ) -> None:
        super().__init__(_pairwise_auc(margin, form), solver, None, settings)


def auc_loss(
    scores: Tensor,
    target: Tensor,
    *,
    margin: float = PAIR_MARGIN,
    form: str = FORMS[0],
    solver: str = SOLVERS[0],
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Compute the loss of :class:`AUCLoss`."""
    return program_loss(_pairwise_auc(margin, form), scores, target, solver, **options)


@dataclass(frozen=True)
class PairwiseAUC(Task):
    """Hinge or ramp of all pairs of a positive and a negative; one item per ranking."""

    target_kind: ClassVar[str] = "binary"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "weight"})
    margin: float
    ramp: bool

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> PairwiseAUCObjective:
        self.refuse_unknown(call)
        layout, rankings = read_rankings(scores, target, dims=call.dims, groups=call.groups, ignore_index=call.ignore_index)
        return PairwiseAUCObjective(self, layout, rankings, scores.dtype, ranking_weights(layout, call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return values_shape(scores, ranked_dims(dims), groups)


def _pairwise_auc(margin: float, form: str) -> PairwiseAUC:
    return PairwiseAUC(_checks.check_positive("margin", margin), is_ramp(form))


def is_ramp(form: str) -> bool:
    """Check ``form``; return whether it is the ramp."""
    return _checks.check_choice("form", form, FORMS) == "ramp"


class PairwiseAUCObjective(ProgramObjective):
    """One value per ranking."""

    def __init__(self, task: PairwiseAUC, layout: Layout, rankings: Rankings, dtype: np.dtype, weights: np.ndarray) -> None:
        self.values_shape, self.defined, self.weights = layout.values_shape, ~rankings.undefined, weights
        self._task, self._layout, self._rankings, self._dtype = task, layout, rankings, dtype
        self._means: PairMeans | None = None

    def _pair_means(self) -> PairMeans:
        if self._means is None:
            self._means = PairMeans(self._rankings.lists, self._task.margin, self._task.ramp)
        return self._means

    def values(self) -> np.ndarray:
        return self._pair_means().values

    def gradient(self, factor: np.ndarray) -> np.ndarray:
        shape = self._layout.shape
        return self._pair_means().gradient(factor, int(np.prod(shape)), self._dtype).reshape(shape)

    def owner(self) -> np.ndarray:
        return self._layout.full_owner()

    def solve_programs(self, scores: Tensor) -> Tensor:
        def value(own: Tensor, positive: Tensor) -> Tensor:
            program = auc_program(own, positive, margin=self._task.margin)
            return pair_loss_by_program(program, self._task.margin, self._task.ramp) / program.num_variables

        return value_per_item(scores, samples_of_rankings(self._rankings), self.defined, value)


class PairMeans:
    """The mean over the pairs of each ranking of ``(e - gap)_+`` or of ``clip(e - gap, 0, e) / e``, and its gradient."""

    values: np.ndarray
    """One per ranking, float64 ``(R,)``."""

    def __init__(self, lists: TwoLists, margin: float, ramp: bool) -> None:
        self._lists = lists
        pairs = lists.positive_counts() * lists.negative_counts().astype(np.float64)
        self._scale = 1.0 / (np.maximum(pairs, 1.0) * (margin if ramp else 1.0))
        # Sums of huge scores would overflow; scaling by a power of two changes nothing else.
        unit = summable_unit(lists.positives, lists.negatives)
        if unit != 1.0:
            lists = lists._replace(positives=lists.positives * unit, negatives=lists.negatives * unit)
        sums, self._wrong, self._reach = pair_sums(lists, margin * unit, ramp)
        with np.errstate(over="ignore"):
            self.values = sums * self._scale / unit

    def gradient(self, factor: np.ndarray, size: int, dtype: np.dtype) -> np.ndarray:
        """Return ``factor[r]`` times the gradient of the mean of ranking r, summed over r; flat, ``(size,)``."""
        out = np.zeros(size, dtype)
        write_pair_gradients(self._lists, self._wrong, self._reach, factor * self._scale, out)
        return out


def pair_loss_by_program(program: LinearProgram, margin: float, ramp: bool) -> Tensor:
    """Return the optimal value of a program of pairs, or the paper's ramp of its solution, weighted by the costs."""
    if not ramp:
        return optimal_value(program)
    z = solve_program(program, gradient="active_set").x
    # Where z = margin the pair is tied; as in the exact form it has the slope of a pair that is barely right.
    return (program.c * torch.where(z <= margin, z, margin)).sum() / margin
