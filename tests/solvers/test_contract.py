"""What all solvers share: every batch form, equality, pickles, use in a loss, and input that makes no sense."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss import solvers
from taskloss.lp import LinearProgram
from taskloss.lp.feasible_set import FeasibleSet

# How to make each solver, and the shape of its instances.
SOLVERS = {
    "grid": (lambda: solvers.GridShortestPath(), (4, 4)),
    "monotone": (lambda: solvers.MonotoneGridPath(), (4, 4)),
    "assignment": (lambda: solvers.Assignment(), (4, 4)),
    "acyclic": (lambda: solvers.ShortestPath(solvers.grid_edges(3, 3)), (12,)),
    "undirected": (lambda: solvers.ShortestPath(solvers.grid_edges(3, 3), directed=False), (12,)),
    "knapsack": (lambda: solvers.Knapsack([3, 4, 5, 6], 10), (4,)),
    "knapsacks": (lambda: solvers.Knapsack([[3, 4, 5, 6], [1.5, 1, 2, 1]], [10, 4]), (4,)),
    "relaxed knapsack": (lambda: solvers.Knapsack([3, 4, 5, 6], 10, relaxed=True), (4,)),
    "relaxed knapsacks": (lambda: solvers.Knapsack([[3, 4, 5, 6], [1.5, 1, 2, 1]], [10, 4], relaxed=True), (4,)),
    "top k": (lambda: solvers.TopK(2), (4,)),
    "mixed integer": (lambda: solvers.MixedInteger(A_ub=[[1, 1, 0], [0, 1, 1]], b_ub=[1, 1]), (3,)),
    "tour": (lambda: solvers.TravellingSalesman(5), (10,)),
    "linear program": (
        lambda: FeasibleSet(LinearProgram(torch.zeros(3), A_ub=torch.ones(1, 3), b_ub=torch.ones(1), lower=0.0)),
        (3,),
    ),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_any_leading_axes(name):
    make, shape = SOLVERS[name]
    solver = make()
    scores = -np.random.default_rng(1).random((2, 3, *shape))
    if name in ("knapsack", "knapsacks", "relaxed knapsack", "relaxed knapsacks", "mixed integer", "linear program"):
        scores = -scores
    psi = solver(scores)
    assert psi.shape == scores.shape
    assert psi.any()
    for i in range(2):
        for j in range(3):
            np.testing.assert_allclose(psi[i, j], solver(scores[i, j]), atol=1e-12)
    assert solver(np.zeros((0, *shape))).shape == (0, *shape)
    with pytest.raises(ValueError, match=r"scores has shape \(\); expected"):
        solver(np.zeros(()))
    criterion = tl.DirectLoss(tl.Structured(solver, loss="regret", batched=True), update="negative")
    leaf = torch.tensor(scores[0], requires_grad=True)
    costs = torch.tensor(-scores[1])
    assert criterion(leaf, costs).item() >= -1e-12


@pytest.mark.parametrize("name", SOLVERS)
def test_equal_settings_compare_equal(name):
    solver, other = SOLVERS[name][0](), SOLVERS[name][0]()
    copies = [other, copy.deepcopy(solver), pickle.loads(pickle.dumps(solver))]
    for twin in copies:
        assert solver == twin
        assert hash(solver) == hash(twin)
        assert tl.Structured(solver) == tl.Structured(twin)
    assert solver != next(make() for key, (make, _) in SOLVERS.items() if key != name)


@pytest.mark.parametrize("name", SOLVERS)
def test_settings_cannot_be_changed(name):
    solver = SOLVERS[name][0]()
    with pytest.raises(AttributeError):
        solver.weights = 1
    for value in pickle.loads(pickle.dumps(solver)).__dict__.values():
        if isinstance(value, np.ndarray):
            assert not value.flags.writeable


@pytest.mark.parametrize("name", SOLVERS)
def test_scores_that_are_not_finite(name):
    make, shape = SOLVERS[name]
    scores = np.zeros((2, *shape))
    scores[1, ..., 0] = np.nan
    with pytest.raises(ValueError, match=r"matrix contains invalid" if name == "assignment" else r"scores\[1, (0, )?0\] is nan"):
        make()(scores)


@pytest.mark.parametrize("name", sorted(SOLVERS.keys() - {"linear program", "mixed integer"}))
def test_totals_that_are_not_finite(name):
    make, shape = SOLVERS[name]
    scores = -np.random.default_rng(0).random((3, *shape)) * (-1 if "knapsack" in name else 1)
    expected = make()(scores)
    # Others of the batch stay as they are, however small.
    huge = scores * np.array([1.7e308, 1.0, 1e-300]).reshape(-1, *[1] * len(shape))
    np.testing.assert_allclose(make()(huge), expected, atol=1e-9)


def test_top_k_by_hand():
    solver = solvers.TopK(2)
    np.testing.assert_array_equal(solver(np.array([[-3.0, -1.0, -2.0], [1.0, 1.0, 1.0]])), [[0, 1, 1], [1, 1, 0]])
    with pytest.raises(ValueError, match="k=2 items were asked for, but scores has 1"):
        solver(np.zeros((4, 1)))
    with pytest.raises(ValueError, match="k must be a whole number of at least 1, got 0"):
        solvers.TopK(0)
