"""The engine in torch against HiGHS and the compiled one. On a device of its own: ``tests.another_device``."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from taskloss.lp import LinearProgram, Status, differentiable_solve, solve
from tests.lp.test_gradients import random_program
from tests.lp.test_solver import check_answer, problem_of
from tests.oracles.linear_programs import GENERATORS, highs, instances, rescaled, violations

MODES = ["active_set", "smoothed", "unrolled", "value"]


@pytest.mark.parametrize("name", GENERATORS)
def test_agrees_with_highs(name):
    for data in instances(name, 8):
        check_answer(data, solve(problem_of(data), engine="torch"))


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
    """Those with one solution, in six of the generators."""
    continued = []
    monkeypatch.setattr("taskloss.lp.dense.engine.solve_arrays", lambda *_: continued.append(1))
    for name in ("plain", "degenerate_vertex", "redundant_rows", "two_sided", "assignment", "staircase"):
        for data in instances(name, 10):
            assert solve(problem_of(data), engine="torch").status is Status.OPTIMAL
    assert not continued


@pytest.mark.parametrize("name", ["redundant_rows", "assignment", "degenerate_vertex"])
def test_gradients_where_active_rows_depend_on_each_other(name):
    for data in instances(name, 8):
        given = [None if array is None else torch.from_numpy(np.ascontiguousarray(array)) for array in data]
        found = []
        for engine in ("torch", "compiled"):
            leaves = [None if tensor is None else tensor.clone().requires_grad_() for tensor in given]
            x = differentiable_solve(LinearProgram(*leaves), engine=engine).x
            present = [leaf for leaf in leaves if leaf is not None]
            found.append(torch.autograd.grad((x * torch.arange(1.0, 1.0 + len(x))).sum(), present))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def gradients(data, mode, engine, device="cpu"):
    """The solution, and the gradients of its value and of a linear function of x, brought to the CPU."""
    leaves = [tensor.clone().to(device).requires_grad_() for tensor in data]
    solution = differentiable_solve(LinearProgram(*leaves), gradient=mode, epsilon=0.03, tolerance=1e-10, engine=engine)
    weight = torch.arange(1.0, 6.0, dtype=torch.float64).to(device)
    loss = solution.objective.sum() if mode == "value" else (solution.x * weight).sum() + solution.objective.sum()
    loss.backward()
    return solution, [torch.zeros_like(leaf).cpu() if leaf.grad is None else leaf.grad.cpu() for leaf in leaves]


@pytest.mark.parametrize("batch", [(), (3,)], ids=["single", "batch"])
@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_the_compiled_engine(mode, batch):
    for seed in range(6):
        data = random_program(seed, batch)
        (solution, found), (expected_solution, expected) = (gradients(data, mode, name) for name in ("torch", "compiled"))
        for field in ("x", "objective", "dual_ub", "dual_eq", "dual_lower", "dual_upper"):
            torch.testing.assert_close(getattr(solution, field), getattr(expected_solution, field), rtol=1e-8, atol=1e-10)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_a_warm_start_takes_no_step():
    problem = LinearProgram(*random_program(0, (3,)))
    first = solve(problem, engine="torch")
    again = solve(problem, engine="torch", warm_start=first)
    assert (first.iterations > 0).all()
    assert (again.iterations == 0).all()
    torch.testing.assert_close(again.x, first.x)
    changed = LinearProgram(problem.c * torch.tensor([[1.0], [-1.0], [1.0]]), *random_program(0, (3,))[1:])
    some = solve(changed, engine="torch", warm_start=first)
    assert (some.iterations > 0).tolist() == [False, True, False]
    torch.testing.assert_close(some.objective, solve(changed).objective)
    with pytest.raises(ValueError, match="expected the solution of a problem of the same shape"):
        solve(LinearProgram(*random_program(0)), engine="torch", warm_start=first)


def check_data_changed_in_place(device: str) -> None:
    upper = torch.ones(1).to(device)
    problem = LinearProgram(-torch.ones(1).to(device), upper=upper)
    assert solve(problem, engine="torch").x.tolist() == [1.0]
    upper.fill_(2.0)
    assert solve(problem, engine="torch").x.tolist() == [2.0]
    upper.fill_(torch.nan)
    with pytest.raises(ValueError, match="upper contains NaN"):
        solve(problem, engine="torch")


def test_data_changed_in_place_are_read_again():
    check_data_changed_in_place("cpu")


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
