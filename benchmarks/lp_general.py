"""General programs for the comparison of the linear-program layer with its rivals: transport, and dense random data.

A program has the variables ``x >= 0``, equations in its first rows and inequalities ``<=`` in the others:

- *transport*: ship goods from k sources to k sinks at random costs, every demand met and no supply exceeded: 2 k rows and k**2
  variables, two entries per variable; the gradient is that in the supplies and demands;
- *dense*: ``min c'x  s.t.  A x <= b`` with random positive data, 50% more variables than rows; the gradient is that in A and b.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from benchmarks.measure import Row, at_least, in_turn, is_installed, one_thread
from scipy import sparse
from scipy.optimize import linprog

from taskloss.lp import LPLayer, SparseMatrix

TOLERANCE = 1e-8
TOLERANCES = {"tol_gap_abs": TOLERANCE, "tol_gap_rel": TOLERANCE, "tol_feas": TOLERANCE}
"""Settings that Clarabel and Moreau share."""


class GeneralProgram:
    """Programs of one sparsity pattern, a single one or a batch of B; all data are float64.

    Args:
        cost: ``(n,)`` or ``(B, n)``.
        rows: the row of each entry of the constraint matrix, ascending, int64.
        columns: its column.
        values: the entries, or ``(B, entries)``.
        rhs: right-hand sides, ``(m,)`` or ``(B, m)``.
        num_equations: how many of the first rows are equations.
        with_matrix: whether the gradient in the entries is wanted too.
    """

    def __init__(
        self,
        cost: torch.Tensor,
        rows: torch.Tensor,
        columns: torch.Tensor,
        values: torch.Tensor,
        rhs: torch.Tensor,
        num_equations: int,
        *,
        with_matrix: bool,
    ) -> None:
        self.cost, self.rows, self.columns, self.num_equations = cost, rows, columns, num_equations
        self.values, self.rhs = values.requires_grad_(with_matrix), rhs.requires_grad_()
        self.shape = rhs.shape[-1], cost.shape[-1]
        self.weight = torch.randn(cost.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def optima(self) -> np.ndarray:
        """Return the optimal values by HiGHS, ``(B,)``."""
        k, optima = self.num_equations, []
        for cost, values, rhs in self._single_programs():
            matrix = sparse.csr_matrix((values, (self.rows, self.columns)), self.shape)
            equations = {"A_eq": matrix[:k], "b_eq": rhs[:k]} if k else {}
            optima.append(linprog(cost, matrix[k:], rhs[k:], **equations).fun)
        return np.array(optima)

    def _single_programs(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the cost, entries and right-hand sides of each program of the batch."""
        data = (tensor.detach().numpy() for tensor in (self.cost, self.values, self.rhs))
        return zip(*(array.reshape(-1, array.shape[-1]) for array in data), strict=True)

    def step(self, solve: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """Return a call that does forward and backward, and returns the solution."""

        def call() -> torch.Tensor:
            self.values.grad = self.rhs.grad = None
            x = solve()
            (self.weight * x).sum().backward()
            return x

        return call

    def ours(self) -> Callable[[], torch.Tensor]:
        """Return our layer."""
        k, (m, n) = self.num_equations, self.shape
        parts = [(self.rows < k, 0, k), (self.rows >= k, k, m - k)]
        patterns = [
            SparseMatrix(self.rows[own] - first, self.columns[own], torch.zeros(int(own.sum()), dtype=torch.float64), (size, n))
            for own, first, size in parts
        ]
        split = int(parts[0][0].sum())
        layer = LPLayer(tolerance=TOLERANCE)

        def solve() -> torch.Tensor:
            A_ub, b_ub = patterns[1].with_values(self.values[..., split:]), self.rhs[..., k:]  # noqa: N806  # The argument's name.
            if not k:
                return layer(self.cost, A_ub, b_ub, lower=0.0).x
            return layer(self.cost, A_ub, b_ub, patterns[0].with_values(self.values[..., :split]), self.rhs[..., :k], 0.0).x

        return solve

    def _offsets(self) -> torch.Tensor:
        """Return where the entries of each row begin, ``(m + 1,)``."""
        return torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(self.rows, minlength=self.shape[0]).cumsum(0)])

    def moreau(self) -> Callable[[], torch.Tensor]:
        """Return the torch interface of Moreau, in the fastest of its configurations."""
        import moreau
        from moreau.torch import Solver

        m, n = self.shape
        cones = moreau.Cones(
            num_zero_cones=self.num_equations,
            num_nonneg_cones=m - self.num_equations,
            dir_cones=[moreau.DirectConeSpec(kind="nonneg", indices=list(range(n)))],
        )
        method = moreau.IPMSettings(direct_solve_method="qdldl", diff_method="exact", **TOLERANCES)
        batch_size = len(self.cost) if self.cost.ndim == 2 else 1
        settings = moreau.Settings(solver="ipm", device="cpu", batch_size=batch_size, enable_grad=True, ipm_settings=method)
        no_offsets, no_columns = torch.zeros(n + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
        solver = Solver(n, m, no_offsets, no_columns, self._offsets(), self.columns, cones, settings)
        no_values = torch.empty(*self.cost.shape[:-1], 0, dtype=torch.float64)
        return lambda: solver.solve(no_values, self.values, self.cost, self.rhs).x

    def clarabel(self) -> Callable[[], torch.Tensor]:
        """Return Clarabel's own interface, without gradients; a batch is solved program by program."""
        import clarabel

        m, n = self.shape
        rows = np.concatenate([self.rows, np.arange(m, m + n)])
        columns = np.concatenate([self.columns, np.arange(n)])
        by_column = np.lexsort((rows, columns))
        signs, zeros = -np.ones(n), np.zeros(n)
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_threads = False, 1
        for name, value in TOLERANCES.items():
            setattr(settings, name, value)
        cones = [clarabel.ZeroConeT(self.num_equations), clarabel.NonnegativeConeT(m + n - self.num_equations)]
        cost, values, rhs = next(self._single_programs())
        matrix = sparse.csc_matrix((np.concatenate([values, signs]), (rows, columns)), (m + n, n))
        sides = np.concatenate([rhs, zeros])
        solver = clarabel.DefaultSolver(sparse.csc_matrix((n, n)), cost, matrix, sides, cones, settings)

        def solve() -> torch.Tensor:
            solutions = []
            for cost, values, rhs in self._single_programs():
                entries = np.concatenate([values, signs])[by_column]
                solver.update(A=entries, q=cost, b=np.concatenate([rhs, zeros]))
                solutions.append(solver.solve().x)
            return torch.tensor(solutions, dtype=torch.float64).reshape(self.cost.shape)

        return solve


def transport(k: int, *batch: int) -> GeneralProgram:
    """Return a transport program with k sources and k sinks; the equations are those of the demands."""
    generator = torch.Generator().manual_seed(0)

    def uniform(size: int) -> torch.Tensor:
        return torch.rand((*batch, size), generator=generator, dtype=torch.float64)

    each = torch.arange(k * k)
    demands, supplies = 0.5 + uniform(k), 0.8 + uniform(k)
    supplies = supplies * (1.2 * demands.sum(-1, keepdim=True) / supplies.sum(-1, keepdim=True))
    columns = torch.cat([each.reshape(k, k).T.reshape(-1), each])
    values = torch.ones((*batch, 2 * k * k), dtype=torch.float64)
    rhs = torch.cat([demands, supplies], -1)
    return GeneralProgram(uniform(k * k), torch.arange(2 * k).repeat_interleave(k), columns, values, rhs, k, with_matrix=False)


def dense(m: int, *batch: int) -> GeneralProgram:
    """Return a dense random program with m inequalities and 1.5 m variables."""
    generator = torch.Generator().manual_seed(0)
    n = 3 * m // 2

    def uniform(size: int) -> torch.Tensor:
        return 0.5 + torch.rand((*batch, size), generator=generator, dtype=torch.float64)

    rows, columns = torch.arange(m).repeat_interleave(n), torch.arange(n).repeat(m)
    return GeneralProgram(-uniform(n), rows, columns, uniform(m * n), uniform(m) * n, 0, with_matrix=True)


def general_programs() -> Iterator[Row]:
    """Compare transport programs and dense random ones, single and in batches, by CPU time of one thread."""
    programs = {
        "transport, 10 x 10": transport(10),
        "transport, 30 x 30": transport(30),
        "transport, batch of 64, 10 x 10": transport(10, 64),
        "dense, 40 x 60": dense(40),
        "dense, 150 x 225": dense(150),
        "dense, batch of 64, 20 x 30": dense(20, 64),
    }
    rivals = [name for name in ("moreau", "clarabel") if is_installed(name)]
    with one_thread():
        for title, program in programs.items():
            optima, ours = program.optima(), program.ours()
            for name in rivals:
                with_gradient = name == "moreau"
                theirs = getattr(program, name)()
                calls = [program.step(solve) if with_gradient else torch.no_grad()(solve) for solve in (ours, theirs)]
                values = [(program.cost * call().detach()).sum(-1).reshape(-1).numpy() for call in calls]
                errors = ", ".join(f"{np.abs(value / optima - 1).max():.0e}" for value in values)
                what = f"{title}, {'Moreau' if with_gradient else 'Clarabel, forward only'} (off by {errors})"
                yield at_least(what, in_turn(*calls, clock=time.process_time), None)
