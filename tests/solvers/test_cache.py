"""Solvers that keep their solutions: what is recalled, what is approximated, and the state."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.solvers import Assignment, CachedSolver, Knapsack, TopK


class Counting:
    """A solver that counts its instances."""

    def __init__(self, solver):
        self.solver, self.instances = solver, 0

    def __call__(self, scores):
        self.instances += len(scores)
        return self.solver(scores)


def test_known_instances_are_not_solved_again():
    inner = Counting(Knapsack([2, 3, 4], 6))
    cached = CachedSolver(inner, size=5)
    scores = np.random.default_rng(0).standard_normal((4, 3))
    twice = np.concatenate([scores, scores[:2]])
    np.testing.assert_array_equal(cached(twice), inner.solver(twice))
    assert inner.instances == 4
    np.testing.assert_array_equal(cached(scores[::-1].reshape(2, 2, 3)), inner.solver(scores[::-1]).reshape(2, 2, 3))
    assert inner.instances == 4
    assert cached.pool.counts == (4, 4, 0)
    # The answer may be changed; the pool has its own.
    cached(scores[:1])[:] = 7.0
    np.testing.assert_array_equal(cached(scores[:1]), inner.solver(scores[:1]))
    # Two more instances: the one that was asked for least recently is forgotten.
    cached(np.ones((2, 3)) * [[1.0], [2.0]])
    cached(scores[:1])
    assert inner.instances == 6
    cached(scores[3:])
    assert inner.instances == 7


def test_instances_of_several_axes_one_at_a_time():
    scores = np.random.default_rng(0).standard_normal((3, 4, 4))
    cached = CachedSolver(Assignment(), instance_dims=2)
    np.testing.assert_array_equal(cached(scores), Assignment()(scores))
    np.testing.assert_array_equal(cached(scores[1]), Assignment()(scores[1]))
    single = CachedSolver(lambda one: Assignment()(one), instance_dims=2, batched=False)
    np.testing.assert_array_equal(single(scores), Assignment()(scores))
    assert cached(np.zeros((0, 4, 4))).shape == (0, 4, 4)


def test_instances_of_several_shapes():
    scores = np.random.default_rng(0).standard_normal((2, 3))
    cached = CachedSolver(Assignment(), instance_dims=2)
    for matrix in (scores, scores.reshape(3, 2), scores, scores.reshape(3, 2)):
        np.testing.assert_array_equal(cached(matrix), Assignment()(matrix))
    assert cached.pool.counts == (2, 2, 0)
    pooled = CachedSolver(Assignment(), instance_dims=2, solve_ratio=0.0)
    pooled(scores)
    with pytest.raises(ValueError, match=r"an instance has shape \(3, 2\) and the solutions of the pool have shape \(2, 3\)"):
        pooled(scores.reshape(3, 2))


def test_scores_that_are_not_finite_are_not_answered_from_the_pool():
    pooled = CachedSolver(TopK(1), solve_ratio=0.0)
    pooled(np.ones(2))
    with pytest.raises(ValueError, match=r"scores\[0, 1\] is nan: scores must be finite"):
        pooled(np.array([[0.0, np.nan]]))


def test_the_regret_needs_its_best_answers_once():
    inner = Counting(Knapsack([2, 3, 4], 6))
    criterion = tl.DirectLoss(tl.Structured(CachedSolver(inner), loss="regret", batched=True), update="negative")
    # Another seed than that of the scores: with equal ones, the best answers would be known from the first prediction.
    costs = -torch.rand(5, 3, generator=torch.Generator().manual_seed(100))
    plain = tl.DirectLoss(tl.Structured(inner.solver, loss="regret", batched=True), update="negative")
    for step in range(3):
        scores = torch.rand(5, 3, generator=torch.Generator().manual_seed(step), requires_grad=True)
        loss, expected = criterion(scores, costs), plain(scores, costs)
        assert torch.equal(torch.autograd.grad(loss, scores)[0], torch.autograd.grad(expected, scores)[0])
    # The prediction, the augmented answer and the truth; the truth in the first step only.
    assert inner.instances == 3 * 2 * 5 + 5


def test_answers_of_the_pool():
    inner = Counting(TopK(1))
    cached = CachedSolver(inner, solve_ratio=0.0)
    cached.remember(np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]))
    assert len(cached.pool) == 2
    # The best answer to the last instance, its second item, is not in the pool.
    scores = np.array([[0.1, 0.9, 0.2, 0.0], [0.4, 0.0, 0.2, 0.0], [0.2, 0.0, 0.2, -1.0]])
    assert cached(scores).argmax(axis=1).tolist() == [2, 0, 0]
    assert cached.pool.counts == (0, 2, 3)
    assert inner.instances == 2
    # An empty pool has no answer, so everything is solved.
    assert CachedSolver(inner, solve_ratio=0.0)(scores).argmax(axis=1).tolist() == [1, 0, 0]


def test_the_share_that_is_solved():
    scores = np.random.default_rng(0).standard_normal((2000, 4))
    solved = []
    for seed in (0, 0, 1):
        cached = CachedSolver(TopK(1), solve_ratio=0.25, seed=seed)
        cached.remember(scores[:1])
        psi = cached(scores[1:])
        solved.append((cached.pool.counts.solved, psi.tobytes()))
    assert solved[0] == solved[1]
    assert solved[0] != solved[2]
    assert 0.2 < solved[0][0] / 2000 < 0.3


def test_the_pool_forgets_the_oldest_solutions():
    cached = CachedSolver(TopK(1), size=2, solve_ratio=0.0)
    for item in range(4):
        cached.remember(np.eye(4)[item])
    assert len(cached.pool) == 2
    assert cached(np.array([9.0, 8.0, 7.0, 6.0])).tolist() == [0, 0, 1, 0]


def test_copies_have_a_pool_of_their_own():
    cached = CachedSolver(TopK(1), solve_ratio=0.5)
    cached.remember(np.eye(3))
    for twin in (copy.deepcopy(cached), pickle.loads(pickle.dumps(cached))):
        assert twin != cached
        assert len(twin.pool) == 3
        twin.remember(np.array([1.0, 2.0, 3.0]))
        assert (twin.pool.counts.solved, cached.pool.counts.solved) == (4, 3)
    assert tl.Structured(cached) == tl.Structured(cached)
    assert tl.Structured(cached) != tl.Structured(CachedSolver(TopK(1), solve_ratio=0.5))


def test_threads_share_a_pool():
    cached, scores = CachedSolver(TopK(2), size=50), np.random.default_rng(0).standard_normal((40, 6))
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda k: cached(scores[k % 5 :: 5]), range(40)))
    for k, psi in enumerate(results):
        np.testing.assert_array_equal(psi, TopK(2)(scores[k % 5 :: 5]))
    assert sum(cached.pool.counts) == 8 * 40


def test_settings_that_make_no_sense():
    with pytest.raises(TypeError, match="solver must be a function of the scores, got int"):
        CachedSolver(3)
    with pytest.raises(ValueError, match="solve_ratio must be a number from 0 to 1, got 1.5"):
        CachedSolver(TopK(1), solve_ratio=1.5)
    with pytest.raises(ValueError, match=r"scores has shape \(3,\); expected at least 2 axes"):
        CachedSolver(Assignment(), instance_dims=2)(np.zeros(3))
    with pytest.raises(ValueError, match=r"the solver returned psi of shape \(1, 2\)"):
        CachedSolver(lambda scores: scores[:, :2])(np.zeros((1, 3)))
