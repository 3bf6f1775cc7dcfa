"""The Newton method in plain torch against the compiled smoothed solution. On a device of its own: ``tests.another_device``."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from taskloss.lp import LinearProgram, SparseMatrix, differentiable_solve, newton_solve
from tests.lp.test_gradients import random_program


@pytest.mark.parametrize("batch", [(), (3,)], ids=["single", "batch"])
@pytest.mark.parametrize("epsilon", [0.3, 0.01])
def test_solution_and_gradients_are_those_of_the_smoothed_program(batch, epsilon):
    for seed in range(6):
        data = random_program(seed, batch)
        weight = torch.arange(1.0, 6.0, dtype=torch.float64)
        results = []
        for solve in (newton_solve, lambda problem, **options: differentiable_solve(problem, gradient="smoothed", **options)):
            leaves = [tensor.clone().requires_grad_() for tensor in data]
            solution = solve(LinearProgram(*leaves), epsilon=epsilon, ridge=0.1)
            gradients = torch.autograd.grad((solution.x * weight).sum(), leaves)
            results.append([solution.x.detach(), *gradients])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_the_multipliers_are_violations_over_epsilon():
    data = random_program(0)
    solution = newton_solve(LinearProgram(*data), epsilon=0.05)
    activity = torch.cat([data[1] @ solution.x, data[3] @ solution.x, solution.x])
    upper = torch.cat([data[2], data[4], data[6]])
    lower = torch.cat([torch.full_like(data[2], -np.inf), data[4], data[5]])
    violation = (activity - upper).clamp(min=0) - (lower - activity).clamp(min=0)
    torch.testing.assert_close(solution.multipliers, violation / 0.05)
    stationarity = (
        data[0] + data[1].T @ solution.multipliers[:7] + data[3].T @ solution.multipliers[7:8] + solution.multipliers[8:]
    )
    assert stationarity.abs().max() < 1e-8
    assert float(solution.residual) < 1e-8


def test_sparse_matrices():
    values = torch.tensor([[1.0, 1.0, 2.0, 1.0], [1.0, 2.0, 3.0, 1.0]], dtype=torch.float64, requires_grad=True)
    matrix = SparseMatrix([0, 0, 1, 1], [0, 1, 0, 1], values, (2, 2))
    c, rhs = torch.tensor([-3.0, -2.0]).double(), torch.tensor([4.0, 6.0]).double()
    results = [newton_solve(LinearProgram(c, A_ub=A, b_ub=rhs, lower=0.0), epsilon=0.01).x for A in (matrix, matrix.to_dense())]
    torch.testing.assert_close(*results)
    one, other = (torch.autograd.grad(x.sum(), values, retain_graph=True)[0] for x in results)
    torch.testing.assert_close(one, other)


def test_data_changed_in_place_are_read_again():
    upper = torch.ones(1, dtype=torch.float64)
    problem = LinearProgram(-torch.ones(1, dtype=torch.float64), upper=upper)
    for value in (1.0, 2.0):
        upper.fill_(value)
        assert newton_solve(problem, epsilon=0.25).x.tolist() == pytest.approx([value + 0.25])
    upper.fill_(torch.nan)
    with pytest.raises(ValueError, match="upper contains NaN"):
        newton_solve(problem)


def test_bad_calls():
    problem = LinearProgram(torch.ones(1), lower=0.0)
    with pytest.raises(TypeError, match="expected a LinearProgram, got Tensor"):
        newton_solve(torch.ones(1))
    with pytest.raises(ValueError, match="ridge must be a number of at least zero"):
        newton_solve(problem, ridge=-1.0)
    with pytest.raises(ValueError, match="unrolled_steps must be a whole number"):
        newton_solve(problem, unrolled_steps=0)
