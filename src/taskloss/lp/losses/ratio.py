"""Ratios of confusion counts as linear programs: losses, value and gradient in closed form or by the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from taskloss import _checks
from taskloss.kernels.sort import IGNORED
from taskloss.labelings import Labelings, labeling_values_shape, read_labelings
from taskloss.layout import Layout, ranking_weights
from taskloss.lp.formulations.ratio import JACCARD, Coefficients, Phi, fscore_coefficients, ratio_program
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
    samples_of_labelings,
    value_per_item,
)
from taskloss.lp.losses.ratio_kernel import best_ratios, phi_of, write_ratio_gradients
from taskloss.tasks.task import Call, Task

ZERO_DIVISION = 1.0


class RatioLoss(ProgramLoss):
    r"""One minus the largest ratio of linear functions of the confusion counts that soft labels allow, in closed form.

    .. math:: 1 - \max_y \frac{n_1\,tp + n_2\,fp + n_3\,fn + n_4\,tn}{d_1\,tp + d_2\,fp + d_3\,fn + d_4\,tn}

    over soft labels ``max(0, psi) <= y <= min(1, 1 + psi)``; psi is ``phi(score)`` in [-1, 1], shifted toward the wrong side by
    the margin m: ``(1 - m) phi - m`` for positives, ``(1 - m) phi + m`` for negatives (Meng et al. 2021, section A.2, with m =
    0).

    **The margin matters.** With m = 0 the labels are the most favourable ones: a score of 0 counts as right for either
    class, so a network that makes all scores 0 has reached the minimum, and the value is a lower bound of one minus the metric.
    With m = 1/2 a label is ``(1 + phi) / 2``: the soft count of Dice losses. Samples that are right by more than
    ``phi = m / (1 - m)`` get no gradient.

    Args:
        numerator: coefficients of tp, fp, fn, tn.
        denominator: likewise, none below zero.
        margin: m, from 0 to 1/2.
        phi: maps scores to [-1, 1], 0 at the decision (default: tanh).
        zero_division: the ratio where the denominator is 0.
        solver: ``"exact"`` (closed form), or ``"lp"``, which solves the program.
        settings: see :class:`taskloss.lp.losses.base.ProgramLossOptions`.

    Call with ``(scores, target)`` and any of :class:`taskloss.lp.losses.base.ProgramCallOptions`; the shapes are those of
    labelings, see :class:`taskloss.DirectLoss`.

    >>> import torch
    >>> accuracy = RatioLoss((1, 0, 0, 1), (1, 1, 1, 1), margin=0.5)
    >>> round(accuracy(torch.tensor([2.0, -2.0]), torch.tensor([1, 0])).item(), 4)
    0.018
    """

    def __init__(
        self,
        numerator: Sequence[float],
        denominator: Sequence[float],
        *,
        margin: float = SOFT_MARGIN,
        phi: Phi | None = None,
        zero_division: float = ZERO_DIVISION,
        solver: str = SOLVERS[0],
        **settings: Unpack[ProgramLossOptions],
    ) -> None:
        super().__init__(_soft_ratio((numerator, denominator), margin, phi, zero_division), solver, phi, settings)


def ratio_loss(
    scores: Tensor,
    target: Tensor,
    numerator: Sequence[float],
    denominator: Sequence[float],
    *,
    margin: float = SOFT_MARGIN,
    phi: Phi | None = None,
    zero_division: float = ZERO_DIVISION,
    solver: str = SOLVERS[0],
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Compute the loss of :class:`RatioLoss`."""
    return program_loss(_soft_ratio((numerator, denominator), margin, phi, zero_division), scores, target, solver, phi, **options)


class FScoreLoss(RatioLoss):
    """One minus the F-score of soft labels: :class:`RatioLoss` of ``(1 + beta^2) tp`` to ``(1 + beta^2) tp + fp + beta^2 fn``.

    Args:
        beta: weight of recall against precision.
        margin: as for :class:`RatioLoss`; 0 is the program of Meng et al. (2021), section 2.4.
        phi: as for :class:`RatioLoss`.
        zero_division: as for :class:`RatioLoss`.
        solver: as for :class:`RatioLoss`.
        settings: as for :class:`RatioLoss`.

    >>> import torch
    >>> scores, target = torch.tensor([1.0, -1.0, 0.5, -2.0], requires_grad=True), torch.tensor([1, 1, 0, 0])
    >>> loss = FScoreLoss(margin=0.0)(scores, target)
    >>> loss.backward()
    >>> round(loss.item(), 4), [round(value, 4) for value in scores.grad.tolist()]
    (0.3307, [-0.0, -0.151, 0.1422, -0.0])
    """

    def __init__(
        self,
        beta: float = 1.0,
        *,
        margin: float = SOFT_MARGIN,
        phi: Phi | None = None,
        zero_division: float = ZERO_DIVISION,
        solver: str = SOLVERS[0],
        **settings: Unpack[ProgramLossOptions],
    ) -> None:
        coefficients = fscore_coefficients(_checks.check_positive("beta", beta))
        super().__init__(*coefficients, margin=margin, phi=phi, zero_division=zero_division, solver=solver, **settings)


def fscore_loss(
    scores: Tensor,
    target: Tensor,
    *,
    beta: float = 1.0,
    margin: float = SOFT_MARGIN,
    phi: Phi | None = None,
    zero_division: float = ZERO_DIVISION,
    solver: str = SOLVERS[0],
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Compute the loss of :class:`FScoreLoss`."""
    coefficients = fscore_coefficients(_checks.check_positive("beta", beta))
    return program_loss(_soft_ratio(coefficients, margin, phi, zero_division), scores, target, solver, phi, **options)


class JaccardLoss(RatioLoss):
    """One minus the Jaccard index (intersection over union) of soft labels: :class:`RatioLoss` of tp to tp + fp + fn.

    Args:
        margin: as for :class:`RatioLoss`.
        phi: as for :class:`RatioLoss`.
        zero_division: as for :class:`RatioLoss`.
        solver: as for :class:`RatioLoss`.
        settings: as for :class:`RatioLoss`.

    >>> import torch
    >>> pixels, mask = torch.randn(2, 3, 8, 8), torch.randint(3, (2, 8, 8))
    >>> JaccardLoss(reduction="none")(pixels, mask).shape      # one value per image and class
    torch.Size([2, 3])
    """

    def __init__(
        self,
        *,
        margin: float = SOFT_MARGIN,
        phi: Phi | None = None,
        zero_division: float = ZERO_DIVISION,
        solver: str = SOLVERS[0],
        **settings: Unpack[ProgramLossOptions],
    ) -> None:
        super().__init__(*JACCARD, margin=margin, phi=phi, zero_division=zero_division, solver=solver, **settings)


def jaccard_loss(
    scores: Tensor,
    target: Tensor,
    *,
    margin: float = SOFT_MARGIN,
    phi: Phi | None = None,
    zero_division: float = ZERO_DIVISION,
    solver: str = SOLVERS[0],
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Compute the loss of :class:`JaccardLoss`."""
    return program_loss(_soft_ratio(JACCARD, margin, phi, zero_division), scores, target, solver, phi, **options)


@dataclass(frozen=True)
class SoftRatio(Task):
    """One minus the largest ratio that soft labels reach; one item per labeling."""

    target_kind: ClassVar[str] = "labels"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "weight"})
    numerator: Coefficients
    denominator: Coefficients
    margin: float
    squash: bool
    """Whether phi is the tanh of the scores, or the scores are phi already."""
    zero_division: float

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> SoftRatioObjective:
        self.refuse_unknown(call)
        layout, labelings = read_labelings(scores, target, dims=call.dims, groups=call.groups, ignore_index=call.ignore_index)
        if not self.squash:
            check_phi_range(scores, labelings.samples.labels != IGNORED)
        return SoftRatioObjective(self, layout, labelings, ranking_weights(layout, call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return labeling_values_shape(scores, target, dims, groups)


def _soft_ratio(
    coefficients: tuple[Sequence[float], Sequence[float]], margin: float, phi: Phi | None, zero_division: float
) -> SoftRatio:
    _checks.check_zero_division(zero_division)
    return SoftRatio(
        numerator=_checks.check_coefficients("numerator", coefficients[0], least=float("-inf")),
        denominator=_checks.check_coefficients("denominator", coefficients[1], least=0.0),
        margin=_checks.check_soft_margin(margin),
        squash=check_phi(phi),
        zero_division=float(zero_division),
    )


class SoftRatioObjective(ProgramObjective):
    """One value per labeling."""

    def __init__(self, task: SoftRatio, layout: Layout, labelings: Labelings, weights: np.ndarray) -> None:
        self.values_shape, self.defined, self.weights = layout.values_shape, labelings.sizes > 0, weights
        self._task, self._layout, self._samples = task, layout, labelings.samples
        self._phi = phi_of(self._samples.scores, task.squash)
        self._best, self._bounds, self._slopes = best_ratios(
            self._phi,
            self._samples.labels,
            self._samples.run_owner,
            layout.rankings,
            np.array(task.numerator),
            np.array(task.denominator),
            task.margin,
            task.zero_division,
        )

    def values(self) -> np.ndarray:
        return 1.0 - self._best

    def gradient(self, factor: np.ndarray) -> np.ndarray:
        task, samples, out = self._task, self._samples, np.empty_like(self._samples.scores)
        corners = self._bounds, self._slopes
        write_ratio_gradients(self._phi, samples.labels, samples.run_owner, *corners, task.margin, task.squash, -factor, out)
        return out.reshape(self._layout.shape)

    def owner(self) -> np.ndarray:
        return self._layout.full_owner()

    def solve_programs(self, scores: Tensor) -> Tensor:
        task = self._task
        exact_values = iter(self.values()[self.defined])

        def value(own: Tensor, positive: Tensor) -> Tensor:
            exact = float(next(exact_values))
            if self._may_divide_by_zero(int(positive.sum()), int((~positive).sum())):
                # The value of 0 / 0 is a convention, which a program cannot know.
                return exact + (own * 0.0).sum()
            phi = None if task.squash else torch.positive
            program = ratio_program(own, positive, task.numerator, task.denominator, margin=task.margin, phi=phi)
            return 1.0 + optimal_value(program)

        return value_per_item(scores, samples_of_labelings(self._layout, self._samples.labels), self.defined, value)

    def _may_divide_by_zero(self, positives: int, negatives: int) -> bool:
        """Return whether some labels of this many samples have a denominator of zero."""
        tp, fp, fn, tn = self._task.denominator
        return min(tp, fn) * positives + min(fp, tn) * negatives == 0.0
