r"""Separable nonnegative matrix factorization as a linear program (Recht et al. 2012; Meng et al. 2021, section A.3).

V is separable with rank r when r of its rows, the anchors, generate all the others: ``V = C V`` with a C whose columns are zero
except for those of the anchors, and there ``C_jj = 1``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from taskloss._checks import check_count
from taskloss.lp.formulations.assembly import Block, sparse_matrix
from taskloss.lp.problem import LinearProgram
from taskloss.lp.sparse import SparseMatrix

TIE_WEIGHT = 1e-3
"""delta of :func:`nmf_program`."""


def nmf_program(V: Tensor, rank: int, *, exact: bool = False, candidates: Tensor | None = None) -> LinearProgram:
    r"""Return the program that says which rows of V generate the others; V has shape ``(s, w)`` and rows with the sum 1.

    .. math::
        \min_{C, E} \|E\|_1 + \delta\, p'\mathrm{diag}(C) \;\text{s.t.}\; C V + E = V,\; \mathrm{tr}\, C = r,\;
        0 \le C_{ij} \le C_{jj} \le 1

    ``exact=True`` is the paper's program, without E: it has no solution unless V is separable to the last digit. Otherwise E is
    the difference of two nonnegative parts and there always is a solution. The entries of p are distinct, so that equal rows are
    told apart; delta is small, so that it only breaks ties. With ``candidates`` only these m rows can be anchors, and C has m
    columns (default: all rows, C square). Variables: C row by row, then the two parts of E. The matrix has about ``s m w``
    nonzeros; zeros of V are left out unless V requires a gradient.

    >>> import taskloss as tl
    >>> V = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    >>> C = tl.lp.solve(nmf_program(V, 2, exact=True)).x.reshape(3, 3)
    >>> C.round(decimals=6).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0]]
    """
    check_count("rank", rank)
    size, width = V.shape
    chosen = torch.arange(size, device=V.device) if candidates is None else candidates
    count = len(chosen)
    if rank > count:
        raise ValueError(f"rank={rank}, and {count} rows can be anchors; expected a rank of at most that")
    size_C, size_E = size * count, 0 if exact else size * width
    num_variables = size_C + 2 * size_E
    # Rows of A_eq: the entries of C V + E = V, then the trace.
    equations: list[Block] = [_product_block(V, chosen)]
    if not exact:
        each, one = torch.arange(size_E, device=V.device), torch.ones_like(V).reshape(-1)
        equations += [(each, size_C + each, one), (each, size_C + size_E + each, -one)]
    diagonal = diagonal_indices(chosen)
    equations.append((torch.full_like(diagonal, size * width), diagonal, V.new_ones(count)))
    cost = V.new_ones(num_variables).detach()
    cost[:size_C] = 0.0
    cost[diagonal] = (1.0 / TIE_WEIGHT if exact else 1.0) * tie_costs(V)[chosen]
    upper = V.new_full((num_variables,), torch.inf).detach()
    upper[:size_C] = 1.0
    return LinearProgram(
        cost,
        A_ub=_diagonal_bounds(V, chosen, num_variables),
        b_ub=V.new_zeros(size_C - count),
        A_eq=sparse_matrix(equations, (size * width + 1, num_variables)),
        b_eq=torch.cat([V.reshape(-1), V.new_tensor([float(rank)])]),
        lower=V.new_zeros(num_variables),
        upper=upper,
    )


def tie_costs(V: Tensor) -> Tensor:
    """Return ``delta p``, one per row of V; p rises from 1/2 to 1, so its entries are distinct and of one scale."""
    return TIE_WEIGHT * torch.linspace(0.5, 1.0, len(V), dtype=V.dtype, device=V.device)


def diagonal_indices(candidates: Tensor) -> Tensor:
    """Return the indices of the ``C_jj`` of the candidates among the variables."""
    return candidates * len(candidates) + torch.arange(len(candidates), device=candidates.device)


def extreme_rows(V: Tensor, count: int) -> Tensor:
    """Return the indices of up to ``count`` rows that may be anchors, ascending, by successive projections.

    The row with the largest norm is taken, its direction is projected out of all rows, and so on, until ``count`` rows are
    taken or nothing is left. Araujo et al., *The successive projections algorithm for variable selection*, 2001; Gillis and
    Vavasis (2014) show that it finds the anchors of a separable matrix, and how much noise it bears.

    >>> extreme_rows(torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]), 2).tolist()
    [0, 2]
    """
    rest = V.detach().clone()
    chosen: list[int] = []
    for _ in range(min(count, *V.shape)):
        norms = rest.square().sum(1)
        row = int(norms.argmax())
        if float(norms[row]) <= 1e-20 * float(V.detach().square().sum(1).max()):
            break
        chosen.append(row)
        direction = rest[row] / norms[row].sqrt()
        rest = rest - torch.outer(rest @ direction, direction)
    return torch.tensor(sorted(chosen), device=V.device)


def _product_block(V: Tensor, candidates: Tensor) -> Block:
    """Return the entries of C V: the sum over j of ``C_ij V_jk`` in row ``(i, k)``."""
    size, width = V.shape
    rows = V[candidates]
    present = torch.ones_like(rows, dtype=torch.bool) if V.requires_grad else rows != 0
    j, k = torch.nonzero(present, as_tuple=True)
    i = torch.arange(size, device=V.device)[:, None]
    values = rows[j, k].expand(size, len(j))
    return (i * width + k).reshape(-1), (i * len(candidates) + j).reshape(-1), values.reshape(-1)


def _diagonal_bounds(V: Tensor, candidates: Tensor, num_variables: int) -> SparseMatrix:
    """Return the rows ``C_ij - C_jj <= 0``, for all i other than j."""
    count = len(candidates)
    i, c = torch.nonzero(torch.arange(len(V), device=V.device)[:, None] != candidates, as_tuple=True)
    rows, one = torch.arange(len(i), device=V.device), V.new_ones(len(i))
    return sparse_matrix([(rows, i * count + c, one), (rows, diagonal_indices(candidates)[c], -one)], (len(i), num_variables))
