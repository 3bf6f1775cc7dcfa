r"""Precision at a recall and recall at a precision as linear programs, the threshold a variable (Meng et al. 2021, A.2.3).

Without a threshold of its own the position of a sample fixes its label, and a recall to reach would have nothing to move. So the
position is ``psi_i - tau``, ``psi_i - tau <= y_i <= 1 + psi_i - tau``, ``0 <= y_i <= 1``, with tau free.

These are two-sided constraints. They often have no solution: tau must be in ``[max psi - 1, min psi + 1]``. The one-sided form
(default) keeps what pulls against the objective: the upper limits of the positives and the lower limits of the negatives. Both
have the same best labels for a given tau.
"""

from __future__ import annotations

import torch
from torch import Tensor

from taskloss._checks import check_fraction
from taskloss.lp.formulations.entries import Entries, as_program_scores, refuse_one_class, sparse_matrix
from taskloss.lp.formulations.ratio import Phi, soft_positions
from taskloss.lp.problem import LinearProgram

SLACK = 10.0


def precision_at_recall_program(
    scores: Tensor, target: Tensor, recall: float, *, margin: float = 0.0, two_sided: bool = False, phi: Phi | None = None
) -> LinearProgram:
    r"""The best precision among the thresholds with enough recall; the objective is minus the precision.

    With ``z = t y``, ``t = 1 / sum y``, ``theta = t tau`` and alpha the recall, one-sided:

    .. math::
        \max \sum_{pos} z \;\text{s.t.}\; \sum z = 1,\; \sum_{pos} z \ge \alpha P t,\;
        z_i \le (1 + \psi_i) t - \theta, \; z_i \le t \text{ (pos)},\; z_j \ge \psi_j t - \theta \text{ (neg)},\; z, t \ge 0

    Variables: z, t, theta. One-sided it always has a solution.

    >>> import taskloss as tl
    >>> scores, target = torch.tensor([1.0, -1.0, 0.5]), torch.tensor([1, 1, 0])
    >>> round(-tl.lp.solve(precision_at_recall_program(scores, target, 0.9)).objective.item(), 4)
    0.6375
    """
    check_fraction("recall", recall)
    psi, positive = _read(scores, target, margin, phi)
    n, count = len(psi), float(positive.sum())
    parts, rows = _label_rows(psi, positive, two_sided, n, n + 1)
    chosen = torch.nonzero(positive)[:, 0]
    row = torch.full_like(chosen, rows)
    one = torch.ones(n, device=psi.device, dtype=psi.dtype)
    parts += [(row, chosen, -one[chosen]), (row[:1], torch.full_like(row[:1], n), psi.new_tensor([recall * count]))]
    each = torch.arange(n, device=psi.device)
    lower = psi.new_zeros(n + 2)
    lower[n + 1] = -torch.inf
    return LinearProgram(
        -torch.cat([positive.to(psi), psi.new_zeros(2)]),
        A_ub=sparse_matrix(parts, (rows + 1, n + 2)),
        b_ub=psi.new_zeros(rows + 1),
        A_eq=sparse_matrix([(torch.zeros_like(each), each, one)], (1, n + 2)),
        b_eq=psi.new_ones(1),
        lower=lower,
    )


def recall_at_precision_program(
    scores: Tensor,
    target: Tensor,
    precision: float,
    *,
    slack: float = SLACK,
    margin: float = 0.0,
    two_sided: bool = False,
    phi: Phi | None = None,
) -> LinearProgram:
    r"""The best recall among the thresholds with enough precision; the objective is minus the recall, plus the cost of slack.

    .. math::
        \min -\tfrac1P \sum_{pos} y + \kappa s \;\text{s.t.}\;
        p \sum_{neg} y - (1 - p) \sum_{pos} y \le P s,\; s \ge 0,

    and the limits of the labels. Often no threshold has the precision, so a violation is allowed at the price ``slack``, kappa:
    the program always has a solution (two-sided as long as the positions are within [-1, 1]). Variables: y, tau, s.

    >>> import taskloss as tl
    >>> scores, target = torch.tensor([1.0, -1.0, 0.5]), torch.tensor([1, 1, 0])
    >>> round(-tl.lp.solve(recall_at_precision_program(scores, target, 0.9)).objective.item(), 4)
    -0.0067
    """
    check_fraction("precision", precision)
    psi, positive = _read(scores, target, margin, phi)
    n, count = len(psi), float(positive.sum())
    parts, rows, sides = _threshold_rows(psi, positive, two_sided, n)
    each = torch.arange(n, device=psi.device)
    row = torch.full_like(each, rows)
    weights = precision - positive.to(psi)
    parts += [(row, each, weights), (row[:1], torch.full_like(row[:1], n + 1), psi.new_tensor([-count]))]
    return LinearProgram(
        torch.cat([-positive.to(psi) / count, psi.new_tensor([0.0, slack])]),
        A_ub=sparse_matrix(parts, (rows + 1, n + 2)),
        b_ub=torch.cat([sides, psi.new_zeros(1)]),
        **_label_bounds(psi, positive, two_sided, 1),
    )


def greatest_recall_program(
    scores: Tensor, target: Tensor, *, margin: float = 0.0, two_sided: bool = True, phi: Phi | None = None
) -> LinearProgram:
    """The best recall of all; the objective is minus the recall. It says by how much a recall that cannot be met is missed.

    Variables: y, tau.
    """
    psi, positive = _read(scores, target, margin, phi)
    parts, rows, sides = _threshold_rows(psi, positive, two_sided, len(psi))
    return LinearProgram(
        torch.cat([-positive.to(psi) / float(positive.sum()), psi.new_zeros(1)]),
        A_ub=sparse_matrix(parts, (rows, len(psi) + 1)),
        b_ub=sides,
        **_label_bounds(psi, positive, two_sided, 0),
    )


def _read(scores: Tensor, target: Tensor, margin: float, phi: Phi | None) -> tuple[Tensor, Tensor]:
    scores, positive = as_program_scores(scores, target)
    refuse_one_class(positive, "precision at a recall")
    return soft_positions(scores, positive, margin, phi), positive


def _sides(positive: Tensor, two_sided: bool) -> tuple[Tensor, Tensor]:
    """The samples with an upper limit and those with a lower limit."""
    everyone = torch.arange(len(positive), device=positive.device)
    return (everyone, everyone) if two_sided else (everyone[positive], everyone[~positive])


def _label_rows(psi: Tensor, positive: Tensor, two_sided: bool, t: int, theta: int) -> tuple[list[Entries], int]:
    """``z <= (1 + psi) t - theta``, ``z <= t``, ``psi t - theta <= z``: entries, and how many rows."""
    upper, lower = _sides(positive, two_sided)
    parts: list[Entries] = []
    start = 0
    for chosen, sign, at_t, at_theta in (
        (upper, 1.0, -1.0 - psi[upper], 1.0),
        (upper, 1.0, -torch.ones_like(psi[upper]), 0.0),
        (lower, -1.0, psi[lower], -1.0),
    ):
        rows, one = start + torch.arange(len(chosen), device=psi.device), torch.ones_like(at_t)
        parts += [(rows, chosen, sign * one), (rows, torch.full_like(rows, t), at_t)]
        if at_theta:
            parts.append((rows, torch.full_like(rows, theta), at_theta * one))
        start += len(chosen)
    return parts, start


def _threshold_rows(psi: Tensor, positive: Tensor, two_sided: bool, tau: int) -> tuple[list[Entries], int, Tensor]:
    """``y + tau <= 1 + psi`` and ``-y - tau <= -psi``: entries, how many rows, right-hand sides."""
    upper, lower = _sides(positive, two_sided)
    chosen = torch.cat([upper, lower])
    sign = torch.cat([torch.ones_like(psi[upper]), -torch.ones_like(psi[lower])])
    rows = torch.arange(len(chosen), device=psi.device)
    return (
        [(rows, chosen, sign), (rows, torch.full_like(rows, tau), sign)],
        len(chosen),
        torch.cat([1.0 + psi[upper], -psi[lower]]),
    )


def _label_bounds(psi: Tensor, positive: Tensor, two_sided: bool, more: int) -> dict[str, Tensor]:
    """``0 <= y`` (and ``<= 1``, one-sided for positives only), then tau, then variables of at least zero.

    No best threshold is farther from zero than 2, as the positions are within [-1, 1]; a solver likes to know.
    """
    lower, upper = psi.new_zeros(len(psi) + 1 + more), psi.new_full((len(psi) + 1 + more,), torch.inf)
    lower[len(psi)], upper[len(psi)] = -2.0, 2.0
    upper[: len(psi)][positive | two_sided] = 1.0
    return {"lower": lower, "upper": upper}
