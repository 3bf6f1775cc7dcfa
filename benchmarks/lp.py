"""The linear-program layer against its rivals on the F-score program and on general ones, and its growth; ratios of one run.

The program (Charnes-Cooper form of the F-score with b positives, phi = tanh(scores)), in the variables z and t:

    min -2 y'z / b   s.t.  phi_i t <= z_i <= (1 + phi_i) t,  z_i <= t,  sum z + b t = b,  0 <= z <= 1,  t >= 0

One call computes the solution and the gradient of a random linear function of it with respect to the scores, in float64; Clarabel
has no gradient, so its rows compare solutions alone. The tolerance is 1e-8 for everyone, except in the rows of cvxpylayers as it
comes. Each row also prints how far the two optimal values are from the closed form.

The rivals:

- Moreau, which cvxpylayers recommends today, by its own torch interface and in the fastest of its configurations on this
  program: bounds as direct cones, QDLDL, exact derivatives;
- Clarabel by its own Python interface, with the solver set up once and its data updated in every call;
- cvxpylayers with its default solver (SCS) at a tolerance of 1e-8, with the default solver as it comes, and with Clarabel;
- qpth, which is dense.

``make bench`` installs them; the rows of one that is not installed are skipped.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from benchmarks.lp_general import TOLERANCE, TOLERANCES, general_programs
from benchmarks.measure import Row, at_least, duration, in_turn, is_installed, one_thread, report

from taskloss.lp import LPLayer, SparseMatrix

RIDGE = 1e-6
"""Quadratic term of qpth, which needs a positive definite one; one this small does not move the solutions, which are vertices."""
SCS = {"eps_abs": TOLERANCE, "eps_rel": TOLERANCE, "max_iters": 100_000}
LARGEST_DENSE = 256
"""Largest program for qpth: beyond this, a call takes seconds."""
SHAPES = ((64,), (256,), (1024,), (64, 64))

Solve = Callable[[torch.Tensor], torch.Tensor]
"""Maps scores ``(n,)`` or ``(B, n)`` to the solution ``(n + 1,)`` or ``(B, n + 1)``: z, then t."""


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

    def suboptimality(self, x: torch.Tensor) -> float:
        """Return how far the objective at ``x`` is from the optimum, the worst of the batch.

        The optimum in closed form: positives at ``min(1, 1 + phi)``, negatives at ``max(0, phi)``.
        """
        phi = torch.tanh(self.scores.detach())
        best = torch.where(self.target > 0.0, (1.0 + phi).clamp_max(1.0), phi.clamp_min(0.0))
        optimum = -2.0 * (self.target * best).sum(-1) / (best.sum(-1) + self.positives[..., 0])
        return float(((self.cost * x.detach()).sum(-1) - optimum).abs().max())

    def step(self, solve: Solve) -> Callable[[], torch.Tensor]:
        """Return a call that does forward and backward, and returns the solution."""

        def call() -> torch.Tensor:
            self.scores.grad = None
            x = solve(self.scores)
            (self.weight * x).sum().backward()
            return x

        return call

    def forward(self, solve: Solve) -> Callable[[], torch.Tensor]:
        """Return a call that does the forward pass alone, without a graph, and returns the solution."""
        scores = self.scores.detach()
        return lambda: solve(scores)


def ours(program: FScore) -> Solve:
    """Return our layer; the sparsity pattern of the rows is given once."""
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
    """Return our layer, given a dense matrix."""
    layer = LPLayer(tolerance=TOLERANCE)
    zeros = torch.zeros(3 * program.shape[-1], dtype=torch.float64)
    upper = torch.cat([torch.ones(program.shape[-1]), torch.tensor([torch.inf])]).double()
    return lambda scores: (
        layer(program.cost, dense_rows(torch.tanh(scores)), zeros, program.equation, program.positives, 0.0, upper).x
    )


def dense_rows(phi: torch.Tensor) -> torch.Tensor:
    """Return the inequality rows ``(..., 3n, n + 1)``: ``phi t <= z``, ``z <= (1 + phi) t``, ``z <= t``."""
    n = phi.shape[-1]
    eye = torch.eye(n, dtype=phi.dtype).expand(*phi.shape, n)
    last = torch.cat([phi, -1.0 - phi, -torch.ones_like(phi)], -1)[..., None]
    return torch.cat([torch.cat([-eye, eye, eye], -2), last], -1)


class ConicRows:
    """The constraints as conic solvers take them: ``A x + s = b`` with ``s = 0`` in the first row and ``s >= 0`` in the others.

    The rows are the equation, those of ``dense_rows``, ``z <= 1``, and, if ``with_signs``, ``x >= 0``. The entries are sorted by
    row (CSR): ``offsets (m + 1,)``, ``columns (entries,)``; the right-hand side is ``rhs (m,)`` or ``(B, m)``.
    """

    def __init__(self, program: FScore, *, with_signs: bool) -> None:
        n = program.shape[-1]
        self.program, self.with_signs = program, with_signs
        each, everything = torch.arange(n), torch.arange(n + 1)
        pairs = torch.stack([each, torch.full((n,), n)], -1).flatten()
        self.columns = torch.cat([everything, pairs, pairs, pairs, each, *([everything] if with_signs else [])])
        entries_per_row = [n + 1] + [2] * (3 * n) + [1] * n + [1] * ((n + 1) if with_signs else 0)
        self.offsets = torch.tensor([0, *np.cumsum(entries_per_row)])
        self.num_rows = len(entries_per_row)
        self.rhs = torch.zeros(*program.shape[:-1], self.num_rows, dtype=torch.float64)
        self.rhs[..., 0] = program.positives[..., 0]
        self.rhs[..., 1 + 3 * n : 1 + 4 * n] = 1.0

    def values(self, scores: torch.Tensor) -> torch.Tensor:
        """Return the entries of A, ``(entries,)`` or ``(B, entries)``."""
        phi, one = torch.tanh(scores), torch.ones_like(self.program.target)
        rows = [torch.stack(pair, -1).flatten(-2) for pair in ((-one, phi), (one, -1.0 - phi), (one, -one))]
        signs = [-torch.ones_like(self.program.cost)] if self.with_signs else []
        return torch.cat([self.program.equation[..., 0, :], *rows, one, *signs], -1)


def moreau(program: FScore) -> Solve:
    """Return the torch interface of Moreau."""
    import moreau
    from moreau.torch import Solver

    n, rows = program.shape[-1], ConicRows(program, with_signs=False)
    cones = moreau.Cones(
        num_zero_cones=1,
        num_nonneg_cones=rows.num_rows - 1,
        dir_cones=[moreau.DirectConeSpec(kind="nonneg", indices=list(range(n + 1)))],
    )
    method = moreau.IPMSettings(direct_solve_method="qdldl", diff_method="exact", **TOLERANCES)
    batch_size = program.shape[0] if len(program.shape) == 2 else 1
    settings = moreau.Settings(solver="ipm", device="cpu", batch_size=batch_size, enable_grad=True, ipm_settings=method)
    no_offsets, no_columns = torch.zeros(n + 2, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    solver = Solver(n + 1, rows.num_rows, no_offsets, no_columns, rows.offsets, rows.columns, cones, settings)
    no_values = torch.empty(*program.shape[:-1], 0, dtype=torch.float64)
    return lambda scores: solver.solve(no_values, rows.values(scores), program.cost, rows.rhs).x


def clarabel(program: FScore) -> Solve:
    """Return Clarabel's own interface, without gradients; a batch is solved program by program."""
    import clarabel
    from scipy import sparse

    n, rows = program.shape[-1], ConicRows(program, with_signs=True)
    row_of_entry = np.repeat(np.arange(rows.num_rows), np.diff(rows.offsets.numpy()))
    by_column = np.lexsort((row_of_entry, rows.columns.numpy()))
    costs, sides = (array.numpy().reshape(-1, array.shape[-1]) for array in (program.cost, rows.rhs))

    def values(scores: torch.Tensor) -> np.ndarray:
        entries = rows.values(scores).numpy()
        return entries.reshape(-1, entries.shape[-1])[:, by_column]

    first = values(program.scores.detach())[0]
    matrix = sparse.csc_matrix((first, (row_of_entry[by_column], rows.columns.numpy()[by_column])), (rows.num_rows, n + 1))
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    for name, value in TOLERANCES.items():
        setattr(settings, name, value)
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(rows.num_rows - 1)]
    solver = clarabel.DefaultSolver(sparse.csc_matrix((n + 1, n + 1)), costs[0], matrix, sides[0], cones, settings)

    def solve(scores: torch.Tensor) -> torch.Tensor:
        solutions = []
        for entries, cost, side in zip(values(scores), costs, sides, strict=True):
            solver.update(A=entries, q=cost, b=side)
            solutions.append(solver.solve().x)
        return torch.tensor(solutions, dtype=torch.float64).reshape(program.cost.shape)

    return solve


def cvxpylayers(program: FScore, **solver_options: object) -> Solve:
    """Return the layer of cvxpylayers."""
    import cvxpy as cp
    from cvxpylayers.torch import CvxpyLayer

    n = program.shape[-1]
    z, t = cp.Variable(n), cp.Variable()
    phi, cost, positives = cp.Parameter(n), cp.Parameter(n), cp.Parameter(nonneg=True)
    bounds = [cp.multiply(phi, t) <= z, z <= t + cp.multiply(phi, t), z <= t, z >= 0, z <= 1, t >= 0]
    problem = cp.Problem(cp.Minimize(cost @ z), [*bounds, cp.sum(z) + positives * t == positives])
    layer = CvxpyLayer(problem, parameters=[phi, cost, positives], variables=[z, t])
    given_cost, given_positives = program.cost[..., :-1], program.positives[..., 0]

    def solve(scores: torch.Tensor) -> torch.Tensor:
        best_z, best_t = layer(torch.tanh(scores), given_cost, given_positives, solver_args=solver_options)
        return torch.cat([best_z, best_t[..., None]], -1)

    return solve


def qpth(program: FScore) -> Solve:
    """Return qpth, dense, with a small ridge."""
    from qpth.qp import QPFunction

    n = program.shape[-1]
    function = QPFunction(eps=TOLERANCE, maxIter=50, verbose=-1, check_Q_spd=False)
    quadratic = RIDGE * torch.eye(n + 1, dtype=torch.float64)
    bounds = torch.cat([-torch.eye(n + 1), torch.eye(n + 1)[:n]]).double()
    bounds = bounds.expand(*program.shape[:-1], *bounds.shape)
    rhs = torch.cat([torch.zeros(4 * n + 1), torch.ones(n)]).double()

    def solve(scores: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([dense_rows(torch.tanh(scores)), bounds], -2)
        x = function(quadratic, program.cost, rows, rhs, program.equation, program.positives)
        return x.reshape(program.cost.shape)

    return solve


@dataclass(frozen=True)
class Rival:
    """A rival of the layer."""

    name: str
    package: str
    make: Callable[[FScore], Solve]
    targets: tuple[float | None, ...]
    """How many times faster we are to be, one per shape in ``SHAPES``."""
    has_gradient: bool = True
    largest: int | None = None
    """Largest n that is measured."""


RIVALS = (
    Rival("Moreau", "moreau", moreau, (1.5, 3.0, 8.0, 5.0)),
    Rival("Clarabel, forward only", "clarabel", clarabel, (None,) * 4, has_gradient=False),
    Rival("cvxpylayers at 1e-8", "cvxpylayers", functools.partial(cvxpylayers, **SCS), (5.0, 5.0, 5.0, 20.0)),
    Rival("cvxpylayers", "cvxpylayers", cvxpylayers, (5.0, 5.0, 5.0, 20.0)),
    Rival(
        "cvxpylayers by Clarabel",
        "cvxpylayers",
        functools.partial(cvxpylayers, solve_method="Clarabel", **TOLERANCES),
        (5.0, 5.0, 5.0, 20.0),
    ),
    Rival("qpth", "qpth", qpth, (5.0, 5.0, 5.0, 20.0), largest=LARGEST_DENSE),
)


def against_rivals() -> Iterator[Row]:
    """Compare one program of each size, and a batch of programs, by CPU time of one thread."""
    # cvxpylayers warns of tensors that it copies, qpth of torch functions that it calls by an old name.
    warnings.simplefilter("ignore", UserWarning)
    missing = {package for package in dict.fromkeys(rival.package for rival in RIVALS) if not is_installed(package)}
    installed = [rival for rival in RIVALS if rival.package not in missing]
    with one_thread():
        for number, shape in enumerate(SHAPES):
            program = FScore(*shape)
            title = f"n = {shape[-1]:,}" if len(shape) == 1 else f"batch of {shape[0]}, n = {shape[1]}"
            our_layer = ours(program)
            for rival in installed:
                if rival.largest is None or shape[-1] <= rival.largest:
                    prepare = program.step if rival.has_gradient else program.forward
                    mine, theirs = prepare(our_layer), prepare(rival.make(program))
                    errors = f"off by {program.suboptimality(mine()):.0e}, {program.suboptimality(theirs()):.0e}"
                    times = in_turn(mine, theirs, clock=time.process_time)
                    yield at_least(f"{title}, {rival.name} ({errors})", times, rival.targets[number])
            if len(shape) == 2:
                times = in_turn(program.step(ours_dense(program)), program.step(our_layer), clock=time.process_time)
                ratio = times[0] / times[1]
                yield Row(f"{title}, ours from dense matrices, against sparse", *map(duration, times), ratio, "", True)


def growth() -> Iterator[Row]:
    """Compare the time per variable of larger programs with n = 1,024, and their first call with later ones.

    The first call analyses the sparsity pattern.
    """
    small_program = FScore(1024)
    small = small_program.step(ours(small_program))
    small()  # Loads the compiled kernels.
    for n in (4_096, 16_384):
        program = FScore(n)
        large = program.step(ours(program))
        start = time.perf_counter()
        large()
        first = time.perf_counter() - start
        times = in_turn(large, small)
        ratio = times[0] / times[1] / (n / 1024)
        yield Row(f"n = {n:,}, time per variable against n = 1,024", *map(duration, times), ratio, "<= 2", ratio <= 2.0)
        title = f"n = {n:,}, first call against later ones"
        yield Row(title, duration(first), duration(times[0]), first / times[0], "", True)


if __name__ == "__main__":
    report(__doc__, (against_rivals, general_programs, growth))
