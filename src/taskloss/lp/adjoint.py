"""Gradients of a solution: what a gradient in x, or in the optimal value, means for c, A, b and the bounds.

Each is an *adjoint*: vectors for c, the right-hand sides and the bounds, and pairs of vectors whose outer products add up to the
gradient in A. Everything is computed when a gradient arrives, by one factorization per program (two where the solution is not
unique, none for the optimal value). A bar marks a gradient: ``xbar`` is that of the loss in x.

*Active set* (Meng et al. 2021, section 3.2). With J the active rows, X the variables at a bound, R the others and ``B =
A_{J,R}``: ``x_R = B^+ (b_J - A_{J,X} x_X)``. So with ``lam = B^{+T} xbar_R`` the gradients are ``bbar_J = lam``, ``Abar_J =
-lam x'`` and, in the bounds of X, ``xbar_X - A_{J,X}' lam``. Where B lacks column rank, ``x_R`` is the least-norm solution, and
Abar has one more term, ``(B^{+T} x) ((I - B^+ B) xbar)'``. A vertex does not move with the cost: ``cbar = 0``.

*Smoothed*. x minimizes ``c'x + ridge/2 |x|^2 + |violation|^2 / (2 epsilon)``, so its gradient vanishes; with H the Hessian and
``d = -H^{-1} xbar`` the adjoint is that of the number ``d' (c + ridge x + A_J' (A_J x - b_J) / epsilon + ...)`` with x and d held
fixed: ``cbar = d``, ``bbar_J = -A_J d / epsilon``, ``Abar_J = ((A_J x - b_J) d' + (A_J d) x') / epsilon``, and ``-d / epsilon``
in the bounds that x violates.

*Value* (Danskin). The Lagrangian with x and the duals held fixed has the derivative of the optimal value: ``cbar = x``, ``bbar =
-u``, ``Abar = u x'``, and minus the multipliers of the variables in the bounds where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from taskloss._warn import warn_caller
from taskloss.known_gradient import refuse_second_derivative
from taskloss.lp.interior_point.active_set import solve_active_set_batch
from taskloss.lp.interior_point.augmented_lagrangian import augmented_lagrangian_batch, solve_hessian_batch
from taskloss.lp.interior_point.data import ProgramData, activity_batch
from taskloss.lp.interior_point.threads import in_threads
from taskloss.lp.multipliers import least_norm_multipliers
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import Result
from taskloss.lp.sparse import matrix_gradient, values_of


class Adjoint(NamedTuple):
    """Gradient of a number in the data of B programs."""

    cost: np.ndarray
    """``(B, n)``."""
    rhs: np.ndarray
    """Right-hand sides of the rows, ``(B, m)``."""
    lower: np.ndarray
    """``(B, n)``."""
    upper: np.ndarray
    """``(B, n)``."""
    matrix_factors: list[tuple[np.ndarray, np.ndarray]]
    """Pairs ``(left (B, m), right (B, n))``; the gradient in A of program b is ``sum left[b] right[b]'``."""


Differentiate = Callable[[np.ndarray], Adjoint]
"""Maps a gradient in x ``(B, n)``, or in the optimal value ``(B, 1)``, to an adjoint."""


# --- the three adjoints ------------------------------------------------------------------------------------------------


def value_adjoint(programs: ProgramData, result: Result) -> Differentiate:
    """Return the function that maps a gradient in the optimal value to its adjoint."""
    m = programs.num_rows

    def differentiate(bar: np.ndarray) -> Adjoint:
        multipliers = least_norm_multipliers(programs, result)
        duals = bar * multipliers
        row_duals, bound_duals = duals[:, :m], duals[:, m:]
        at_upper = multipliers[:, m:] > 0.0
        return Adjoint(
            cost=bar * result.x,
            rhs=-row_duals,
            lower=np.where(at_upper, 0.0, -bound_duals),
            upper=np.where(at_upper, -bound_duals, 0.0),
            matrix_factors=[(row_duals, result.x)],
        )

    return differentiate


def active_set_adjoint(programs: ProgramData, result: Result) -> Differentiate:
    """Return the function that maps a gradient in x, the solution of the equations of its active set, to its adjoint."""
    m = programs.num_rows
    active = result.at_lower | result.at_upper
    at_bound = active[:, m:]

    def differentiate(bar: np.ndarray) -> Adjoint:
        # What x at a bound is worth must not reach the others, not even as rounding.
        unseen, lam, transposed = _solve_active_set(programs, active, np.where(at_bound, 0.0, bar))
        in_bounds = bar - transposed
        matrix_factors = [(-lam, result.x)]
        if not result.unique.all():
            _, least_norm, _ = _solve_active_set(programs, active, result.x)
            matrix_factors.append((least_norm, np.where(at_bound, 0.0, unseen)))
        return Adjoint(
            cost=np.zeros_like(bar),
            rhs=lam,
            lower=np.where(result.at_lower[:, m:], in_bounds, 0.0),
            upper=np.where(result.at_upper[:, m:], in_bounds, 0.0),
            matrix_factors=matrix_factors,
        )

    return differentiate


def smoothed_adjoint(
    programs: ProgramData, x: np.ndarray, multipliers: np.ndarray, epsilon: float, ridge: float
) -> Differentiate:
    """Return the function that maps a gradient in the smoothed minimizer ``x`` to its adjoint.

    Its ``multipliers`` tell the constraints that it violates.
    """
    m = programs.num_rows
    equality = programs.lower == programs.upper
    active = (multipliers != 0.0) | equality
    at_upper = (multipliers > 0.0) | equality
    bound = np.where(active, np.where(at_upper, programs.upper, programs.lower), 0.0)

    def differentiate(bar: np.ndarray) -> Adjoint:
        direction = _solve_hessian(programs, active, epsilon, ridge, -bar)
        violation = np.where(active, _activity(programs, x) - bound, 0.0)[:, :m] / epsilon
        change = np.where(active, _activity(programs, direction), 0.0) / epsilon
        return Adjoint(
            cost=direction,
            rhs=-change[:, :m],
            lower=np.where(at_upper[:, m:], 0.0, -change[:, m:]),
            upper=np.where(at_upper[:, m:], -change[:, m:], 0.0),
            matrix_factors=[(violation, direction), (change[:, :m], x)],
        )

    return differentiate


# --- what they solve ---------------------------------------------------------------------------------------------------


def _activity(programs: ProgramData, x: np.ndarray) -> np.ndarray:
    activity = np.empty_like(programs.lower)
    activity_batch(programs, x, activity)
    return activity


def _solve_active_set(programs: ProgramData, active: np.ndarray, rhs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``(I - B^+ B) rhs``, ``lam = B^{+T} rhs`` and ``A' lam``."""
    unseen, transposed = np.empty_like(rhs), np.empty_like(rhs)
    row_duals = np.empty((len(rhs), programs.num_rows))
    in_threads(
        len(rhs),
        lambda items: solve_active_set_batch(programs, items, active, rhs, unseen, row_duals, transposed),
        programs.work,
    )
    return unseen, row_duals, transposed


def _solve_hessian(programs: ProgramData, active: np.ndarray, epsilon: float, ridge: float, rhs: np.ndarray) -> np.ndarray:
    """Return ``H^{-1} rhs``, H the Hessian of the smoothed function with these active constraints."""
    with_ridge = programs._replace(quadratic=np.full_like(programs.cost, ridge))
    solution = np.empty_like(rhs)
    in_threads(
        len(rhs),
        lambda items: solve_hessian_batch(with_ridge, items, active, 1.0 / epsilon, rhs, solution),
        programs.work,
    )
    return solution


def minimize_smoothed(
    programs: ProgramData, start: np.ndarray, epsilon: float, ridge: float, max_iterations: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimizer of ``c'x + ridge/2 |x|^2 + |violation|^2 / (2 epsilon)``, and ``violation / epsilon`` there."""
    with_ridge = programs._replace(quadratic=np.full_like(programs.cost, ridge))
    x, multipliers = np.where(np.isfinite(start), start, 0.0), np.zeros_like(programs.lower)
    iterations, unknown, no_trace = np.zeros(len(x), np.int64), np.full(len(x), np.inf), np.empty((len(x), 0, x.shape[1]))
    settings = 1.0 / epsilon, 1, 1e-12, max_iterations
    in_threads(
        len(x),
        lambda items: augmented_lagrangian_batch(with_ridge, items, *settings, x, multipliers, unknown, iterations, no_trace),
        programs.work,
    )
    return x, multipliers


# --- from an adjoint to tensors ----------------------------------------------------------------------------------------


def attach(
    program: LinearProgram,
    x: torch.Tensor,
    objective: torch.Tensor,
    x_adjoint: Differentiate | None,
    objective_adjoint: Differentiate,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x and the optimal value as functions of the data of the program."""
    ub, eq = (None if matrix is None else values_of(matrix) for matrix in program.matrices)
    # In the order of the gradients that _gradients returns.
    data = (program.c, ub, program.b_ub, eq, program.b_eq, program.lower, program.upper)
    outputs = (x, objective), (x_adjoint, objective_adjoint)
    # torch has no types for apply.
    result: tuple[torch.Tensor, torch.Tensor] = _Attached.apply(program, *outputs, *data)  # type: ignore[no-untyped-call]
    return result


class Notice:
    """A warning that is given once, by the layer that holds it."""

    given = False

    def say_zero_in_cost(self) -> None:
        """Warn that the cost, which asks for a gradient, gets none from a loss of x alone."""
        if not self.given:
            self.given = True
            warn_caller(
                "the costs c get no gradient through x: with gradient='active_set' x is a vertex, which does not move with the "
                "costs. To learn costs, use LPLayer(gradient='smoothed', ridge=...), a loss of "
                "solution.objective, or a regret loss: taskloss.DirectLoss(taskloss.Structured(solver, loss='regret'))"
            )


class _Attached(torch.autograd.Function):
    """Solution and optimal value, with the functions that map their gradients to adjoints (None: no gradient)."""

    @staticmethod
    def forward(
        ctx: Any,
        program: LinearProgram,
        outputs: tuple[torch.Tensor, torch.Tensor],
        adjoints: tuple[Differentiate | None, Differentiate],
        *data: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        ctx.program, ctx.adjoints, ctx.notice = program, adjoints, Notice()
        ctx.save_for_backward(*data)
        if adjoints[0] is None:
            ctx.mark_non_differentiable(outputs[0])
        return outputs

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        program: LinearProgram = ctx.program
        items = program.batch_size or 1
        adjoints = [
            adjoint(np.ascontiguousarray(bar.to("cpu", torch.float64).numpy(force=True)).reshape(items, -1))
            for adjoint, bar in zip(ctx.adjoints, bars, strict=True)
            if adjoint is not None and bar is not None
        ]
        if ctx.needs_input_grad[3] and bars[1] is None and bars[0] is not None and bars[0].any() and not adjoints[0].cost.any():
            ctx.notice.say_zero_in_cost()
        gradients = _gradients(program, adjoints, ctx.needs_input_grad[3:])
        gradients = [g if g is None else refuse_second_derivative(g, _NOT_TWICE, *ctx.saved_tensors, *bars) for g in gradients]
        return None, None, None, *gradients


_NOT_TWICE = (
    "the solution of a linear program has no second derivative here. Leave out create_graph=True, or use "
    'gradient="unrolled", whose x can be differentiated again'
)


def _gradients(program: LinearProgram, adjoints: list[Adjoint], needed: Sequence[bool]) -> list[torch.Tensor | None]:
    """Return the gradients in c, the values of A_ub, b_ub, those of A_eq, b_eq, lower and upper; None where not needed."""
    split = program.num_inequalities

    def vector(like: torch.Tensor | None, parts: list[np.ndarray]) -> torch.Tensor | None:
        if like is None or not parts:
            return None
        total = sum(parts[1:], start=parts[0])
        return torch.from_numpy(np.ascontiguousarray(total if like.ndim == 2 else total.sum(0))).to(like)

    def matrix(index: int, rows: slice) -> torch.Tensor | None:
        given = program.matrices[index]
        factors = [(left[:, rows], right) for adjoint in adjoints for left, right in adjoint.matrix_factors]
        return None if given is None or not factors else matrix_gradient(given, factors)

    makers: tuple[Callable[[], torch.Tensor | None], ...] = (
        lambda: vector(program.c, [adjoint.cost for adjoint in adjoints]),
        lambda: matrix(0, slice(split)),
        lambda: vector(program.b_ub, [adjoint.rhs[:, :split] for adjoint in adjoints]),
        lambda: matrix(1, slice(split, None)),
        lambda: vector(program.b_eq, [adjoint.rhs[:, split:] for adjoint in adjoints]),
        lambda: vector(program.lower, [adjoint.lower for adjoint in adjoints]),
        lambda: vector(program.upper, [adjoint.upper for adjoint in adjoints]),
    )
    return [maker() if need else None for maker, need in zip(makers, needed, strict=True)]
