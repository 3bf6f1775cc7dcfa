"""The sparse factorization against numpy's dense solver: short columns, long ones, both, entries that are given twice."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from taskloss.kernels.sparse_ldl import SHORT, analyse, factorize, solve_refined, write_weights


@numba.njit
def solve(structure, matrix, shift, right_side):
    size = len(right_side)
    factor, pivots, room = np.empty(len(structure.factor_index)), np.empty(size), np.zeros(size)
    weight, solution, residual = np.empty(size), np.empty(size), np.empty(size)
    write_weights(structure, matrix, weight)
    replaced = factorize(structure, matrix, factor, pivots, room)
    error = solve_refined(structure, matrix, shift, weight, factor, pivots, right_side, solution, residual, 1e-13, 5)
    return solution, replaced, error, room


def upper_triangle(matrix: np.ndarray, twice: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By columns, the diagonal last; with ``twice`` each entry off the diagonal in two halves."""
    start, rows, values = [0], [], []
    for k in range(len(matrix)):
        for i in np.flatnonzero(matrix[:k, k]):
            rows += [i] * (2 if twice else 1)
            values += [matrix[i, k] / 2] * 2 if twice else [matrix[i, k]]
        rows.append(k)
        values.append(matrix[k, k])
        start.append(len(rows))
    return np.array(start), np.array(rows), np.array(values)


def quasi_definite(rng: np.random.Generator, size: int, density: float, last_dense: int) -> tuple[np.ndarray, np.ndarray]:
    """A random matrix with positive and negative blocks in a random order, and the signs of its diagonal."""
    sign = rng.choice([-1.0, 1.0], size)
    links = rng.standard_normal((size, size)) * (rng.random((size, size)) < density)
    links[:, size - last_dense :] = rng.standard_normal((size, last_dense))
    links = np.triu(links, 1) * (sign[:, None] != sign[None, :])
    return links + links.T + np.diag(sign * rng.uniform(0.5, 2.0, size)), sign


@pytest.mark.parametrize(
    ("size", "density", "last_dense", "kind"),
    [(1, 0.0, 0, "short"), (60, 0.02, 0, "short"), (60, 0.02, 2, "short"), (60, 0.5, 0, "long"), (80, 0.06, 3, "both")],
)
def test_against_a_dense_solver(size, density, last_dense, kind):
    kinds = set()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        matrix, sign = quasi_definite(rng, size, density, last_dense)
        right_side = rng.standard_normal(size)
        for twice in (False, True):
            start, rows, values = upper_triangle(matrix, twice)
            structure = analyse(start, rows, sign)
            kinds.add("short" if structure.short == size else "long" if structure.short == 0 else "both")
            solution, replaced, error, room = solve(structure, values, np.zeros(size), right_side)
            assert replaced == 0
            assert error < 1e-10
            assert not room.any()
            np.testing.assert_allclose(solution, np.linalg.solve(matrix, right_side), rtol=1e-8, atol=1e-10)
    assert kind in kinds
    assert SHORT < 60


def test_a_shift_of_the_diagonal_is_removed_by_refinement():
    matrix, sign = quasi_definite(np.random.default_rng(0), 40, 0.1, 1)
    shift = 1e-4 * sign
    start, rows, values = upper_triangle(matrix + np.diag(shift))
    solution, _, _, _ = solve(analyse(start, rows, sign), values, shift, np.ones(40))
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, np.ones(40)), rtol=1e-9)


def test_a_pivot_of_the_wrong_sign_is_replaced():
    start, rows, values = upper_triangle(np.array([[0.0, 1.0], [1.0, -1.0]]))
    _, replaced, _, _ = solve(analyse(start, rows, np.array([1.0, -1.0])), values, np.zeros(2), np.ones(2))
    assert replaced == 1
