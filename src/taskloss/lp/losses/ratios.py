"""Losses of ratios of confusion counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from torch import Tensor

from taskloss import _checks
from taskloss.lp.formulations.ratio import JACCARD, Phi, fscore_coefficients
from taskloss.lp.losses.module import SOFT_MARGIN, ProgramCallOptions, ProgramLoss, ProgramLossOptions, evaluate
from taskloss.lp.objectives.objective import SOLVERS
from taskloss.lp.objectives.ratios import Ratio

ZERO_DIVISION = 1.0


def _ratio_task(
    coefficients: tuple[Sequence[float], Sequence[float]], margin: float, phi: Phi | None, zero_division: float = ZERO_DIVISION
) -> Ratio:
    if phi is not None:
        _checks.check_callable("phi", phi, "the scores")
    _checks.check_zero_division(zero_division)
    return Ratio(
        _checks.check_coefficients("numerator", coefficients[0], least=float("-inf")),
        _checks.check_coefficients("denominator", coefficients[1], least=0.0),
        _checks.check_soft_margin(margin),
        phi is None,
        float(zero_division),
    )


class RatioLoss(ProgramLoss):
    r"""One minus the largest ratio of linear functions of the confusion counts that soft labels allow, in closed form.

    .. math:: 1 - \max_y \frac{n_1\,tp + n_2\,fp + n_3\,fn + n_4\,tn}{d_1\,tp + d_2\,fp + d_3\,fn + d_4\,tn}

    over labels ``max(0, psi) <= y <= min(1, 1 + psi)``; psi is ``phi(score)`` in [-1, 1], drawn toward the wrong side by the
    margin m: ``(1 - m) phi - m`` for positives, ``(1 - m) phi + m`` for negatives (Meng et al. 2021, section A.2, with m = 0).

    **The margin matters.** With m = 0 the labels are the most favourable ones: a score of 0 counts as right for either
    class, so a network that makes all scores 0 has reached the minimum, and the value is a lower bound of one minus the metric.
    With m = 1/2 a label is ``(1 + phi) / 2``: the soft count of Dice losses. Samples that are right by more than
    ``phi = m / (1 - m)`` get no gradient.

    Args:
        numerator: coefficients of tp, fp, fn, tn.
        denominator: likewise, none below zero.
        margin: from 0 to 1/2.
        phi: maps scores to [-1, 1], 0 at the decision (default: tanh).
        zero_division: what 0/0 counts.
        solver: ``"exact"`` or ``"newton"``.
        settings: see :class:`taskloss.lp.losses.module.ProgramLossOptions`.

    Call with ``(scores, target)`` and any of ``ProgramCallOptions``, shapes as for the labelings of :class:`taskloss.DirectLoss`.

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
        super().__init__(_ratio_task((numerator, denominator), margin, phi, zero_division), solver, phi, settings)


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
    """Functional form of :class:`RatioLoss`."""
    task = _ratio_task((numerator, denominator), margin, phi, zero_division)
    return evaluate(task, solver, phi, scores, target, dict(options))


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
    """Functional form of :class:`FScoreLoss`."""
    task = _ratio_task(fscore_coefficients(_checks.check_positive("beta", beta)), margin, phi, zero_division)
    return evaluate(task, solver, phi, scores, target, dict(options))


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
    >>> JaccardLoss(reduction="none")(pixels, mask).shape      # an image and class
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
    """Functional form of :class:`JaccardLoss`."""
    return evaluate(_ratio_task(JACCARD, margin, phi, zero_division), solver, phi, scores, target, dict(options))
