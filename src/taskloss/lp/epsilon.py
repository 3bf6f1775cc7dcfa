r"""The choice of epsilon for the exterior penalty: Mangasarian's rule, and a check of its result.

With all constraints written as ``G x <= h``, the penalty function ``c'x + |(G x - h)_+|^2 / (2 epsilon)`` has the dual

    max_u  -h'u - epsilon/2 |u|^2    with    G'u + c = 0,  u >= 0 ,

the dual of the program, *perturbed* by a quadratic term. Its solution ``u(epsilon) = (G x - h)_+ / epsilon`` is unique. As
epsilon falls, ``-h'u`` and ``|u|`` rise, until both stay: below some bound the perturbation is exact, and u is the solution of
least norm of the dual program (Mangasarian and Meyer 1979; Mangasarian 2004).

*What is compared.* The perturbed value itself is ``-h'u - epsilon/2 |u|^2``. Below the bound it is affine in epsilon, with slope
``-|u|^2 / 2``, so it is not the same for two values of epsilon unless u is zero. What is the same is its linear part
``-h'u``. For any two values of epsilon, equal linear parts mean equal u: each u is then as good as the other in both perturbed
programs, and the solution of each is unique. We therefore compare u, whose differences do not shrink with epsilon.

*Agreement is no proof.* ``u(epsilon)`` is the projection of ``-h / epsilon`` to the dual polyhedron. The projection can rest at a
vertex while epsilon falls and leave it later, so two values can agree above the bound. The proof is complementarity: u solves
the dual program, and then is its solution of least norm, if and only if every constraint with a multiplier is active at an
optimal x. These are the constraints that the paper takes for its linear system.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from taskloss._checks import check_count, check_flag, check_positive
from taskloss.lp.adjoint import minimize_smoothed
from taskloss.lp.interior_point.data import ProgramData
from taskloss.lp.newton import newton_solve
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import Result
from taskloss.lp.solver import solve

NO_MULTIPLIER = 1e-9
"""A multiplier that is no larger, relative to the largest one of its program, is rounding."""
NOT_STATIONARY = 1e-6
"""Largest entry of ``G'u + c``, relative to ``1 + |c|``, with which the penalty function counts as minimized."""
MAX_NEWTON_STEPS = 2000


class EpsilonChoice(NamedTuple):
    """An epsilon for the penalty of a program, or of all programs of a batch."""

    epsilon: float
    """The larger one of the two successive values that agree."""
    value: Tensor
    """Dual value ``-h'u`` at this epsilon, ``(B,)``: the optimal value of the program, if the agreement does not deceive."""
    multipliers: Tensor
    """u, ``(B, m + n)``, in the order and with the signs of ``NewtonSolution.multipliers``."""


def choose_epsilon(
    program: LinearProgram,
    *,
    start: float = 1.0,
    factor: float = 0.1,
    max_trials: int = 10,
    tolerance: float = 1e-6,
    verify: bool = True,
) -> EpsilonChoice:
    """Return the first epsilon whose multipliers are those of the next smaller one: Mangasarian's rule.

    The multipliers are then the dual solution of least norm, among all constraints (rows, equations and bounds of variables) in
    the units of the program. Batches share one epsilon, at which all programs agree.

    Mangasarian, *A Newton method for linear programming*, JOTA 2004; Meng et al. (2021), section 4.

    Args:
        program: one that has a solution, or a batch of them.
        start: the largest epsilon.
        factor: ratio of successive values, below 1.
        max_trials: number of successive pairs that are compared, at most.
        tolerance: largest difference of the multipliers, relative to the largest of them.
        verify: accept only an epsilon whose multipliers are complementary to an exact solution, which is found by
            :func:`taskloss.lp.solve`. Without it the rule is that of the papers, which can stop too early; see the module.

    >>> A, b = torch.ones(2, 1).double(), torch.tensor([1.0, 2.0]).double()
    >>> program = LinearProgram(-torch.ones(1).double(), A_ub=A, b_ub=b)     # max x, x <= 1, x <= 2: exact up to epsilon = 1
    >>> choice = choose_epsilon(program, start=4.0, factor=0.5)
    >>> choice.epsilon, choice.multipliers.round(decimals=6).tolist()
    (1.0, [1.0, 0.0, 0.0])
    """
    if not isinstance(program, LinearProgram):
        raise TypeError(f"expected a LinearProgram, got {type(program).__name__}")
    epsilon, factor = check_positive("start", start), check_positive("factor", factor)
    if factor >= 1.0:
        raise ValueError(f"factor must be below 1, so that epsilon falls, got {factor!r}")
    check_count("max_trials", max_trials)
    check_positive("tolerance", tolerance)
    check_flag("verify", verify)
    result = solve(program).check().result if verify else None
    arrays, output = program.to_arrays(), program.output_format
    x, multipliers = _minimize_penalty(program, np.zeros_like(arrays.cost), epsilon)
    for _ in range(max_trials):
        smaller_x, smaller = _minimize_penalty(program, x, factor * epsilon)
        change = np.abs(smaller - multipliers).max(axis=1)
        agree = bool((change <= tolerance * np.abs(smaller).max(axis=1)).all())
        if agree and (result is None or is_complementary(arrays, result, multipliers).all()):
            value = (arrays.cost * x).sum(axis=1) + epsilon * np.square(multipliers).sum(axis=1)
            return EpsilonChoice(epsilon, output.tensor(value), output.tensor(multipliers))
        x, multipliers, epsilon = smaller_x, smaller, factor * epsilon
    raise ValueError(
        f"no two successive values of epsilon from {start:g} down to {epsilon:g} have the same multipliers; start lower, try "
        "more values by max_trials, bring the constraints to comparable scales, or look at the status of taskloss.lp.solve"
    )


def _minimize_penalty(program: LinearProgram, start: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimizer of the penalty function, ``(B, n)``, and its multipliers, ``(B, m + n)``; raise if there is none."""
    arrays = program.to_arrays()
    x, multipliers = minimize_smoothed(arrays, start, epsilon, 0.0, MAX_NEWTON_STEPS)
    if not is_stationary(arrays, multipliers).all():
        x, multipliers = minimize_densely(program, epsilon)
    stationary = is_stationary(arrays, multipliers)
    if not stationary.all():
        item = int(np.argmin(stationary))
        raise ValueError(
            f"the penalty function of linear program {item} of {len(x)} was not minimized at epsilon={epsilon:g}: "
            "the program is unbounded or badly scaled; look at the status of taskloss.lp.solve"
        )
    return x, multipliers


@torch.no_grad()
def minimize_densely(program: LinearProgram, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Return what ``minimize_smoothed`` returns, by the Newton method in torch.

    The compiled method is faster, but its damped steps can stall, mostly from a cold start with a tiny epsilon.
    """
    solution = newton_solve(program, epsilon=epsilon, unrolled_steps=1)
    x, multipliers = (np.atleast_2d(part.to("cpu", torch.float64).numpy()) for part in solution[:2])
    return x, multipliers


def is_stationary(programs: ProgramData, multipliers: np.ndarray) -> np.ndarray:
    """Return whether ``G'u + c`` is zero up to ``NOT_STATIONARY``, bool ``(B,)``: so it is where the penalty is least."""
    error = np.abs(programs.cost + transposed_product(programs, multipliers)).max(axis=1)
    stationary: np.ndarray = error <= NOT_STATIONARY * (1.0 + np.abs(programs.cost).max(axis=1))
    return stationary


def transposed_product(programs: ProgramData, weights: np.ndarray) -> np.ndarray:
    """Return ``A'y + z``, ``(B, n)``, for the weights ``(y, z)`` of the constraints, ``(B, m + n)``."""
    row_start: np.ndarray = programs.sparsity.row_start.astype(np.int64)
    rows = np.repeat(np.arange(programs.num_rows), row_start[1:] - row_start[:-1])
    product = weights[:, programs.num_rows :].copy()
    # add.at adds all entries of a column up; it indexes the first axis.
    np.add.at(product.T, programs.sparsity.columns, (programs.entries * weights[:, rows]).T)
    return product


def is_complementary(programs: ProgramData, result: Result, multipliers: np.ndarray) -> np.ndarray:
    """Return whether every constraint with a multiplier is at that bound in an exact solution, bool ``(B,)``.

    Then, and only then, the multipliers of a penalty function are a dual solution. False where ``result`` is not optimal.
    """
    rounding = NO_MULTIPLIER * np.abs(multipliers).max(axis=1, keepdims=True)
    equality = programs.lower == programs.upper
    wrong_above = (multipliers > rounding) & ~(result.at_upper | equality)
    wrong_below = (multipliers < -rounding) & ~(result.at_lower | equality)
    complementary: np.ndarray = ~(wrong_above | wrong_below).any(axis=1) & (result.statuses == 0)
    return complementary
