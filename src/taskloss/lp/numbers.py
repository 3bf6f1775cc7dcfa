"""From tensors to arrays of float64, one row an item of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from taskloss.kernels.lp_batch import make_sound
from taskloss.lp.coordinates import Coordinates
from taskloss.lp.either import array_of

if TYPE_CHECKING:
    from taskloss.lp.problem import LinearProgram


class Numbers(NamedTuple):
    """The matrix by rows, inequalities above equations: ``columns[row_start[i]:row_start[i + 1]]`` are the columns of row i.

    ``entries``, ``cost``, ``low`` and ``high``: a row an item. The limits are of lines: inequalities, equations, variables.
    """

    row_start: np.ndarray
    columns: np.ndarray
    entries: np.ndarray
    cost: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def make_sound(self) -> bool:
        """Limits beyond 1e20 become infinite. Are the others finite where they must be, and none on the wrong side of another?"""
        return bool(make_sound(self.entries, self.cost, self.low, self.high))


def numbers_of(problem: LinearProgram) -> Numbers:
    """Read a problem."""
    items, n = problem.batch_size or 1, problem.num_variables
    ub, eq = problem.num_inequalities, problem.num_equations
    m = ub + eq
    low, high = np.full((items, m + n), -np.inf), np.full((items, m + n), np.inf)
    for limits, start, value in (
        (high, 0, problem.b_ub),
        (high, ub, problem.b_eq),
        (low, ub, problem.b_eq),
        (low, m, problem.lower),
        (high, m, problem.upper),
    ):
        if value is not None:
            limits[:, start : start + value.shape[-1]] = array_of(value)
    cost = np.empty((items, n))
    cost[:] = array_of(problem.c)
    return Numbers(*_stacked(problem.matrices, items), cost, low, high)


def _stacked(matrices: tuple[Coordinates | None, Coordinates | None], items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inequalities above equations, by rows: starts, columns, values."""
    present = [matrix for matrix in matrices if matrix is not None]
    lengths = [matrix.places.row_lengths for matrix in present]
    columns = [matrix.places.sorted_columns for matrix in present]
    values = np.empty((items, sum(len(part) for part in columns)))
    start = 0
    for matrix, part in zip(present, columns, strict=True):
        end = start + len(part)
        values[:, start:end] = matrix.sorted_numbers()
        start = end
    nothing = np.zeros(1, np.int64)
    return np.cumsum(np.concatenate([nothing, *lengths])), np.concatenate([nothing[:0], *columns]), values
