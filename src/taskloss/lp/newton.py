r"""The Newton method of the paper in plain torch: dense, batched, on the device of the data, differentiable step by step.

It minimizes the exterior penalty (Meng et al. 2021, after Mangasarian 2004)

.. math:: f(x) = c'x + \tfrac{\rho}{2} |x|^2 + \tfrac{1}{2\epsilon} \sum_i \mathrm{dist}(g_i'x, [l_i, u_i])^2

over all constraints ``g_i`` (rows of A and bounds of the variables). f is piecewise quadratic. With D the violated constraints
a generalized Newton step solves ``(G' D G / epsilon + ridge + damping) d = -gradient``; the step length along d is exact. The
duals are ``violation / epsilon``. Differentiated are the last steps, with D and the step length held constant, as in the paper
("the step function constant"). ``interior_point.augmented_lagrangian`` is the same method compiled and sparse, with multiplier
updates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from taskloss._checks import check_count, check_positive
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solver import check_ridge
from taskloss.lp.sparse import dense

DAMPING = 1e-10
"""Of the Newton matrix, relative to ``1 / epsilon`` and to its largest diagonal entry: keeps it invertible where f is flat."""
PATIENCE = 10
"""Stop after this many iterations without a smaller f."""


class NewtonSolution(NamedTuple):
    """Minimizer of the penalty function, without a batch axis if the program has none."""

    x: Tensor
    """``(B, n)``, attached to the graph."""
    multipliers: Tensor
    """``violation / epsilon`` of the inequalities, the equations and the variables' bounds, ``(B, m + n)``; detached.

    Positive at an upper bound, negative at a lower one."""
    residual: Tensor
    """Largest entry of the gradient of f, relative to ``1 + |c|``, ``(B,)``; detached."""


def newton_solve(
    program: LinearProgram,
    *,
    epsilon: float = 1e-2,
    ridge: float = 0.0,
    max_iterations: int = 1000,
    tolerance: float = 1e-9,
    unrolled_steps: int = 3,
) -> NewtonSolution:
    """Minimize the penalty function of a program by Newton's method in plain torch.

    It computes in float64, and no value leaves the device of the data but for a yes or no per iteration. For programs on an
    accelerator, and for reading: ``LPLayer`` is exact, and faster on the CPU. The result is the smoothed solution of
    ``LPLayer(gradient="smoothed")``, not a vertex.

    Args:
        program: dense or sparse; it is solved densely.
        epsilon: weight of feasibility; the smaller, the nearer a vertex.
        ridge: weight of ``|x|^2 / 2``; with 0, f may have no minimum where the program is unbounded.
        max_iterations: Newton steps, at most, before those that are differentiated. A program that needs more is returned as it
            is: look at ``residual``.
        tolerance: relative size of the gradient at which to stop.
        unrolled_steps: how many more steps are taken with a graph.

    >>> import torch
    >>> c = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    >>> program = LinearProgram(c, A_ub=-torch.ones(1, 2).double(), b_ub=-torch.ones(1).double(), lower=0.0)
    >>> newton_solve(program, epsilon=0.01).x.detach().round(decimals=6).tolist()
    [1.0, -0.01]
    """
    if not isinstance(program, LinearProgram):
        raise TypeError(f"expected a LinearProgram, got {type(program).__name__}")
    check_positive("epsilon", epsilon)
    check_ridge(ridge)
    check_positive("tolerance", tolerance)
    check_count("max_iterations", max_iterations)
    check_count("unrolled_steps", unrolled_steps)
    program.check_values()
    penalty = _Penalty(program, epsilon, ridge)
    with torch.no_grad():
        start = _minimize(penalty, torch.zeros_like(penalty.cost), max_iterations, tolerance)
    x = penalty.unrolled(start, unrolled_steps)
    with torch.no_grad():
        state = penalty.at(x)
    solution = (part.to(program.c.dtype) for part in (x, state.violation / epsilon, penalty.residual(state)))
    return NewtonSolution(*(part if program.batch_size is not None else part[0] for part in solution))


def unrolled_newton(program: LinearProgram, start: Tensor, epsilon: float, ridge: float, steps: int) -> Tensor:
    """Return ``start`` after some Newton steps on the penalty function, attached to the graph; ``(n,)`` or ``(B, n)``."""
    batched = start if start.ndim == 2 else start[None]
    x = _Penalty(program, epsilon, ridge).unrolled(batched.double(), steps).to(start.dtype)
    return x if start.ndim == 2 else x[0]


def _minimize(penalty: _Penalty, x: Tensor, max_iterations: int, tolerance: float) -> Tensor:
    """Return the point with the least gradient that Newton's method meets; f falls in every step, its gradient need not."""
    best_x, best_residual = x, torch.full_like(penalty.scale, torch.inf)
    least_value, waited = best_residual, torch.zeros_like(best_residual)
    for iteration in range(max_iterations + 1):
        state = penalty.at(x)
        residual, value = penalty.residual(state), penalty.value(x, state)
        better = residual < best_residual
        best_residual, best_x = torch.where(better, residual, best_residual), torch.where(better[:, None], x, best_x)
        waited = torch.where(value < least_value, 0.0, waited + 1.0)
        least_value = torch.minimum(value, least_value)
        if iteration == max_iterations or bool(((best_residual <= tolerance) | (waited > PATIENCE)).all()):
            break
        direction, length = penalty.newton_step(state)
        x = x + length * direction
    return best_x


class _State(NamedTuple):
    """The penalty function at one point per program."""

    activity: Tensor
    """``G x``, ``(B, N)``."""
    active: Tensor
    """Constraints outside their bounds, and all equalities, bool ``(B, N)``."""
    violation: Tensor
    """Signed distance of the active ones from their bounds, ``(B, N)``."""
    gradient: Tensor
    """``(B, n)``."""


class _Penalty:
    """The function f of every program of a batch, in float64."""

    def __init__(self, program: LinearProgram, epsilon: float, ridge: float) -> None:
        self.constraints, self.lower, self.upper = (part.double() for part in _dense_constraints(program))
        self.cost = program.c.double().expand(len(self.constraints), -1)
        self.scale = 1.0 + self.cost.detach().abs().amax(-1)
        self.epsilon, self.ridge = epsilon, ridge

    def at(self, x: Tensor) -> _State:
        """Evaluate f at ``x (B, n)``."""
        activity = torch.einsum("bij,bj->bi", self.constraints, x)
        equality = self.lower == self.upper
        above, below = (activity > self.upper) | equality, (activity < self.lower) & ~equality
        bound = torch.where(above, self.upper, torch.where(below, self.lower, torch.zeros_like(self.lower)))
        violation = torch.where(above | below, activity - bound, torch.zeros_like(activity))
        pull = torch.einsum("bij,bi->bj", self.constraints, violation) / self.epsilon
        return _State(activity, above | below, violation, self.cost + self.ridge * x + pull)

    def value(self, x: Tensor, state: _State) -> Tensor:
        """Return f, ``(B,)``."""
        quadratic = self.ridge * x.square().sum(-1) + state.violation.square().sum(-1) / self.epsilon
        return (self.cost * x).sum(-1) + 0.5 * quadratic

    def residual(self, state: _State) -> Tensor:
        """Return the largest entry of the gradient, relative to ``1 + |c|``, ``(B,)``."""
        return state.gradient.abs().amax(-1) / self.scale

    def newton_step(self, state: _State) -> tuple[Tensor, Tensor]:
        """Return the Newton direction ``(B, n)`` and the exact step length ``(B, 1)``, held constant when differentiated."""
        active = self.constraints * state.active[..., None]
        hessian = torch.einsum("bij,bik->bjk", active, active) / self.epsilon
        largest = hessian.detach().diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
        diagonal = self.ridge + DAMPING * (largest + 1.0 / self.epsilon)
        direction = -torch.linalg.solve(hessian + torch.diag_embed(diagonal.expand_as(state.gradient)), state.gradient)
        return direction, self._exact_step_length(state, direction)[:, None]

    def unrolled(self, x: Tensor, steps: int) -> Tensor:
        """Return x after some Newton steps, attached to the graph.

        Where f is flat, a step from the minimizer may leave it. Instead of a step that raises the residual, a full one is
        differentiated, and x stays where it is.
        """
        for _ in range(steps):
            state = self.at(x)
            direction, length = self.newton_step(state)
            with torch.no_grad():
                worse = (self.residual(self.at(x + length * direction)) > self.residual(state))[:, None]
            step = torch.where(worse, 1.0, length) * direction
            x = x + step - torch.where(worse, step.detach(), 0.0)
        return x

    @torch.no_grad()
    def _exact_step_length(self, state: _State, direction: Tensor) -> Tensor:
        """Return the step length to the minimizer along a direction, ``(B,)``.

        The slope of f along the direction is piecewise linear: sort its kinks and find its zero. A constraint that leaves its
        bounds at a kink adds its curvature from there on; one that comes back takes it away.
        """
        change = torch.einsum("bij,bj->bi", self.constraints, direction)
        square = change.square() / self.epsilon
        zero = torch.zeros_like(square)
        slope = (state.gradient * direction).sum(-1, keepdim=True)
        curvature = self.ridge * direction.square().sum(-1, keepdim=True)
        curvature = curvature + torch.where(state.active, square, zero).sum(-1, keepdim=True)
        inequality = self.lower != self.upper
        kinks, bends = [], []
        for bound, outside, leaves in (
            (self.lower, state.activity < self.lower, change < 0.0),
            (self.upper, state.activity > self.upper, change > 0.0),
        ):
            length = (bound - state.activity) / change
            ahead = (change != 0.0) & bound.isfinite() & inequality & (length >= 0.0)
            kinks.append(torch.where(ahead, length, torch.full_like(length, torch.inf)))
            bend = torch.where(leaves, square, torch.where(outside, -square, zero))
            bends.append(torch.where(ahead, bend, zero))
        kink, order = torch.cat(kinks, -1).sort(-1)
        bend = torch.cat(bends, -1).gather(-1, order)
        # Pieces between kinks: where each starts, its curvature, and the slope at its start.
        starts = torch.cat([torch.zeros_like(slope), kink], -1)
        curvatures = curvature + torch.cat([torch.zeros_like(slope), bend.cumsum(-1)], -1)
        widths = torch.diff(starts, append=torch.full_like(slope, torch.inf))
        gains = torch.where(kink.isfinite(), curvatures[..., :-1] * widths[..., :-1], torch.zeros_like(bend))
        slopes = slope + torch.cat([torch.zeros_like(slope), gains.cumsum(-1)], -1)
        rise = torch.where(curvatures > 0.0, curvatures * widths, torch.zeros_like(widths))
        crosses = (slopes + rise >= 0.0) & starts.isfinite()
        first = crosses.to(torch.int64).argmax(-1, keepdim=True)
        length = (starts - slopes / curvatures.clamp_min(torch.finfo(curvatures.dtype).tiny)).gather(-1, first)[..., 0]
        # At the minimizer itself the step is a full one: it moves nothing, but it is what is differentiated.
        falls = (slope < 0.0)[:, 0] & crosses.any(-1) & length.isfinite()
        return torch.where(falls, length, torch.ones_like(length))


def _dense_constraints(program: LinearProgram) -> tuple[Tensor, Tensor, Tensor]:
    """Return all constraints as rows ``(B, N, n)`` with lower and upper bounds ``(B, N)``, attached to the graph."""
    c = program.c
    items, n = program.batch_size or 1, program.num_variables
    rows, lower, upper = [], [], []
    for matrix, rhs, is_equation in zip(program.matrices, (program.b_ub, program.b_eq), (False, True), strict=True):
        if matrix is not None and rhs is not None:
            rows.append(dense(matrix).to(c).expand(items, rhs.shape[-1], n))
            upper.append(rhs.expand(items, rhs.shape[-1]))
            lower.append(upper[-1] if is_equation else torch.full_like(upper[-1], -torch.inf))
    rows.append(torch.eye(n, dtype=c.dtype, device=c.device).expand(items, n, n))
    for bound, default, bounds in ((program.lower, -torch.inf, lower), (program.upper, torch.inf, upper)):
        bounds.append(c.new_full((items, n), default) if bound is None else bound.expand(items, n))
    return torch.cat(rows, 1), torch.cat(lower, 1), torch.cat(upper, 1)
