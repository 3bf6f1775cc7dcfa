"""Proofs that a linear program has no solution: a Farkas vector, or a ray along which the cost falls forever.

*Infeasible.* For any row multipliers ``y`` and any x within the column limits, ``y'A x >= sum_j min(low_j a_j, high_j a_j)`` with
``a = A'y``; for any row values within the row limits, ``y'A x <= sum_i max(low_i y_i, high_i y_i)``. A ``y`` for which the
first exceeds the second proves that no x satisfies both. The residual of the least-squares problem ``min sum_i dist(value_i,
limits_i)^2`` is such a vector whenever the least distance is not zero.

*Unbounded.* A direction ``d`` that no limit stops (``value(d) <= 0`` where there is an upper limit, ``>= 0`` where there is
a lower one) with ``cost'd < 0``, together with one feasible point.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel
from taskloss.kernels.lp_program import largest, write_values_of_one

NEGLIGIBLE = 1e-9
"""Entries of a normalized certificate below this are rounding."""


@inner_kernel
def proves_infeasible(pattern, program, y, size_of_x):
    """Does ``y`` (of rows, normalized in place) prove that no point satisfies the limits?

    Where a column has no limit on the side that matters, its ``a_j`` should be zero and is only small; it could be outweighed by
    an x beyond ``size_of_x``, which is counted against the proof.
    """
    n = len(program.cost)
    m = len(y)
    size = largest(y)
    if size == 0.0 or size == np.inf:
        return False
    margin = 0.0
    combined = np.zeros(n)
    for row in range(m):
        y[row] /= size
        limit = program.high[row] if y[row] > 0.0 else program.low[row]
        if abs(limit) == np.inf:
            if abs(y[row]) > NEGLIGIBLE:
                return False
            y[row] = 0.0
        if y[row] != 0.0:
            margin -= y[row] * limit
            for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
                combined[pattern.columns[entry]] += y[row] * program.entries[entry]
    doubt = 0.0
    for column in range(n):
        a = combined[column]
        limit = program.low[m + column] if a > 0.0 else program.high[m + column]
        if abs(limit) == np.inf:
            if abs(a) > 1e3 * NEGLIGIBLE:
                return False
            doubt += abs(a) * size_of_x
        elif a != 0.0:
            margin += a * limit
    return margin > NEGLIGIBLE and margin > 10.0 * doubt


@inner_kernel
def proves_unbounded(pattern, program, direction):
    """Is ``direction`` (normalized in place) a ray along which the cost falls and that no limit stops?"""
    n = len(direction)
    size = largest(direction)
    if size == 0.0 or size == np.inf:
        return False
    direction /= size
    for column in range(n):
        if abs(direction[column]) < NEGLIGIBLE * 1e-3:
            direction[column] = 0.0
    change = np.empty(len(program.low))
    write_values_of_one(pattern, program.entries, direction, change)
    for line in range(len(change)):
        if program.high[line] < np.inf and change[line] > NEGLIGIBLE:
            return False
        if program.low[line] > -np.inf and change[line] < -NEGLIGIBLE:
            return False
    return np.dot(program.cost, direction) < -100.0 * NEGLIGIBLE
