"""Assembly and solution of the KKT systems against the dense matrices of their definitions."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from taskloss.lp.interior_point.active_set import factorize_active_set, solve_active_set_batch
from taskloss.lp.interior_point.augmented_lagrangian import solve_hessian_batch
from taskloss.lp.interior_point.kkt import factorize_kkt, make_kkt, solve_kkt
from tests.lp.interior_point.programs import one, random_program


@numba.njit
def solve_weighted(program, column_weight, row_weight, regularization, rhs_x, rhs_y, tolerance):
    sparsity = program.sparsity
    kkt = make_kkt(sparsity)
    for entry in range(len(program.entries)):
        kkt.off_diagonal[sparsity.kkt_entry[entry]] = program.entries[entry]
    for column in range(len(column_weight)):
        kkt.diagonal[sparsity.column_position[column]] = column_weight[column] + regularization
        kkt.regularization[sparsity.column_position[column]] = regularization
    for row in range(len(row_weight)):
        kkt.diagonal[sparsity.row_position[row]] = -row_weight[row] - regularization
        kkt.regularization[sparsity.row_position[row]] = -regularization
    factorize_kkt(sparsity, kkt)
    dx, dy = np.empty(len(rhs_x)), np.empty(len(rhs_y))
    error = solve_kkt(sparsity, kkt, rhs_x, rhs_y, dx, dy, tolerance, 10)
    return dx, dy, error


@numba.njit
def active_set_matrix(program, active):
    sparsity = program.sparsity
    kkt = make_kkt(sparsity)
    factorize_active_set(sparsity, program.entries, active, 0.0, kkt)
    return kkt.off_diagonal, kkt.diagonal


@pytest.mark.parametrize("regularization", [0.0, 1e-4])
def test_a_weighted_system_against_numpy(regularization):
    """Refinement removes the regularization."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        programs, matrix = random_program(seed)
        m, n = matrix.shape
        column_weight, row_weight = rng.uniform(0.1, 2, n), rng.uniform(0.1, 2, m)
        dense = np.block([[np.diag(column_weight), matrix.T], [matrix, -np.diag(row_weight)]])
        rhs = rng.standard_normal(n + m)
        dx, dy, error = solve_weighted(one(programs), column_weight, row_weight, regularization, rhs[:n], rhs[n:], 1e-13)
        np.testing.assert_allclose(np.concatenate([dx, dy]), np.linalg.solve(dense, rhs), rtol=1e-8, atol=1e-10)
        assert error < 1e-11


def test_without_refinement_the_regularization_stays():
    programs, matrix = random_program(0)
    m, n = matrix.shape
    dense = np.block([[np.eye(n) * 1.5, matrix.T], [matrix, -np.eye(m) * 1.5]])
    dx, dy, error = solve_weighted(one(programs), np.ones(n), np.ones(m), 0.5, np.ones(n), np.ones(m), np.inf)
    np.testing.assert_allclose(np.concatenate([dx, dy]), np.linalg.solve(dense, np.ones(n + m)), rtol=1e-10)
    assert error == 0.0


def test_the_matrix_of_an_active_set():
    for seed in range(10):
        programs, matrix = random_program(seed)
        m, n = matrix.shape
        active = np.random.default_rng(seed).random(m + n) < 0.5
        off_diagonal, diagonal = active_set_matrix(one(programs), active)
        rows, columns = np.nonzero(matrix)
        kept = np.where(active[:m, None] & ~active[None, m:], matrix, 0.0)
        sparsity = programs.sparsity
        np.testing.assert_array_equal(off_diagonal[sparsity.kkt_entry], kept[rows, columns])
        np.testing.assert_array_equal(diagonal[sparsity.column_position], np.ones(n))
        np.testing.assert_array_equal(diagonal[sparsity.row_position], np.where(active[:m], 0.0, -1.0))


def test_the_systems_of_the_active_set_gradient():
    """Against the pseudo-inverse of the active rows at the variables that are not at a bound."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        programs, matrix = random_program(seed, n=7, m=4)
        m, n = matrix.shape
        active = rng.random((1, m + n)) < 0.4
        rhs = rng.standard_normal((1, n))
        rows, free = active[0, :m], ~active[0, m:]
        block = matrix[np.ix_(rows, free)]
        unseen, duals, transposed = np.empty((1, n)), np.empty((1, m)), np.empty((1, n))
        solve_active_set_batch(programs, np.zeros(1, np.int64), active, rhs, unseen, duals, transposed)
        inverse = np.linalg.pinv(block)
        expected = np.zeros(m)
        expected[rows] = inverse.T @ rhs[0, free]
        np.testing.assert_allclose(duals[0], expected, atol=1e-6)
        np.testing.assert_allclose(unseen[0, free], rhs[0, free] - inverse @ (block @ rhs[0, free]), atol=1e-6)
        np.testing.assert_allclose(transposed[0], matrix.T @ expected, atol=1e-6)


def test_the_hessian_of_the_penalty_function():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        programs, matrix = random_program(seed)
        m, n = matrix.shape
        programs.quadratic[:] = 0.3
        active, rhs, solution = rng.random((1, m + n)) < 0.5, rng.standard_normal((1, n)), np.empty((1, n))
        solve_hessian_batch(programs, np.zeros(1, np.int64), active, 20.0, rhs, solution)
        constraints = np.vstack([matrix, np.eye(n)])[active[0]]
        hessian = 20.0 * constraints.T @ constraints + 0.3 * np.eye(n)
        np.testing.assert_allclose(solution[0], np.linalg.solve(hessian, rhs[0]), rtol=1e-6, atol=1e-9)
