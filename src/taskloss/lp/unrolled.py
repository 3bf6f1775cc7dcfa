"""Newton's method on the exterior penalty in plain torch: differentiable step by step, on any device, dense and batched.

The penalty function, its generalized Newton step and the exact line search are those of ``kernels.lp_multipliers``; here the
Hessian ``sum_i D_i g_i g_i' / epsilon + damping`` is formed and solved densely. The active set D and the step length are held
constant when differentiated, as in the paper ("the step function constant").
"""

from __future__ import annotations

import torch

from taskloss.lp.coordinates import Coordinates
from taskloss.lp.problem import LinearProgram
from taskloss.lp.sparse import dense_matrix


def dense_lines(problem: LinearProgram) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All the constraints as rows ``g`` with ``low <= g x <= high``.

    ``(B, lines, n)``, ``(B, lines)``, ``(B, lines)``, attached to the graph.
    """
    c = problem.c
    items, n = problem.batch_size or 1, problem.num_variables
    rows, low, high = [], [], []
    sides = ((problem.b_ub, False), (problem.b_eq, True))
    for matrix, (side, equation) in zip(problem.matrices, sides, strict=True):
        if matrix is not None and side is not None:
            rows.append(_dense(matrix, side.shape[-1], n, c).expand(items, side.shape[-1], n))
            high.append(side.expand(items, side.shape[-1]))
            low.append(high[-1] if equation else torch.full_like(high[-1], -torch.inf))
    rows.append(torch.eye(n, dtype=c.dtype, device=c.device).expand(items, n, n))
    for bound, default, limits in ((problem.lower, -torch.inf, low), (problem.upper, torch.inf, high)):
        limits.append(
            torch.full((items, n), default, dtype=c.dtype, device=c.device) if bound is None else bound.expand(items, n)
        )
    return torch.cat(rows, 1), torch.cat(low, 1), torch.cat(high, 1)


def _dense(matrix: Coordinates, rows: int, columns: int, like: torch.Tensor) -> torch.Tensor:
    if matrix.dense:
        return matrix.values
    return dense_matrix(matrix.places.rows, matrix.places.columns, matrix.values.to(like), (rows, columns))


def newton_steps(problem: LinearProgram, x: torch.Tensor, epsilon: float, ridge: float, steps: int) -> torch.Tensor:
    """``x`` after ``steps`` Newton steps on ``c'x + ridge/2 |x|^2 + |violation|^2 / (2 epsilon)``, attached to the graph.

    Shapes: ``x (n,)`` or ``(B, n)``.
    """
    lines, low, high = dense_lines(problem)
    cost = problem.c.expand(lines.shape[0], -1)
    iterate = x if x.ndim == 2 else x[None]
    for _ in range(steps):
        values = torch.einsum("bij,bj->bi", lines, iterate)
        above, below = (values > high) | (low == high), (values < low) & (low != high)
        active = above | below
        limit = torch.where(above, high, torch.where(below, low, torch.zeros_like(low)))
        missed = torch.where(active, values - limit, torch.zeros_like(values))
        gradient = cost + ridge * iterate + torch.einsum("bij,bi->bj", lines, missed) / epsilon
        kept = lines * active[..., None]
        hessian = torch.einsum("bij,bik->bjk", kept, kept) / epsilon
        damping = ridge + 1e-10 / epsilon
        hessian = hessian + damping * torch.eye(hessian.shape[-1], dtype=hessian.dtype, device=hessian.device)
        direction = -torch.linalg.solve(hessian, gradient)
        slope = (gradient * direction).sum(-1)
        curvature = ridge * direction.square().sum(-1)
        length = exact_step(low, high, values, torch.einsum("bij,bj->bi", lines, direction), slope, curvature, epsilon)
        iterate = iterate + length[:, None] * direction
    return iterate if x.ndim == 2 else iterate[0]


@torch.no_grad()
def exact_step(
    low: torch.Tensor,
    high: torch.Tensor,
    values: torch.Tensor,
    change: torch.Tensor,
    slope: torch.Tensor,
    curvature: torch.Tensor,
    epsilon: float,
) -> torch.Tensor:
    """The step to the minimizer along a direction, ``(B,)``: the slope is piecewise linear, so sort its kinks, find its zero.

    ``values`` of the lines and their ``change`` by a step of 1; ``slope`` at the start, ``curvature`` without the violations.
    """
    slope, curvature = slope[:, None], curvature[:, None]
    square = change.square() / epsilon
    equation = low == high
    outside = (values > high) | (values < low) | equation
    curvature = curvature + torch.where(outside, square, torch.zeros_like(square)).sum(-1, keepdim=True)
    kinks, bends = [], []
    for limit in (low, high):
        at = torch.where((change != 0.0) & limit.isfinite() & ~equation, (limit - values) / change, torch.full_like(values, -1.0))
        leaves = (values > high) & (limit is high) | (values < low) & (limit is low)
        ahead = at > 0.0
        kinks.append(torch.where(ahead, at, torch.full_like(at, torch.inf)))
        enters = (change > 0.0) if limit is high else (change < 0.0)
        bend = torch.where(leaves & ~enters, -square, torch.where(enters, square, torch.zeros_like(square)))
        bends.append(torch.where(ahead, bend, torch.zeros_like(bend)))
    at, order = torch.cat(kinks, -1).sort(-1)
    bend = torch.cat(bends, -1).gather(-1, order)
    at = torch.cat([torch.zeros_like(slope), at], -1)
    curvatures = curvature + torch.cat([torch.zeros_like(slope), bend.cumsum(-1)], -1)
    widths = torch.diff(at, append=torch.full_like(slope, torch.inf))
    finite = torch.where(at[..., 1:].isfinite(), curvatures[..., :-1] * widths[..., :-1], torch.zeros_like(bend))
    slopes = slope + torch.cat([torch.zeros_like(slope), finite.cumsum(-1)], -1)
    crosses = (slopes + torch.where(curvatures > 0.0, curvatures * widths, torch.zeros_like(widths)) >= 0.0) & at.isfinite()
    first = crosses.to(torch.int64).argmax(-1, keepdim=True)
    piece = (at + -slopes / curvatures.clamp_min(1e-300)).gather(-1, first)[..., 0]
    # At the minimizer itself the step is a whole one: it is no step, but what is differentiated.
    falls = (slope < 0.0)[:, 0] & crosses.any(-1) & piece.isfinite()
    return torch.where(falls, piece, torch.ones_like(piece))
