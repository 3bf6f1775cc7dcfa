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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_larger_programs_converge_alone_and_in_a_batch(dtype):
    """The function falls in every step, its gradient need not: that must not count as a lack of progress."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(-3, 4, (8, 20, 20), generator=generator).to(dtype)
    inside, slack = (torch.rand(8, 20, generator=generator).to(dtype) for _ in range(2))
    cost = torch.randn(8, 20, generator=generator).to(dtype)
    data = cost, rows, (rows @ inside[..., None])[..., 0] + slack
    together = newton_solve(LinearProgram(*data, lower=0.0, upper=5.0))
    expected = differentiable_solve(LinearProgram(*data, lower=0.0, upper=5.0), gradient="smoothed").x
    assert together.x.dtype == dtype
    assert together.residual.max() < 1e-6
    torch.testing.assert_close(together.x, expected, atol=1e-5, rtol=1e-5)
    for item in range(3):
        alone = newton_solve(LinearProgram(*(part[item] for part in data), lower=0.0, upper=5.0))
        torch.testing.assert_close(alone.x, expected[item], atol=1e-5, rtol=1e-5)


def test_a_flat_program_stays_at_its_minimizer():
    """With no cost the minimizers fill a region; the differentiated steps must not leave it."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        rows = torch.randint(-3, 4, (3, 5), generator=generator).double() * 1e3
        program = LinearProgram(torch.zeros(5).double(), A_eq=rows, b_eq=rows @ torch.ones(5).double(), lower=0.0, upper=2.0)
        assert float(newton_solve(program, epsilon=1e-3).residual) < 1e-4


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
