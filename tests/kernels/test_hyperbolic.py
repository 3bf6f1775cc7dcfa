"""The hyperbolic tangent against the one of the C library."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from taskloss.kernels.hyperbolic import tanh_in_place


def tanh(numbers: np.ndarray) -> np.ndarray:
    result = numbers.copy()
    tanh_in_place(result)
    return result


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(0.0)
@example(-0.0)
@example(5e-324)
@example(22.0)
@example(math.log(2.0) / 4.0)
def test_one_number(number):
    (found,) = tanh(np.array([number]))
    exact = math.tanh(number)
    assert abs(found - exact) <= 4.0 * math.ulp(exact)
    assert math.copysign(1.0, found) == math.copysign(1.0, number)


def test_many_numbers():
    rng = np.random.default_rng(0)
    for scale in (1e-300, 1e-8, 1e-3, 0.1, 1.0, 5.0, 20.0, 1e3):
        numbers = rng.normal(size=10_001) * scale
        found = tanh(numbers)
        np.testing.assert_array_max_ulp(found, np.tanh(numbers), 4)
        assert np.array_equal(found, [tanh(numbers[i : i + 1])[0] for i in range(len(numbers))])
        assert np.array_equal(tanh(-numbers), -found)


def test_no_order_is_turned():
    """Positions of sorted scores are taken for sorted."""
    rng = np.random.default_rng(1)
    for scale in (1e-3, 1.0, 5.0):
        assert (np.diff(tanh(np.sort(rng.normal(size=100_000) * scale))) >= 0.0).all()
    # Where the power of two changes.
    borders = [(2 * k + 1) * math.log(2.0) / 4.0 for k in range(8)]
    for middle in (*borders, 1e-3, 0.1, 0.5, 1.0, 3.0, 10.0):
        neighbours = middle + np.arange(-5_000, 5_000) * np.spacing(middle)
        assert (np.diff(tanh(neighbours)) >= 0.0).all()
