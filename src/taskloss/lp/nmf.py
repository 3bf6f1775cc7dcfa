"""Separable nonnegative matrix factorization by linear programming, with gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from taskloss.lp.formulations.nmf import diagonal_places, extreme_rows, nmf_program, tie_costs
from taskloss.lp.layer import differentiable_solve
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solver import solve

CANDIDATES, MORE = 16, 8
"""Rows that the program begins with, and that each round adds."""
ENOUGH = 1e-4
"""A row that would improve the value by less, per unit of its weight, is not added."""


class Factorization(NamedTuple):
    """``V ~ F W``."""

    F: Tensor
    """How much of each anchor is in each row, ``(s, rank)``."""
    W: Tensor
    """The anchors, rows of V, ``(rank, w)``."""
    anchors: Tensor
    """Which rows they are, int64, from the highest weight to the lowest."""
    weights: Tensor
    """The diagonal of C, ``(s,)``: 1 for a clear anchor, 0 for a row that generates nothing."""


def nmf(V: Tensor, rank: int, *, exact: bool = False, tolerance: float = 1e-6) -> Factorization:
    r"""Factorize a matrix of nonnegative numbers by its own rows: ``rank`` of them, the anchors, generate all the others.

    The program of :func:`taskloss.lp.formulations.nmf_program`, on the rows of V divided by their sums, says which rows
    generate the others; rows of zeros take no part. It is solved by column generation, a few rows at a time. The
    anchors are those with the largest ``C_jj``, and W are these rows. Given W, each row of F is the solution of a small program
    of its own, ``min |V_i - F_i W|_1``, ``F_i >= 0``: where V is separable these are the columns of C, and where C divides its
    weight between similar rows F still has all of it. F has the gradient of its program's active set, W that of the rows of V;
    the choice of the anchors has none.

    Recht, Re, Tropp, Bittorf, *Factoring nonnegative matrices with linear programs*, NeurIPS 2012; Meng et al. (2021),
    section A.3, for activations of a convolutional net: V of shape (channels, height * width), each row of W a heat map.

    Args:
        V: ``(s, w)``, nonnegative, float32 or float64.
        rank: how many anchors.
        exact: demand ``V = C V``, as the paper does; real matrices have no such C, and the error says so.
        tolerance: of the solver, relative.

    >>> import torch
    >>> V = torch.tensor([[2.0, 0.0, 2.0], [1.0, 1.0, 2.0], [0.0, 3.0, 3.0]])
    >>> factors = nmf(V, 2)
    >>> sorted(factors.anchors.tolist()), (factors.F @ factors.W - V).abs().max().item() < 1e-5
    ([0, 2], True)
    """
    _check_matrix(V, rank)
    sums = V.sum(1)
    used = torch.nonzero(sums > 0)[:, 0]
    if rank > len(used):
        raise ValueError(f"rank={rank}, but only {len(used)} rows of V are not all zero; expected a rank of at most that")
    rows = (V.detach()[used] / sums.detach()[used, None]).double()
    allowed, diagonal = _find_generators(rows, rank, exact, tolerance)
    diagonal = diagonal.to(V.dtype)
    anchors = used[allowed[torch.argsort(diagonal, descending=True, stable=True)[:rank]]]
    weights = V.new_zeros(len(V)).index_copy(0, used[allowed], diagonal)
    F = V.new_zeros(len(V), rank).index_copy(0, used, _shares(V[anchors], V[used]))
    return Factorization(F, V[anchors], anchors, weights)


def _find_generators(rows: Tensor, rank: int, exact: bool, tolerance: float) -> tuple[Tensor, Tensor]:
    """The rows that take part and their ``C_jj``: the program of all rows, solved by column generation.

    The program of a few candidates is solved; then every other row j is priced. With the duals N of ``C V + E = V`` and mu of the
    trace, a unit of ``C_jj`` allows a unit of each ``C_ij``, so its cost falls by what
    ``delta p_j + mu + (N V')_jj + sum_{i != j} min(0, (N V')_ij)`` is below zero. The rows that gain most join the candidates,
    until none gains.
    """
    size, width = rows.shape
    allowed = torch.arange(size, device=rows.device) if exact else extreme_rows(rows, max(CANDIDATES, rank))
    while True:
        solution = solve(nmf_program(rows, rank, exact=exact, candidates=allowed), tolerance=tolerance).check()
        products = solution.dual_eq[:-1].reshape(size, width) @ rows.T
        own = products.diagonal()
        change = tie_costs(rows) + solution.dual_eq[-1] + own + products.clamp(max=0.0).sum(0) - own.clamp(max=0.0)
        change[allowed] = 0.0
        best = torch.argsort(change, stable=True)[:MORE]
        gains = best[change[best] < -ENOUGH]
        if exact or not len(gains):
            return allowed, solution.x[diagonal_places(allowed)]
        allowed = torch.cat([allowed, gains]).sort().values


def _shares(W: Tensor, V: Tensor) -> Tensor:
    """The F of at least zero with the least ``|V - F W|_1``: one small program a row, all in one call."""
    scale = V.detach().sum(1, keepdim=True)
    rank, width = W.shape
    residual = torch.eye(width, dtype=torch.float64, device=V.device)
    program = LinearProgram(
        torch.cat([W.new_zeros(rank), W.new_ones(2 * width)]).double().detach(),
        A_eq=torch.cat([W.double().T, residual, -residual], dim=1),
        b_eq=(V / scale).double(),
        lower=residual.new_zeros(rank + 2 * width),
    )
    solution = differentiable_solve(program).check()
    return solution.x[:, :rank].to(V.dtype) * scale


def _check_matrix(V: Tensor, rank: int) -> None:
    if not isinstance(V, Tensor):
        raise TypeError(f"V must be a torch.Tensor, got {type(V).__name__}; use torch.as_tensor(V)")
    if V.ndim != 2 or not V.dtype.is_floating_point:
        raise ValueError(f"V has shape {tuple(V.shape)} and dtype {V.dtype}; expected a floating-point matrix (rows, columns)")
    if not bool(torch.isfinite(V).all()) or bool((V < 0).any()):
        raise ValueError("V must be finite and not negative; take the activations after a ReLU, or V.clamp(min=0)")
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ValueError(f"rank must be a whole number of at least 1, got {rank!r}")
