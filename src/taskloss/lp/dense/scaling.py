"""Equilibration as in ``kernels.lp_scaling``: rows, columns, limits and cost of dense programs near 1, by powers of two."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from taskloss.lp.dense.programs import DensePrograms

ROUNDS = 10


class Scales(NamedTuple):
    """What a pair of a scaled program is multiplied by to be one of the program as given: ``x (B, n)``, duals ``(B, m + n)``."""

    x: Tensor
    multipliers: Tensor


def equilibrated(programs: DensePrograms) -> tuple[DensePrograms, Scales]:
    """The programs scaled (Ruiz 2001), and the way back."""
    matrix, cost, low, high, inequalities = programs
    rows, columns = matrix.new_ones(matrix.shape[:2]), torch.ones_like(cost)
    if programs.num_rows:
        for _ in range(ROUNDS):
            size = matrix.abs() * rows[:, :, None] * columns[:, None, :]
            rows = rows / _root(size.amax(2))
            columns = columns / _root(size.amax(1))
    rows, columns = _power_of_two(rows), _power_of_two(columns)
    lines = torch.cat([rows, 1.0 / columns], 1)
    low, high, cost = low * lines, high * lines, cost * columns
    limit_unit, cost_unit = _unit(torch.cat([low, high], 1)), _unit(cost)
    matrix = matrix * rows[:, :, None] * columns[:, None, :]
    scaled = DensePrograms(matrix, cost * cost_unit, low * limit_unit, high * limit_unit, inequalities)
    return scaled, Scales(columns / limit_unit, lines / cost_unit)


def _root(size: Tensor) -> Tensor:
    return torch.where(size > 0.0, size, 1.0).sqrt()


def _power_of_two(numbers: Tensor) -> Tensor:
    """The nearest: scaling by it costs no rounding."""
    return torch.exp2(numbers.log2().round())


def _unit(numbers: Tensor) -> Tensor:
    """A power of two that brings the largest finite magnitude of each program near 1, ``(B, 1)``."""
    size = torch.where(numbers.isfinite(), numbers.abs(), 0.0).amax(1, keepdim=True)
    return 1.0 / _power_of_two(torch.where(size > 0.0, size, 1.0))
