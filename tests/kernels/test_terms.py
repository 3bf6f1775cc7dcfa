"""Drops of blocks of positives keep full relative precision, where differences of harmonic tables are noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskloss.kernels._numba import kernel
from taskloss.kernels.ranking import terms
from taskloss.kernels.ranking.terms import AVERAGE_PRECISION, NDCG, drop, term

_row_drop = terms.row_drop


@kernel
def row_drop(metric, i, c):
    """Call the inner kernel, which Python cannot call."""
    return _row_drop(metric, i, c)


def test_two_positives_by_hand():
    """One negative rises above the first two positives: precisions 1 and 1 become 1/2 and 2/3, ranks 1 and 2 become 2 and 3."""
    assert row_drop(AVERAGE_PRECISION, 2, 0) == pytest.approx(1 / 3)
    assert drop(AVERAGE_PRECISION, 1, 2, 0) == pytest.approx(1 / 2 + 1 / 3)
    assert drop(NDCG, 1, 2, 0) == pytest.approx(1 - 1 / 2)
    assert term(AVERAGE_PRECISION, 2, 1) == pytest.approx(2 / 3)
    assert term(NDCG, 2, 1) == pytest.approx(1 / 2)


def exact_drop(a: int, b: int, c: int) -> float:
    # fsum rounds once, and each quotient of exact integers is right to half a unit.
    return math.fsum(i / ((i + c) * (i + c + 1)) for i in range(a, b + 1))


@settings(max_examples=500)
@given(
    a=st.integers(1, 10) | st.integers(1, 10**7),
    length=st.integers(1, 40) | st.integers(1, 5000),
    c=st.integers(0, 100) | st.integers(0, 10**7),
)
def test_average_precision_drop_is_exact_to_the_last_bits(a, length, c):
    expected = exact_drop(a, a + length - 1, c)
    assert abs(drop(AVERAGE_PRECISION, a, a + length - 1, c) - expected) <= 1e-14 * expected


def test_average_precision_drop_of_a_very_long_block():
    a, b, c = 1, 3_000_000, 2_000_000
    expected = exact_drop(a, b, c)
    assert abs(drop(AVERAGE_PRECISION, a, b, c) - expected) <= 1e-14 * expected


@given(i=st.integers(1, 10**6), c=st.integers(0, 10**6))
def test_row_drop_is_the_difference_of_terms(i, c):
    exact = Fraction(i, i + c) - Fraction(i, i + c + 1)
    np.testing.assert_allclose(row_drop(AVERAGE_PRECISION, i, c), float(exact), rtol=1e-15)
    np.testing.assert_allclose(term(AVERAGE_PRECISION, i, c), i / (i + c), rtol=1e-15)


@settings(max_examples=500)
@given(a=st.integers(1, 10) | st.integers(1, 10**7), length=st.integers(1, 40) | st.integers(1, 10**6), c=st.integers(0, 10**7))
def test_ndcg_drop_is_exact_to_the_last_bits(a, length, c):
    p, q = np.longdouble(a + c), np.longdouble(a + length + c)
    expected = np.log(np.longdouble(2)) * (np.log1p((q - p) / (1 + p)) / (np.log1p(p) * np.log1p(q)))
    np.testing.assert_allclose(drop(NDCG, a, a + length - 1, c), float(expected), rtol=1e-14)
    np.testing.assert_allclose(row_drop(NDCG, a, c), term(NDCG, a, c) - term(NDCG, a, c + 1), rtol=1e-6, atol=1e-15)


def test_ndcg_drop_where_its_formulas_meet():
    for length in (1, 2, 30):
        for p in range(1, 2000):
            start = np.longdouble(p)
            logarithms = np.log1p(start) * np.log1p(start + length)
            expected = np.log(np.longdouble(2)) * np.log1p(length / (1 + start)) / logarithms
            np.testing.assert_allclose(drop(NDCG, 1, length, p - 1), float(expected), rtol=1e-15)
