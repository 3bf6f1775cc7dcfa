"""The blockwise negative update against the staircase table and exact arithmetic, with small blocks that cover every case."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskloss.kernels.ranking import corridor
from taskloss.kernels.ranking.corridor import augment_average_precision_down
from taskloss.kernels.ranking.interleaving import natural_counts
from taskloss.kernels.ranking.staircase import augment_any
from taskloss.kernels.ranking.terms import AVERAGE_PRECISION
from tests.kernels.rankings import adversarial_rankings, check_rankings_are_independent, four_items, one_ranking
from tests.oracles.exact import objective_gain

BLOCKS = [1, 2, 7, 64, None]

# Never the plain table, however small it is; and rows are deferred whenever that is possible.
by_blocks = functools.partial(augment_average_precision_down, small_table=0, patience=0)


def solve(lists, weight, block):
    """Return the least and greatest counts for the weight ``-weight``, by blocks and by the table."""
    upper, loss_weight = natural_counts(lists)[1], np.array([-weight * len(lists.negatives) / 2])
    return by_blocks(lists, upper, loss_weight, block=block), augment_any(lists, upper, AVERAGE_PRECISION, loss_weight)


def check_against_staircase(lists, weight, block, slack):
    """Check that both answers are feasible and not worse than the table's by more than ``slack``, in exact arithmetic."""
    answers, (table, _) = solve(lists, weight, block)
    upper = natural_counts(lists)[1]
    assert (answers[0] <= answers[1]).all()
    for counts in answers:
        assert (counts >= 0).all()
        assert (counts <= upper).all()
        assert (np.diff(counts) >= 0).all()
        assert objective_gain(lists.positives, lists.negatives, counts, table, -weight) <= slack


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", ["normal", "Cauchy"])
def test_counts_are_the_tables_where_the_optimum_is_unique(block, kind):
    rng = np.random.default_rng(3)
    draw = rng.standard_normal if kind == "normal" else rng.standard_cauchy
    for _ in range(100):
        positives, negatives = rng.integers(1, 300, 2)
        lists = one_ranking(draw(positives) + rng.uniform(0, 2), draw(negatives))
        answers, table = solve(lists, 10 ** rng.uniform(-2, 1.5), block)
        np.testing.assert_array_equal(answers, table)


def falls_of_the_first_row(s, t, metric_weight, block):
    """Return ``H_1(c) - H_1(c + 1)`` for all counts, by blocks and by a plain table; negatives must outscore positives."""
    blocks, upper = corridor._allocate(len(t), block), np.full(len(s), len(t))
    corridor._reset(t, block, blocks)
    history, row_start = np.empty(0, np.uint64), np.empty(len(s) + 1, np.int64)
    corridor._fill(s, t, upper, metric_weight, block, 0, blocks, True, 2**20, history, row_start)
    for k in np.flatnonzero(blocks.state == corridor._FALLING):
        corridor._catch_up(s, t, -1, metric_weight, k, k * block, min((k + 1) * block, len(t)), blocks)
    best = np.zeros(len(t) + 1)
    counts = np.arange(len(t) + 1)
    for i in range(len(s), 0, -1):
        row = np.r_[0.0, np.cumsum(t - s[i - 1])] + metric_weight * i / (i + counts) + best
        best = np.maximum.accumulate(row[::-1])[::-1]
    return blocks.falls[: len(t)], best[:-1] - best[1:]


@pytest.mark.parametrize("block", [1, 2, 7, 64])
def test_the_whole_row_is_the_tables(block):
    """An answer depends on few cells; this compares all of them, where low counts fall while high ones pass on a debt."""
    rng = np.random.default_rng(7)
    for _ in range(300):
        positives, negatives = rng.integers(1, 100, 2)
        s = np.sort(rng.random(positives) ** rng.integers(1, 6))[::-1].copy()
        t = 1.0 + np.sort(rng.random(negatives) ** rng.integers(1, 6))[::-1] * 10 ** rng.uniform(-3, 1)
        falls, expected = falls_of_the_first_row(s, t, 10 ** rng.uniform(-0.5, 2) * negatives, block)
        np.testing.assert_allclose(falls, expected, rtol=0, atol=1e-12 * np.abs(expected).max() + 1e-9)


@pytest.mark.parametrize("block", [64, 256])
@pytest.mark.parametrize(("positives", "negatives"), [(300, 3000), (2000, 2000), (3000, 300)])
def test_counts_are_the_tables_on_longer_rankings(block, positives, negatives):
    rng = np.random.default_rng([positives, negatives])
    for shift in (0.0, 1.0, 3.0):
        lists = one_ranking(rng.standard_normal(positives) + shift, rng.standard_normal(negatives))
        for weight in (0.1, 1.0, 10.0):
            answers, table = solve(lists, weight, block)
            np.testing.assert_array_equal(answers, table)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (1, 300), (300, 1), (60, 200), (200, 200)])
def test_optimal_on_adversarial_scores(block, positives, negatives):
    for lists in adversarial_rankings(positives, negatives):
        for weight in (0.01, 1.0, 50.0):
            check_against_staircase(lists, weight, block, slack=1e-15 * weight * positives * negatives)


@settings(max_examples=500)
@given(
    s=st.lists(st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float), min_size=1, max_size=15),
    t=st.lists(st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float), min_size=1, max_size=15),
    weight=st.sampled_from([1e-6, 0.1, 1.0, 8.0, 1e6]),
    block=st.integers(1, 5),
)
def test_optimal_on_any_scores(s, t, weight, block):
    lists = one_ranking(np.array(s), np.array(t))
    slack = 1e-14 * max(*map(abs, s), *map(abs, t), weight) * len(s) * len(t)
    check_against_staircase(lists, weight, block, slack)


@pytest.mark.parametrize("block", [1, 2, 64])
@pytest.mark.parametrize(
    ("loss_weight", "least", "greatest"), [(-1.0, [0, 1], [0, 1]), (-3.0, [0, 0], [0, 1]), (-6.0, [0, 0], [0, 0])]
)
def test_four_items_by_hand(loss_weight, least, greatest, block):
    """Raising the positive 1 above the negative 2 costs 1 and raises the precision by 1/3: it pays from a weight of 3 on."""
    lists = four_items()
    counts = by_blocks(lists, natural_counts(lists)[1], np.array([loss_weight]), block=block)
    assert [c.tolist() for c in counts] == [least, greatest]


@pytest.mark.parametrize("block", [2, 64])
def test_a_tie_has_two_answers(block):
    """The negative scores 2 above the positive; moving it below raises the precision by 1/2, worth 2 for the loss weight -4."""
    lists = one_ranking(np.array([0.0]), np.array([2.0, -1.0, -2.0]))
    least, greatest = by_blocks(lists, natural_counts(lists)[1], np.array([-4.0]), block=block)
    assert least.tolist() == [0]
    assert greatest.tolist() == [1]


@pytest.mark.parametrize("block", [8, 64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("labels", ["positive", "negative", "both"])
def test_huge_scores_do_not_change_the_others(block, sign, labels):
    rng = np.random.default_rng(5)
    s, t = rng.standard_normal(200), rng.standard_normal(600)

    def counts(extreme):
        positives = np.r_[s, extreme] if labels != "negative" else s
        negatives = np.r_[t, extreme] if labels != "positive" else t
        return solve(one_ranking(positives, negatives), 1.0, block)[0]

    np.testing.assert_array_equal(counts(sign * 1e6), counts(sign * 1e30))


def test_many_rankings_are_solved_independently():
    rng = np.random.default_rng(2)
    scores, owner = np.round(rng.standard_normal(900), 1), rng.integers(0, 11, 900)
    labels = (rng.random(900) < 0.4).astype(np.uint8)
    labels[owner == 3], labels[owner == 4] = 0, 1

    def augment(lists):
        loss_weight = np.full(len(lists.positive_start) - 1, -3.0)
        return by_blocks(lists, natural_counts(lists)[1], loss_weight, block=5)

    check_rankings_are_independent(augment, scores, labels, owner)


def test_optimal_at_a_hundred_thousand():
    rng = np.random.default_rng(4)
    lists = one_ranking(rng.standard_normal(20_000) + 1.0, rng.standard_normal(80_000))
    answers, (table, _) = solve(lists, 1.0, None)
    for counts in answers:
        assert objective_gain(lists.positives, lists.negatives, counts, table, -1.0) <= 1e-6


def test_refuses_more_memory_than_the_limit():
    rng = np.random.default_rng(6)
    lists = one_ranking(rng.standard_normal(100), rng.standard_normal(6400))
    with pytest.raises(ValueError, match=r"100 positives and 6,400 negatives.*update='positive'"):
        by_blocks(lists, natural_counts(lists)[1], np.array([-3200.0]), memory_limit=100)


def test_small_tables_are_filled_plainly():
    lists = one_ranking(np.arange(20.0), np.arange(30.0))
    upper, loss_weight = natural_counts(lists)[1], np.array([-15.0])
    answers = augment_average_precision_down(lists, upper, loss_weight, memory_limit=1000, small_table=20)
    np.testing.assert_array_equal(answers, augment_any(lists, upper, AVERAGE_PRECISION, loss_weight))
    np.testing.assert_array_equal(answers, by_blocks(lists, upper, loss_weight))
    with pytest.raises(ValueError, match="negative update needs"):
        augment_average_precision_down(lists, upper, loss_weight, memory_limit=100, small_table=20)
