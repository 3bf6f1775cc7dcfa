"""The sparse factorization against numpy's dense solver: short columns, long ones, both, entries that are given twice."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from taskloss.lp.interior_point.ldl import factorize, solve_factorized
from taskloss.lp.interior_point.symbolic import SHORT_COLUMN, analyse


@numba.njit
def factorize_and_solve(symbolic, off_diagonal, diagonal, rhs):
    factor, inverse_pivots, work = np.empty(len(symbolic.factor_row)), np.empty(len(rhs)), np.zeros(len(rhs))
    factorize(symbolic, off_diagonal, diagonal, factor, inverse_pivots, work)
    solution = rhs.copy()
    solve_factorized(symbolic, factor, inverse_pivots, solution)
    return solution, factor, inverse_pivots, work


def strict_upper_triangle(matrix: np.ndarray, twice: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts, rows and values by columns; with ``twice`` each entry in two halves."""
    start, rows, values = [0], [], []
    for k in range(len(matrix)):
        for i in np.flatnonzero(matrix[:k, k]):
            rows += [i] * (2 if twice else 1)
            values += [matrix[i, k] / 2] * 2 if twice else [matrix[i, k]]
        start.append(len(rows))
    return np.array(start), np.array(rows, np.int64), np.array(values, float)


def quasi_definite(rng: np.random.Generator, size: int, density: float, last_dense: int) -> tuple[np.ndarray, np.ndarray]:
    """A random matrix with positive and negative blocks in a random order, and the signs of its diagonal."""
    sign = rng.choice([-1.0, 1.0], size)
    links = rng.standard_normal((size, size)) * (rng.random((size, size)) < density)
    links[:, size - last_dense :] = rng.standard_normal((size, last_dense))
    links = np.triu(links, 1) * (sign[:, None] != sign[None, :])
    return links + links.T + np.diag(sign * rng.uniform(0.5, 2.0, size)), sign


def dense_factor(symbolic, factor: np.ndarray) -> np.ndarray:
    lower = np.eye(len(symbolic.sign))
    for column in range(len(lower)):
        for entry in range(int(symbolic.factor_start[column]), int(symbolic.factor_start[column + 1])):
            lower[symbolic.factor_row[entry], column] = factor[entry]
    return lower


@pytest.mark.parametrize(
    ("size", "density", "last_dense", "kind"),
    [(1, 0.0, 0, "short"), (60, 0.02, 0, "short"), (60, 0.02, 2, "short"), (60, 0.5, 0, "long"), (80, 0.06, 3, "both")],
)
def test_against_numpy(size, density, last_dense, kind):
    kinds = set()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        matrix, sign = quasi_definite(rng, size, density, last_dense)
        rhs = rng.standard_normal(size)
        for twice in (False, True):
            start, rows, values = strict_upper_triangle(matrix, twice)
            symbolic = analyse(start, rows, sign)
            kinds.add("short" if symbolic.num_short == size else "long" if symbolic.num_short == 0 else "both")
            solution, factor, inverse_pivots, work = factorize_and_solve(symbolic, values, np.diag(matrix).copy(), rhs)
            assert (inverse_pivots * sign > 0.0).all()
            assert not work.any()
            lower = dense_factor(symbolic, factor)
            np.testing.assert_allclose(lower @ np.diag(1 / inverse_pivots) @ lower.T, matrix, atol=1e-10)
            np.testing.assert_allclose(solution, np.linalg.solve(matrix, rhs), rtol=1e-7, atol=1e-9)
    assert kind in kinds
    assert SHORT_COLUMN < 60


def test_entries_that_cancel():
    """With entries of one and minus one, entries of the factor become zero that were not."""
    for seed in range(20):
        matrix, sign = quasi_definite(np.random.default_rng(seed), 40, 0.6, 0)
        matrix = np.sign(matrix)
        np.fill_diagonal(matrix, sign)
        start, rows, values = strict_upper_triangle(matrix)
        solution, *_ = factorize_and_solve(analyse(start, rows, sign), values, sign.copy(), np.ones(40))
        np.testing.assert_allclose(matrix @ solution, np.ones(40), atol=1e-9)


def test_a_pivot_of_the_wrong_sign_is_replaced():
    start, rows, values = strict_upper_triangle(np.array([[0.0, 1.0], [1.0, -1.0]]))
    symbolic = analyse(start, rows, np.array([1.0, -1.0]))
    _, _, inverse_pivots, _ = factorize_and_solve(symbolic, values, np.array([0.0, -1.0]), np.ones(2))
    assert inverse_pivots.tolist() == [1e6, 1.0 / (-1.0 - 1e6)]
