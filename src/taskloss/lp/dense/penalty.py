"""The smoothed minimizer of dense programs: Newton's method on the exterior penalty, in torch.

``f(x) = cost'x + ridge/2 |x|^2 + |violation|^2 / (2 epsilon)`` is piecewise quadratic. With J the lines that x oversteps,
a Newton step solves the system of ``lp.dense.programs`` with ``p_j = ridge`` (``+ 1 / epsilon`` where the bound of j is
overstepped) and ``q = epsilon``, since its second block row then says ``dy = A_J dx / epsilon``. The step along the direction is
exact. Where f is quadratic around its minimizer, one full step ends it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from taskloss.lp.dense.programs import DensePrograms, System
from taskloss.lp.unrolled import exact_step

DAMPING = 1e-12
"""Times the curvature ``1 / epsilon``: keeps the system solvable where the function is flat."""
SMALL = 1e-12
"""A gradient of this size, relative to the cost, is zero."""
PATIENCE = 10
"""So many steps without a smaller gradient are enough."""


def solve_penalty(programs: DensePrograms, active: Tensor, epsilon: float, ridge: float, right: Tensor) -> Tensor:
    """``H^{-1} right``, H the Hessian of f where the ``active`` lines are overstepped."""
    m = programs.num_rows
    rows, columns = active[:, :m], active[:, m:]
    weights = columns.to(right) / epsilon + (ridge + DAMPING / epsilon)
    limited = torch.where(rows, epsilon, torch.ones_like(programs.low[:, :m]))
    system = System(torch.where(rows[:, :, None], programs.matrix, 0.0), weights, limited, shift=0.0)
    return system.solve(right, torch.zeros_like(limited))[0]


def minimize_penalty(
    programs: DensePrograms, start: Tensor, epsilon: float, ridge: float, max_steps: int
) -> tuple[Tensor, Tensor]:
    """The minimizer of f, and ``violation / epsilon`` of the lines there."""
    x = best_x = torch.where(start.isfinite(), start, 0.0)
    unit = 1.0 + programs.cost.abs().amax(1)
    best, waited = torch.full_like(unit, torch.inf), torch.zeros_like(unit)
    for step in range(max_steps + 1):
        values, violation = _violation(programs, x)
        gradient = _gradient(programs, x, violation, epsilon, ridge)
        size = gradient.abs().amax(1) / unit
        better = size < best
        best, best_x = torch.where(better, size, best), torch.where(better[:, None], x, best_x)
        waited = torch.where(better, 0.0, waited + 1.0)
        if step == max_steps or bool(((best <= SMALL) | (waited > PATIENCE)).all()):
            break
        active = (violation != 0.0) | (programs.low == programs.high)
        direction = solve_penalty(programs, active, epsilon, ridge, -gradient)
        slope, curvature = (gradient * direction).sum(1), ridge * direction.square().sum(1)
        change = programs.values(direction)
        length = exact_step(programs.low, programs.high, values, change, slope, curvature, epsilon)
        x = x + length[:, None] * direction
    return best_x, _violation(programs, best_x)[1] / epsilon


def _violation(programs: DensePrograms, x: Tensor) -> tuple[Tensor, Tensor]:
    """The values of the lines, and their signed distance from the limits."""
    values = programs.values(x)
    return values, (values - programs.high).clamp_min(0.0) - (programs.low - values).clamp_min(0.0)


def _gradient(programs: DensePrograms, x: Tensor, violation: Tensor, epsilon: float, ridge: float) -> Tensor:
    return programs.stationarity(violation / epsilon) + ridge * x
