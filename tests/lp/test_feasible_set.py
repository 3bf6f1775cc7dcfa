"""The feasible set of a linear program as a solver, against HiGHS and the solvers of single problems."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import taskloss as tl
from taskloss.lp import FeasibleSet, LinearProgram, SparseMatrix
from taskloss.solvers import Knapsack, ShortestPath, grid_edges


def test_random_sets_equal_highs():
    rng = np.random.default_rng(0)
    matrix, rhs = rng.integers(0, 5, (3, 6)).astype(float), rng.integers(3, 9, 3).astype(float)
    scores = np.concatenate([rng.standard_normal((4, 6)), rng.integers(-1, 3, (4, 6))])
    program = LinearProgram(torch.zeros(6).double(), A_ub=torch.tensor(matrix), b_ub=torch.tensor(rhs), lower=-1.0, upper=1.0)
    psi = FeasibleSet(program)(scores)
    assert (psi @ matrix.T <= rhs + 1e-7).all()
    assert np.abs(psi).max() <= 1.0 + 1e-7
    for one, row in zip(psi, scores, strict=True):
        assert one @ row == pytest.approx(-linprog(-row, matrix, rhs, bounds=(-1, 1)).fun, abs=1e-7)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_scores_of_any_size():
    program = LinearProgram(torch.zeros(3), A_ub=torch.ones(1, 3), b_ub=torch.ones(1), lower=0.0)
    scores = np.array([[1.7e308, 1e308, 1.0], [1e-310, 3e-310, 0.0], [1.0, 2.0, 3.0]])
    np.testing.assert_allclose(FeasibleSet(program)(scores), np.eye(3)[[0, 1, 2]], atol=1e-8)


def test_the_relaxed_knapsack():
    weights, scores = torch.tensor([[2.0, 3.0, 4.0]]), np.array([3.0, 4.0, 5.0])
    program = LinearProgram(torch.ones(3), A_ub=weights, b_ub=torch.tensor([6.0]), lower=0.0, upper=1.0)
    np.testing.assert_allclose(FeasibleSet(program)(scores), [1.0, 1.0, 0.25], atol=1e-8)
    np.testing.assert_allclose(FeasibleSet(program)(scores), Knapsack(weights.numpy(), 6.0, relaxed=True)(scores), atol=1e-8)


def test_flows_are_shortest_paths_and_train():
    edges = grid_edges(3, 3)
    rows = np.concatenate([edges[:, 0], edges[:, 1]])
    values = torch.cat([torch.ones(len(edges)), -torch.ones(len(edges))]).double().requires_grad_()
    flow = SparseMatrix(rows, np.tile(np.arange(len(edges)), 2), values, (9, len(edges)))
    supply = torch.zeros(9).double()
    supply[0], supply[-1] = 1.0, -1.0
    solver = FeasibleSet(LinearProgram(torch.zeros(len(edges)).double(), A_eq=flow, b_eq=supply, lower=0.0))
    scores = -np.random.default_rng(0).random((4, len(edges)))
    np.testing.assert_allclose(solver(scores), ShortestPath(edges)(scores), atol=1e-7)
    twin = pickle.loads(pickle.dumps(solver))
    assert twin == solver
    assert hash(twin) == hash(solver)
    leaf, costs = torch.tensor(scores, requires_grad=True), torch.rand(4, len(edges), dtype=torch.float64)
    losses = [
        tl.DirectLoss(tl.Structured(each, loss="regret", batched=True), update="negative")(leaf, costs)
        for each in (solver, ShortestPath(edges))
    ]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-6)


def test_sets_that_make_no_sense():
    batch = LinearProgram(torch.ones(2, 3), A_ub=torch.ones(1, 3), b_ub=torch.ones(1), lower=0.0)
    with pytest.raises(ValueError, match="the program is a batch of 2; expected one feasible set"):
        FeasibleSet(batch)
    with pytest.raises(TypeError, match="program must be a LinearProgram, got Tensor"):
        FeasibleSet(torch.ones(3))
    empty = LinearProgram(torch.ones(1), A_ub=torch.tensor([[1.0], [-1.0]]), b_ub=torch.tensor([1.0, -2.0]))
    with pytest.raises(ValueError, match="linear program 0 of 1 is infeasible"):
        FeasibleSet(empty)(np.ones(1))
    with pytest.raises(ValueError, match="method='penalty' is not known"):
        FeasibleSet(empty, method="penalty")
