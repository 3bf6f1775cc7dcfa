"""Equilibration against its definition: the scaled program is the given one in other units, with entries near 1."""

from __future__ import annotations

import numpy as np

from taskloss.lp.interior_point.equilibration import equilibrate_batch, identity_equilibration
from tests.lp.interior_point.programs import program_of_matrix, random_program


def test_the_scaled_program_is_the_same_in_other_units():
    for seed in range(20):
        programs, matrix = random_program(seed)
        m, n = matrix.shape
        rng = np.random.default_rng(seed)
        row_units, column_units = 10.0 ** rng.uniform(-4, 4, m), 10.0 ** rng.uniform(-4, 4, n)
        bound_units = np.concatenate([row_units, 1 / column_units])
        matrix = row_units[:, None] * matrix * column_units
        given = program_of_matrix(
            matrix, programs.cost[0] * column_units, programs.lower[0] * bound_units, programs.upper[0] * bound_units
        )
        scaled, scaling = given.copy(), identity_equilibration(1, m, n)
        equilibrate_batch(scaled, scaling)
        r, s, b, k = scaling.row_scale[0], scaling.column_scale[0], scaling.bound_scale[0], scaling.cost_scale[0]
        for scales in (r, s, [b], [k]):
            assert (np.frexp(scales)[0] == 0.5).all(), "powers of two"
        rows, columns = np.nonzero(matrix)
        np.testing.assert_array_equal(scaled.entries[0], (r[:, None] * matrix * s)[rows, columns])
        np.testing.assert_array_equal(scaled.cost[0], given.cost[0] * s * k)
        np.testing.assert_array_equal(scaled.lower[0], given.lower[0] * np.concatenate([r, 1 / s]) * b)
        np.testing.assert_array_equal(scaled.upper[0], given.upper[0] * np.concatenate([r, 1 / s]) * b)
        dense = np.abs(r[:, None] * matrix * s)
        for largest in (dense.max(1), dense.max(0)):
            largest = largest[largest > 0]
            assert ((largest > 0.3) & (largest < 3.0)).all()
        assert 0.5 <= np.abs(scaled.cost).max() <= 2.0


def test_a_program_of_zeros_stays():
    given = program_of_matrix(np.zeros((2, 3)), np.zeros(3), np.full(5, -np.inf), np.zeros(5))
    scaled, scaling = given.copy(), identity_equilibration(1, 2, 3)
    equilibrate_batch(scaled, scaling)
    for before, after in zip(given[1:], scaled[1:], strict=True):
        np.testing.assert_array_equal(before, after)
