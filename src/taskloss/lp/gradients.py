"""The gradients of a solution: what a gradient in x, or in the optimal value, means for c, A, b and the bounds.

Each is an *adjoint*: vectors for c, the right sides and the bounds, and pairs of vectors whose outer products add up to the
gradient in A. Everything is computed when a gradient comes, by one factorization an item.

*active set* (Meng et al. 2021, section 3.2). With J the tight rows, X the variables at a bound, R the others and ``B =
A_{J,R}``: ``x_R = B^+ (b_J - A_{J,X} x_X)``. So with ``lam = B^{+T} xbar_R`` the gradients are ``bbar_J = lam``, ``Abar_J = -lam
x'`` and, in the bounds of X, ``xbar_X - A_{J,X}' lam``. Where B lacks column rank, ``x_R`` is the least-norm solution, and Abar
has one more term, ``(B^{+T} x) ((I - B^+ B) xbar)'``. A vertex does not move with the cost: ``cbar = 0``.

*smoothed*. x minimizes ``c'x + ridge/2 |x|^2 + |violation|^2 / (2 epsilon)``, so its gradient vanishes; with H the Hessian and
``d = -H^{-1} xbar`` the adjoint is that of the number ``d' (c + ridge x + A_J' (A_J x - b_J) / epsilon + ...)`` with x and d held
fixed: ``cbar = d``, ``bbar_J = -A_J d / epsilon``, ``Abar_J = ((A_J x - b_J) d' + (A_J d) x') / epsilon``, and ``-d / epsilon``
in the bounds that x oversteps.

*value* (Danskin). The Lagrangian with x and the duals held fixed has the derivative of the optimal value: ``cbar = x``, ``bbar =
-u``, ``Abar = u x'``, and the duals of the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from taskloss.lp.either import Array, module_of, tensor_of, total_of
from taskloss.lp.engine import Engine, Found
from taskloss.lp.problem import LinearProgram


class Adjoint(NamedTuple):
    """The gradient of a number in the data of the programs, a row an item; A's is the sum of ``left right'`` of the pairs."""

    cost: Array
    sides: Array
    lower: Array
    upper: Array
    pairs: list[tuple[Array, Array]]


Differentiate = Callable[[Array], Adjoint]


class _Attached(torch.autograd.Function):
    """The solution and the optimal value, with what maps their gradients to adjoints (None: no gradient)."""

    @staticmethod
    def forward(
        ctx: Any,
        problem: LinearProgram,
        engine: Engine,
        outputs: tuple[torch.Tensor, torch.Tensor],
        adjoints: tuple[Differentiate | None, Differentiate],
        *data: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        ctx.problem, ctx.engine, ctx.adjoints = problem, engine, adjoints
        ctx.save_for_backward(*data)
        if adjoints[0] is None:
            ctx.mark_non_differentiable(outputs[0])
        return outputs

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        problem: LinearProgram = ctx.problem
        found = [
            adjoint(ctx.engine.read(bar).reshape(problem.batch_size or 1, -1))
            for adjoint, bar in zip(ctx.adjoints, bars, strict=True)
            if adjoint is not None and bar is not None
        ]
        gradients = _gradients(problem, found, ctx.needs_input_grad[4:])
        if torch.is_grad_enabled():
            # Only when the caller wants to differentiate the result again. (torch has no types for apply.)
            gradients = [g if g is None else _NotTwice.apply(g, *ctx.saved_tensors, *bars) for g in gradients]  # type: ignore[no-untyped-call]
        return None, None, None, None, *gradients


class _NotTwice(torch.autograd.Function):
    """A gradient as a function of the data too, so that a second derivative meets an error instead of a silent zero."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, *data: torch.Tensor | None) -> torch.Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> Any:
        raise RuntimeError(
            "the solution of a linear program has no second derivative here. Leave out create_graph=True, or use "
            'gradient="unrolled", whose x can be differentiated again'
        )


def attached(
    problem: LinearProgram,
    engine: Engine,
    x: torch.Tensor,
    objective: torch.Tensor,
    of_x: Differentiate | None,
    of_value: Differentiate,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both as functions of the data of the problem."""
    ub, eq = (None if matrix is None else matrix.values for matrix in problem.matrices)
    data = (problem.c, ub, problem.b_ub, eq, problem.b_eq, problem.lower, problem.upper)
    outputs = (x, objective), (of_x, of_value)
    # torch has no types for apply.
    result: tuple[torch.Tensor, torch.Tensor] = _Attached.apply(problem, engine, *outputs, *data)  # type: ignore[no-untyped-call]
    return result


def _gradients(problem: LinearProgram, adjoints: list[Adjoint], needed: Sequence[bool]) -> list[torch.Tensor | None]:
    """The gradients in c, the entries of A_ub, b_ub, the entries of A_eq, b_eq, lower, upper; None where there is no need."""
    ub = problem.num_inequalities
    rows = slice(0, ub), slice(ub, None)

    def of_vector(like: torch.Tensor | None, parts: list[Array]) -> torch.Tensor | None:
        if like is None or not parts:
            return None
        total = total_of(parts)
        return tensor_of(total if like.ndim == 2 else total.sum(0)).to(like)

    def of_matrix(side: int) -> torch.Tensor | None:
        matrix = problem.matrices[side]
        pairs = [(left[:, rows[side]], right) for adjoint in adjoints for left, right in adjoint.pairs]
        return None if matrix is None or not pairs else matrix.gradient(pairs)

    makers: tuple[Callable[[], torch.Tensor | None], ...] = (
        lambda: of_vector(problem.c, [adjoint.cost for adjoint in adjoints]),
        lambda: of_matrix(0),
        lambda: of_vector(problem.b_ub, [adjoint.sides[:, rows[0]] for adjoint in adjoints]),
        lambda: of_matrix(1),
        lambda: of_vector(problem.b_eq, [adjoint.sides[:, rows[1]] for adjoint in adjoints]),
        lambda: of_vector(problem.lower, [adjoint.lower for adjoint in adjoints]),
        lambda: of_vector(problem.upper, [adjoint.upper for adjoint in adjoints]),
    )
    return [maker() if need else None for maker, need in zip(makers, needed, strict=True)]


def of_value(engine: Engine, found: Found) -> Differentiate:
    """The adjoint of the optimal value."""
    m = engine.num_rows
    where = module_of(found.x).where

    def differentiate(bar: Array) -> Adjoint:
        duals = bar * found.multipliers
        bounds = duals[:, m:]
        at_upper = found.multipliers[:, m:] > 0.0
        return Adjoint(
            bar * found.x,
            -duals[:, :m],
            where(at_upper, 0.0, -bounds),
            where(at_upper, -bounds, 0.0),
            [(duals[:, :m], found.x)],
        )

    return differentiate


def of_active_set(engine: Engine, found: Found) -> Differentiate:
    """The adjoint of x as the solution of the equations of its active set."""
    m = engine.num_rows
    module = module_of(found.x)
    where = module.where
    active = found.at_low | found.at_high
    at_bound = active[:, m:]

    def differentiate(bar: Array) -> Adjoint:
        unseen, duals, held = engine.solve_active(active, where(at_bound, 0.0, bar))
        moved = bar - held
        pairs = [(-duals, found.x)]
        if not found.determined.all():
            _, least, _ = engine.solve_active(active, found.x)
            pairs.append((least, where(at_bound, 0.0, unseen)))
        return Adjoint(
            module.zeros_like(bar),
            duals,
            where(found.at_low[:, m:], moved, 0.0),
            where(found.at_high[:, m:], moved, 0.0),
            pairs,
        )

    return differentiate


def of_smoothed(engine: Engine, x: Array, multipliers: Array, epsilon: float, ridge: float) -> Differentiate:
    """The adjoint of the minimizer ``x`` of the penalty function, whose ``multipliers`` tell the lines that it oversteps."""
    m = engine.num_rows
    where = module_of(x).where
    equation = engine.low == engine.high
    active = (multipliers != 0.0) | equation
    at_high = (multipliers > 0.0) | equation
    limits = where(active, where(at_high, engine.high, engine.low), 0.0)

    def differentiate(bar: Array) -> Adjoint:
        direction = engine.solve_penalty(active, epsilon, ridge, -bar)
        missed = where(active, engine.values(x) - limits, 0.0)[:, :m] / epsilon
        change = where(active, engine.values(direction), 0.0) / epsilon
        return Adjoint(
            direction,
            -change[:, :m],
            where(at_high[:, m:], 0.0, -change[:, m:]),
            where(at_high[:, m:], -change[:, m:], 0.0),
            [(missed, direction), (change[:, :m], x)],
        )

    return differentiate
