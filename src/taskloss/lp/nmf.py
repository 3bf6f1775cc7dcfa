"""Separable nonnegative matrix factorization by linear programming, with gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from taskloss.lp.formulations.nmf import diagonal_indices, extreme_rows, nmf_program, tie_costs
from taskloss.lp.layer import differentiable_solve
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solver import solve

FIRST_CANDIDATES = 16
"""Rows that column generation begins with, at least ``rank``."""
NEW_CANDIDATES = 8
"""Rows that each round of column generation adds, at most."""
PRICING_TOLERANCE = 1e-4
"""A row is added only if its reduced cost is below minus this."""


class Factorization(NamedTuple):
    """Factors of ``V ~ F W``."""

    F: Tensor
    """How much of each anchor is in each row, ``(s, rank)``."""
    W: Tensor
    """The anchors, which are rows of V, ``(rank, w)``."""
    anchors: Tensor
    """Their row indices, int64 ``(rank,)``, from the highest weight to the lowest."""
    weights: Tensor
    """The diagonal of C, ``(s,)``: 1 for a clear anchor, 0 for a row that generates nothing."""


def nmf(V: Tensor, rank: int, *, exact: bool = False, tolerance: float = 1e-6) -> Factorization:
    r"""Factorize a nonnegative matrix by its own rows: ``rank`` of them, the anchors, generate all the others.

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
        rank: the number of anchors.
        exact: demand ``V = C V``, as the paper does; real matrices have no such C, and the error says so.
        tolerance: relative tolerance of the solver.

    >>> import torch
    >>> V = torch.tensor([[2.0, 0.0, 2.0], [1.0, 1.0, 2.0], [0.0, 3.0, 3.0]])
    >>> factors = nmf(V, 2)
    >>> sorted(factors.anchors.tolist()), (factors.F @ factors.W - V).abs().max().item() < 1e-5
    ([0, 2], True)
    """
    _check_matrix(V, rank)
    sums = V.sum(1)
    nonzero = torch.nonzero(sums > 0)[:, 0]
    if rank > len(nonzero):
        raise ValueError(f"rank={rank}, but only {len(nonzero)} rows of V are not all zero; expected a rank of at most that")
    rows = (V.detach()[nonzero] / sums.detach()[nonzero, None]).double()
    candidates, diagonal = _solve_by_column_generation(rows, rank, exact, tolerance)
    diagonal = diagonal.to(V.dtype)
    anchors = nonzero[candidates[torch.argsort(diagonal, descending=True, stable=True)[:rank]]]
    weights = V.new_zeros(len(V)).index_copy(0, nonzero[candidates], diagonal)
    F = V.new_zeros(len(V), rank).index_copy(0, nonzero, _mixtures(V[anchors], V[nonzero]))
    return Factorization(F, V[anchors], anchors, weights)


def _solve_by_column_generation(rows: Tensor, rank: int, exact: bool, tolerance: float) -> tuple[Tensor, Tensor]:
    """Solve the program of all rows; return the candidates, ascending, and their ``C_jj`` (that of the other rows is 0).

    In the restricted program only the candidates can be anchors. Its duals are N, ``(s, w)``, of ``C V + E = V`` and mu of
    ``tr C = r``; a reduced cost is ``cost + A' dual``. The duals price every other row j: a unit of ``C_jj`` has its own reduced
    cost, and it allows up to one unit of each ``C_ij``, which is used where the reduced cost of ``C_ij`` is negative. With
    ``M = N V'`` these reduced costs are ``delta p_j + mu + M_jj`` and ``M_ij``, so the row as a whole has

        ``delta p_j + mu + M_jj + sum_{i != j} min(0, M_ij)``.

    The rows where this is lowest join the candidates. When it is negative for none, the solution is optimal for all rows.
    """
    size, width = rows.shape
    candidates = torch.arange(size, device=rows.device) if exact else extreme_rows(rows, max(FIRST_CANDIDATES, rank))
    while True:
        solution = solve(nmf_program(rows, rank, exact=exact, candidates=candidates), tolerance=tolerance).check()
        N, mu = solution.dual_eq[:-1].reshape(size, width), solution.dual_eq[-1]
        M = N @ rows.T
        M_jj = M.diagonal()
        reduced_costs = tie_costs(rows) + mu + M_jj + M.clamp(max=0.0).sum(0) - M_jj.clamp(max=0.0)
        reduced_costs[candidates] = 0.0
        lowest = torch.argsort(reduced_costs, stable=True)[:NEW_CANDIDATES]
        entering = lowest[reduced_costs[lowest] < -PRICING_TOLERANCE]
        if exact or not len(entering):
            return candidates, solution.x[diagonal_indices(candidates)]
        candidates = torch.cat([candidates, entering]).sort().values


def _mixtures(W: Tensor, V: Tensor) -> Tensor:
    """Return the nonnegative F with the least ``|V - F W|_1``: one small program per row of V, all in one call."""
    scale = V.detach().sum(1, keepdim=True)
    rank, width = W.shape
    # Variables of a row: F_i, then the positive and the negative part of the residual.
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
