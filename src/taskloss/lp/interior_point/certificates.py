"""Proofs that a linear program has no solution: a Farkas vector, or a ray along which the cost falls forever.

*Infeasible.* For row multipliers ``y`` and any x within the bounds of the variables, ``y'A x >= sum_j min(lower_j a_j, upper_j
a_j)`` with ``a = A'y``; for any activities within the bounds of the rows, ``y'A x <= sum_i max(lower_i y_i, upper_i y_i)``. A
``y`` for which the first exceeds the second proves that no x satisfies both. ``farkas`` takes candidates from two least-squares
problems: the residual of ``min sum_i dist(activity_i, bounds_i)^2``, over the rows or over all constraints, is such a vector
whenever the least distance is not zero. Here candidates are only checked.

*Unbounded.* A direction ``d`` that no bound stops (``activity(d) <= 0`` where there is an upper bound, ``>= 0`` where there is
a lower one) with ``c'd < 0``, together with one feasible point.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.lp.interior_point.data import largest_magnitude, write_activity

NEGLIGIBLE = 1e-9
"""An entry of a normalized certificate that is no larger is rounding; a margin that is no larger proves nothing."""
NEGLIGIBLE_COMBINATION = 1e-6
"""The same for entries of ``A'y``, which are sums of many."""
NEGLIGIBLE_DIRECTION = 1e-12
"""Entries of a normalized direction below this are set to zero."""
LEAST_DESCENT = 1e-7
"""A normalized direction must reduce the cost by more than this."""


@kernel
def proves_infeasible(program, y, size_of_x):
    """Whether ``y (m,)``, normalized in place, proves that no point satisfies all bounds of one program.

    Where a variable has no bound on the side that matters, its ``a_j`` should be zero but is only small. What it could contribute
    with ``|x_j|`` up to ``size_of_x`` is counted against the proof; so with free variables the proof holds for x up to that size.
    """
    sparsity = program.sparsity
    m = len(y)
    size = largest_magnitude(y)
    if size == 0.0 or size == np.inf:
        return False
    margin = 0.0
    combined = np.zeros(len(program.cost), np.float64)
    for row in range(m):
        y[row] /= size
        bound = program.upper[row] if y[row] > 0.0 else program.lower[row]
        if abs(bound) == np.inf:
            if abs(y[row]) > NEGLIGIBLE:
                return False
            y[row] = 0.0
        if y[row] != 0.0:
            margin -= y[row] * bound
            for entry in range(sparsity.row_start[row], sparsity.row_start[row + 1]):
                combined[sparsity.columns[entry]] += y[row] * program.entries[entry]
    doubt = 0.0
    for column in range(len(combined)):
        a = combined[column]
        bound = program.lower[m + column] if a > 0.0 else program.upper[m + column]
        if abs(bound) == np.inf:
            if abs(a) > NEGLIGIBLE_COMBINATION:
                return False
            doubt += abs(a) * size_of_x
        elif a != 0.0:
            margin += a * bound
    return margin > NEGLIGIBLE and margin > 10.0 * doubt


@kernel
def proves_unbounded(program, direction):
    """Whether ``direction (n,)``, normalized in place, is a ray along which the cost falls and that no bound stops."""
    size = largest_magnitude(direction)
    if size == 0.0 or size == np.inf:
        return False
    for column in range(len(direction)):
        direction[column] /= size
        if abs(direction[column]) < NEGLIGIBLE_DIRECTION:
            direction[column] = 0.0
    change = np.empty(len(program.lower), np.float64)
    write_activity(program, direction, change)
    for i in range(len(change)):
        if program.upper[i] < np.inf and change[i] > NEGLIGIBLE:
            return False
        if program.lower[i] > -np.inf and change[i] < -NEGLIGIBLE:
            return False
    return np.dot(program.cost, direction) < -LEAST_DESCENT
