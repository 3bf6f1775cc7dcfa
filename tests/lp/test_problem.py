"""Bad data gets an error that says what was given, what was expected and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from taskloss.lp import LinearProgram, LPLayer, differentiable_solve, solve

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
        ({"c": C, "A_ub": np.ones((3, 2)), "b_ub": B}, TypeError, "A_ub must be a torch.Tensor or a scipy sparse matrix"),
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
        ({"max_steps": 0}, "max_steps must be a whole number"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        solve(LinearProgram(C, lower=0.0), **options)


def test_other_bad_calls():
    problem = LinearProgram(C, lower=0.0)
    with pytest.raises(TypeError, match="expected a LinearProgram, got Tensor"):
        solve(C)
    with pytest.raises(ValueError, match="gradient='exact' is not known"):
        differentiable_solve(problem, gradient="exact")
    with pytest.raises(ValueError, match="ridge must be a number of at least zero"):
        differentiable_solve(problem, gradient="smoothed", ridge=-1.0)
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
