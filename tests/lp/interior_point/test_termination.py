"""Optimality of a pair and certificates against numpy, and the parts of an interior-point iteration against their definitions."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from taskloss.lp.interior_point.certificates import proves_infeasible, proves_unbounded
from taskloss.lp.interior_point.predictor_corrector import interior_point_batch
from taskloss.lp.interior_point.termination import optimality_batch, relative_gap
from taskloss.lp.interior_point.variables import step_length
from tests.lp.interior_point.programs import one, program_of_matrix, random_program

ITEM = np.zeros(1, np.int64)


@numba.njit
def gap_of(program, x, multipliers):
    return relative_gap(program, x, multipliers)


@numba.njit
def length_of(change, inverse):
    return step_length(change, inverse)


def error_of(programs, x, multipliers) -> float:
    error = np.empty(1)
    activity = np.empty_like(programs.lower)
    optimality_batch(programs, ITEM, np.array([x], float), np.array([multipliers], float), activity, error, np.empty(1))
    return float(error[0])


def test_the_error_of_a_random_pair():
    for seed in range(20):
        programs, matrix = random_program(seed)
        m, n = matrix.shape
        rng = np.random.default_rng(seed)
        x, multipliers = rng.standard_normal(n), rng.standard_normal(m + n)
        program = one(programs)
        # A multiplier belongs to a bound that exists.
        multipliers = np.where(np.where(multipliers > 0, np.isfinite(program.upper), np.isfinite(program.lower)), multipliers, 0)
        activity = np.concatenate([matrix @ x, x])
        finite = np.concatenate([program.lower[:m], program.upper[:m], [0.0]])
        scale = np.concatenate(
            [1 + np.abs(finite[np.isfinite(finite)]).max() + np.abs(matrix) @ np.abs(x), np.full(n, 1 + np.abs(x).max())]
        )
        violation = np.maximum(program.lower - activity, activity - program.upper).clip(0) / scale
        stationarity = program.cost + matrix.T @ multipliers[:m] + multipliers[m:]
        bound = np.where(multipliers > 0, program.upper, program.lower)
        dual = -sum(u * b for u, b in zip(multipliers, bound, strict=True) if u != 0)
        primal = program.cost @ x
        gap = abs(primal - dual) / max(np.abs(program.cost * x).sum(), abs(dual))
        assert gap_of(program, x, multipliers) == pytest.approx(gap)
        expected = max(violation.max(), np.abs(stationarity).max() / (1 + np.abs(program.cost).max()), gap)
        assert error_of(programs, x, multipliers) == pytest.approx(expected)


def test_an_optimal_pair_by_hand():
    """``min x + 2 y`` subject to ``x + y >= 1``, ``x, y >= 0`` has x = (1, 0) and the multipliers (-1; 0, -1)."""
    programs = program_of_matrix(np.array([[1.0, 1.0]]), [1.0, 2.0], [1.0, 0.0, 0.0], [np.inf] * 3)
    assert error_of(programs, [1.0, 0.0], [-1.0, 0.0, -1.0]) == 0.0
    assert error_of(programs, [1.0, 0.0], [-1.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert error_of(programs, [np.nan, 0.0], [-1.0, 0.0, -1.0]) == np.inf
    x, multipliers, error = np.empty((1, 2)), np.empty((1, 3)), np.empty(1)
    iterations, trace = np.zeros(1, np.int64), np.empty((1, 50, 2))
    interior_point_batch(programs, ITEM, 0.0, 1e-11, 1e-8, 1e-9, 50, x, multipliers, error, iterations, trace)
    np.testing.assert_allclose(x[0], [1.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(multipliers[0], [-1.0, 0.0, -1.0], atol=1e-7)
    assert error[0] == pytest.approx(error_of(programs, x[0], multipliers[0]), abs=1e-8)
    assert 2 < iterations[0] < 15
    np.testing.assert_array_equal(trace[0, iterations[0] - 1], x[0])


def test_the_step_length_keeps_values_positive():
    values, change = np.array([1.0, 2.0, 4.0]), np.array([-0.5, 1.0, -16.0])
    assert length_of(change, 1 / values) == 0.25
    assert length_of(np.abs(change), 1 / values) == 1.0
    assert length_of(change, np.array([1.0, 0.5, 0.0])) == 1.0, "a bound that is absent does not count"


def test_certificates_by_hand():
    """``x >= 1`` and ``x <= 0`` as rows is disproved by the multipliers (-1, 1); ``min -x`` with ``x >= 0`` falls along (1,)."""
    infeasible = program_of_matrix(np.array([[1.0], [1.0]]), [0.0], [1.0, -np.inf, -np.inf], [np.inf, 0.0, np.inf])
    assert proves_infeasible(one(infeasible), np.array([-3.0, 3.0]), 10.0)
    for wrong in ([3.0, -3.0], [-3.0, 2.0], [0.0, 0.0], [np.nan, 1.0]):
        assert not proves_infeasible(one(infeasible), np.array(wrong), 10.0)
    unbounded = program_of_matrix(np.zeros((0, 1)), [-1.0], [0.0], [np.inf])
    assert proves_unbounded(one(unbounded), np.array([5.0]))
    assert not proves_unbounded(one(unbounded), np.array([-5.0]))
    bounded = program_of_matrix(np.zeros((0, 1)), [-1.0], [0.0], [1.0])
    assert not proves_unbounded(one(bounded), np.array([5.0]))
