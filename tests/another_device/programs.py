"""Linear programs on another device."""

from __future__ import annotations

import pytest
import torch

from taskloss.lp import LinearProgram, LPLayer, SparseMatrix, Status, newton_solve, solve
from tests.another_device.device import NAME, brought_back
from tests.lp.test_gradients import random_program

MODES = ["active_set", "smoothed", "unrolled", "value"]


def solution_and_gradients(data, mode, device):
    """The solution, and the gradients of its value and of a linear function of x, brought to the CPU."""
    leaves = [tensor.clone().to(device).requires_grad_() for tensor in data]
    solution = LPLayer(mode, epsilon=0.03)(*leaves)
    weight = torch.arange(1.0, 6.0, dtype=torch.float64).to(device)
    loss = solution.objective.sum() if mode == "value" else (solution.x * weight).sum() + solution.objective.sum()
    loss.backward()
    return solution, [torch.zeros_like(leaf).cpu() if leaf.grad is None else leaf.grad.cpu() for leaf in leaves]


@pytest.mark.parametrize("mode", MODES)
def test_solution_and_gradients(mode):
    data = random_program(1, (3,))
    _, expected = solution_and_gradients(data, mode, "cpu")
    solution, gradients = solution_and_gradients(data, mode, NAME)
    for field in (solution.x, solution.dual_ub, solution.gap, solution.active.rows, solution.unique, solution.iterations):
        assert field.device.type == NAME
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert solution.statuses == (Status.OPTIMAL,) * 3


def test_newton_brings_no_values_to_the_cpu():
    leaves = [tensor.to(NAME).requires_grad_() for tensor in random_program(1, (3,))]
    expected = newton_solve(LinearProgram(*random_program(1, (3,)))).x
    problem = LinearProgram(*leaves)
    brought_back.clear()
    solution = newton_solve(problem)
    solution.x.sum().backward()
    assert brought_back == []
    torch.testing.assert_close(solution.x.detach().cpu(), expected)


def test_sparse_matrices():
    values = torch.tensor([[1.0, 1.0, 2.0, 1.0], [1.0, 2.0, 3.0, 1.0]])
    indices = SparseMatrix([0, 0, 1, 1], [0, 1, 0, 1], values, (2, 2))
    results = []
    for device in ("cpu", NAME):
        leaf = values.clone().to(device).requires_grad_()
        cost, rhs = torch.tensor([-3.0, -2.0]).to(device), torch.tensor([4.0, 6.0]).to(device)
        plans = LPLayer()(cost, A_ub=indices.with_values(leaf), b_ub=rhs, lower=0.0)
        plans.x.sum().backward()
        results.append((plans.x.detach().cpu(), leaf.grad.cpu()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_data_changed_in_place_are_read_again():
    upper = torch.ones(1).to(NAME)
    problem = LinearProgram(-torch.ones(1).to(NAME), upper=upper)
    assert solve(problem).x.tolist() == [1.0]
    upper.fill_(2.0)
    assert solve(problem).x.tolist() == [2.0]
    upper.fill_(torch.nan)
    with pytest.raises(ValueError, match="upper contains NaN"):
        solve(problem)
