r"""Precision at a recall and recall at a precision as linear programs, the threshold a variable (Meng et al. 2021, A.2.3).

Without a threshold psi alone fixes the label of a sample, and a recall to reach would have nothing to move. So the labels are
tied to ``psi_i - tau``: ``psi_i - tau <= y_i <= 1 + psi_i - tau``, ``0 <= y_i <= 1``, with tau free.

These are two-sided constraints. They often have no solution, since tau must be in ``[max psi - 1, min psi + 1]``. The one-sided
form (default) keeps the bounds that pull against the objective: the upper bounds of the positives and the lower bounds of the
negatives. Both have the same best labels for a given tau.
"""

from __future__ import annotations

import torch
from torch import Tensor

from taskloss._checks import check_fraction
from taskloss.lp.formulations.assembly import Block, as_program_scores, refuse_one_class, sparse_matrix
from taskloss.lp.formulations.ratio import Phi, psi_of_scores
from taskloss.lp.problem import LinearProgram

SLACK = 10.0


def precision_at_recall_program(
    scores: Tensor, target: Tensor, recall: float, *, margin: float = 0.0, two_sided: bool = False, phi: Phi | None = None
) -> LinearProgram:
    r"""Return the program of the best precision among the thresholds with enough recall; the objective is minus the precision.

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
    psi, positive = _psi_and_positives(scores, target, margin, phi)
    n, positives = len(psi), float(positive.sum())
    t, theta = n, n + 1
    blocks, rows = _scaled_label_rows(psi, positive, two_sided, t, theta)
    # The recall is the last row: -sum_pos z + recall P t <= 0.
    each, one = torch.arange(n, device=psi.device), torch.ones_like(psi)
    chosen = each[positive]
    row = torch.full_like(chosen, rows)
    blocks += [(row, chosen, -one[chosen]), (row[:1], torch.full_like(row[:1], t), psi.new_tensor([recall * positives]))]
    lower = psi.new_zeros(n + 2)
    lower[theta] = -torch.inf
    return LinearProgram(
        -torch.cat([positive.to(psi), psi.new_zeros(2)]),
        A_ub=sparse_matrix(blocks, (rows + 1, n + 2)),
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
    r"""Return the program of the best recall among the thresholds with enough precision.

    The objective is minus the recall, plus the price of slack.

    .. math::
        \min -\tfrac1P \sum_{pos} y + \kappa s \;\text{s.t.}\;
        p \sum_{neg} y - (1 - p) \sum_{pos} y \le P s,\; s \ge 0,

    and the bounds of the labels. Often no threshold has the precision, so a violation is allowed at the price ``slack``, kappa:
    the program always has a solution (two-sided as long as psi is within [-1, 1]). Variables: y, tau, s.

    >>> import taskloss as tl
    >>> scores, target = torch.tensor([1.0, -1.0, 0.5]), torch.tensor([1, 1, 0])
    >>> round(-tl.lp.solve(recall_at_precision_program(scores, target, 0.9)).objective.item(), 4)
    -0.0067
    """
    check_fraction("precision", precision)
    psi, positive = _psi_and_positives(scores, target, margin, phi)
    n, positives = len(psi), float(positive.sum())
    tau, s = n, n + 1
    blocks, rhs = _label_rows(psi, positive, two_sided, tau)
    # The precision is the last row.
    each = torch.arange(n, device=psi.device)
    row = torch.full_like(each, len(rhs))
    blocks += [(row, each, precision - positive.to(psi)), (row[:1], torch.full_like(row[:1], s), psi.new_tensor([-positives]))]
    return LinearProgram(
        torch.cat([-positive.to(psi) / positives, psi.new_tensor([0.0, slack])]),
        A_ub=sparse_matrix(blocks, (len(rhs) + 1, n + 2)),
        b_ub=torch.cat([rhs, psi.new_zeros(1)]),
        **_variable_bounds(psi, positive, two_sided, 1),
    )


def greatest_recall_program(
    scores: Tensor, target: Tensor, *, margin: float = 0.0, two_sided: bool = True, phi: Phi | None = None
) -> LinearProgram:
    """Return the program of the best recall of all thresholds; the objective is minus the recall.

    It says by how much a recall that cannot be met is missed. Variables: y, tau.
    """
    psi, positive = _psi_and_positives(scores, target, margin, phi)
    blocks, rhs = _label_rows(psi, positive, two_sided, len(psi))
    return LinearProgram(
        torch.cat([-positive.to(psi) / float(positive.sum()), psi.new_zeros(1)]),
        A_ub=sparse_matrix(blocks, (len(rhs), len(psi) + 1)),
        b_ub=rhs,
        **_variable_bounds(psi, positive, two_sided, 0),
    )


def _psi_and_positives(scores: Tensor, target: Tensor, margin: float, phi: Phi | None) -> tuple[Tensor, Tensor]:
    scores, positive = as_program_scores(scores, target)
    refuse_one_class(positive, "precision at a recall")
    return psi_of_scores(scores, positive, margin, phi), positive


def _bounded_samples(positive: Tensor, two_sided: bool) -> tuple[Tensor, Tensor]:
    """Return the indices of the samples whose label has an upper bound, and of those with a lower bound."""
    each = torch.arange(len(positive), device=positive.device)
    return (each, each) if two_sided else (each[positive], each[~positive])


def _scaled_label_rows(psi: Tensor, positive: Tensor, two_sided: bool, t: int, theta: int) -> tuple[list[Block], int]:
    """Return the rows ``z <= (1 + psi) t - theta``, ``z <= t`` and ``psi t - theta <= z``, and their number.

    ``t`` and ``theta`` are the columns of these variables; all right-hand sides are zero.
    """
    upper, lower = _bounded_samples(positive, two_sided)
    blocks: list[Block] = []
    num_rows = 0
    for samples, sign, at_t, at_theta in (
        (upper, 1.0, -1.0 - psi[upper], 1.0),
        (upper, 1.0, -torch.ones_like(psi[upper]), 0.0),
        (lower, -1.0, psi[lower], -1.0),
    ):
        rows, one = num_rows + torch.arange(len(samples), device=psi.device), torch.ones_like(at_t)
        blocks += [(rows, samples, sign * one), (rows, torch.full_like(rows, t), at_t)]
        if at_theta:
            blocks.append((rows, torch.full_like(rows, theta), at_theta * one))
        num_rows += len(samples)
    return blocks, num_rows


def _label_rows(psi: Tensor, positive: Tensor, two_sided: bool, tau: int) -> tuple[list[Block], Tensor]:
    """Return the rows ``y + tau <= 1 + psi`` and ``-y - tau <= -psi``, and their right-hand sides; ``tau`` is its column."""
    upper, lower = _bounded_samples(positive, two_sided)
    samples = torch.cat([upper, lower])
    sign = torch.cat([torch.ones_like(psi[upper]), -torch.ones_like(psi[lower])])
    rows = torch.arange(len(samples), device=psi.device)
    return [(rows, samples, sign), (rows, torch.full_like(rows, tau), sign)], torch.cat([1.0 + psi[upper], -psi[lower]])


def _variable_bounds(psi: Tensor, positive: Tensor, two_sided: bool, num_slacks: int) -> dict[str, Tensor]:
    """Return the bounds of y, tau and the slacks: ``0 <= y <= 1`` (one-sided, only positives have the 1), slacks at least zero.

    No best threshold is farther from zero than 2, as psi is within [-1, 1]; stating it helps the solver.
    """
    n = len(psi)
    lower, upper = psi.new_zeros(n + 1 + num_slacks), psi.new_full((n + 1 + num_slacks,), torch.inf)
    lower[n], upper[n] = -2.0, 2.0
    upper[:n][positive | two_sided] = 1.0
    return {"lower": lower, "upper": upper}
