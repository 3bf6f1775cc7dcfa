"""Mixed-integer programs and round trips against all their points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
import torch

import taskloss as tl
from taskloss.solvers import Assignment, MixedInteger, TravellingSalesman
from tests.oracles.decisions import all_subsets, all_tours, assert_best


def test_binary_programs():
    rng = np.random.default_rng(0)
    subsets = all_subsets(6)
    for _ in range(8):
        matrix, rhs = rng.integers(-3, 4, (2, 6)), rng.integers(0, 4, 2)
        scores = rng.integers(-2, 4, (3, 6)) / 2.0
        feasible = subsets[(subsets @ matrix.T <= rhs).all(axis=1)]
        assert_best(MixedInteger(A_ub=scipy.sparse.coo_array(matrix), b_ub=rhs)(scores), scores, feasible)
        # Half of the capacity of each row must be used exactly; the point of all zeros otherwise.
        counted = subsets[(subsets.sum(axis=1) == 3) & (subsets @ matrix[0] <= rhs[0])]
        if len(counted):
            solver = MixedInteger(A_ub=matrix[:1], b_ub=rhs[:1], A_eq=np.ones((1, 6)), b_eq=[3])
            assert_best(solver(scores), scores, counted)


def test_small_scores_are_solved_exactly():
    # HiGHS stops at an absolute gap of 1e-6.
    scores = 1e-9 * np.array([3.0, 4.0, 5.0])
    solver = MixedInteger(A_ub=[[2, 3, 4]], b_ub=[6])
    assert solver(scores).tolist() == [1, 0, 1]
    assert solver(np.array([5e-324, 0.0, 0.0])).tolist()[0] == 1


@pytest.mark.parametrize("unit", [1e-300, 1e-9])
def test_small_constraints_count(unit):
    # HiGHS tolerates violations of up to 1e-6.
    scores, weights = np.array([3.0, 4.0, 5.0]), unit * np.array([[2.0, 3.0, 4.0], [0.0, 0.0, 0.0]])
    assert MixedInteger(A_ub=weights, b_ub=[6 * unit, 0])(scores).tolist() == [1, 0, 1]
    assert MixedInteger(A_eq=weights, b_eq=[5 * unit, 0])(scores).tolist() == [1, 1, 0]


def test_assignment_as_a_program():
    rows = np.kron(np.eye(3), np.ones(3))
    columns = np.kron(np.ones(3), np.eye(3))
    scores = np.random.default_rng(0).standard_normal((4, 3, 3))
    solver = MixedInteger(A_eq=np.concatenate([rows, columns]), b_eq=np.ones(6))
    np.testing.assert_array_equal(solver(scores.reshape(4, 9)).reshape(4, 3, 3), Assignment()(scores))


def test_whole_continuous_and_auxiliary_variables():
    # x whole and y not, x + y <= 3.5, 0 <= x, y <= 3: the best of 2x + y is 6.5, of x + 2y is 6.5 or 7 with y = 3, x = 0.
    solver = MixedInteger(A_ub=[[1, 1]], b_ub=[3.5], upper=3.0, integrality=[True, False])
    np.testing.assert_allclose(solver(np.array([[2.0, 1.0], [1.0, 2.0]])), [[3, 0.5], [0, 3]], atol=1e-9)
    # The largest z with z <= x_1 + x_2 and z <= 1 is the auxiliary variable that lets only one of them be left out.
    one_of_two = MixedInteger(A_ub=[[-1, -1, 1]], b_ub=[0], lower=[0, 0, 1], auxiliary=1)
    assert one_of_two(np.array([[-1.0, -2.0], [1.0, 1.0]])).tolist() == [[1, 0], [1, 1]]


def test_a_schedule_is_trained():
    # Two machines, three jobs, at most two jobs per machine, every job once; psi[i, j] as one row of six.
    once = np.tile(np.eye(3), 2)
    at_most_two = np.kron(np.eye(2), np.ones(3))
    solver = MixedInteger(A_ub=at_most_two, b_ub=[2, 2], A_eq=once, b_eq=np.ones(3))
    costs = torch.tensor([[1.0, 5.0, 1.0, 5.0, 1.0, 5.0]])
    scores = torch.zeros(1, 6, requires_grad=True)
    loss = tl.DirectLoss(tl.Structured(solver, loss="regret", batched=True), epsilon=1.0, update="negative")(scores, costs)
    loss.backward()
    assert loss.item() in (0.0, 4.0, 8.0, 12.0)
    assert (scores.grad is not None and bool(scores.grad.any())) == (loss.item() > 0.0)


def test_programs_without_a_solution():
    with pytest.raises(ValueError, match="program of instance 0 was not solved.*No point satisfies all the constraints"):
        MixedInteger(A_eq=[[1, 1]], b_eq=[5])(np.zeros((2, 2)))
    for options in ({}, {"A_ub": [[1, -1]], "b_ub": [1]}):
        with pytest.raises(ValueError, match="instance 1 was not solved.*grow without bound: give the variables bounds"):
            MixedInteger(lower=[0, 0], upper=np.inf, **options)(np.array([[-1.0, -1.0], [1.0, 1.0]]))
    with pytest.raises(ValueError, match="instance 0 was not solved.*HiGHS failed: bring the data to comparable scales"):
        MixedInteger(A_ub=[[1, 1e16]], b_ub=[1])(np.ones(2))


def test_data_that_make_no_sense():
    with pytest.raises(ValueError, match="A_ub was given without b_ub; give both or none"):
        MixedInteger(A_ub=[[1, 1]])
    with pytest.raises(ValueError, match=r"b_ub has shape \(2,\) and A_ub has 1 rows"):
        MixedInteger(A_ub=[[1, 1]], b_ub=[1, 1])
    with pytest.raises(ValueError, match="the numbers of variables differ: A_ub has 2, A_eq has 3"):
        MixedInteger(A_ub=[[1, 1]], b_ub=[1], A_eq=[[1, 1, 1]], b_eq=[1])
    with pytest.raises(ValueError, match="A_ub contains NaN or an infinite value"):
        MixedInteger(A_ub=[[1, np.nan]], b_ub=[1])
    with pytest.raises(ValueError, match="lower contains NaN"):
        MixedInteger(lower=np.nan)
    with pytest.raises(ValueError, match="relative_gap must be a number from 0 to 1, got 2"):
        MixedInteger(relative_gap=2)
    with pytest.raises(ValueError, match=r"integrality\[1\] is 2.0; expected True or False"):
        MixedInteger(integrality=[1, 2])
    with pytest.raises(ValueError, match="auxiliary=2 of the 2 variables have no score"):
        MixedInteger(A_ub=[[1, 1]], b_ub=[1], auxiliary=2)
    with pytest.raises(ValueError, match=r"scores has shape \(3,\); expected 1 along the last axis, one score per variable"):
        MixedInteger(A_ub=[[1, 1]], b_ub=[1], auxiliary=1)(np.zeros(3))


@pytest.mark.parametrize("cities", [3, 4, 6])
def test_all_tours(cities):
    rng = np.random.default_rng(cities)
    known = all_tours(cities)
    for scores in (rng.standard_normal((3, known.shape[1])), rng.integers(-2, 2, (3, known.shape[1])) / 2.0):
        for method in ("held_karp", "cutting_planes"):
            assert_best(TravellingSalesman(cities, method)(scores), scores, known)


def test_both_methods_find_equally_good_tours():
    # Two clusters far apart: without cuts the best answer is two tours.
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.random((5, 2)), rng.random((5, 2)) + np.array([9.0, 0.0])])
    solver = TravellingSalesman(10)
    assert [tuple(edge) for edge in solver.edges.tolist()] == list(itertools.combinations(range(10), 2))
    costs = np.linalg.norm(points[solver.edges[:, 0]] - points[solver.edges[:, 1]], axis=1)
    first, second = (TravellingSalesman(10, method)(-costs) for method in ("held_karp", "cutting_planes"))
    assert first @ costs == pytest.approx(second @ costs, abs=1e-9)
    for psi in (first, second):
        assert (np.bincount(solver.edges[psi > 0].reshape(-1)) == 2).all()
    with pytest.raises(ValueError, match="cities must be a whole number of at least 3, got 2"):
        TravellingSalesman(2)
    with pytest.raises(ValueError, match=r"'held_karp' needs memory for 2\^69 subsets .* Use method='cutting_planes'"):
        TravellingSalesman(70, "held_karp")
