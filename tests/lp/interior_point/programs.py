"""Programs for the unit tests of the solver's parts, and the same written densely for numpy."""

from __future__ import annotations

import numpy as np

from taskloss.lp.interior_point.data import ProgramData
from taskloss.lp.interior_point.symbolic import sparsity_of


def random_program(seed: int, n: int = 6, m: int = 5) -> tuple[ProgramData, np.ndarray]:
    """A batch of one program with equations, one-sided and free rows, fixed and free variables; and its dense matrix."""
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.7)
    inside = np.concatenate([matrix @ np.ones(n), np.ones(n)])
    kind = rng.integers(0, 5, m + n)
    lower = np.where((kind == 0) | (kind == 1), -np.inf, inside - rng.uniform(0, 1, m + n))
    upper = np.where((kind == 0) | (kind == 2), np.inf, inside + rng.uniform(0, 1, m + n))
    lower, upper = np.where(kind == 3, inside, lower), np.where(kind == 3, inside, upper)
    return program_of_matrix(matrix, rng.standard_normal(n), lower, upper), matrix


def program_of_matrix(matrix: np.ndarray, cost: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> ProgramData:
    rows, columns = np.nonzero(matrix)
    row_start = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(matrix)))])
    return ProgramData(
        sparsity=sparsity_of(row_start, columns, matrix.shape[1]),
        entries=matrix[rows, columns][None].copy(),
        cost=np.array(cost, float)[None],
        quadratic=np.zeros((1, len(cost))),
        lower=np.array(lower, float)[None],
        upper=np.array(upper, float)[None],
    )


def one(programs: ProgramData) -> ProgramData:
    """The only program, without the batch axis."""
    return ProgramData(programs.sparsity, *(array[0] for array in programs[1:]))
