r"""Ratios of linear functions of the confusion counts as linear programs (Meng et al. 2021, sections 2.4 and A.2).

With soft labels y in [0, 1] the counts are linear: ``tp = sum_pos y``, ``fp = sum_neg y``, ``fn = P - tp``, ``tn = N - fp``. The
label of a sample is tied to its psi (:mod:`taskloss.lp.losses.ratio_kernel`) by ``psi <= y <= 1 + psi``: above zero it may be
1, below zero it may be 0. A ratio ``(n'y + n_0) / (d'y + d_0)`` becomes linear by the transformation of Charnes and Cooper,
``z = t y``, ``t = k / (d'y + d_0)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from taskloss.lp.formulations.assembly import Block, as_program_scores, sparse_matrix
from taskloss.lp.problem import LinearProgram

Phi = Callable[[Tensor], Tensor]
Coefficients = tuple[float, float, float, float]
"""Coefficients of tp, fp, fn and tn."""

JACCARD: tuple[Coefficients, Coefficients] = ((1.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 0.0))


def fscore_coefficients(beta: float) -> tuple[Coefficients, Coefficients]:
    """Return numerator and denominator of the F-score: ``(1 + beta^2) tp / ((1 + beta^2) tp + fp + beta^2 fn)``.

    >>> fscore_coefficients(1.0)
    ((2.0, 0.0, 0.0, 0.0), (2.0, 1.0, 1.0, 0.0))
    """
    square = float(beta) ** 2
    return (1.0 + square, 0.0, 0.0, 0.0), (1.0 + square, 1.0, square, 0.0)


def psi_of_scores(scores: Tensor, positive: Tensor, margin: float, phi: Phi | None) -> Tensor:
    """Return psi: phi of each score (tanh if ``phi`` is None), shifted toward the wrong side by the margin."""
    value = torch.tanh(scores) if phi is None else phi(scores)
    # In this form a phi of -1 (positives) or 1 (negatives) stays there exactly, and no bound of a label becomes a rounding error.
    return torch.where(positive, value - margin * (1.0 + value), value + margin * (1.0 - value))


def ratio_program(
    scores: Tensor,
    target: Tensor,
    numerator: Sequence[float],
    denominator: Sequence[float],
    *,
    margin: float = 0.0,
    phi: Phi | None = None,
) -> LinearProgram:
    r"""Return the program of the largest ratio that soft labels reach; the objective is minus the ratio.

    .. math::
        \max \tfrac1k (n'z + n_0 t) \;\text{s.t.}\; d'z + d_0 t = k,\; \psi_i t \le z_i \le (1 + \psi_i) t,\; z_i \le t,
        \; z, t \ge 0

    with ``k = d_0`` (the paper's b) where that is above zero, else 1. Variables: z, then t. The denominator must be above zero
    for all labels that are allowed.

    Args:
        scores: ``(n,)``.
        target: 0/1, ``(n,)``.
        numerator: coefficients of tp, fp, fn, tn.
        denominator: likewise, at least zero.
        margin: from 0 (the paper's program) to 1/2.
        phi: maps scores to [-1, 1] (default: tanh).

    >>> import taskloss as tl
    >>> program = ratio_program(torch.tensor([1.0, -1.0, 0.5]), torch.tensor([1, 1, 0]), (1, 0, 0, 1), (1, 1, 1, 1))   # accuracy
    >>> round(-tl.lp.solve(program).objective.item(), 4)
    0.5921
    """
    scores, positive = as_program_scores(scores, target)
    psi = psi_of_scores(scores, positive, margin, phi)
    n, positives, negatives = len(psi), int(positive.sum()), int((~positive).sum())

    def as_linear_function(coefficients: Sequence[float]) -> tuple[Tensor, float]:
        """Return the gradient and the constant of a linear function of the counts as a function of y."""
        tp, fp, fn, tn = map(float, coefficients)
        return torch.where(positive, psi.new_tensor(tp - fn), psi.new_tensor(fp - tn)), fn * positives + tn * negatives

    n_y, n_0 = as_linear_function(numerator)
    d_y, d_0 = as_linear_function(denominator)
    k = d_0 if d_0 > 0.0 else 1.0
    z, t, one = torch.arange(n, device=psi.device), torch.full((n,), n, device=psi.device), torch.ones_like(psi)
    # Each group of n rows is `sign z + at_t t <= 0`: psi t <= z, z <= (1 + psi) t and z <= t.
    bounds: list[Block] = []
    for group, (sign, at_t) in enumerate(((-1.0, psi), (1.0, -1.0 - psi), (1.0, -one))):
        bounds += [(group * n + z, z, sign * one), (group * n + z, t, at_t)]
    row = torch.zeros_like(z)
    return LinearProgram(
        -torch.cat([n_y, psi.new_tensor([n_0])]) / k,
        A_ub=sparse_matrix(bounds, (3 * n, n + 1)),
        b_ub=psi.new_zeros(3 * n),
        A_eq=sparse_matrix([(row, z, d_y), (row[:1], t[:1], psi.new_tensor([d_0]))], (1, n + 1)),
        b_eq=psi.new_tensor([k]),
        lower=psi.new_zeros(n + 1),
    )


def fscore_program(
    scores: Tensor, target: Tensor, *, beta: float = 1.0, margin: float = 0.0, phi: Phi | None = None
) -> LinearProgram:
    """Return the :func:`ratio_program` of the F-score; with ``beta=1`` and no margin the program of table 5 of the paper."""
    return ratio_program(scores, target, *fscore_coefficients(beta), margin=margin, phi=phi)


def jaccard_program(scores: Tensor, target: Tensor, *, margin: float = 0.0, phi: Phi | None = None) -> LinearProgram:
    """Return the :func:`ratio_program` of the Jaccard index (intersection over union)."""
    return ratio_program(scores, target, *JACCARD, margin=margin, phi=phi)
