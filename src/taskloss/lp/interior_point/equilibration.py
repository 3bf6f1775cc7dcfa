r"""Equilibration (Ruiz 2001): rows, columns, bounds and cost of a program are scaled near 1, by powers of two.

With row scales r, column scales s, a scale b of all bounds and a scale k of the cost the scaled program has

.. math:: \hat A = R A S,\quad \hat x = b\, S^{-1} x,\quad \hat c = k\, S c,\quad \hat y = k\, R^{-1} y ,

so ``x = \hat x s / b`` and the multipliers of rows and variables are ``\hat y r / k`` and ``\hat z / (s k)``. Powers of two
cost no rounding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel
from taskloss.lp.interior_point.data import largest_finite, program_of

MAX_ROUNDS = 10
"""Each takes the roots of what is left, so ten bring factors of 1e300 near 2."""
NEAR_ONE = (0.8, 1.25)
"""Range of the largest entry of a row or column that needs no further round; the scales are rounded anyway."""


class Equilibration(NamedTuple):
    """Scales of B programs, see above; ones where nothing is scaled."""

    row_scale: np.ndarray
    """r, ``(B, m)``."""
    column_scale: np.ndarray
    """s, ``(B, n)``."""
    bound_scale: np.ndarray
    """b, ``(B,)``."""
    cost_scale: np.ndarray
    """k, ``(B,)``."""

    def constraint_scale(self) -> np.ndarray:
        """Return the scales of the activities of all constraints, without b, ``(B, m + n)``: r, then one over s."""
        return np.concatenate([self.row_scale, 1.0 / self.column_scale], axis=1)

    def scaled(self, x: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of the programs as given, ``(B, n)`` and ``(B, m + n)``, in the units of the scaled ones."""
        return x * (self.bound_scale[:, None] / self.column_scale), multipliers * self.cost_scale[
            :, None
        ] / self.constraint_scale()

    def unscaled(self, x: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of the scaled programs in the units of those as given."""
        return x * (self.column_scale / self.bound_scale[:, None]), multipliers * (
            self.constraint_scale() / self.cost_scale[:, None]
        )


def identity_equilibration(items: int, m: int, n: int) -> Equilibration:
    """Return an equilibration that changes nothing."""
    return Equilibration(
        row_scale=np.ones((items, m)), column_scale=np.ones((items, n)), bound_scale=np.ones(items), cost_scale=np.ones(items)
    )


@kernel
def equilibrate_batch(programs, equilibration):
    """Scale every program of a batch in place, and write the scales."""
    m, n = equilibration.row_scale.shape[1], equilibration.column_scale.shape[1]
    row_max, column_max = np.empty(m, np.float64), np.empty(n, np.float64)
    for item in range(len(programs.cost)):
        program = program_of(programs, item)
        _find_scales(program, equilibration.row_scale[item], equilibration.column_scale[item], row_max, column_max)
        _scale_rows_and_columns(program, equilibration.row_scale[item], equilibration.column_scale[item])
        largest_bound = max(largest_finite(program.lower, m + n), largest_finite(program.upper, m + n))
        equilibration.bound_scale[item] = _unit(largest_bound)
        equilibration.cost_scale[item] = _unit(largest_finite(program.cost, n))
        for i in range(m + n):
            program.lower[i] *= equilibration.bound_scale[item]
            program.upper[i] *= equilibration.bound_scale[item]
        for column in range(n):
            program.cost[column] *= equilibration.cost_scale[item]


@inner_kernel
def _find_scales(program, rows, columns, row_max, column_max):
    """Write powers of two to ``rows`` and ``columns`` that bring the largest entry of each row and column near 1."""
    for row in range(len(rows)):
        rows[row] = 1.0
    for column in range(len(columns)):
        columns[column] = 1.0
    for _ in range(MAX_ROUNDS):
        _write_largest_entries(program, rows, columns, row_max, column_max)
        row_range = _divide_by_root(rows, row_max)
        column_range = _divide_by_root(columns, column_max)
        if min(row_range[0], column_range[0]) >= NEAR_ONE[0] and max(row_range[1], column_range[1]) <= NEAR_ONE[1]:
            break
    for row in range(len(rows)):
        rows[row] = _power_of_two(rows[row])
    for column in range(len(columns)):
        columns[column] = _power_of_two(columns[column])


@inner_kernel
def _write_largest_entries(program, rows, columns, row_max, column_max):
    """Write the largest absolute entry of every scaled row and column."""
    sparsity = program.sparsity
    for column in range(len(columns)):
        column_max[column] = 0.0
    for row in range(len(rows)):
        largest = 0.0
        for entry in range(sparsity.row_start[row], sparsity.row_start[row + 1]):
            column = sparsity.columns[entry]
            size = abs(program.entries[entry]) * rows[row] * columns[column]
            largest = max(largest, size)
            column_max[column] = max(column_max[column], size)
        row_max[row] = largest


@inner_kernel
def _divide_by_root(scales, largest):
    """Divide each scale by the root of its ``largest`` entry; return the range of these entries, which includes 1."""
    least = 1.0
    most = 1.0
    for i in range(len(scales)):
        if largest[i] > 0.0:
            least = min(least, largest[i])
            most = max(most, largest[i])
            scales[i] /= math.sqrt(largest[i])
    return least, most


@inner_kernel
def _scale_rows_and_columns(program, rows, columns):
    sparsity = program.sparsity
    m = len(rows)
    for row in range(m):
        for entry in range(sparsity.row_start[row], sparsity.row_start[row + 1]):
            program.entries[entry] *= rows[row] * columns[sparsity.columns[entry]]
        program.lower[row] *= rows[row]
        program.upper[row] *= rows[row]
    for column in range(len(columns)):
        program.lower[m + column] /= columns[column]
        program.upper[m + column] /= columns[column]
        program.cost[column] *= columns[column]


@inner_kernel
def _power_of_two(value):
    """Return the nearest power of two, by ratio."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent if fraction * fraction >= 0.5 else exponent - 1)


@inner_kernel
def _unit(largest):
    """Return a power of two that brings the largest magnitude near 1; 1 for zero."""
    return 1.0 / _power_of_two(largest) if largest > 0.0 else 1.0
