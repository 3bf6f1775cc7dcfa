"""From tensors to the arrays of the compiled solvers, one row an item of the batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from taskloss.kernels.lp_program import Pattern
from taskloss.lp.coordinates import Coordinates
from taskloss.lp.problem import UNLIMITED, LinearProgram
from taskloss.lp.structure import pattern_of


@dataclasses.dataclass
class Arrays:
    """A batch for the kernels. Lines are the inequality rows, the equations, then the variables; see ``kernels.lp_program``."""

    pattern: Pattern
    entries: np.ndarray
    cost: np.ndarray
    quadratic: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def num_items(self) -> int:
        """The batch size."""
        return len(self.cost)

    @property
    def num_rows(self) -> int:
        """Inequalities and equations."""
        return len(self.pattern.at_row)

    @property
    def work(self) -> int:
        """How long an item takes, roughly: the numbers of a factorization."""
        return len(self.pattern.structure.factor_index) + len(self.pattern.structure.row_numbers)

    def program(self) -> tuple[np.ndarray, ...]:
        """The arrays that every kernel takes, in its order."""
        return self.entries, self.cost, self.quadratic, self.low, self.high

    def take(self, items: np.ndarray) -> Arrays:
        """The given items alone."""
        return Arrays(self.pattern, *(array[items] for array in self.program()))


def arrays_of(problem: LinearProgram) -> Arrays:
    """Read a problem: the nonzero pattern of the whole batch, and float64 numbers."""
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
            limits[:, start : start + value.shape[-1]] = _numbers(value)
    high[high >= UNLIMITED] = np.inf
    low[low <= -UNLIMITED] = -np.inf
    cost = np.empty((items, n))
    cost[:] = _numbers(problem.c)
    row_start, columns, values = _stacked(problem.matrices, (ub, eq), items)
    return Arrays(pattern_of(row_start, columns, n), values, cost, np.zeros((items, n)), low, high)


def _numbers(value: torch.Tensor) -> np.ndarray:
    return value.detach().to("cpu", torch.float64).numpy()


def _stacked(
    matrices: tuple[Coordinates | None, Coordinates | None], counts: tuple[int, int], items: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inequalities above equations, by rows: starts, columns, values."""
    lengths, columns, values = [np.zeros(1, np.int64)], [], []
    for matrix, count in zip(matrices, counts, strict=True):
        if matrix is not None:
            lengths.append(np.bincount(matrix.rows, minlength=count))
            columns.append(matrix.columns)
            values.append(matrix.numbers(items))
    row_start = np.cumsum(np.concatenate(lengths))
    if not columns:
        return row_start, np.empty(0, np.int64), np.empty((items, 0))
    return row_start, np.concatenate(columns), np.concatenate(values, axis=1)
