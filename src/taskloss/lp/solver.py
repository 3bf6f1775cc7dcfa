"""Solving one program or a batch.

The methods:

``"auto"`` (default). The interior-point method, and HiGHS where that ends without a solution or a proof. For a single program
whose factor is large (``LARGE`` and ``FILL`` in ``interior_point.driver``) the other way round.

``"interior_point"``. The program is equilibrated. From a cold start the interior-point method comes near the solution
in five to fifty iterations. There the constraints that seem active are put on their bounds by one factorization; if that is not
optimal, the augmented Lagrangian method, which ends finitely, makes the pair exact. A warm start begins with the augmented
Lagrangian method. Where the solution is not unique the least-norm one is taken. If no optimal pair is found, a proof of
infeasibility or unboundedness is looked for.

``"highs"``. x and multipliers come from HiGHS; the equations of the active set, the least-norm solution,
the judgement and the proofs are the same, and so are the results.

``"augmented_lagrangian"``. Newton's method on the exterior penalty with multiplier updates alone, from zero: the method of the
paper made exact. It solves most programs, but stalls on badly scaled and degenerate ones, which is why it is not the default.

``"penalty"``. The method of the paper (Meng et al. 2021, after Mangasarian 2004): one minimization of the penalty at a given
epsilon, duals by thresholding, the primal from the active rows. Exact when epsilon is small enough; nothing tells when it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from taskloss._checks import check_choice, check_count, check_positive
from taskloss.lp.interior_point.data import ProgramData
from taskloss.lp.interior_point.driver import Settings, solve_batch
from taskloss.lp.problem import LinearProgram, as_program
from taskloss.lp.solution import Solution

EXACT_METHODS = ("auto", "interior_point", "highs", "augmented_lagrangian")
LP_METHODS = (*EXACT_METHODS, "penalty")


def solve(
    problem: LinearProgram | torch.Tensor,
    A_ub: Any = None,
    b_ub: torch.Tensor | None = None,
    A_eq: Any = None,
    b_eq: torch.Tensor | None = None,
    lower: Any = None,
    upper: Any = None,
    *,
    method: str = "auto",
    epsilon: float = 1e-3,
    tolerance: float = 1e-8,
    max_iterations: int = 2000,
    warm_start: Solution | None = None,
    trace: bool = False,
) -> Solution:
    """Solve a linear program, or a batch of them in one call. The solution carries no gradient: see ``LPLayer``.

    Args:
        problem: a ``LinearProgram``, or its cost c followed by the other arguments of a ``LinearProgram``.
        A_ub: see ``LinearProgram``; this and the next ones only where ``problem`` is the cost.
        b_ub: see ``LinearProgram``.
        A_eq: see ``LinearProgram``.
        b_eq: see ``LinearProgram``.
        lower: see ``LinearProgram``.
        upper: see ``LinearProgram``.
        method: ``"auto"``, ``"interior_point"``, ``"highs"``, ``"augmented_lagrangian"`` or ``"penalty"``; see the module.
        epsilon: of ``method="penalty"`` alone.
        tolerance: relative, of feasibility, stationarity and the duality gap.
        max_iterations: upper limit of the Newton steps of each stage of a program; the stages have lower limits of their own.
            The steps of HiGHS are not counted.
        warm_start: the solution of a similar problem of the same shape.
        trace: keep the iterates (before the last polish).

    >>> import torch
    >>> problem = LinearProgram(torch.tensor([1.0, 2.0]), A_ub=torch.tensor([[-1.0, -1.0]]), b_ub=torch.tensor([-1.0]), lower=0.0)
    >>> solution = solve(problem)
    >>> solution.x.tolist(), solution.status.name
    ([1.0, 0.0], 'OPTIMAL')
    """
    program = as_program(problem, A_ub, b_ub, A_eq, b_eq, lower, upper)
    settings = checked_settings(Settings(method, epsilon, tolerance, max_iterations, trace))
    arrays = program.to_arrays()
    result = solve_batch(arrays, settings, start_from(warm_start, arrays))
    output = program.output_format
    return Solution(output.tensor(result.x), output.tensor(result.objective), result, output, arrays)


def check_ridge(ridge: float) -> None:
    """Raise unless the ridge is a number of at least zero."""
    if not isinstance(ridge, int | float) or not ridge >= 0.0:
        raise ValueError(f"ridge must be a number of at least zero, got {ridge!r}")


def checked_settings(settings: Settings) -> Settings:
    """Return the settings as plain numbers, or raise an error that says what is wrong with them."""
    return Settings(
        check_choice("method", settings.method, LP_METHODS),
        check_positive("epsilon", settings.epsilon),
        check_positive("tolerance", settings.tolerance),
        check_count("max_iterations", settings.max_iterations),
        settings.trace,
    )


def start_from(solution: Solution | None, programs: ProgramData) -> tuple[np.ndarray, np.ndarray] | None:
    """Return x and multipliers of an earlier solution of programs of the same shape, to start from."""
    if solution is None:
        return None
    x = np.atleast_2d(solution.x.to("cpu", torch.float64).numpy(force=True))
    multipliers = solution.result.multipliers
    if x.shape != programs.cost.shape or multipliers.shape != programs.lower.shape:
        raise ValueError(
            f"warm_start has x of shape {x.shape} and {multipliers.shape[1]} duals, and the problem needs {programs.cost.shape} "
            f"and {programs.lower.shape[1]}; expected the solution of a problem of the same shape"
        )
    return x, multipliers
