"""Equilibration: rows, columns, limits and cost of a linear program brought near 1 by powers of two, which costs no rounding."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel

ROUNDS = 10


@inner_kernel
def _power_of_two(value):
    """The nearest power of two: scaling by it costs no rounding."""
    return 2.0 ** np.round(np.log2(value))


@inner_kernel
def equilibrate(pattern, entries, row_scale, column_scale):
    """Scales that bring the largest entry of every row and column near 1 (Ruiz 2001)."""
    m = len(row_scale)
    n = len(column_scale)
    rows = np.empty(m)
    columns = np.empty(n)
    row_scale[:] = 1.0
    column_scale[:] = 1.0
    for _ in range(ROUNDS):
        rows[:] = 0.0
        columns[:] = 0.0
        for row in range(m):
            for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
                column = pattern.columns[entry]
                size = abs(entries[entry]) * row_scale[row] * column_scale[column]
                rows[row] = max(rows[row], size)
                columns[column] = max(columns[column], size)
        least = 1.0
        most = 1.0
        for row in range(m):
            if rows[row] > 0.0:
                row_scale[row] /= np.sqrt(rows[row])
                least = min(least, rows[row])
                most = max(most, rows[row])
        for column in range(n):
            if columns[column] > 0.0:
                column_scale[column] /= np.sqrt(columns[column])
                least = min(least, columns[column])
                most = max(most, columns[column])
        if least > 0.8 and most < 1.25:
            # The scales are rounded to powers of two, so no more is needed.
            break
    for row in range(m):
        row_scale[row] = _power_of_two(row_scale[row])
    for column in range(n):
        column_scale[column] = _power_of_two(column_scale[column])


@inner_kernel
def _unit(vector):
    """A power of two that brings the largest finite magnitude of ``vector`` near 1."""
    size = 0.0
    for value in vector:
        if abs(value) < np.inf:
            size = max(size, abs(value))
    return 1.0 / _power_of_two(size) if size > 0.0 else 1.0


@inner_kernel
def scale_program(pattern, entries, cost, low, high, row_scale, column_scale):
    """Scale one program in place; returns the factors of its limits and of its cost."""
    m = len(row_scale)
    for row in range(m):
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            entries[entry] *= row_scale[row] * column_scale[pattern.columns[entry]]
    low[:m] *= row_scale
    high[:m] *= row_scale
    low[m:] /= column_scale
    high[m:] /= column_scale
    limit_scale = min(_unit(low), _unit(high))
    low *= limit_scale
    high *= limit_scale
    cost *= column_scale
    cost_scale = _unit(cost)
    cost *= cost_scale
    return limit_scale, cost_scale
