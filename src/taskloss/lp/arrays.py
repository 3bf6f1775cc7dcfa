"""From tensors to the arrays of the compiled solvers, one row an item of the batch, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse
import torch

from taskloss.kernels.lp_program import Pattern
from taskloss.lp.coordinates import coordinates
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

    def program(self) -> tuple[np.ndarray, ...]:
        """The arrays that every kernel takes, in its order."""
        return self.entries, self.cost, self.quadratic, self.low, self.high

    def take(self, items: np.ndarray) -> Arrays:
        """The given items alone."""
        return Arrays(self.pattern, *(array[items] for array in self.program()))


def arrays_of(problem: LinearProgram) -> Arrays:
    """Read a problem: the nonzero pattern of the whole batch, and float64 numbers."""
    items, n = problem.batch_size or 1, problem.num_variables
    rows = [_entries(matrix, items) for matrix in (problem.A_ub, problem.A_eq) if matrix is not None]
    row_counts = [count for *_, count in rows]
    offsets = np.concatenate([[0], np.cumsum(row_counts)]).astype(np.int64)
    row_index = np.concatenate(
        [index + offset for (index, *_), offset in zip(rows, offsets, strict=False)] or [np.empty(0, np.int64)]
    )
    columns = np.concatenate([columns for _, columns, *_ in rows] or [np.empty(0, np.int64)])
    values = np.concatenate([values for _, _, values, _ in rows] or [np.empty((items, 0))], axis=1)
    m = int(offsets[-1])
    row_start = np.concatenate([[0], np.cumsum(np.bincount(row_index, minlength=m))]).astype(np.int64)
    cost = _vector(problem.c, items, n, 0.0)
    ub, eq = _rows(problem.A_ub), _rows(problem.A_eq)
    b_eq = _vector(problem.b_eq, items, eq, 0.0)
    high = np.concatenate([_vector(problem.b_ub, items, ub, np.inf), b_eq, _vector(problem.upper, items, n, np.inf)], axis=1)
    low = np.concatenate([np.full((items, ub), -np.inf), b_eq, _vector(problem.lower, items, n, -np.inf)], axis=1)
    high[high >= UNLIMITED] = np.inf
    low[low <= -UNLIMITED] = -np.inf
    return Arrays(pattern_of(row_start, columns, n), values, cost, np.zeros_like(cost), low, high)


def _rows(matrix: Any) -> int:
    return 0 if matrix is None else int(matrix.shape[-2])


def _vector(value: torch.Tensor | None, items: int, length: int, default: float) -> np.ndarray:
    if value is None:
        return np.full((items, length), default)
    array = value.detach().to("cpu", torch.float64).numpy()
    return np.array(np.broadcast_to(array, (items, length)))


def _entries(matrix: Any, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Row, column and values (a row an item) of the entries, sorted by row, then column; and how many rows there are."""
    rows = int(matrix.shape[-2])
    if isinstance(matrix, torch.Tensor) and matrix.layout == torch.strided:
        dense = matrix.detach().to("cpu", torch.float64).numpy()
        present = (dense != 0.0).any(axis=0) if dense.ndim == 3 else dense != 0.0
        row, column = np.nonzero(present)
        values = dense[:, row, column] if dense.ndim == 3 else np.broadcast_to(dense[row, column], (items, len(row)))
        return row, column, np.array(values), rows
    index, columns, stored = (part.detach().cpu().numpy() for part in coordinates(matrix))
    table = scipy.sparse.csr_matrix((stored.astype(np.float64), (index, columns)), shape=tuple(matrix.shape))
    row = np.repeat(np.arange(rows), np.diff(table.indptr))
    return row, table.indices.astype(np.int64), np.tile(table.data, (items, 1)), rows
