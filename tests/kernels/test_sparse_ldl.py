"""The sparse factorization against numpy's dense solver: short columns, long ones, both, entries that are given twice."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from taskloss.kernels.sparse_ldl import factorize, make_refinement, solve_refined, write_weights
from taskloss.kernels.sparse_structure import SHORT, analyse


@numba.njit
def solve_lanes(structure, lanes, matrix, shift, right_side):
    shape = right_side.shape
    factor, pivots, row = np.empty((len(structure.factor_index), len(lanes))), np.empty(shape), np.zeros(shape)
    weight, solution, room = np.empty(shape), np.empty(shape), make_refinement(shape[0], lanes)
    write_weights(structure, lanes, matrix, weight)
    factorize(structure, lanes, matrix, factor, pivots, row)
    solve_refined(structure, lanes, matrix, shift, weight, factor, pivots, right_side, solution, room, 1e-13, 5)
    return solution, pivots, room.error, row


def solve(structure, matrix, shift, right_side):
    """One system; checks that the same system in each of eight lanes, beside others, has the same solution."""
    one = solve_lanes(structure, (0,), matrix[:, None].copy(), shift[:, None].copy(), right_side[:, None].copy())
    factors = np.linspace(-0.5, 2.0, 8)
    values, shifts = np.repeat(matrix[:, None], 8, axis=1), np.repeat(shift[:, None], 8, axis=1)
    eight = solve_lanes(structure, (0,) * 8, values, shifts, right_side[:, None] * factors)
    np.testing.assert_allclose(eight[0], one[0] * factors, rtol=1e-9, atol=1e-11)
    assert not eight[3].any()
    return one[0][:, 0], one[1][:, 0], one[2][0], one[3]


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
            solution, pivots, error, room = solve(structure, values, np.zeros(size), right_side)
            assert (pivots * sign > 0.0).all()
            assert error < 1e-10
            assert not room.any()
            np.testing.assert_allclose(solution, np.linalg.solve(matrix, right_side), rtol=1e-8, atol=1e-10)
    assert kind in kinds
    assert SHORT < 60


def test_entries_that_cancel():
    """With entries of one and minus one, entries of the factor become zero that were not."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        matrix, sign = quasi_definite(rng, 40, 0.6, 0)
        matrix = np.sign(matrix)
        np.fill_diagonal(matrix, sign)
        start, rows, values = upper_triangle(matrix)
        solution, _, _, _ = solve(analyse(start, rows, sign), values, np.zeros(40), np.ones(40))
        np.testing.assert_allclose(matrix @ solution, np.ones(40), atol=1e-9)


def test_a_shift_of_the_diagonal_is_removed_by_refinement():
    matrix, sign = quasi_definite(np.random.default_rng(0), 40, 0.1, 1)
    shift = 1e-4 * sign
    start, rows, values = upper_triangle(matrix + np.diag(shift))
    solution, _, _, _ = solve(analyse(start, rows, sign), values, shift, np.ones(40))
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, np.ones(40)), rtol=1e-9)


def test_a_pivot_of_the_wrong_sign_is_replaced():
    start, rows, values = upper_triangle(np.array([[0.0, 1.0], [1.0, -1.0]]))
    _, pivots, _, _ = solve(analyse(start, rows, np.array([1.0, -1.0])), values, np.zeros(2), np.ones(2))
    assert pivots.tolist() == [1e6, 1.0 / (-1.0 - 1e6)]
