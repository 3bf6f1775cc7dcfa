"""Probabilities of the counts in a tied group against exact binomials."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from taskloss.kernels.ranking.tie_orders import count_probabilities, likely_counts, ranks_in_groups
from tests.kernels.rankings import one_ranking


def test_four_tied_items_by_hand():
    """Of the six orders of two positives and two negatives, the first positive has 0, 1, 2 negatives above it in 3, 2, 1."""
    k, p, n = np.array([1, 2]), np.array([2, 2]), np.array([2, 2])
    probabilities = count_probabilities(k, p, n, *likely_counts(k, p, n))
    np.testing.assert_allclose(probabilities, np.array([3, 2, 1, 1, 2, 3]) / 6)


def exact(k: int, p: int, n: int) -> np.ndarray:
    total = comb(p + n, n)
    return np.array([float(Fraction(comb(k - 1 + j, j) * comb(p - k + n - j, n - j), total)) for j in range(n + 1)])


@pytest.mark.parametrize(("p", "n"), [(1, 0), (1, 1), (4, 0), (1, 9), (9, 1), (6, 7), (40, 3), (3, 2000), (150, 400)])
def test_probabilities_equal_the_binomials(p, n):
    k = np.arange(1, p + 1)
    sizes = np.full(p, p), np.full(p, n)
    least, greatest = likely_counts(k, *sizes)
    flat = count_probabilities(k, *sizes, least, greatest)
    assert len(flat) == (greatest - least + 1).sum()
    for row, values in enumerate(np.split(flat, np.cumsum(greatest - least + 1)[:-1])):
        full = np.zeros(n + 1)
        full[least[row] : greatest[row] + 1] = values
        np.testing.assert_allclose(full, exact(row + 1, p, n), rtol=1e-12, atol=1e-20)


def test_negligible_counts_are_left_out():
    k, p, n = np.array([500]), np.array([1000]), np.array([100_000])
    least, greatest = likely_counts(k, p, n)
    assert 0 < least[0] < greatest[0] < n[0]
    assert greatest[0] - least[0] < n[0] / 2


def test_ranks_within_groups_of_equal_score():
    k, p = ranks_in_groups(one_ranking([2.0, 1.0, 1.0, 0.0, 1.0], [5.0]))
    assert k.tolist() == [1, 1, 2, 3, 1]
    assert p.tolist() == [1, 3, 3, 3, 1]
