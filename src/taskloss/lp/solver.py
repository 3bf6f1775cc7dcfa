"""Solving one program or a batch. The methods:

``"newton"`` (default). The program is equilibrated. From a cold start the interior method comes near the solution in five to
fifty Newton steps. There the lines that seem active are put on their limits by one factorization; if that is not optimal,
Newton's method with multiplier updates, which ends finitely, makes the pair exact, and the factorization is done after that.
A warm start begins with the multiplier updates. Where the solution is not unique the least-norm one is taken. If no optimal
pair is found, a proof of infeasibility or unboundedness is looked for.

``"multipliers"``. Newton on the exterior penalty with multiplier updates alone, from zero: the method of the paper made exact. It
solves most programs, but stalls on badly scaled and degenerate ones, which is why it is not the default.

``"penalty"``. The paper's (Meng et al. 2021, after Mangasarian 2004): one minimization of the penalty at a given epsilon,
duals by thresholding, the primal from the active rows. Exact when epsilon is small enough, and nothing tells when it is.
"""

from __future__ import annotations

from collections.abc import Callable

from taskloss._checks import check_choice, check_count, check_positive
from taskloss.lp.compiled import CompiledEngine
from taskloss.lp.dense.engine import DenseEngine
from taskloss.lp.engine import Engine, Settings
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import Solution

METHODS = ("newton", "multipliers", "penalty")
ENGINES: dict[str, Callable[[LinearProgram], Engine]] = {"compiled": CompiledEngine, "torch": DenseEngine}


def solve(
    problem: LinearProgram,
    *,
    method: str = "newton",
    epsilon: float = 1e-3,
    tolerance: float = 1e-8,
    max_steps: int = 2000,
    warm_start: Solution | None = None,
    trace: bool = False,
    engine: str = "compiled",
) -> Solution:
    """Solve a linear program, or a batch of them in one call. No gradient: see ``LPLayer``.

    ``tolerance``: relative, of feasibility, stationarity and the duality gap. ``epsilon``: of ``method="penalty"`` alone.
    ``warm_start``: the solution of a similar problem of the same shape. ``trace``: keep the iterates (before the last polish).
    ``engine``: ``"compiled"``, on the CPU, sparse; ``"torch"``, on the device of the data, dense.

    >>> import torch
    >>> problem = LinearProgram(torch.tensor([1.0, 2.0]), A_ub=torch.tensor([[-1.0, -1.0]]), b_ub=torch.tensor([-1.0]), lower=0.0)
    >>> solution = solve(problem)
    >>> solution.x.tolist(), solution.status.name
    ([1.0, 0.0], 'OPTIMAL')
    """
    settings = checked(Settings(method, epsilon, tolerance, max_steps, trace))
    found = engine_for(problem, engine).solve(settings, warm_start)
    form = problem.form
    return Solution(form.tensor(found.x), form.tensor(found.objective), found, form)


def checked(settings: Settings) -> Settings:
    """The settings, if they are good ones."""
    check_choice("method", settings.method, METHODS)
    check_positive("epsilon", settings.epsilon)
    check_positive("tolerance", settings.tolerance)
    check_count("max_steps", settings.max_steps)
    return settings


def engine_for(problem: LinearProgram, name: str) -> Engine:
    """The engine of that name with the programs of a problem."""
    if not isinstance(problem, LinearProgram):
        raise TypeError(f"expected a LinearProgram, got {type(problem).__name__}")
    return ENGINES[check_choice("engine", name, tuple(ENGINES))](problem)
