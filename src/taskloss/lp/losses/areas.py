"""Losses of the areas under ROC curves."""

from __future__ import annotations

from typing import Any, Unpack

from torch import Tensor

from taskloss import _checks
from taskloss.lp.formulations.auc_mu import KINDS
from taskloss.lp.losses.module import ProgramCallOptions, ProgramLoss, ProgramLossOptions
from taskloss.lp.objectives.areas import PairwiseArea
from taskloss.lp.objectives.class_areas import ClassAreas
from taskloss.lp.objectives.objective import SOLVERS, program_loss
from taskloss.tasks.multiclass import CostMatrix

FORMS = ("hinge", "ramp")
PAIR_MARGIN = 1.0


def _auc_task(margin: float, form: str) -> PairwiseArea:
    return PairwiseArea(_checks.check_positive("margin", margin), _checks.check_choice("form", form, FORMS) == "ramp")


class AUCLoss(ProgramLoss):
    r"""The program of the area under the ROC curve (Meng et al. 2021, eq. 2 and 3), by sorting, O(n log n).

    With ``gap = s_i - s_j`` of a positive i and a negative j and the margin e, the mean over all pairs of

    .. math:: (e - \mathrm{gap})_+ \;\;(\text{hinge}), \qquad \mathrm{clip}(1 - \mathrm{gap} / e, 0, 1) \;\;(\text{ramp}).

    The hinge is the value of the program divided by the number of pairs; the ramp is the paper's loss, made from its solution.
    The ramp, and the hinge divided by e, are upper bounds of one minus the AUC. **The ramp has no gradient in pairs that are
    ordered wrongly**: begin with the hinge. The paper takes the ramp of probabilities with a margin of 0.01.

    Args:
        margin: e, in units of the scores.
        form: ``"hinge"`` or ``"ramp"``.
        solver: ``"exact"``, or ``"newton"``, which solves a program with a variable for each pair.
        settings: see :class:`ProgramLossOptions`.

    Call with ``(scores, target)`` and any of :class:`ProgramCallOptions`, shapes as for the rankings of
    :class:`taskloss.DirectLoss`. A ranking with one class only gives zero loss and gradient.

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
        super().__init__(_auc_task(margin, form), solver, None, settings)


def auc_loss(
    scores: Tensor,
    target: Tensor,
    *,
    margin: float = PAIR_MARGIN,
    form: str = FORMS[0],
    solver: str = SOLVERS[0],
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Functional form of :class:`AUCLoss`."""
    return program_loss(_auc_task(margin, form), solver, scores, target, **options)


def _class_task(margin: float, form: str, kind: str, cost: Any) -> ClassAreas:
    _checks.check_choice("kind", kind, KINDS)
    if (cost is not None) != (kind == "costs"):
        raise ValueError(f"kind={kind!r} and cost={'given' if cost is not None else 'None'}; cost= belongs to kind='costs'")
    matrix = cost if cost is None or isinstance(cost, CostMatrix) else CostMatrix(cost)
    pairs = _auc_task(margin, form)
    return ClassAreas(pairs.margin, pairs.ramp, kind, matrix)


class MultiClassAUCLoss(ProgramLoss):
    r"""The programs of the areas of several classes (Meng et al. 2021, eq. 4, 8 and 9), by sorting.

    The mean over pairs of classes (over classes) of the :class:`AUCLoss` of the pair. ``kind="binary_costs"``: AUC-mu, the
    pair a < b ranks its samples by ``f_a - f_b``; ``"costs"``: AUC-mu with ``cost[target, predicted]``, by
    ``sum_t f_t (cost[t, b] - cost[t, a])``; ``"one_vs_all"``: each class by its own score against all the others. The metrics are
    :func:`taskloss.metrics.auc_mu_score` and :func:`taskloss.metrics.one_vs_rest_auc_score`. The paper adds the
    pairs of samples up without weights, so that large classes count most, and doubles the gap of AUC-mu.

    Pairs without samples on both sides are left out; a batch of one class gives zero loss and gradient. Float32 scores are
    subtracted in float32.

    Args:
        kind: what is compared.
        cost: for ``kind="costs"``: square, finite, not negative, zero on the diagonal.
        margin: as for :class:`AUCLoss`.
        form: as for :class:`AUCLoss`.
        solver: as for :class:`AUCLoss`.
        settings: ``ignore_index``.

    Call as cross-entropy: ``(n, K)`` with ``(n,)``, or ``(B, K, H, W)`` with ``(B, H, W)``; one value for the whole batch.

    >>> import torch
    >>> scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 0.0]])
    >>> round(MultiClassAUCLoss()(scores, torch.tensor([0, 1, 2])).item(), 4)
    0.0
    """

    def __init__(
        self,
        kind: str = KINDS[0],
        cost: Any = None,
        *,
        margin: float = PAIR_MARGIN,
        form: str = FORMS[0],
        solver: str = SOLVERS[0],
        **settings: Unpack[ProgramLossOptions],
    ) -> None:
        super().__init__(_class_task(margin, form, kind, cost), solver, None, settings)


def multi_class_auc_loss(
    scores: Tensor,
    target: Tensor,
    *,
    kind: str = KINDS[0],
    cost: Any = None,
    margin: float = PAIR_MARGIN,
    form: str = FORMS[0],
    solver: str = SOLVERS[0],
    **options: Unpack[ProgramCallOptions],
) -> Tensor:
    """Functional form of :class:`MultiClassAUCLoss`."""
    return program_loss(_class_task(margin, form, kind, cost), solver, scores, target, **options)
