"""Solving one program or a batch, parts of it in threads. The methods:

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

import itertools
from typing import Any

import numpy as np
import torch

from taskloss._checks import check_choice, check_count, check_positive
from taskloss.lp.arrays import Arrays, arrays_of
from taskloss.lp.coordinates import array_of
from taskloss.lp.problem import LinearProgram
from taskloss.lp.run import Found, Run, Settings
from taskloss.lp.solution import Solution
from taskloss.lp.threads import in_threads

METHODS = ("newton", "multipliers", "penalty")


def solve(
    problem: LinearProgram,
    *,
    method: str = "newton",
    epsilon: float = 1e-3,
    tolerance: float = 1e-8,
    max_steps: int = 2000,
    warm_start: Solution | None = None,
    trace: bool = False,
) -> Solution:
    """Solve a linear program, or a batch of them in one call. No gradient: see ``LPLayer``.

    ``tolerance``: relative, of feasibility, stationarity and the duality gap. ``epsilon``: of ``method="penalty"`` alone.
    ``warm_start``: the solution of a similar problem of the same shape. ``trace``: keep the iterates (before the last polish).

    >>> import torch
    >>> problem = LinearProgram(torch.tensor([1.0, 2.0]), A_ub=torch.tensor([[-1.0, -1.0]]), b_ub=torch.tensor([-1.0]), lower=0.0)
    >>> solution = solve(problem)
    >>> solution.x.tolist(), solution.status.name
    ([1.0, 0.0], 'OPTIMAL')
    """
    if not isinstance(problem, LinearProgram):
        raise TypeError(f"expected a LinearProgram, got {type(problem).__name__}")
    check_choice("method", method, METHODS)
    check_positive("epsilon", epsilon)
    check_positive("tolerance", tolerance)
    check_count("max_steps", max_steps)
    settings = Settings(method, epsilon, tolerance, max_steps, trace)
    return solution_of(problem, solve_arrays(arrays_of(problem), settings, warm_start))


def solve_arrays(given: Arrays, settings: Settings, warm_start: Solution | None = None) -> Found:
    """Solve a batch, parts of it in threads."""
    start = None if warm_start is None else _start_of(warm_start, given)

    def solve_some(items: np.ndarray) -> Found:
        some = slice(items[0], items[-1] + 1)
        run = Run(given.part(some), settings)
        if start is not None:
            run.begin_at(*(array[some] for array in start))
        return run.found()

    parts = in_threads(given.num_items, solve_some, 20 * given.work)
    if len(parts) == 1:
        return parts[0]
    joined: Any = [
        np.concatenate(fields) if isinstance(fields[0], np.ndarray) else list(itertools.chain(*fields))
        for fields in zip(*parts, strict=True)
    ]
    return Found(*joined)


def _start_of(solution: Solution, given: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """The x and multipliers of an earlier solution."""
    x = _rows_of(solution.x)
    duals = [_rows_of(part) for part in (solution.dual_ub, solution.dual_eq)]
    multipliers = np.concatenate([*duals, _rows_of(solution.dual_upper) - _rows_of(solution.dual_lower)], axis=1)
    if x.shape != given.cost.shape or multipliers.shape != given.low.shape:
        raise ValueError(
            f"warm_start has x of shape {x.shape} and {multipliers.shape[1]} duals, and the problem needs {given.cost.shape} and "
            f"{given.low.shape[1]}; expected the solution of a problem of the same shape"
        )
    return x, multipliers


def solution_of(problem: LinearProgram, found: Found) -> Solution:
    """The answer in the types of the problem."""
    form = problem.form
    return Solution(form.tensor(found.x), form.tensor(found.objective), found, form)


def _rows_of(tensor: torch.Tensor) -> np.ndarray:
    return np.atleast_2d(array_of(tensor))
