r"""A batch of linear programs as arrays: the one form in which the compiled solver reads them.

Every program is

.. math:: \min_x\; c'x + \tfrac12 \sum_j q_j x_j^2 \quad\text{s.t.}\quad l \le (A x,\; x) \le u .

A *constraint* is a row of A or a variable with its bounds: constraints ``0 .. m - 1`` are the rows (inequalities, then
equations), constraints ``m .. m + n - 1`` the variables. The *activity* of a constraint is ``(A x)_i`` or ``x_j``. An equation or
a fixed variable is a constraint with ``lower == upper``.

A *multiplier* belongs to a constraint: it is positive at an upper bound and negative at a lower bound. A *dual* belongs to a
bound and is never negative. A *pair* is an x with multipliers; it is optimal if x is feasible, the multipliers are zero away
from the bounds, and ``c + q x + A'y + z = 0`` for the multipliers y of the rows and z of the variables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.lp.interior_point.symbolic import Sparsity

UNBOUNDED = 1e20
"""A bound beyond this counts as infinite."""


class ProgramData(NamedTuple):
    """Programs that share their sparsity. With B programs every array has a leading axis B; that of one program has none."""

    sparsity: Sparsity
    """Where the nonzeros are, and how the KKT matrix is factorized."""
    entries: np.ndarray
    """Nonzeros of A, row by row, ``(B, nonzeros)``."""
    cost: np.ndarray
    """``(B, n)``."""
    quadratic: np.ndarray
    """The diagonal q of a quadratic term, ``(B, n)``; zero for a linear program."""
    lower: np.ndarray
    """Lower bounds of the constraints, rows first, ``(B, m + n)``."""
    upper: np.ndarray
    """Upper bounds, ``(B, m + n)``."""

    @property
    def num_items(self) -> int:
        """Number of programs in the batch."""
        return len(self.cost)

    @property
    def num_rows(self) -> int:
        """Number of rows of A."""
        return len(self.sparsity.row_start) - 1

    @property
    def work(self) -> int:
        """Rough measure of the time that one program takes: the nonzeros of the KKT matrix and of its factor."""
        return len(self.sparsity.symbolic.factor_row) + len(self.sparsity.symbolic.row)

    def slice(self, items: slice) -> ProgramData:
        """Return some of the programs; they share memory with these."""
        return ProgramData(self.sparsity, *(array[items] for array in self[1:]))

    def item(self, index: int) -> ProgramData:
        """Return one program, without the batch axis; it shares memory with these."""
        return ProgramData(self.sparsity, *(array[index] for array in self[1:]))

    def copy(self) -> ProgramData:
        """Return the programs in memory of their own."""
        return ProgramData(self.sparsity, *(array.copy() for array in self[1:]))


@allocating_kernel
def program_of(programs, item):
    """Return one program of a batch, as views."""
    return ProgramData(
        programs.sparsity,
        programs.entries[item],
        programs.cost[item],
        programs.quadratic[item],
        programs.lower[item],
        programs.upper[item],
    )


@kernel
def normalize_bounds(programs):
    """Replace bounds beyond ``UNBOUNDED`` by infinity, in place, and return whether all values are valid.

    Valid means: entries and cost finite, no bound NaN or infinite on the wrong side, and lower <= upper everywhere.
    """
    valid = np.isfinite(programs.entries.sum() + programs.cost.sum())
    for item in range(len(programs.lower)):
        for i in range(programs.lower.shape[1]):
            lower = programs.lower[item, i]
            upper = programs.upper[item, i]
            valid &= lower < np.inf and upper > -np.inf and lower <= upper
            if lower != upper:
                programs.lower[item, i] = lower if lower > -UNBOUNDED else -np.inf
                programs.upper[item, i] = upper if upper < UNBOUNDED else np.inf
    return valid


@inner_kernel
def write_activity(program, x, activity):
    """Write ``(A x, x)`` to ``activity (m + n,)``."""
    row_start, columns, entries = program.sparsity.row_start, program.sparsity.columns, program.entries
    m = len(row_start) - 1
    for row in range(m):
        total = 0.0
        for entry in range(row_start[row], row_start[row + 1]):
            total += entries[entry] * x[columns[entry]]
        activity[row] = total
    for column in range(len(x)):
        activity[m + column] = x[column]


@inner_kernel
def write_stationarity(program, x, multipliers, gradient):
    """Write ``c + q x + A'y + z`` for ``multipliers = (y, z)`` to ``gradient (n,)``: zero at an optimum."""
    row_start, columns, entries = program.sparsity.row_start, program.sparsity.columns, program.entries
    m = len(row_start) - 1
    for column in range(len(x)):
        gradient[column] = program.cost[column] + program.quadratic[column] * x[column] + multipliers[m + column]
    for row in range(m):
        y = multipliers[row]
        if y != 0.0:
            for entry in range(row_start[row], row_start[row + 1]):
                gradient[columns[entry]] += entries[entry] * y


@inner_kernel
def copy_values(source, target):
    """Copy an array; numba compiles this sooner than the assignment of a slice."""
    for i in range(len(target)):
        target[i] = source[i]


@kernel
def activity_batch(programs, x, activity):
    """Write the activity of every program at its row of ``x (B, n)`` to ``activity (B, m + n)``."""
    for item in range(len(x)):
        write_activity(program_of(programs, item), x[item], activity[item])


@inner_kernel
def largest_magnitude(vector):
    """Return the largest absolute value; infinity if any entry is NaN."""
    largest = 0.0
    total = 0.0
    for value in vector:
        total += value
        largest = max(largest, abs(value))
    return largest if np.isfinite(total) and largest < np.inf else np.inf


@inner_kernel
def largest_finite(vector, count):
    """Return the largest finite absolute value among the first ``count`` entries; zero if there is none."""
    largest = 0.0
    for i in range(count):
        magnitude = abs(vector[i])
        if largest < magnitude < np.inf:
            largest = magnitude
    return largest
