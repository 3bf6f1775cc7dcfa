"""HiGHS as the second engine: the same solutions, duals, statuses and gradients as by the interior-point method."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from taskloss.lp import LinearProgram, LPLayer, Status, differentiable_solve, solve
from taskloss.lp.interior_point import driver
from tests.lp.test_solver import check_certificate, problem_of
from tests.oracles.linear_programs import GENERATORS, Data, instances, rescaled

ENGINES = ("interior_point", "highs")
CLOSE = {"rtol": 1e-6, "atol": 1e-6}


def eye_and_twice() -> Data:
    """A vertex that five more rows pass through than it needs."""
    rows = np.concatenate([np.eye(2), np.eye(2), np.ones((1, 2)), 2.0 * np.eye(2)])
    return Data(-np.ones(2), rows, rows @ np.ones(2))


SPECIAL = {
    "degenerate vertex": eye_and_twice(),
    "face of solutions": Data(np.ones(3), A_eq=np.ones((1, 3)), b_eq=np.ones(1), lower=np.zeros(3)),
    "dependent equations": Data(
        np.arange(3.0), A_eq=np.outer([1.0, 2.0], np.ones(3)), b_eq=np.array([1.0, 2.0]), lower=np.zeros(3)
    ),
    "equations only": Data(np.array([3.0, 3.0]), A_eq=np.array([[1.0, 1.0]]), b_eq=np.array([4.0])),
    "free variables": Data(
        np.array([1.0, -1.0]), np.array([[1.0, 1.0], [-1.0, 1.0]]), np.array([2.0, 1.0]), lower=np.array([-1.0, -np.inf])
    ),
    "fixed variable": Data(np.ones(2), lower=np.ones(2), upper=np.array([1.0, 2.0])),
    "no constraint": Data(np.zeros(2), lower=-np.ones(2)),
}


def gradients(data: Data, method: str, mode: str) -> list[torch.Tensor]:
    """Gradients of a weighted sum of x and of the optimal value, in all of the data; the ridge makes smoothed x unique."""
    leaves = {
        name: torch.from_numpy(array).clone().requires_grad_() for name, array in data._asdict().items() if array is not None
    }
    solution = differentiable_solve(LinearProgram(**leaves), method=method, gradient=mode, epsilon=0.05, ridge=0.1)
    weight = torch.arange(1.0, solution.x.shape[-1] + 1.0, dtype=torch.float64)
    loss = solution.objective.sum() + ((solution.x * weight).sum() if mode != "value" else 0.0)
    return list(torch.autograd.grad(loss, list(leaves.values()), allow_unused=True))


def check_both_ways(data: Data) -> None:
    """Solutions, duals, active sets, statuses and gradients."""
    ours, theirs = (solve(problem_of(data), method=method) for method in ENGINES)
    assert theirs.statuses == ours.statuses
    if ours.status is not Status.OPTIMAL:
        check_certificate(data, theirs)
        return
    for name in ("x", "objective", "dual_ub", "dual_eq", "dual_lower", "dual_upper"):
        torch.testing.assert_close(getattr(theirs, name), getattr(ours, name), **CLOSE, msg=name)
    for mode in ("active_set", "smoothed", "value"):
        for one, other in zip(*(gradients(data, method, mode) for method in ENGINES), strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", GENERATORS)
def test_both_engines_agree(name):
    for data in instances(name, 25):
        check_both_ways(data)


@pytest.mark.parametrize("name", SPECIAL)
def test_both_engines_agree_on_special_programs(name):
    check_both_ways(SPECIAL[name])


@pytest.mark.parametrize("name", ["plain", "redundant_rows", "integers"])
def test_both_engines_agree_on_badly_scaled_programs(name):
    rng = np.random.default_rng(5)
    for data in instances(name, 20):
        changed, _ = rescaled(data, rng)
        ours, theirs = (solve(problem_of(changed), method=method) for method in ENGINES)
        assert theirs.status is ours.status is Status.OPTIMAL
        size = 1e-300 + np.abs(ours.x.numpy())
        assert (np.abs(theirs.x.numpy() - ours.x.numpy()) <= 1e-5 * np.maximum(size, size.max() * 1e-9)).all()


def test_a_batch_with_every_outcome():
    matrix = torch.tensor([[[1.0]], [[1.0]], [[-1.0]]], dtype=torch.float64)
    rhs = torch.tensor([[2.0], [-3.0], [0.0]], dtype=torch.float64)
    program = LinearProgram(torch.tensor([-1.0], dtype=torch.float64), matrix, rhs, lower=-1.0)
    ours, theirs = (solve(program, method=method) for method in ENGINES)
    assert theirs.statuses == ours.statuses == (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED)
    torch.testing.assert_close(theirs.x[0], ours.x[0])


@pytest.mark.parametrize("method", ENGINES)
def test_a_transport_program_with_equal_costs_has_no_unique_solution(method):
    """Every plan costs the same, and the shortest ships in proportion; the cycles of such programs are easily overlooked."""
    rows = torch.tensor([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1]])
    rhs = torch.tensor([3.0, 3.0, 2.0, 2.0, 2.0], dtype=torch.float64)
    solution = solve(LinearProgram(torch.ones(6).double(), A_eq=rows.double(), b_eq=rhs, lower=0.0), method=method)
    assert not bool(solution.unique)
    assert solution.x.tolist() == pytest.approx([1.0] * 6, abs=1e-9)


def test_the_least_norm_dual_is_taken():
    """Both ``x <= 1`` and ``x + y <= 1`` hold x at 1: any shares of the multiplier are dual solutions, equal ones the shortest.

    The central path ends elsewhere, since the share of the second row is also the multiplier of ``y >= 0``.
    """
    cost, rows = (torch.tensor(numbers, dtype=torch.float64) for numbers in ([-1.0, 0.0], [[1.0, 0.0], [1.0, 1.0]]))
    rhs = torch.ones(2, dtype=torch.float64, requires_grad=True)
    for method in ENGINES:
        solution = differentiable_solve(LinearProgram(cost, rows, rhs, lower=0.0), method=method)
        assert solution.dual_ub.tolist() == pytest.approx([0.5, 0.5], abs=1e-9)
        (gradient,) = torch.autograd.grad(solution.objective, rhs)
        assert gradient.tolist() == pytest.approx([-0.5, -0.5], abs=1e-9)


@pytest.mark.parametrize("name", ["plain", "transport", "degenerate_vertex", "integers"])
def test_highs_takes_over_at_the_iteration_limit(name):
    for data in instances(name, 5):
        program = problem_of(data)
        expected = solve(program)
        limited = solve(program, max_iterations=1)
        assert limited.status is expected.status is Status.OPTIMAL
        torch.testing.assert_close(limited.x, expected.x, **CLOSE)


def test_highs_takes_over_for_the_items_that_need_it(monkeypatch):
    """One item of a batch is left at the limit; the others keep their solution, and HiGHS sees only that one."""
    data = next(instances("plain", 1))
    program = problem_of(data._replace(c=np.stack([data.c, 2.0 * data.c, -data.c])))
    expected = solve(program)
    method, asked = driver.interior_point_batch, []

    def fail_for_the_second(programs, items, *arguments):
        method(programs, items, *arguments)
        x, multipliers, error = arguments[5:8]
        if programs.num_items == 3 and not programs.quadratic.any():
            x[1], multipliers[1], error[1] = 0.0, 0.0, 1.0

    monkeypatch.setattr(driver, "interior_point_batch", fail_for_the_second)
    monkeypatch.setattr(driver, "highs_pair", lambda one, ask=driver.highs_pair: asked.append(one) or ask(one))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    solution = solve(program)
    assert len(asked) == 1
    assert solution.statuses == (Status.OPTIMAL,) * 3
    torch.testing.assert_close(solution.x, expected.x, **CLOSE)


@pytest.mark.parametrize("name", ["infeasible", "unbounded"])
def test_what_was_proved_is_not_questioned(monkeypatch, name):
    monkeypatch.setattr(driver, "highs_pair", lambda program: pytest.fail("HiGHS was asked"))
    for data in instances(name, 5):
        assert solve(problem_of(data)).status.name == name.upper()


def test_ours_takes_over_where_highs_fails(monkeypatch):
    data = next(instances("plain", 1))
    expected = solve(problem_of(data))
    monkeypatch.setattr(driver, "LARGE", 0)
    monkeypatch.setattr(driver, "FILL", 0.0)
    monkeypatch.setattr(driver, "highs_pair", lambda program: None)
    solution = solve(problem_of(data))
    assert solution.status is Status.OPTIMAL
    torch.testing.assert_close(solution.x, expected.x)
    assert solve(problem_of(data), method="highs").status is Status.ITERATION_LIMIT


def test_the_rule_of_size_asks_highs_first(monkeypatch):
    """For a single program, not for a batch, and not where iterates are to be kept."""
    data = next(instances("plain", 1))
    batch = problem_of(data._replace(c=np.stack([data.c, data.c])))
    asked = []
    monkeypatch.setattr(driver, "highs_pair", lambda one, ask=driver.highs_pair: asked.append(one) or ask(one))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    solve(problem_of(data))
    monkeypatch.setattr(driver, "LARGE", 0)
    monkeypatch.setattr(driver, "FILL", 0.0)
    solve(batch)
    solve(problem_of(data), trace=True)
    assert not asked
    assert int(solve(problem_of(data)).iterations) == 0
    assert len(asked) == 1


def test_a_warm_start_spares_highs(monkeypatch):
    data = next(instances("plain", 1))
    start = solve(problem_of(data), method="highs")
    monkeypatch.setattr(driver, "highs_pair", lambda program: pytest.fail("HiGHS was asked"))
    assert solve(problem_of(data), method="highs", warm_start=start).status is Status.OPTIMAL


def test_the_layer_takes_a_method():
    data = problem_of(next(instances("plain", 1)))
    torch.testing.assert_close(LPLayer(method="highs")(data).x, LPLayer()(data).x)
    with pytest.raises(ValueError, match="method"):
        differentiable_solve(data, method="penalty")
