"""The gradients of a solution, each by a *linearization*: an expression that equals zero and whose derivative is known.

At a solution some function ``r`` of the data and of x vanishes; differentiating ``r(data, x(data)) = 0`` gives ``dx = S dr``
with a matrix S that is never formed. So ``x + S r(data, x held fixed)`` has the value x and the derivative of the solution,
and autograd does the rest: it carries the gradient from r to c, A, b and the bounds, dense or sparse, shared or per item. Only
``S' xbar`` is computed here, by one sparse factorization an item.

*active set* (Meng et al. 2021, section 3.2). With J the tight rows, X the variables at a bound, R the others and ``B =
A_{J,R}``: ``r = b_J - A_J x`` with ``x_X`` the bounds themselves, ``S = B^+``, so ``S' xbar = B^{+T} xbar``. Where B lacks
column rank, ``x_R = B^+ b`` is the least-norm solution, and its derivative has one more term, ``(I - B^+ B) dB' (B^{+T} x)``.

*smoothed*. ``r`` is the gradient of the penalty function at its minimizer, ``S = -H^{-1}`` with H its Hessian.

*value* (Danskin). The Lagrangian with x and the duals held fixed has the derivative of the optimal value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from taskloss.kernels import lp_batch
from taskloss.lp.arrays import Arrays
from taskloss.lp.coordinates import coordinates
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import Solution
from taskloss.lp.threads import in_threads

_Adjoint = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


class _Linearized(torch.autograd.Function):
    """``x + S r``, where ``r`` is zero: the value is x, and ``adjoint`` maps the gradient of x to those of the parts of r."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, adjoint: _Adjoint, *parts: torch.Tensor) -> torch.Tensor:
        ctx.adjoint = adjoint
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        return gradient, None, *ctx.adjoint(gradient)


def _linearized(x: torch.Tensor, adjoint: _Adjoint, *parts: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = _Linearized.apply(x, adjoint, *parts)  # type: ignore[no-untyped-call]
    return result


def product(matrix: Any, vector: torch.Tensor) -> torch.Tensor:
    """``matrix @ vector``: a vector ``(n,)`` or ``(B, n)``; a matrix dense (shared or per item), torch sparse or scipy sparse."""
    if isinstance(matrix, torch.Tensor) and matrix.layout == torch.strided:
        # Small batched matrix products cost more in waking threads than in arithmetic.
        small = matrix.numel() <= 1 << 20
        return (matrix * vector[..., None, :]).sum(-1) if small else (matrix @ vector[..., None])[..., 0]
    rows, columns, values = coordinates(matrix)
    return _scattered(values, columns, rows, matrix.shape[0], vector)


def transposed_product(matrix: Any, vector: torch.Tensor) -> torch.Tensor:
    """``matrix' @ vector``, for the same kinds."""
    if isinstance(matrix, torch.Tensor) and matrix.layout == torch.strided:
        return product(matrix.mT, vector)
    rows, columns, values = coordinates(matrix)
    return _scattered(values, rows, columns, matrix.shape[1], vector)


def _scattered(values: torch.Tensor, source: torch.Tensor, goal: torch.Tensor, size: int, vector: torch.Tensor) -> torch.Tensor:
    """Sums of ``values * vector[source]`` by ``goal``. torch's own sparse product has a gradient as large as the dense matrix."""
    terms = values.to(vector) * vector[..., source.to(vector.device)]
    return vector.new_zeros((*vector.shape[:-1], size)).index_add(-1, goal.to(vector.device), terms)


def value_linearized(problem: LinearProgram, solution: Solution) -> torch.Tensor:
    """The optimal value with its gradient: ``cbar = x, bbar = -u, Abar = u x'``, and the bounds' duals."""
    x = solution.x.detach()
    lagrangian = (problem.c * x).sum(-1)
    for matrix, side, dual in ((problem.A_ub, problem.b_ub, solution.dual_ub), (problem.A_eq, problem.b_eq, solution.dual_eq)):
        if matrix is not None and side is not None:
            # A row without a limit has no dual, and inf times zero would be undefined.
            finite = torch.where(side.isfinite(), side, torch.zeros_like(side))
            lagrangian = lagrangian + (dual.detach() * (product(matrix, x) - finite)).sum(-1)
    if problem.lower is not None:
        lagrangian = lagrangian + _times_bound(solution.dual_lower, problem.lower)
    if problem.upper is not None:
        lagrangian = lagrangian - _times_bound(solution.dual_upper, problem.upper)
    return solution.objective.detach() + (lagrangian - lagrangian.detach())


def _times_bound(dual: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    return (dual.detach() * torch.where(bound.isfinite(), bound, torch.zeros_like(bound))).sum(-1)


def active_set_linearized(problem: LinearProgram, solution: Solution, arrays: Arrays) -> torch.Tensor:
    """The solution with the gradient of the equations of its active set."""
    x, active = solution.x.detach(), solution.active
    held = x
    if problem.lower is not None:
        held = torch.where(active.lower, problem.lower.expand_as(x), held)
    if problem.upper is not None:
        held = torch.where(active.upper, problem.upper.expand_as(x), held)
    lines = _active_lines(solution)
    residual = _row_limits(problem, x) - _stacked(problem, held)
    residual = torch.where(lines[..., : residual.shape[-1]], residual, torch.zeros_like(residual))
    free = ~(active.lower | active.upper)
    several = not bool(solution.unique.all())
    parts = [residual]
    if several:
        seen = _stacked_transposed(problem, _solve_active(arrays, lines, x)[1], x)
        parts.append(torch.where(free, seen, torch.zeros_like(seen)))

    def adjoint(gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        unseen, duals = _solve_active(arrays, lines, torch.where(free, gradient, torch.zeros_like(gradient)))
        return (duals, torch.where(free, unseen, torch.zeros_like(unseen))) if several else (duals,)

    return _linearized(held, adjoint, *parts)


def smoothed_linearized(
    problem: LinearProgram, arrays: Arrays, x: np.ndarray, multipliers: np.ndarray, epsilon: float, ridge: float
) -> torch.Tensor:
    """The minimizer of ``c'x + ridge/2 |x|^2 + |violation|^2 / (2 epsilon)`` with its implicit gradient."""
    shaped = torch.from_numpy(x if problem.batch_size is not None else x[0]).to(problem.c)
    m = arrays.num_rows
    active = (multipliers != 0.0) | (arrays.low == arrays.high)
    at_high = active & ((multipliers > 0.0) | (arrays.low == arrays.high))

    def mask(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array if problem.batch_size is not None else array[0]).to(problem.c.device)

    rows = mask(active[:, :m])
    missed = _stacked(problem, shaped) - _row_limits(problem, shaped)
    missed = torch.where(rows, missed, torch.zeros_like(missed))
    gradient = problem.c + ridge * shaped + _stacked_transposed(problem, missed, shaped) / epsilon
    for bound, at in ((problem.lower, active & ~at_high), (problem.upper, at_high)):
        if bound is not None:
            here = mask(at[:, m:])
            outside = torch.where(here, shaped - torch.where(here, bound.expand_as(shaped), shaped), torch.zeros_like(shaped))
            gradient = gradient + outside / epsilon

    def adjoint(bar: torch.Tensor) -> tuple[torch.Tensor, ...]:
        right = np.atleast_2d(bar.detach().to("cpu", torch.float64).numpy())
        solved = np.empty_like(right)
        lp_batch.penalty_solve_many(arrays.pattern, *arrays.program(), active, 1.0 / epsilon, right, solved)
        return (-_like(solved, bar),)

    return _linearized(shaped, adjoint, gradient)


def _like(array: np.ndarray, tensor: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(array.reshape(tensor.shape)).to(tensor)


def _active_lines(solution: Solution) -> torch.Tensor:
    """Active lines in the order of the kernels: inequality rows, equations, variables."""
    equations = torch.ones_like(solution.dual_eq, dtype=torch.bool)
    return torch.cat([solution.active.rows, equations, solution.active.lower | solution.active.upper], dim=-1)


def _row_limits(problem: LinearProgram, x: torch.Tensor) -> torch.Tensor:
    sides = [side for side in (problem.b_ub, problem.b_eq) if side is not None]
    if not sides:
        return x.new_zeros((*x.shape[:-1], 0))
    return torch.cat(
        [torch.where(side.isfinite(), side, torch.zeros_like(side)).expand(*x.shape[:-1], side.shape[-1]) for side in sides], -1
    )


def _stacked(problem: LinearProgram, vector: torch.Tensor) -> torch.Tensor:
    """``A vector`` of the inequality rows, then the equations."""
    parts = [product(matrix, vector) for matrix in (problem.A_ub, problem.A_eq) if matrix is not None]
    return torch.cat(parts, dim=-1) if parts else vector.new_zeros((*vector.shape[:-1], 0))


def _stacked_transposed(problem: LinearProgram, vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``A' vector``, shaped as ``like``."""
    result = torch.zeros_like(like)
    start = 0
    for matrix in (problem.A_ub, problem.A_eq):
        if matrix is not None:
            rows = matrix.shape[-2]
            result = result + transposed_product(matrix, vector[..., start : start + rows])
            start += rows
    return result


def _solve_active(arrays: Arrays, lines: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``(I - B^+ B) right`` and ``B^{+T} right`` for the active lines of every item."""
    columns = np.ascontiguousarray(np.atleast_2d(right.detach().to("cpu", torch.float64).numpy()))
    active = np.ascontiguousarray(np.atleast_2d(lines.cpu().numpy()))
    unseen, duals = np.empty_like(columns), np.zeros((len(columns), arrays.num_rows))
    in_threads(
        np.arange(len(columns)),
        lambda some: lp_batch.sensitivities_many(arrays.pattern, arrays.entries, active, columns, some, unseen, duals),
    )
    shape = right.shape[:-1]
    return _like(unseen, right), torch.from_numpy(duals.reshape(*shape, arrays.num_rows)).to(right)
