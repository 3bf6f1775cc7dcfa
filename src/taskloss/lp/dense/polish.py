"""From pairs near a solution to exact ones, as ``kernels.lp_polish`` does it, and the system of the active-set gradient.

The equations are in ``kernels.lp_polish`` and ``lp.gradients``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from taskloss.kernels.lp_polish import NO_WORSE, SENSITIVE_SHIFT
from taskloss.lp.dense.programs import DensePrograms, System, times

REFINEMENTS = 6
"""Of the gradient; each removes all but ``shift / (shift + s^2)`` of the error, s the least singular value of B."""
ROUNDS = 2
ROUNDING = 1e-13
"""A multiplier of the wrong sign that is not larger is removed."""


class Polished(NamedTuple):
    """A pair, and whether its active lines leave x no freedom, ``(B,)``."""

    x: Tensor
    multipliers: Tensor
    determined: Tensor


def polish(programs: DensePrograms, x: Tensor, multipliers: Tensor) -> Polished:
    """Take the lines whose multiplier exceeds their distance from the limit for active, and solve their equations."""
    low, high = programs.low, programs.high
    limit = torch.where((multipliers > 0.0) | (low == high), high, low)
    multipliers = torch.where((programs.values(x) - limit).abs() > multipliers.abs(), 0.0, multipliers)
    active = (multipliers != 0.0) | (low == high)
    system = active_system(programs.matrix, active)
    polished_x = _polish_primal(programs, system, x, torch.where(active, limit, 0.0), active)
    polished_multipliers = _polish_dual(programs, system, multipliers, active)
    return Polished(polished_x, polished_multipliers, _determined(system, active[:, programs.num_rows :]))


def active_system(matrix: Tensor, active: Tensor) -> System:
    """With J the active rows, X the active columns and ``B = A_{J,R}``: the system with p = 1 and q = 0 (1 for rows not in J)."""
    m = matrix.shape[1]
    rows, columns = active[:, :m], active[:, m:]
    kept = torch.where(rows[:, :, None] & ~columns[:, None, :], matrix, 0.0)
    return System(kept, torch.ones_like(columns, dtype=matrix.dtype), (~rows).to(matrix.dtype), shift=SENSITIVE_SHIFT)


def solve_active(matrix: Tensor, active: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``(I - B^+ B) right``, ``lam = B^{+T} right`` and ``A' lam``; the rows of B are scaled to a largest entry of 1 first."""
    m = matrix.shape[1]
    free = torch.where(active[:, None, m:], 0.0, matrix.abs())
    size = free.amax(2) if m else free.sum(2)
    scale = 1.0 / torch.where(size > 0.0, size, 1.0)
    system = active_system(matrix * scale[:, :, None], active)
    unseen, duals = system.solve(right, torch.zeros_like(scale), REFINEMENTS)
    duals = torch.where(active[:, :m], duals * scale, 0.0)
    return unseen, duals, times(matrix.mT, duals)


def _polish_primal(programs: DensePrograms, system: System, x: Tensor, limit: Tensor, active: Tensor) -> Tensor:
    """Put the active lines exactly on their limits, unless that takes x out of others."""
    m = programs.num_rows
    moved = torch.where(active[:, m:], limit[:, m:], x)
    for _ in range(ROUNDS):
        missing = torch.where(active, limit - programs.values(moved), 0.0)[:, :m]
        change, _ = system.solve(torch.zeros_like(x), missing)
        moved = moved + torch.where(active[:, m:], 0.0, change)
    before, after = (_worst_violation(programs, point) for point in (x, moved))
    return torch.where((after <= before.clamp_min(NO_WORSE))[:, None], moved, x)


def _worst_violation(programs: DensePrograms, x: Tensor) -> Tensor:
    values = programs.values(x)
    return torch.maximum(programs.low - values, values - programs.high).amax(1).clamp_min(0.0)


def _polish_dual(programs: DensePrograms, system: System, multipliers: Tensor, active: Tensor) -> Tensor:
    """Make the multipliers of the active lines stationary, unless that turns a sign."""
    m = programs.num_rows
    at_bound = active[:, m:]
    before = programs.stationarity(multipliers).abs().amax(1)
    moved = torch.cat([multipliers[:, :m], torch.zeros_like(multipliers[:, m:])], 1)
    for _ in range(ROUNDS):
        missing = torch.where(at_bound, 0.0, -programs.stationarity(moved))
        _, change = system.solve(missing, torch.zeros_like(moved[:, :m]))
        moved = moved + torch.cat([torch.where(active[:, :m], change, 0.0), torch.zeros_like(missing)], 1)
    gradient = programs.stationarity(moved)
    moved = torch.cat([moved[:, :m], torch.where(at_bound, -gradient, 0.0)], 1)
    low, high = programs.low, programs.high
    turned = (moved * multipliers < 0.0) & (low != high)
    wrong = turned | (moved > 0.0) & (high == torch.inf) | (moved < 0.0) & (low == -torch.inf)
    allowed = (~wrong | (moved.abs() <= ROUNDING)).all(1)
    after = torch.where(at_bound, 0.0, gradient).abs().amax(1)
    accepted = allowed & (after <= before.clamp_min(NO_WORSE)) & moved.isfinite().all(1)
    return torch.where(accepted[:, None], torch.where(wrong, 0.0, moved), multipliers)


def _determined(system: System, at_bound: Tensor) -> Tensor:
    """Do the active lines leave no freedom to x? Tested with a vector that no row space contains by accident."""
    count = torch.arange(1, at_bound.shape[1] + 1, device=at_bound.device, dtype=system.columns.dtype)
    probe = torch.where(at_bound, 0.0, 0.5 + (0.6180339887498949 * count) % 1.0)
    free, _ = system.solve(probe, torch.zeros_like(system.rows))
    return torch.where(at_bound, 0.0, free).abs().amax(1) < 1e-6
