"""Sums that do not depend on the order of their terms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskloss.kernels.sums import order_free_sum, order_free_sums_by_owner, summable_unit

any_term = st.floats(-1e300, 1e300) | st.floats(-1, 1) | st.floats(-1e-300, 1e-300) | st.integers(-4, 4).map(float)


@settings(max_examples=500)
@given(terms=st.lists(any_term, max_size=40), seed=st.integers(0, 2**32 - 1))
def test_any_order_gives_one_sum_close_to_the_exact_one(terms, seed):
    values = np.array(terms, np.float64)
    total = order_free_sum(values)
    shuffled = np.random.default_rng(seed).permutation(values)
    assert order_free_sum(shuffled) == total
    largest = max(map(abs, terms), default=0.0)
    assert total == pytest.approx(math.fsum(terms), rel=1e-15, abs=1e-30 * largest)


def test_many_terms():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(100_003) * 10.0 ** rng.integers(-12, 12, 100_003)
    total = order_free_sum(values)
    assert total == pytest.approx(math.fsum(values), rel=1e-15)
    assert order_free_sum(values[::-1].copy()) == total
    assert values.sum() != values[rng.permutation(len(values))].sum(), "a plain sum depends on the order"


def test_infinities_and_single_terms():
    assert order_free_sum(np.array([1.0, np.inf])) == np.inf
    assert math.isnan(order_free_sum(np.array([1.0, np.nan])))
    for value in (0.1, -1e308, 5e-324, 0.0):
        assert order_free_sum(np.array([value])) == value
    assert order_free_sum(np.empty(0)) == 0.0


def test_sums_by_owner_do_not_depend_on_the_order():
    rng = np.random.default_rng(1)
    values, owner = rng.standard_normal(2_000) * 10.0 ** rng.integers(-12, 12, 2_000), rng.integers(7, size=2_000)
    owner[owner == 3] = 5
    sums = order_free_sums_by_owner(values, owner, 9)
    np.testing.assert_allclose(sums, [math.fsum(values[owner == k]) for k in range(9)], rtol=1e-15)
    order = rng.permutation(2_000)
    assert (order_free_sums_by_owner(values[order], owner[order], 9) == sums).all()
    assert order_free_sums_by_owner(np.empty(0), np.empty(0, np.int64), 2).tolist() == [0.0, 0.0]


def test_sums_of_huge_values_stay_finite():
    huge = np.full(1000, np.finfo(np.float64).max)
    assert summable_unit(np.ones(3), np.empty(0)) == 1.0
    assert np.isfinite((huge * summable_unit(np.ones(3), -huge)).sum())
