"""Knapsacks against all subsets, and against HiGHS on larger ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from taskloss.kernels.priced_knapsack import best_subsets
from taskloss.solvers import Knapsack, knapsack
from tests.oracles.decisions import all_subsets, assert_best

METHODS = ["auto", "dynamic_programming", "branch_and_bound"]


@given(seed=st.integers(0, 10_000), method=st.sampled_from(METHODS), ties=st.booleans())
def test_one_capacity(seed, method, ties):
    rng = np.random.default_rng(seed)
    weights, capacity = rng.integers(0, 6, 7) * rng.integers(1, 4), rng.integers(0, 20)
    scores = rng.integers(-2, 4, (4, 7)) / 2.0 if ties else rng.standard_normal((4, 7))
    subsets = all_subsets(7)
    feasible = subsets[subsets @ weights <= capacity]
    assert_best(Knapsack(weights, capacity, method=method)(scores), scores, feasible)


@given(seed=st.integers(0, 10_000), ties=st.booleans())
def test_several_capacities(seed, ties):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 4))
    # Multiples of 0.1, whose sums are rounded.
    weights, capacity = rng.integers(0, 8, (m, 7)) / 10.0, rng.integers(0, 25, m) / 10.0
    scores = rng.integers(-2, 4, (4, 7)) / 2.0 if ties else rng.standard_normal((4, 7))
    subsets = all_subsets(7)
    feasible = subsets[(subsets @ weights.T <= capacity + 1e-9).all(axis=1)]
    assert_best(Knapsack(weights, capacity)(scores), scores, feasible)


@given(seed=st.integers(0, 10_000))
def test_capacities_that_may_be_exceeded_at_a_price(seed):
    rng = np.random.default_rng(seed)
    m, subsets = int(rng.integers(1, 4)), all_subsets(6)
    values, weights = rng.integers(-2, 10, (3, 6)) / 2.0, rng.integers(0, 6, (3, m, 6)) / 2.0
    capacity, price = rng.integers(0, 12, (3, m)) / 2.0, rng.integers(0, 8, m) / 2.0
    hard = rng.random(m) < 0.3
    plans, complete = best_subsets(values, weights, capacity, np.where(hard, np.inf, price), 10**6)
    assert complete.all()
    for r in range(3):
        overload = np.maximum(subsets @ weights[r].T - capacity[r], 0.0)
        worth = np.where(overload[:, hard].any(axis=1), -np.inf, subsets @ values[r] - overload @ np.where(hard, 0.0, price))
        assert worth[(subsets == plans[r]).all(axis=1)].item() == pytest.approx(worth.max(), abs=1e-12)


@pytest.mark.parametrize(("m", "items"), [(1, 40), (2, 30), (4, 25)])
def test_larger_knapsacks_equal_highs(m, items):
    rng = np.random.default_rng(m)
    weights = rng.integers(300, 800, (m, items)) / 100.0
    capacity = 0.4 * weights.sum(axis=1)
    # The first scores are independent of the weights, the last ones are close to them, the hard case.
    scores = np.stack([10.0 * rng.random(items), weights.mean(axis=0) + rng.random(items)])
    psi = Knapsack(weights, capacity)(scores)
    assert (psi @ weights.T <= capacity + 1e-9).all()
    constraint = LinearConstraint(weights, -np.inf, capacity)
    for one, row in zip(psi, scores, strict=True):
        best = milp(-row, integrality=1, bounds=Bounds(0, 1), constraints=constraint, options={"mip_rel_gap": 0.0})
        assert one @ row == pytest.approx(-best.fun, abs=1e-6)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), m=st.integers(1, 4))
def test_fractions_equal_highs(seed, m):
    rng = np.random.default_rng(seed)
    weights, capacity = rng.integers(0, 6, (m, 9)).astype(float), rng.integers(0, 20, m).astype(float)
    scores = rng.integers(-4, 9, (2, 9)) / 4.0
    psi = Knapsack(weights, capacity, relaxed=True)(scores)
    assert psi.min() >= 0.0
    assert psi.max() <= 1.0
    assert (psi @ weights.T <= capacity + 1e-9).all()
    # A vertex: no more fractions than capacities.
    assert (((psi > 1e-9) & (psi < 1.0 - 1e-9)).sum(axis=1) <= m).all()
    for one, row in zip(psi, scores, strict=True):
        assert one @ row == pytest.approx(-linprog(-row, weights, capacity, bounds=(0, 1)).fun, abs=1e-9)


def test_by_hand():
    # By value per weight 1.5, 1.33, 1.25: the first two fill 5 of 6, but the first and the last fill all of it.
    scores = np.array([3.0, 4.0, 5.0])
    for method in METHODS:
        assert Knapsack([2, 3, 4], 6, method=method)(scores).tolist() == [1, 0, 1]
    assert Knapsack([2, 3, 4], 6, relaxed=True)(scores).tolist() == [1, 1, 0.25]
    assert Knapsack([2, 3, 4], 0)(scores).tolist() == [0, 0, 0]
    assert Knapsack([2, 3, 0], 1)(scores).tolist() == [0, 0, 1]
    assert Knapsack([0.1, 0.2], 0.3)(np.ones(2)).tolist() == [1, 1]


@pytest.mark.parametrize("unwanted", [-1e9, -1e12, -1e300])
def test_an_item_that_nobody_wants_does_not_hide_the_others(unwanted):
    weights, capacity = [[1, 2, 3], [2, 1, 1]], [3, 3]
    for options in ({"relaxed": True}, {"method": "branch_and_bound"}):
        assert Knapsack(weights, capacity, **options)(np.array([unwanted, 1.0, 2.0])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("method", ["auto", "branch_and_bound", "highs"])
@pytest.mark.parametrize("unit", [1e-300, 1e-9, 1e15, 1e19, 1e300])
def test_weights_of_any_size(method, unit):
    # At 1e19 they are whole, and too large to be counted.
    for weights, capacity, expected in (
        ([2, 3, 4], 6, [1, 0, 1]),
        ([[2, 3, 4], [0, 0, 0]], [6, 0], [1, 0, 1]),
        ([2, 3, 4], 5.9, [1, 1, 0]),
    ):
        solver = Knapsack(np.array(weights) * unit, np.array(capacity) * unit, method=method)
        assert solver(np.array([3.0, 4.0, 5.0])).tolist() == expected


@pytest.mark.parametrize("heavy", [1e9, 1e13, 1e300])
def test_an_item_that_is_far_too_heavy_does_not_make_the_others_light(heavy):
    psi = Knapsack([[heavy, 1, 1], [1, 1, 1]], [1.5, 2], relaxed=True)(np.array([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(psi, [0, 1, 0.5], atol=1e-9)
    psi = Knapsack([[heavy, 1e-9 / heavy, 0], [1, 1, 1]], [0, 2], relaxed=True)(np.ones(3))
    assert psi.tolist() == [0, 0, 1]


def test_a_capacity_far_above_the_weights():
    for options in ({"relaxed": True}, {"method": "highs"}, {"method": "branch_and_bound"}):
        for weights in ([[0, 0], [2, 1]], [[1e-300, 1e-300], [2, 1]]):
            assert Knapsack(weights, [1e30, 1], **options)(np.ones(2)).tolist() == [0.0, 1.0]


def test_instances_that_are_too_hard_go_to_highs(monkeypatch):
    rng = np.random.default_rng(0)
    weights = rng.integers(300, 800, (3, 12)) / 100.0
    solver = Knapsack(weights, 0.5 * weights.sum(axis=1))
    scores = weights.mean(axis=0) + rng.random((4, 12))
    expected = solver(scores)
    monkeypatch.setattr(knapsack, "NODE_LIMIT", 20)
    assert not best_subsets(scores, weights[None], solver.capacity[None], np.full(3, np.inf), 20)[1].all()
    np.testing.assert_array_equal(solver(scores), expected)
    np.testing.assert_array_equal(Knapsack(weights, solver.capacity, method="highs")(scores), expected)


def test_settings_that_make_no_sense():
    with pytest.raises(ValueError, match=r"weights has shape \(0,\); expected \(items,\)"):
        Knapsack([], 1)
    with pytest.raises(ValueError, match=r"weights\[1\] is -1.0; expected finite weights of at least zero"):
        Knapsack([1, -1], 1)
    with pytest.raises(ValueError, match=r"capacity has shape \(3,\); expected a number, or one for each of the 2 capacities"):
        Knapsack([[1, 1], [1, 1]], [1, 2, 3])
    with pytest.raises(ValueError, match="capacity is -1; expected finite numbers of at least zero"):
        Knapsack([1, 1], -1)
    for weights in ([1.5, 1], [2.0**63, 1], [[1, 1], [1, 1]]):
        with pytest.raises(ValueError, match="dynamic programming needs whole weights of at most 2\\^53 and one capacity"):
            Knapsack(weights, 3, method="dynamic_programming")
    with pytest.raises(ValueError, match="leave it out with relaxed=True"):
        Knapsack([1, 1], 1, relaxed=True, method="highs")
    with pytest.raises(ValueError, match=r"scores has shape \(3,\); expected 2 along the last axis, one score per item"):
        Knapsack([1, 1], 1)(np.zeros(3))
