"""Bad data gets an error that says what was given, what was expected and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from taskloss.lp import LinearProgram, LPLayer, SparseMatrix, differentiable_solve, solve

C = torch.ones(2, dtype=torch.float64)
A = torch.ones(3, 2, dtype=torch.float64)
B = torch.ones(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"c": [1.0, 2.0]}, TypeError, "c must be a torch.Tensor, got list"),
        ({"c": torch.tensor([1, 2])}, TypeError, r"c must be float32 or float64, got torch.int64; use c.double\(\)"),
        ({"c": torch.ones(1, 1, 2)}, ValueError, r"c has shape \(1, 1, 2\)"),
        ({"c": torch.ones(0)}, ValueError, r"c has shape \(0,\)"),
        ({"c": torch.tensor([1.0, torch.nan])}, ValueError, "c contains NaN"),
        ({"c": C, "A_ub": A}, ValueError, "A_ub was given without b_ub"),
        ({"c": C, "b_eq": B}, ValueError, "b_eq was given without A_eq"),
        ({"c": C, "A_ub": A.int(), "b_ub": B}, TypeError, "A_ub must be float32 or float64, got torch.int32"),
        (
            {"c": C, "A_ub": np.ones((3, 2)), "b_ub": B},
            TypeError,
            "A_ub must be a torch.Tensor, a SparseMatrix or a scipy",
        ),
        ({"c": C, "A_ub": scipy.sparse.csr_matrix(np.ones((3, 2), int)), "b_ub": B}, TypeError, "A_ub must be floating point"),
        ({"c": C, "A_ub": A[:, :1], "b_ub": B}, ValueError, "A_ub has 1 columns and c has 2 entries"),
        ({"c": C, "A_ub": A, "b_ub": B[:2]}, ValueError, "b_ub has 2 entries and A_ub has 3 rows"),
        ({"c": C, "A_ub": A[0], "b_ub": B}, ValueError, r"A_ub has shape \(2,\)"),
        ({"c": C, "A_ub": A * torch.inf, "b_ub": B}, ValueError, "A_ub contains NaN or an infinite value"),
        ({"c": C, "A_ub": A, "b_ub": B * torch.nan}, ValueError, "b_ub contains NaN or -inf"),
        ({"c": C, "A_eq": A, "b_eq": B * torch.inf}, ValueError, "b_eq contains NaN or an infinite value"),
        ({"c": C, "lower": torch.ones(3).double()}, ValueError, "lower has 3 entries and c has 2"),
        ({"c": C, "lower": 2.0, "upper": 1.0}, ValueError, "lower > upper for variable 0"),
        ({"c": C, "upper": float("nan")}, ValueError, "upper contains NaN"),
        ({"c": C, "lower": torch.inf}, ValueError, "lower contains NaN or inf"),
        ({"c": C, "A_ub": A.float(), "b_ub": B}, ValueError, r"A_ub is torch.float32 on cpu and c is torch.float64"),
        ({"c": torch.ones(0, 2)}, ValueError, "the batch is empty: c has 0 items"),
        ({"c": C, "A_ub": A.to_sparse_csc(), "b_ub": B}, TypeError, "A_ub must be dense, COO or CSR, got torch.sparse_csc"),
        ({"c": C, "A_ub": A[None].to_sparse(), "b_ub": B}, ValueError, "a batch of sparse matrices must be CSR"),
        (
            {"c": C.expand(4, 2), "A_ub": A, "b_ub": B.expand(5, 3)},
            ValueError,
            "the batch sizes differ: c has 4, b_ub has 5",
        ),
    ],
)
def test_bad_data(arguments, error, message):
    with pytest.raises(error, match=message):
        LinearProgram(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "simplex"}, "method='simplex' is not known"),
        ({"tolerance": 0.0}, "tolerance must be finite and above zero"),
        ({"max_iterations": 0}, "max_iterations must be a whole number"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        solve(LinearProgram(C, lower=0.0), **options)


def test_other_bad_calls():
    problem = LinearProgram(C, lower=0.0)
    with pytest.raises(TypeError, match="expected a LinearProgram, or the cost c as a torch.Tensor, got ndarray"):
        solve(C.numpy())
    with pytest.raises(ValueError, match="gradient='exact' is not known"):
        differentiable_solve(problem, gradient="exact")
    with pytest.raises(ValueError, match="ridge must be a number of at least zero"):
        differentiable_solve(problem, gradient="smoothed", ridge=-1.0)
    with pytest.raises(ValueError, match="ridge must be a number of at least zero, got None"):
        differentiable_solve(problem, gradient="smoothed", ridge=None)
    with pytest.raises(ValueError, match="burn_in must be a whole number"):
        LPLayer(burn_in=-1)
    with pytest.raises(ValueError, match="warm_start has x of shape"):
        solve(LinearProgram(torch.ones(3, dtype=torch.float64), lower=0.0), warm_start=solve(problem))


def test_a_program_is_frozen():
    with pytest.raises(AttributeError):
        LinearProgram(C).c = C


def test_a_bound_beyond_1e20_is_none():
    solution = solve(LinearProgram(C, lower=0.0, upper=1e30))
    assert solution.x.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0, 3], [0, 1], B[:2], (3, 2)), ValueError, "rows goes from 0 to 3; expected 0 to 2"),
        (([0, 1], [-1, 1], B[:2], (3, 2)), ValueError, "columns goes from -1 to 1"),
        (([0, 1], [0], B[:2], (3, 2)), ValueError, "rows has 2 entries and columns has 1"),
        (([0.0, 1.0], [0, 1], B[:2], (3, 2)), ValueError, "rows has shape .* and type float64; expected integers"),
        (([0, 1], [0, 1], B, (3, 2)), ValueError, r"values has shape \(3,\); expected \(2,\) or \(batch, 2\)"),
        (([0, 1], [0, 1], [1.0, 2.0], (3, 2)), TypeError, "values must be a torch.Tensor, got list"),
    ],
)
def test_bad_sparse_matrices(arguments, error, message):
    with pytest.raises(error, match=message):
        SparseMatrix(*arguments)


def test_a_sparse_matrix_is_sorted_and_adds_up():
    values = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    matrix = SparseMatrix([1, 0, 1], [0, 1, 0], values, (2, 2))
    assert matrix.to_dense().tolist() == [[0.0, 2.0], [5.0, 0.0]]
    assert matrix.with_values(10 * values).to_dense().tolist() == [[0.0, 20.0], [50.0, 0.0]]
    cost = -torch.ones(2, dtype=torch.float64)
    solution = solve(LinearProgram(cost, A_ub=matrix, b_ub=torch.tensor([2.0, 10.0], dtype=torch.float64), lower=0.0))
    assert solution.x.tolist() == pytest.approx([2.0, 1.0])


@pytest.mark.parametrize("kind", ["dense", "sparse", "inference"])
def test_data_that_is_changed_in_place_is_read_again(kind):
    """As an optimizer changes the parameters of a program that is built once."""
    with torch.inference_mode(kind == "inference"):
        c, b = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([-1.0], dtype=torch.float64)
        rows = SparseMatrix([0, 0], [0, 1], -torch.ones(2, dtype=torch.float64), (1, 2))
        problem = LinearProgram(c, rows if kind == "sparse" else rows.to_dense(), b, lower=0.0)
        c[0] = 5.0
        assert solve(problem).x.tolist() == [0.0, 1.0]
        c[0] = 1.0
        assert solve(problem).x.tolist() == [1.0, 0.0]
        b[0] = -3.0
        assert solve(problem).x.tolist() == [3.0, 0.0]
        b[0] = float("nan")
        with pytest.raises(ValueError, match="b_ub contains NaN"):
            solve(problem)


def test_a_sparse_tensor_with_entries_given_twice_is_read_again():
    indices, values = torch.tensor([[0, 0, 0], [0, 0, 1]]), torch.tensor([-0.5, -0.5, -1.0], dtype=torch.float64)
    rows = torch.sparse_coo_tensor(indices, values, (1, 2))
    problem = LinearProgram(torch.tensor([1.0, 3.0], dtype=torch.float64), rows, -torch.ones(1, dtype=torch.float64), lower=0.0)
    rows._values()[:2] = -0.25
    assert solve(problem).x.tolist() == pytest.approx([2.0, 0.0])


def test_a_dense_matrix_may_gain_entries():
    matrix = torch.tensor([[-1.0, 0.0]], dtype=torch.float64)
    problem = LinearProgram(torch.tensor([2.0, 1.0], dtype=torch.float64), matrix, -torch.ones(1, dtype=torch.float64), lower=0.0)
    matrix[0, 1] = -1.0
    assert solve(problem).x.tolist() == [0.0, 1.0]


def test_batched_csr_with_different_indices_is_refused():
    rows = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64).to_sparse_csr()
    with pytest.raises(ValueError, match="store different entries"):
        LinearProgram(C, A_ub=rows, b_ub=B[:1])


def test_data_that_are_negated_when_they_are_read():
    c, A, b = (torch.tensor(values, dtype=torch.float64) for values in ([1.0, 2.0], [[-1.0, -1.0]], [-1.0]))
    negated = [(-tensor)._neg_view() for tensor in (c, A, b)]
    assert solve(LinearProgram(*negated, lower=0.0)).x.tolist() == [1.0, 0.0]
