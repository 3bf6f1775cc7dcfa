"""The engine in torch: against HiGHS and the compiled one, and on a device of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from taskloss.lp import LinearProgram, LPLayer, SparseMatrix, Status, differentiable_solve, solve
from tests import elsewhere
from tests.lp.test_gradients import random_program
from tests.lp.test_solver import check_certificate, problem_of
from tests.oracles.linear_programs import GENERATORS, highs, instances, rescaled, violations

MODES = ["active_set", "smoothed", "unrolled", "value"]


@pytest.mark.parametrize("name", GENERATORS)
def test_agrees_with_highs(name):
    for data in instances(name, 15):
        solution = solve(problem_of(data), engine="torch")
        status, value = highs(data)
        assert solution.status.name == status
        if solution.status is not Status.OPTIMAL:
            check_certificate(data, solution)
            continue
        x = solution.x.numpy()
        assert abs(float(solution.objective) - value) <= 1e-8 * max(abs(value), np.abs(data.c) @ np.abs(x))
        assert violations(data, x) <= 1e-8


@pytest.mark.parametrize("name", ["plain", "mostly_equations", "redundant_rows"])
def test_bad_scales_change_nothing(name):
    rng = np.random.default_rng(3)
    for data in instances(name, 15):
        changed, factor = rescaled(data, rng)
        solution = solve(problem_of(changed), engine="torch")
        value = highs(data)[1] * factor
        x = solution.x.numpy()
        assert solution.status is Status.OPTIMAL
        assert abs(float(solution.objective) - value) <= 1e-8 * max(abs(value), np.abs(changed.c) @ np.abs(x))
        assert violations(changed, x) <= 1e-8


def test_most_programs_need_no_other_engine(monkeypatch):
    """Those with one solution, in all the generators."""
    continued = []
    monkeypatch.setattr("taskloss.lp.dense.engine.solve_arrays", lambda *_: continued.append(1))
    for name in ("plain", "degenerate_vertex", "redundant_rows", "two_sided", "assignment", "staircase"):
        for data in instances(name, 10):
            assert solve(problem_of(data), engine="torch").status is Status.OPTIMAL
    assert not continued


def gradients(data, device, mode, engine):
    leaves = [tensor.clone().to(device).requires_grad_() for tensor in data]
    solution = differentiable_solve(LinearProgram(*leaves), gradient=mode, epsilon=0.05, tolerance=1e-10, engine=engine)
    weight = torch.arange(1.0, 6.0, dtype=torch.float64).to(device)
    loss = solution.objective.sum() if mode == "value" else (solution.x * weight).sum() + solution.objective.sum()
    loss.backward()
    return solution, [torch.zeros_like(leaf).cpu() if leaf.grad is None else leaf.grad.cpu() for leaf in leaves]


@pytest.mark.parametrize("batch", [(), (3,)], ids=["single", "batch"])
@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_the_compiled_engine(mode, batch):
    for seed in range(6):
        data = random_program(seed, batch)
        (solution, found), (expected_solution, expected) = (gradients(data, "cpu", mode, name) for name in ("torch", "compiled"))
        for field in ("x", "objective", "dual_ub", "dual_eq", "dual_lower", "dual_upper"):
            torch.testing.assert_close(getattr(solution, field), getattr(expected_solution, field), rtol=1e-8, atol=1e-10)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("engine", ["torch", "compiled"])
@pytest.mark.parametrize("mode", MODES)
def test_another_device(mode, engine):
    """Everything is where the data are; with the engine in torch nothing but yes and no comes to the CPU."""
    data = random_program(1, (3,))
    _, expected = gradients(data, "cpu", mode, engine)
    elsewhere.brought_back.clear()
    leaves = [tensor.to(elsewhere.NAME).requires_grad_() for tensor in data]
    solution = differentiable_solve(LinearProgram(*leaves), gradient=mode, epsilon=0.05, tolerance=1e-10, engine=engine)
    weight = torch.arange(1.0, 6.0, dtype=torch.float64).to(elsewhere.NAME)
    (solution.objective.sum() if mode == "value" else (solution.x * weight).sum() + solution.objective.sum()).backward()
    assert engine == "compiled" or elsewhere.brought_back == []
    for field in (solution.x, solution.dual_ub, solution.gap, solution.active.rows, solution.unique, solution.iterations):
        assert field.device.type == elsewhere.NAME
    for leaf, gradient in zip(leaves, expected, strict=True):
        found = torch.zeros_like(gradient) if leaf.grad is None else leaf.grad.cpu()
        torch.testing.assert_close(found, gradient)
    assert solution.statuses == (Status.OPTIMAL,) * 3


def test_sparse_matrices_on_another_device():
    values = torch.tensor([[1.0, 1.0, 2.0, 1.0], [1.0, 2.0, 3.0, 1.0]])
    places = SparseMatrix([0, 0, 1, 1], [0, 1, 0, 1], values, (2, 2))
    found = []
    for device in ("cpu", elsewhere.NAME):
        leaf = values.clone().to(device).requires_grad_()
        cost, side = torch.tensor([-3.0, -2.0]).to(device), torch.tensor([4.0, 6.0]).to(device)
        plans = LPLayer(engine="torch")(cost, A_ub=places.with_values(leaf), b_ub=side, lower=0.0)
        plans.x.sum().backward()
        found.append((plans.x.detach().cpu(), leaf.grad.cpu()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_what_torch_does_not_finish_is_continued():
    """Of a batch on another device: a vertex, an infeasible program, an unbounded one, a whole face of solutions."""
    cost = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    sides = torch.tensor([[-1.0, 5.0], [-1.0, -2.0], [-1.0, torch.inf], [-1.0, 5.0]], dtype=torch.float64)
    rows = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    lower = torch.zeros(2, dtype=torch.float64)
    moved = (tensor.to(elsewhere.NAME) for tensor in (cost, rows, sides))
    solution = solve(LinearProgram(*moved, lower=lower.to(elsewhere.NAME)), engine="torch")
    expected = solve(LinearProgram(cost, rows, sides, lower=lower))
    assert solution.statuses == expected.statuses == (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED, Status.OPTIMAL)
    torch.testing.assert_close(solution.x.cpu()[[0, 3]], expected.x[[0, 3]])
    assert solution.x[3].tolist() == pytest.approx([0.5, 0.5])
    assert solution.unique.tolist() == [True, False, False, False]
    for found, known in zip(solution.certificates, expected.certificates, strict=True):
        assert (found is None) == (known is None)
        assert found is None or found.device.type == elsewhere.NAME


def test_a_warm_start_takes_no_step():
    problem = LinearProgram(*random_program(0, (3,)))
    first = solve(problem, engine="torch")
    again = solve(problem, engine="torch", warm_start=first)
    assert (first.iterations > 0).all()
    assert (again.iterations == 0).all()
    torch.testing.assert_close(again.x, first.x)
    with pytest.raises(ValueError, match="expected the solution of a problem of the same shape"):
        solve(LinearProgram(*random_program(0)), engine="torch", warm_start=first)


@pytest.mark.parametrize("device", ["cpu", elsewhere.NAME])
def test_data_changed_in_place_are_read_again(device):
    upper = torch.ones(1).to(device)
    problem = LinearProgram(-torch.ones(1).to(device), upper=upper)
    assert solve(problem, engine="torch").x.tolist() == [1.0]
    upper.fill_(2.0)
    assert solve(problem, engine="torch").x.tolist() == [2.0]
    upper.fill_(torch.nan)
    with pytest.raises(ValueError, match="upper contains NaN"):
        solve(problem, engine="torch")


def test_no_rows_at_all():
    problem = LinearProgram(torch.tensor([1.0, -1.0]), lower=0.0, upper=2.0)
    assert solve(problem, engine="torch").x.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("options", [{"method": "penalty"}, {"trace": True}])
def test_what_the_engine_has_not(options):
    problem = LinearProgram(torch.ones(1), lower=0.0)
    with pytest.raises(ValueError, match='engine="torch" has method="newton" alone'):
        solve(problem, engine="torch", **options)


def test_an_unknown_engine():
    with pytest.raises(ValueError, match="engine"):
        solve(LinearProgram(torch.ones(1), lower=0.0), engine="gpu")
