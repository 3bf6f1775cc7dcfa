r"""Separable nonnegative matrix factorization as a linear program (Recht et al. 2012; Meng et al. 2021, section A.3).

V is separable with rank r when r of its rows, the anchors, generate all the others: ``V = C V`` with a C whose columns are zero
except for those of the anchors, and there ``C_jj = 1``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from taskloss._checks import check_count
from taskloss.lp.formulations.entries import Entries, sparse_matrix
from taskloss.lp.problem import LinearProgram

TIE_WEIGHT = 1e-3


def nmf_program(V: Tensor, rank: int, *, exact: bool = False) -> LinearProgram:
    r"""Which rows generate the others: C of shape ``(s, s)`` for V of shape ``(s, w)``, rows with the sum 1.

    .. math::
        \min_{C, E} \|E\|_1 + \delta\, p'\mathrm{diag}(C) \;\text{s.t.}\; C V + E = V,\; \mathrm{tr}\, C = r,\;
        0 \le C_{ij} \le C_{jj} \le 1

    ``exact=True`` is the paper's program, without E: it has no solution unless V is separable to the last digit. Otherwise E is
    split into two parts of at least zero and there always is one. p has distinct entries, so that equal rows are told apart; delta
    is small, so that only ties are broken. Variables: C row by row, then the parts of E. The matrix has about ``s^2 w``
    nonzeros; zeros of V are left out unless V requires a gradient.

    >>> import taskloss as tl
    >>> V = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    >>> C = tl.lp.solve(nmf_program(V, 2, exact=True)).x.reshape(3, 3)
    >>> C.round(decimals=6).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0]]
    """
    check_count("rank", rank)
    size, width = V.shape
    if rank > size:
        raise ValueError(f"rank={rank} and V has {size} rows; expected a rank of at most the number of rows")
    squares, residuals = size * size, 0 if exact else size * width
    parts: list[Entries] = [_products(V)]
    each = torch.arange(size * width, device=V.device)
    if not exact:
        one = torch.ones_like(V).reshape(-1)
        parts += [(each, squares + each, one), (each, squares + residuals + each, -one)]
    diagonal = torch.arange(size, device=V.device) * (size + 1)
    parts.append((torch.full_like(diagonal, size * width), diagonal, V.new_ones(size)))
    variables = squares + 2 * residuals
    cost = V.new_ones(variables).detach()
    cost[:squares] = 0.0
    # From 1/2 to 1: distinct, and all of one scale.
    cost[diagonal] = (1.0 if exact else TIE_WEIGHT) * torch.linspace(0.5, 1.0, size, dtype=V.dtype, device=V.device)
    upper = V.new_full((variables,), torch.inf).detach()
    upper[:squares] = 1.0
    return LinearProgram(
        cost,
        A_ub=_no_more_than_diagonal(V, variables),
        b_ub=V.new_zeros(squares - size),
        A_eq=sparse_matrix(parts, (size * width + 1, variables)),
        b_eq=torch.cat([V.reshape(-1), V.new_tensor([float(rank)])]),
        lower=V.new_zeros(variables),
        upper=upper,
    )


def _products(V: Tensor) -> Entries:
    """``sum_j C_ij V_jk`` in row ``(i, k)``."""
    size, width = V.shape
    if V.requires_grad:
        j, k = (index.reshape(-1) for index in torch.meshgrid(*(torch.arange(n, device=V.device) for n in V.shape), indexing="ij"))
    else:
        j, k = torch.nonzero(V, as_tuple=True)
    i = torch.arange(size, device=V.device)[:, None]
    values = V[j, k].expand(size, len(j))
    return (i * width + k).reshape(-1), (i * size + j).reshape(-1), values.reshape(-1)


def _no_more_than_diagonal(V: Tensor, variables: int) -> Tensor:
    """``C_ij - C_jj <= 0`` for all i other than j."""
    size = len(V)
    i, j = torch.nonzero(~torch.eye(size, dtype=torch.bool, device=V.device), as_tuple=True)
    rows, one = torch.arange(len(i), device=V.device), V.new_ones(len(i))
    return sparse_matrix([(rows, i * size + j, one), (rows, j * size + j, -one)], (len(i), variables))
