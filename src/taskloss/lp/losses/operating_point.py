"""Precision at a recall and recall at a precision as linear programs: losses, value and gradient by sorting or by the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from taskloss import _checks
from taskloss.layout import Layout, Rankings, binary_labels, ranked_dims, ranking_weights, read_rankings, values_shape
from taskloss.lp.formulations.operating_point import (
    SLACK,
    greatest_recall_program,
    precision_at_recall_program,
    recall_at_precision_program,
)
from taskloss.lp.formulations.ratio import Phi
from taskloss.lp.losses.base import (
    SOFT_MARGIN,
    SOLVERS,
    ProgramCallOptions,
    ProgramLoss,
    ProgramLossOptions,
    ProgramObjective,
    check_phi,
    check_phi_range,
    optimal_value,
    program_loss,
    samples_of_rankings,
    value_per_item,
)
from taskloss.lp.losses.operating_point_kernel import operating_points
from taskloss.lp.solution import Status
from taskloss.lp.solver import solve
from taskloss.tasks.task import Call, Task

BOUND = 0.8
"""Default recall or precision to reach."""


class PrecisionAtRecallLoss(ProgramLoss):
    r"""One minus the best precision that soft labels have at a recall, over all thresholds tau; by breakpoints after a sort.

    .. math:: \min_\tau \frac{B}{A + B} \;\text{s.t.}\; A \ge \text{recall} \cdot P, \qquad
        A = \sum_{pos} \min(1, 1 + \psi_i - \tau), \; B = \sum_{neg} (\psi_j - \tau)_+

    psi as in :class:`RatioLoss` (Meng et al. 2021, section A.2.3, with the threshold as a variable: without it the recall has
    nothing to move). Only differences of psi count, so the loss does not set where the scores are zero. With ``margin=0``
    constant scores have the value 0.

    ``two_sided=True`` keeps all bounds of the paper's labels, ``psi - tau <= y <= 1 + psi - tau``. Then often no
    threshold reaches the recall; the loss is one plus the missing recall, with the gradient of that: a value above 1 says so.

    Args:
        recall: above 0, at most 1.
        margin: from 0 to 1/2.
        two_sided: see above.
        phi: maps scores to [-1, 1] (default: tanh).
        solver: ``"exact"`` (sorting), or ``"lp"``, which solves the program.
        settings: see :class:`taskloss.lp.losses.base.ProgramLossOptions`.

    Calls as for :class:`AUCLoss`. A ranking with one class only gives zero loss and gradient.

    >>> import torch
    >>> round(PrecisionAtRecallLoss(0.9, margin=0.0)(torch.tensor([1.0, -1.0, 0.5]), torch.tensor([1, 1, 0])).item(), 4)
    0.3625
    """

    def __init__(
        self,
        recall: float = BOUND,
        *,
        margin: float = SOFT_MARGIN,
        two_sided: bool = False,
        phi: Phi | None = None,
        solver: str = SOLVERS[0],
        **settings: Unpack[ProgramLossOptions],
    ) -> None:
        super().__init__(_operating_point("recall", recall, margin, two_sided, phi), solver, phi, settings)


def precision_at_recall_loss(
    scores: Tensor,
    target: Tensor,
    *,
    recall: float = BOUND,
    margin: float = SOFT_MARGIN,
    two_sided: bool = False,
    phi: Phi | None = None,
    solver: str = SOLVERS[0],
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Compute the loss of :class:`PrecisionAtRecallLoss`."""
    return program_loss(_operating_point("recall", recall, margin, two_sided, phi), scores, target, solver, phi, **options)


class RecallAtPrecisionLoss(ProgramLoss):
    r"""One minus the best recall that soft labels have at a precision, over all thresholds tau; by breakpoints after a sort.

    .. math:: \min_\tau 1 - \frac{A}{P} + \frac{\kappa}{P} \bigl(p B - (1 - p) A\bigr)_+

    with A, B and psi as in :class:`PrecisionAtRecallLoss` and p the precision. Often no threshold has the precision, so a
    violation has a price, kappa = ``slack``, instead of being forbidden: the loss is finite and has a gradient everywhere, and a
    value above 1 says that the precision is out of reach. The larger kappa, the less is traded for recall, and the larger the
    gradients.

    Args:
        precision: above 0, at most 1.
        slack: the price of a violation.
        margin: from 0 to 1/2.
        two_sided: keep all bounds of the paper's labels.
        phi: maps scores to [-1, 1] (default: tanh).
        solver: ``"exact"`` (sorting), or ``"lp"``, which solves the program.
        settings: see :class:`taskloss.lp.losses.base.ProgramLossOptions`.

    Calls as for :class:`AUCLoss`. A ranking with one class only gives zero loss and gradient.

    >>> import torch
    >>> round(RecallAtPrecisionLoss(0.9, margin=0.0)(torch.tensor([1.0, -1.0, 0.5]), torch.tensor([1, 1, 0])).item(), 4)
    1.0067
    """

    def __init__(
        self,
        precision: float = BOUND,
        *,
        slack: float = SLACK,
        margin: float = SOFT_MARGIN,
        two_sided: bool = False,
        phi: Phi | None = None,
        solver: str = SOLVERS[0],
        **settings: Unpack[ProgramLossOptions],
    ) -> None:
        super().__init__(_operating_point("precision", precision, margin, two_sided, phi, slack), solver, phi, settings)


def recall_at_precision_loss(
    scores: Tensor,
    target: Tensor,
    *,
    precision: float = BOUND,
    slack: float = SLACK,
    margin: float = SOFT_MARGIN,
    two_sided: bool = False,
    phi: Phi | None = None,
    solver: str = SOLVERS[0],
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Compute the loss of :class:`RecallAtPrecisionLoss`."""
    task = _operating_point("precision", precision, margin, two_sided, phi, slack)
    return program_loss(task, scores, target, solver, phi, **options)


@dataclass(frozen=True)
class OperatingPoint(Task):
    """One minus the best precision at a recall, or the best recall at a precision; one item per ranking."""

    target_kind: ClassVar[str] = "binary"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "weight"})
    bound: float
    at_recall: bool
    """Whether the bound is a recall or a precision."""
    two_sided: bool
    slack: float
    margin: float
    squash: bool
    """Whether phi is the tanh of the scores, or the scores are phi already."""

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> OperatingPointObjective:
        self.refuse_unknown(call)
        layout, rankings = read_rankings(scores, target, dims=call.dims, groups=call.groups, ignore_index=call.ignore_index)
        if not self.squash:
            kept = binary_labels(target, call.ignore_index)[1]
            check_phi_range(scores, np.ones(scores.shape, np.bool_) if kept is None else kept)
        return OperatingPointObjective(self, layout, rankings, scores.dtype, ranking_weights(layout, call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return values_shape(scores, ranked_dims(dims), groups)


def _operating_point(
    name: str, bound: float, margin: float, two_sided: bool, phi: Phi | None, slack: float = SLACK
) -> OperatingPoint:
    _checks.check_fraction(name, bound)
    _checks.check_flag("two_sided", two_sided)
    return OperatingPoint(
        bound=float(bound),
        at_recall=name == "recall",
        two_sided=two_sided,
        slack=_checks.check_positive("slack", slack),
        margin=_checks.check_soft_margin(margin),
        squash=check_phi(phi),
    )


class OperatingPointObjective(ProgramObjective):
    """One value per ranking."""

    def __init__(self, task: OperatingPoint, layout: Layout, rankings: Rankings, dtype: np.dtype, weights: np.ndarray) -> None:
        self.values_shape, self.defined, self.weights = layout.values_shape, rankings.defined, weights
        self._task, self._layout, self._rankings, self._dtype = task, layout, rankings, dtype
        lists = rankings.lists
        self._positive_gradient, self._negative_gradient = np.empty_like(lists.positives), np.empty_like(lists.negatives)
        self._values: np.ndarray = operating_points(
            lists,
            task.bound,
            task.at_recall,
            task.two_sided,
            task.slack,
            task.margin,
            task.squash,
            self._positive_gradient,
            self._negative_gradient,
        )

    def values(self) -> np.ndarray:
        return self._values

    def gradient(self, factor: np.ndarray) -> np.ndarray:
        lists = self._rankings.lists
        out = np.zeros(int(np.prod(self._layout.shape)), self._dtype)
        out[lists.positive_index] = self._positive_gradient * np.repeat(factor, lists.positive_counts())
        out[lists.negative_index] = self._negative_gradient * np.repeat(factor, lists.negative_counts())
        return out.reshape(self._layout.shape)

    def owner(self) -> np.ndarray:
        return self._layout.full_owner()

    def solve_programs(self, scores: Tensor) -> Tensor:
        task = self._task
        phi = None if task.squash else torch.positive
        form: dict[str, Any] = {"margin": task.margin, "two_sided": task.two_sided, "phi": phi}

        def value(own: Tensor, positive: Tensor) -> Tensor:
            if not task.at_recall:
                return 1.0 + optimal_value(recall_at_precision_program(own, positive, task.bound, slack=task.slack, **form))
            program = precision_at_recall_program(own, positive, task.bound, **form)
            if task.two_sided and solve(program).status is Status.INFEASIBLE:
                return 1.0 + task.bound + optimal_value(greatest_recall_program(own, positive, **form))
            return 1.0 + optimal_value(program)

        return value_per_item(scores, samples_of_rankings(self._rankings), self.defined, value)
