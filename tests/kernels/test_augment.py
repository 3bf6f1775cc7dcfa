"""The fast solvers against the textbook table, exact arithmetic and local optimality."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskloss.kernels.ranking.interleaving import natural_counts
from taskloss.kernels.ranking.isotonic import augment_convex
from taskloss.kernels.ranking.staircase import augment_any
from taskloss.kernels.ranking.terms import AVERAGE_PRECISION
from taskloss.kernels.sort import split_by_label
from tests.kernels.rankings import adversarial_rankings, check_rankings_are_independent, four_items, one_ranking
from tests.oracles.exact import objective_gain
from tests.oracles.table import lean_table, textbook_table

SOLVERS = ["isotonic", "staircase"]


def augment(solver, lists, loss_weight):
    """Return the least and greatest counts for a positive loss weight (isotonic) or its negative (staircase)."""
    if solver == "isotonic":
        return augment_convex(lists, AVERAGE_PRECISION, loss_weight)
    return augment_any(lists, natural_counts(lists)[1], AVERAGE_PRECISION, -loss_weight)


def solve(solver, lists, weight):
    """Return the least and greatest counts for a weight of the task loss, and this weight with the sign of the update."""
    counts = augment(solver, lists, np.array([weight * len(lists.negatives) / 2]))
    return *counts, weight if solver == "isotonic" else -weight


@pytest.mark.parametrize(
    ("loss_weight", "least", "greatest"),
    [
        (1.0, [0, 1], [0, 1]),
        (2.0, [0, 1], [1, 1]),
        (3.0, [1, 1], [1, 1]),
        (12.0, [1, 2], [1, 2]),
        (-1.0, [0, 1], [0, 1]),
        (-3.0, [0, 0], [0, 1]),
        (-6.0, [0, 0], [0, 0]),
    ],
)
def test_four_items_by_hand(loss_weight, least, greatest):
    """The row of the positive 3 scores 0, -1, -4 for the counts 0, 1, 2 and has the precisions 1, 1/2, 1/3.

    The row of the positive 1 scores 0, 1, 0 and has the precisions 1, 2/3, 1/2. With the loss weight 3, for example, the
    first row is worth 0 - 3, -1 - 3/2, -4 - 1, best at the count 1, and the second 0 - 3, 1 - 2, 0 - 3/2, best at 1 too.
    """
    solver = "isotonic" if loss_weight > 0 else "staircase"
    counts = augment(solver, four_items(), np.array([abs(loss_weight)]))
    assert [c.tolist() for c in counts] == [least, greatest]


def check_against_table(solver, lists, weight, slack):
    """Check that no answer is worse than the table's by more than ``slack``, in exact arithmetic; the table may be worse."""
    least, greatest, signed = solve(solver, lists, weight)
    s, t = lists.positives, lists.negatives
    assert (np.diff(least) >= 0).all()
    assert (np.diff(greatest) >= 0).all()
    assert (least <= greatest).all()
    _, table = textbook_table(s, t, signed)
    assert objective_gain(s, t, least, table, signed) <= slack
    assert objective_gain(s, t, greatest, table, signed) <= slack


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (1, 300), (300, 1), (60, 200), (300, 300)])
def test_equals_the_table_on_adversarial_scores(solver, positives, negatives):
    for lists in adversarial_rankings(positives, negatives):
        for weight in (0.01, 1.0, 50.0):
            # Pooling decides each block by one sum of a few terms; the table adds up whole rows.
            slack = 0.0 if solver == "isotonic" else 1e-15 * weight * positives * negatives
            check_against_table(solver, lists, weight, slack)


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=300)
@given(
    s=st.lists(st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float), min_size=1, max_size=12),
    t=st.lists(st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float), min_size=1, max_size=12),
    weight=st.sampled_from([1e-6, 0.1, 1.0, 8.0, 1e6]),
)
def test_equals_the_table_on_any_scores(solver, s, t, weight):
    lists = one_ranking(np.array(s), np.array(t))
    check_against_table(solver, lists, weight, slack=1e-14 * max(*map(abs, s), *map(abs, t), weight) * len(s) * len(t))


@pytest.mark.parametrize("solver", SOLVERS)
def test_counts_are_the_tables_where_the_optimum_is_unique(solver):
    rng = np.random.default_rng(3)
    for _ in range(20):
        positives, negatives = rng.integers(1, 300, 2)
        lists = one_ranking(rng.standard_normal(positives) + 0.5, rng.standard_normal(negatives))
        least, greatest, signed = solve(solver, lists, 1.0)
        _, table = textbook_table(lists.positives, lists.negatives, signed)
        np.testing.assert_array_equal(least, table)
        np.testing.assert_array_equal(greatest, table)
        np.testing.assert_array_equal(lean_table(lists.positives, lists.negatives, signed)[1], table)


@pytest.mark.parametrize(("shift", "weight"), [(1.0, 1.0), (0.0, 0.1), (3.0, 10.0)])
def test_isotonic_is_locally_optimal_at_a_million(shift, weight):
    """No block of equal counts can be moved with a gain, in extended precision.

    The objective is separable and concave under a chain of monotone constraints, so a count vector is optimal if no suffix of
    a block of equal counts gains by one more and no prefix by one less.
    """
    rng = np.random.default_rng(1)
    n = 1_000_000
    labels = (rng.random(n) < 0.2).astype(np.uint8)
    scores = (rng.standard_normal(n) + shift * labels).astype(np.float32)
    lists = split_by_label(scores, labels, np.empty(0, np.int64), 1)
    loss_weight = np.longdouble(weight) * len(lists.negatives) / 2
    counts, _ = augment_convex(lists, AVERAGE_PRECISION, np.array([float(loss_weight)]))
    s, t = lists.positives.astype(np.longdouble), lists.negatives.astype(np.longdouble)
    i = np.arange(1, len(s) + 1, dtype=np.longdouble)

    def gains(c, valid):
        t_next = t[np.clip(c, 0, len(t) - 1)]
        return np.where(valid, t_next - s + loss_weight * i / ((i + c) * (i + c + 1)), 0)

    up = gains(counts, counts < len(t))
    down = -gains(counts - 1, counts > 0)
    starts = np.flatnonzero(np.r_[True, np.diff(counts) > 0])
    ends = np.r_[starts[1:], len(s)]
    for begin, end in zip(starts, ends, strict=True):
        assert np.cumsum(up[begin:end][::-1]).max() <= 0
        assert np.cumsum(down[begin:end]).max() <= 0


def test_one_huge_score_does_not_change_the_others():
    rng = np.random.default_rng(5)
    s, t = rng.standard_normal(40), rng.standard_normal(60)
    for solver in SOLVERS:
        plain, _, _ = solve(solver, one_ranking(s, np.r_[t, 50.0]), 1.0)
        huge, _, _ = solve(solver, one_ranking(s, np.r_[t, 1e30]), 1.0)
        np.testing.assert_array_equal(plain, huge)


def test_staircase_refuses_a_table_beyond_the_limit():
    lists = one_ranking(np.zeros(100), np.zeros(6400))
    with pytest.raises(ValueError, match=r"100 positives and 6,400 negatives.*update='positive'"):
        augment_any(lists, natural_counts(lists)[1], AVERAGE_PRECISION, np.array([-1.0]), memory_limit=1000)


@pytest.mark.parametrize("solver", SOLVERS)
def test_many_rankings_are_solved_independently(solver):
    rng = np.random.default_rng(2)
    scores, owner = np.round(rng.standard_normal(600), 1), rng.integers(0, 9, 600)
    labels = (rng.random(600) < 0.4).astype(np.uint8)

    def augment_all(lists):
        return augment(solver, lists, np.full(len(lists.positive_start) - 1, 3.0))

    check_rankings_are_independent(augment_all, scores, labels, owner)
