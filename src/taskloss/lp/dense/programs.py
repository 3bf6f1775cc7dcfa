"""A batch of linear programs as dense float64 tensors on their own device: what ``engine="torch"`` works on.

Lines are the inequality rows, the equations, then the variables, as in ``kernels.lp_program``; every tensor has a leading batch
axis. All that is needed of linear algebra is one system with changing weights,

    [ diag(p)   B'       ] [ dx ]   [ right side of columns ]
    [ B         -diag(q) ] [ dy ] = [ right side of rows    ]

solved by a pivoted LU factorization. The compiled engine factorizes the same system sparsely and without pivots; here the
devices that torch knows decide how fast it is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from taskloss.kernels.lp_batch import UNLIMITED
from taskloss.lp.problem import LinearProgram
from taskloss.lp.unrolled import dense_lines

SHIFT = 1e-11
"""Added to the diagonal, so that dependent rows do no harm; refinement removes what it changes."""
REFINEMENTS = 3


class DensePrograms(NamedTuple):
    """``min cost'x`` with ``low <= (A x, x) <= high``: ``matrix (B, m, n)``, ``cost (B, n)``, the limits ``(B, m + n)``.

    The first ``num_inequalities`` rows are no equations.
    """

    matrix: Tensor
    cost: Tensor
    low: Tensor
    high: Tensor
    num_inequalities: int

    @property
    def num_rows(self) -> int:
        """Inequalities and equations."""
        return self.matrix.shape[1]

    def some(self, items: Tensor) -> DensePrograms:
        """Those of the programs."""
        matrix, cost, low, high, inequalities = self
        return DensePrograms(matrix[items], cost[items], low[items], high[items], inequalities)

    def values(self, x: Tensor) -> Tensor:
        """Of all lines, ``(A x, x)``."""
        return torch.cat([times(self.matrix, x), x], 1)

    def stationarity(self, multipliers: Tensor) -> Tensor:
        """``cost + A' y + z`` with ``multipliers = (y, z)``."""
        m = self.num_rows
        return self.cost + times(self.matrix.mT, multipliers[:, :m]) + multipliers[:, m:]


def dense_programs(problem: LinearProgram) -> DensePrograms:
    """Read a problem, without a gradient."""
    with torch.no_grad():
        lines, low, high = (tensor.double() for tensor in dense_lines(problem))
        rows = lines.shape[1] - problem.num_variables
        cost = problem.c.double().expand(len(lines), -1)
        low, high = low.masked_fill(low <= -UNLIMITED, -torch.inf), high.masked_fill(high >= UNLIMITED, torch.inf)
        return DensePrograms(lines[:, :rows], cost, low, high, problem.num_inequalities)


def times(matrix: Tensor, vector: Tensor) -> Tensor:
    """``matrix @ vector`` of every item."""
    return (matrix @ vector[:, :, None])[:, :, 0]


class System:
    """The system above, factorized.

    The first ``eliminated`` rows must have weights above zero. Their unknowns ``dy = (B dx - right) / q`` are put into the other
    equations, which adds ``B' diag(1/q) B`` to ``diag(p)``: much less to factorize where there are many rows. What accuracy
    that costs when weights are tiny, refinement brings back, since it works on the whole system.
    """

    def __init__(self, matrix: Tensor, columns: Tensor, rows: Tensor, eliminated: int = 0, shift: float = SHIFT) -> None:
        n = columns.shape[1]
        self.matrix, self.columns, self.rows = matrix, columns, rows
        self.upper, self.lower = matrix[:, :eliminated], matrix[:, eliminated:]
        self.inverse = 1.0 / (rows[:, :eliminated] + shift)
        full = torch.diag_embed(torch.cat([columns + shift, -(rows[:, eliminated:] + shift)], 1))
        full[:, :n, :n] += self.upper.mT @ (self.inverse[:, :, None] * self.upper)
        full[:, :n, n:] = self.lower.mT
        full[:, n:, :n] = self.lower
        # The weights span twenty orders of magnitude; brought to rows and columns near 1, the pivots mean something.
        self.scale = full.abs().amax(-1).rsqrt()
        factors = torch.linalg.lu_factor_ex(self.scale[:, :, None] * full * self.scale[:, None, :])
        self.factors, self.pivots = factors.LU, factors.pivots

    def solve(self, right_columns: Tensor, right_rows: Tensor, refinements: int = REFINEMENTS) -> tuple[Tensor, Tensor]:
        """The solution of the system without the shift, as near as refinement comes to it."""
        right = torch.cat([right_columns, right_rows], 1)
        solution = self._by_factors(right)
        missing = right - self._times(solution)
        for _ in range(refinements):
            refined = solution + self._by_factors(missing)
            rest = right - self._times(refined)
            better = (rest.abs().amax(1) < missing.abs().amax(1))[:, None]
            solution, missing = torch.where(better, refined, solution), torch.where(better, rest, missing)
        n = right_columns.shape[1]
        return solution[:, :n], solution[:, n:]

    def _by_factors(self, right: Tensor) -> Tensor:
        n, eliminated = self.columns.shape[1], self.upper.shape[1]
        columns, upper, lower = right.split([n, eliminated, right.shape[1] - n - eliminated], 1)
        small = self.scale * torch.cat([columns + times(self.upper.mT, self.inverse * upper), lower], 1)
        solved = self.scale * torch.linalg.lu_solve(self.factors, self.pivots, small[:, :, None])[:, :, 0]
        duals = self.inverse * (times(self.upper, solved[:, :n]) - upper)
        return torch.cat([solved[:, :n], duals, solved[:, n:]], 1)

    def _times(self, vector: Tensor) -> Tensor:
        n = self.columns.shape[1]
        x, y = vector[:, :n], vector[:, n:]
        return torch.cat([self.columns * x + times(self.matrix.mT, y), times(self.matrix, x) - self.rows * y], 1)


def optimality_error(programs: DensePrograms, x: Tensor, multipliers: Tensor) -> Tensor:
    """How far pairs are from optimal, as ``kernels.lp_optimality`` defines it."""
    matrix, cost, low, high, _ = programs
    m = programs.num_rows
    values = programs.values(x)
    violation = (low - values).clamp_min(0.0) + (values - high).clamp_min(0.0)
    row_size = 1.0 + _largest_limit(low[:, :m], high[:, :m])[:, None] + times(matrix.abs(), x.abs())
    column_size = (1.0 + x.abs().amax(1, keepdim=True)).expand_as(x)
    missed = (violation / torch.cat([row_size, column_size], 1)).amax(1)
    steep = programs.stationarity(multipliers).abs().amax(1) / (1.0 + cost.abs().amax(1))
    error = torch.maximum(torch.maximum(missed, steep), relative_gap(programs, x, multipliers))
    return error.nan_to_num(torch.inf, torch.inf)


def relative_gap(programs: DensePrograms, x: Tensor, multipliers: Tensor) -> Tensor:
    """Primal minus dual objective, relative to the terms of either."""
    terms = programs.cost * x
    limit = torch.where(multipliers > 0.0, programs.high, programs.low)
    dual = -torch.where(multipliers == 0.0, 0.0, multipliers * limit).sum(1)
    unit = torch.stack([terms.abs().sum(1), dual.abs(), smallest_gap_unit(programs)]).amax(0)
    return ((terms.sum(1) - dual).abs() / unit).nan_to_num(torch.inf, torch.inf)


def smallest_gap_unit(programs: DensePrograms) -> Tensor:
    """What a gap is compared with at least."""
    cost, limit = programs.cost.abs().amax(1), _largest_limit(programs.low, programs.high)
    return 1e-4 * torch.where(cost > 0.0, cost, 1.0) * torch.where(limit > 0.0, limit, 1.0)


def _largest_limit(low: Tensor, high: Tensor) -> Tensor:
    limits = torch.cat([low, high], 1).abs()
    if not limits.shape[1]:
        return limits.new_zeros(len(limits))
    return torch.where(limits < torch.inf, limits, 0.0).amax(1)
