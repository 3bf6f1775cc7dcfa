r"""Ratios of linear functions of the confusion counts as linear programs (Meng et al. 2021, sections 2.4 and A.2).

With soft labels y in [0, 1] the counts are linear: ``tp = sum_pos y``, ``fp = sum_neg y``, ``fn = P - tp``, ``tn = N - fp``. The
label of a sample is tied to its position psi (:mod:`taskloss.kernels.ratios`) by ``psi <= y <= 1 + psi``: above zero it may be
1, below zero it may be 0. A ratio ``(n'y + n_0) / (d'y + d_0)`` becomes linear by the transformation of Charnes and Cooper,
``z = t y``, ``t = k / (d'y + d_0)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from taskloss.lp.formulations.entries import Entries, as_program_scores, sparse_matrix
from taskloss.lp.problem import LinearProgram

Phi = Callable[[Tensor], Tensor]
Coefficients = tuple[float, float, float, float]
"""Of tp, fp, fn and tn."""

JACCARD: tuple[Coefficients, Coefficients] = ((1.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 0.0))


def fscore_coefficients(beta: float) -> tuple[Coefficients, Coefficients]:
    """Numerator and denominator of the F-score: ``(1 + beta^2) tp / ((1 + beta^2) tp + fp + beta^2 fn)``.

    >>> fscore_coefficients(1.0)
    ((2.0, 0.0, 0.0, 0.0), (2.0, 1.0, 1.0, 0.0))
    """
    square = float(beta) ** 2
    return (1.0 + square, 0.0, 0.0, 0.0), (1.0 + square, 1.0, square, 0.0)


def soft_positions(scores: Tensor, positive: Tensor, margin: float, phi: Phi | None) -> Tensor:
    """``psi``: the position of each sample, drawn toward the wrong side by the margin; ``phi`` is tanh unless told otherwise."""
    place = torch.tanh(scores) if phi is None else phi(scores)
    # In this form a phi of -1 and of 1 on the wrong side stay there exactly, and no limit of a label becomes a rounding error.
    return torch.where(positive, place - margin * (1.0 + place), place + margin * (1.0 - place))


def ratio_program(
    scores: Tensor,
    target: Tensor,
    numerator: Sequence[float],
    denominator: Sequence[float],
    *,
    margin: float = 0.0,
    phi: Phi | None = None,
) -> LinearProgram:
    r"""The largest ratio that soft labels reach, as a minimum (the objective is minus the ratio):

    .. math::
        \max \tfrac1k (n'z + n_0 t) \;\text{s.t.}\; d'z + d_0 t = k,\; \psi_i t \le z_i \le (1 + \psi_i) t,\; z_i \le t,
        \; z, t \ge 0

    with ``k = d_0`` (the paper's b) where that is above zero, else 1. Variables: z, then t. The denominator must be above zero
    for all the labels that are allowed.

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
    psi = soft_positions(scores, positive, margin, phi)
    n, positives, negatives = len(psi), int(positive.sum()), int((~positive).sum())

    def linear(weights: Sequence[float]) -> tuple[Tensor, float]:
        tp, fp, fn, tn = weights
        each = torch.where(positive, psi.new_tensor(float(tp) - float(fn)), psi.new_tensor(float(fp) - float(tn)))
        return each, float(fn) * positives + float(tn) * negatives

    top, top_rest = linear(numerator)
    bottom, bottom_rest = linear(denominator)
    scale = bottom_rest if bottom_rest > 0.0 else 1.0
    each, last, one = torch.arange(n, device=psi.device), torch.full((n,), n, device=psi.device), torch.ones_like(psi)
    parts: list[Entries] = []
    for block, (sign, limit) in enumerate(((-1.0, psi), (1.0, -1.0 - psi), (1.0, -one))):
        parts += [(block * n + each, each, sign * one), (block * n + each, last, limit)]
    zero = torch.zeros_like(each)
    whole = sparse_matrix([(zero, each, bottom), (zero[:1], last[:1], psi.new_tensor([bottom_rest]))], (1, n + 1))
    return LinearProgram(
        -torch.cat([top, psi.new_tensor([top_rest])]) / scale,
        A_ub=sparse_matrix(parts, (3 * n, n + 1)),
        b_ub=psi.new_zeros(3 * n),
        A_eq=whole,
        b_eq=psi.new_tensor([scale]),
        lower=psi.new_zeros(n + 1),
    )


def fscore_program(
    scores: Tensor, target: Tensor, *, beta: float = 1.0, margin: float = 0.0, phi: Phi | None = None
) -> LinearProgram:
    """The F-score as :func:`ratio_program`; with ``beta=1`` and no margin the program of table 5 of the paper."""
    return ratio_program(scores, target, *fscore_coefficients(beta), margin=margin, phi=phi)


def jaccard_program(scores: Tensor, target: Tensor, *, margin: float = 0.0, phi: Phi | None = None) -> LinearProgram:
    """The Jaccard index (intersection over union) as :func:`ratio_program`."""
    return ratio_program(scores, target, *JACCARD, margin=margin, phi=phi)
