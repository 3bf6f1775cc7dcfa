"""Losses of precision at a recall and recall at a precision."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from taskloss import _checks
from taskloss.lp.formulations.ratio import Phi
from taskloss.lp.formulations.recall import SLACK
from taskloss.lp.losses.module import SOFT_MARGIN, ProgramCallOptions, ProgramLoss, ProgramLossOptions, evaluate
from taskloss.lp.objectives.objective import SOLVERS
from taskloss.lp.objectives.operating_points import OperatingPoint

BOUND = 0.8


def _point_task(name: str, bound: float, margin: float, two_sided: bool, phi: Phi | None, slack: float = SLACK) -> OperatingPoint:
    _checks.check_fraction(name, bound)
    _checks.check_flag("two_sided", two_sided)
    if phi is not None:
        _checks.check_callable("phi", phi, "the scores")
    return OperatingPoint(
        float(bound),
        name == "recall",
        two_sided,
        _checks.check_positive("slack", slack),
        _checks.check_soft_margin(margin),
        phi is None,
    )


class PrecisionAtRecallLoss(ProgramLoss):
    r"""One minus the best precision that soft labels have at a recall, over all thresholds tau; by breakpoints after a sort.

    .. math:: \min_\tau \frac{B}{A + B} \;\text{s.t.}\; A \ge \text{recall} \cdot P, \qquad
        A = \sum_{pos} \min(1, 1 + \psi_i - \tau), \; B = \sum_{neg} (\psi_j - \tau)_+

    psi as in :class:`RatioLoss` (Meng et al. 2021, section A.2.3, with the threshold as a variable: without it the recall has
    nothing to move). Only differences of positions count, so the loss does not set where the scores are zero. With ``margin=0``
    constant scores have the value 0.

    ``two_sided=True`` keeps all the limits of the paper's labels, ``psi - tau <= y <= 1 + psi - tau``. Then often no
    threshold reaches the recall; the loss is one plus what is missing of it, with the gradient of that: a value above 1 says so.

    Args:
        recall: above 0, at most 1.
        margin: from 0 to 1/2.
        two_sided: see above.
        phi: maps scores to [-1, 1] (default: tanh).
        solver: ``"exact"`` or ``"newton"``.
        settings: see :class:`taskloss.lp.losses.module.ProgramLossOptions`.

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
        super().__init__(_point_task("recall", recall, margin, two_sided, phi), solver, phi, settings)


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
    """Functional form of :class:`PrecisionAtRecallLoss`."""
    return evaluate(_point_task("recall", recall, margin, two_sided, phi), solver, phi, scores, target, dict(options))


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
        two_sided: keep all the limits of the paper's labels.
        phi: maps scores to [-1, 1] (default: tanh).
        solver: ``"exact"`` or ``"newton"``.
        settings: see :class:`taskloss.lp.losses.module.ProgramLossOptions`.

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
        super().__init__(_point_task("precision", precision, margin, two_sided, phi, slack), solver, phi, settings)


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
    """Functional form of :class:`RecallAtPrecisionLoss`."""
    return evaluate(
        _point_task("precision", precision, margin, two_sided, phi, slack), solver, phi, scores, target, dict(options)
    )
