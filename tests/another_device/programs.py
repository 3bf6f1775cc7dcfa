"""Linear programs on another device, by both engines."""

from __future__ import annotations

import pytest
import torch

from taskloss.lp import LinearProgram, LPLayer, SparseMatrix, Status, solve
from tests.another_device.device import NAME, brought_back
from tests.lp.test_engines import MODES, check_data_changed_in_place, gradients
from tests.lp.test_gradients import random_program


@pytest.mark.parametrize("engine", ["torch", "compiled"])
@pytest.mark.parametrize("mode", MODES)
def test_solution_and_gradients(mode, engine):
    data = random_program(1, (3,))
    _, expected = gradients(data, mode, engine)
    solution, found = gradients(data, mode, engine, NAME)
    for field in (solution.x, solution.dual_ub, solution.gap, solution.active.rows, solution.unique, solution.iterations):
        assert field.device.type == NAME
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert solution.statuses == (Status.OPTIMAL,) * 3


@pytest.mark.parametrize("mode", MODES)
def test_no_numbers_come_to_the_cpu(mode):
    leaves = [tensor.to(NAME).requires_grad_() for tensor in random_program(1, (3,))]
    brought_back.clear()
    solution = LPLayer(gradient=mode, engine="torch")(*leaves)
    (solution.objective.sum() if mode == "value" else solution.x.sum()).backward()
    assert brought_back == []


def test_sparse_matrices():
    values = torch.tensor([[1.0, 1.0, 2.0, 1.0], [1.0, 2.0, 3.0, 1.0]])
    places = SparseMatrix([0, 0, 1, 1], [0, 1, 0, 1], values, (2, 2))
    found = []
    for device in ("cpu", NAME):
        leaf = values.clone().to(device).requires_grad_()
        cost, side = torch.tensor([-3.0, -2.0]).to(device), torch.tensor([4.0, 6.0]).to(device)
        plans = LPLayer(engine="torch")(cost, A_ub=places.with_values(leaf), b_ub=side, lower=0.0)
        plans.x.sum().backward()
        found.append((plans.x.detach().cpu(), leaf.grad.cpu()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_what_torch_does_not_finish_is_continued():
    """Of a batch: a vertex, an infeasible program, an unbounded one, a whole face of solutions."""
    cost = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    sides = torch.tensor([[-1.0, 5.0], [-1.0, -2.0], [-1.0, torch.inf], [-1.0, 5.0]], dtype=torch.float64)
    rows = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    lower = torch.zeros(2, dtype=torch.float64)
    moved = (tensor.to(NAME) for tensor in (cost, rows, sides))
    solution = solve(LinearProgram(*moved, lower=lower.to(NAME)), engine="torch")
    expected = solve(LinearProgram(cost, rows, sides, lower=lower))
    assert solution.statuses == expected.statuses == (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED, Status.OPTIMAL)
    torch.testing.assert_close(solution.x.cpu()[[0, 3]], expected.x[[0, 3]])
    assert solution.x[3].tolist() == pytest.approx([0.5, 0.5])
    assert solution.unique.tolist() == [True, False, False, False]
    for found, known in zip(solution.certificates, expected.certificates, strict=True):
        assert (found is None) == (known is None)
        assert found is None or found.device.type == NAME


def test_data_changed_in_place_are_read_again():
    check_data_changed_in_place(NAME)
