"""The linear-program layer against cvxpylayers and qpth on the F-score program, and its growth; ratios measured in one run.

The program (Charnes-Cooper form of the F-score with b positives, phi = tanh(scores)), in the variables z and t:

    min -2 y'z / b   s.t.  phi_i t <= z_i <= (1 + phi_i) t,  z_i <= t,  sum z + b t = b,  0 <= z <= 1,  t >= 0

Timed is the solution and the gradient of a random linear function of it in the scores, in float64. Ours and qpth are set to a
tolerance of 1e-8. cvxpylayers is timed three times: its default solver (SCS) at the same tolerance, the default solver as it
comes, and Clarabel, which is not its default, at the same tolerance. How far the optimal values are from the closed form is
printed for each. cvxpylayers and qpth must be installed: ``make bench`` does that.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator

import torch
from benchmarks.measure import Row, at_least, in_turn, report

from taskloss.lp import LPLayer, SparseMatrix

TOLERANCE = 1e-8
RIDGE = 1e-6
"""qpth needs a positive definite quadratic term; the solutions are vertices, which one this small does not move."""
SCS = {"eps_abs": TOLERANCE, "eps_rel": TOLERANCE, "max_iters": 100_000}
CLARABEL = {"solve_method": "Clarabel", "tol_gap_abs": TOLERANCE, "tol_gap_rel": TOLERANCE, "tol_feas": TOLERANCE}
LARGEST_DENSE = 256
"""qpth is dense: beyond this a call takes seconds."""

Solve = Callable[[torch.Tensor], torch.Tensor]


class FScore:
    """The program of random scores, one ``(n,)`` or a batch ``(B, n)``: 40% positives, shifted by one standard deviation."""

    def __init__(self, *shape: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.shape = shape
        self.target = (torch.rand(shape, generator=generator) < 0.4).double()
        self.target[..., 0] = 1.0
        scores = torch.randn(shape, generator=generator, dtype=torch.float64) + self.target - 0.5
        self.scores = scores.requires_grad_()
        self.weight = torch.randn((*shape[:-1], shape[-1] + 1), generator=generator, dtype=torch.float64)
        self.positives = self.target.sum(-1, keepdim=True)
        self.cost = torch.cat([-2.0 * self.target / self.positives, torch.zeros_like(self.positives)], -1)
        self.equation = torch.cat([torch.ones_like(self.target), self.positives], -1)[..., None, :]

    def missed(self, x: torch.Tensor) -> float:
        """How far the value of ``x`` is from the best one: positives at ``min(1, 1 + phi)``, negatives at ``max(0, phi)``."""
        phi = torch.tanh(self.scores.detach())
        best = torch.where(self.target > 0.0, (1.0 + phi).clamp_max(1.0), phi.clamp_min(0.0))
        optimum = -2.0 * (self.target * best).sum(-1) / (best.sum(-1) + self.positives[..., 0])
        return float(((self.cost * x.detach()).sum(-1) - optimum).abs().max())

    def step(self, solve: Solve) -> Callable[[], torch.Tensor]:
        """Forward and backward."""

        def run() -> torch.Tensor:
            self.scores.grad = None
            x = solve(self.scores)
            (self.weight * x).sum().backward()
            return x

        return run


def ours(program: FScore) -> Solve:
    """The layer; where the entries of the rows stand is told once."""
    n = program.shape[-1]
    each, last = torch.arange(n), torch.full((n,), n)
    rows = SparseMatrix(
        torch.cat([each, each, n + each, n + each, 2 * n + each, 2 * n + each]),
        torch.cat([each, last] * 3),
        torch.zeros(6 * n, dtype=torch.float64),
        (3 * n, n + 1),
    )
    layer = LPLayer(tolerance=TOLERANCE)
    one, zeros = torch.ones_like(program.target), torch.zeros(3 * n, dtype=torch.float64)
    minus = -one
    upper = torch.cat([torch.ones(n), torch.tensor([torch.inf])]).double()

    def solve(scores: torch.Tensor) -> torch.Tensor:
        phi = torch.tanh(scores)
        matrix = rows.with_values(torch.cat([minus, phi, one, minus - phi, one, minus], -1))
        return layer(program.cost, matrix, zeros, program.equation, program.positives, 0.0, upper).x

    return solve


def ours_dense(program: FScore) -> Solve:
    """The same from a dense matrix."""
    layer = LPLayer(tolerance=TOLERANCE)
    zeros = torch.zeros(3 * program.shape[-1], dtype=torch.float64)
    upper = torch.cat([torch.ones(program.shape[-1]), torch.tensor([torch.inf])]).double()
    return lambda scores: (
        layer(program.cost, dense_rows(torch.tanh(scores)), zeros, program.equation, program.positives, 0.0, upper).x
    )


def dense_rows(phi: torch.Tensor) -> torch.Tensor:
    """The inequality rows ``(..., 3n, n + 1)``: ``phi t <= z``, ``z <= (1 + phi) t``, ``z <= t``."""
    n = phi.shape[-1]
    eye = torch.eye(n, dtype=phi.dtype).expand(*phi.shape, n)
    last = torch.cat([phi, -1.0 - phi, -torch.ones_like(phi)], -1)[..., None]
    return torch.cat([torch.cat([-eye, eye, eye], -2), last], -1)


def cvxpylayers(program: FScore, **solver_options: object) -> Solve:
    """The layer of cvxpylayers."""
    import cvxpy as cp
    from cvxpylayers.torch import CvxpyLayer

    n = program.shape[-1]
    z, t = cp.Variable(n), cp.Variable()
    phi, cost, positives = cp.Parameter(n), cp.Parameter(n), cp.Parameter(nonneg=True)
    limits = [cp.multiply(phi, t) <= z, z <= t + cp.multiply(phi, t), z <= t, z >= 0, z <= 1, t >= 0]
    problem = cp.Problem(cp.Minimize(cost @ z), [*limits, cp.sum(z) + positives * t == positives])
    layer = CvxpyLayer(problem, parameters=[phi, cost, positives], variables=[z, t])
    given_cost, given_positives = program.cost[..., :-1], program.positives[..., 0]

    def solve(scores: torch.Tensor) -> torch.Tensor:
        best_z, best_t = layer(torch.tanh(scores), given_cost, given_positives, solver_args=solver_options)
        return torch.cat([best_z, best_t[..., None]], -1)

    return solve


def qpth(program: FScore) -> Solve:
    """qpth, dense, with a small ridge."""
    from qpth.qp import QPFunction

    n = program.shape[-1]
    function = QPFunction(eps=TOLERANCE, maxIter=50, verbose=-1, check_Q_spd=False)
    quadratic = RIDGE * torch.eye(n + 1, dtype=torch.float64)
    bounds = torch.cat([-torch.eye(n + 1), torch.eye(n + 1)[:n]]).double()
    bounds = bounds.expand(*program.shape[:-1], *bounds.shape)
    side = torch.cat([torch.zeros(4 * n + 1), torch.ones(n)]).double()

    def solve(scores: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([dense_rows(torch.tanh(scores)), bounds], -2)
        found = function(quadratic, program.cost, rows, side, program.equation, program.positives)
        return found.reshape(program.cost.shape)

    return solve


def against_others() -> Iterator[Row]:
    """One program of each size, and a batch."""
    # cvxpylayers warns of tensors that it copies, qpth of torch functions that it calls by an old name.
    warnings.simplefilter("ignore", UserWarning)
    for shape, limit in (((64,), 5), ((256,), 5), ((1024,), 5), ((64, 64), 20)):
        program = FScore(*shape)
        name = f"n = {shape[-1]:,}" if len(shape) == 1 else f"batch of {shape[0]}, n = {shape[1]}"
        mine = program.step(ours(program))
        others = {
            "cvxpylayers at 1e-8": cvxpylayers(program, **SCS),
            "cvxpylayers": cvxpylayers(program),
            "cvxpylayers by Clarabel": cvxpylayers(program, **CLARABEL),
        }
        if shape[-1] <= LARGEST_DENSE:
            others["qpth"] = qpth(program)
        for other, solve in others.items():
            theirs = program.step(solve)
            errors = f"off by {program.missed(mine()):.0e}, {program.missed(theirs()):.0e}"
            yield at_least(f"{name}, {other} ({errors})", in_turn(mine, theirs), limit)
        if len(shape) == 2:
            times = in_turn(program.step(ours_dense(program)), mine)
            milliseconds = [f"{seconds * 1e3:.2f} ms" for seconds in times]
            yield Row(f"{name}, ours from dense matrices, against sparse", *milliseconds, times[0] / times[1], "", True)


def growth() -> Iterator[Row]:
    """Larger programs: time a variable against n = 1,024, and the first call, which analyses the sparsity, against later ones."""
    small_program = FScore(1024)
    small = small_program.step(ours(small_program))
    for n in (4_096, 16_384):
        program = FScore(n)
        large = program.step(ours(program))
        start = time.perf_counter()
        large()
        first = time.perf_counter() - start
        times = in_turn(large, small)
        ratio = times[0] / times[1] / (n / 1024)
        milliseconds = [f"{seconds * 1e3:.1f} ms" for seconds in (first, *times)]
        yield Row(f"n = {n:,}, time a variable against n = 1,024", *milliseconds[1:], ratio, "<= 2", ratio <= 2.0)
        yield Row(f"n = {n:,}, first call against later ones", *milliseconds[:2], first / times[0], "", True)


if __name__ == "__main__":
    report(__doc__, (against_others, growth))
