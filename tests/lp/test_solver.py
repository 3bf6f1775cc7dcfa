"""The solver against HiGHS, and the proofs it gives where there is no solution."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from taskloss.lp import LinearProgram, Status, solve
from tests.oracles.linear_programs import GENERATORS, Data, highs, instances, rescaled, violations

COUNT = 80


def problem_of(data: Data, dtype=torch.float64) -> LinearProgram:
    def tensor(array):
        return None if array is None else torch.from_numpy(np.ascontiguousarray(array)).to(dtype)

    return LinearProgram(*(tensor(array) for array in data))


def check_certificate(data: Data, solution) -> None:
    """By definition, in the units of the data."""
    n = len(data.c)
    a_ub = np.zeros((0, n)) if data.A_ub is None else data.A_ub
    a_eq = np.zeros((0, n)) if data.A_eq is None else data.A_eq
    lower = np.full(n, -np.inf) if data.lower is None else data.lower
    upper = np.full(n, np.inf) if data.upper is None else data.upper
    certificate = solution.certificate.numpy()
    if solution.status is Status.INFEASIBLE:
        y = certificate
        assert (y[: len(a_ub)] >= 0).all()
        sides = np.concatenate([np.zeros(0) if side is None else side for side in (data.b_ub, data.b_eq)])
        combined = y @ np.vstack([a_ub, a_eq])
        small = 1e-7 * np.abs(y).max()
        limit = np.where(combined > 0, lower, upper)
        assert (np.abs(combined[np.isinf(limit)]) <= small).all()
        least = sum(a * bound for a, bound in zip(combined, limit, strict=True) if np.isfinite(bound))
        assert least > y @ sides
    else:
        assert solution.status is Status.UNBOUNDED
        assert data.c @ certificate < 0
        small = 1e-7 * np.abs(certificate).max()
        assert (a_ub @ certificate <= small).all()
        assert (np.abs(a_eq @ certificate) <= small).all()
        assert (certificate[np.isfinite(lower)] >= -small).all()
        assert (certificate[np.isfinite(upper)] <= small).all()
        assert violations(data, solution.x.numpy()) <= 1e-8


def check_answer(data: Data, solution) -> None:
    """Against HiGHS: status, and value and feasibility or the certificate."""
    status, value = highs(data)
    assert solution.status.name == status
    if solution.status is not Status.OPTIMAL:
        check_certificate(data, solution)
        return
    x = solution.x.numpy()
    scale = np.abs(data.c) @ np.abs(x)
    assert abs(float(solution.objective) - value) <= 1e-8 * max(abs(value), scale)
    assert violations(data, x) <= 1e-8


@pytest.mark.parametrize("name", GENERATORS)
def test_agrees_with_highs(name):
    for data in instances(name, COUNT):
        check_answer(data, solve(problem_of(data)))


@pytest.mark.parametrize("name", ["plain", "mostly_equations", "redundant_rows", "integers"])
def test_bad_scales_change_nothing(name):
    """HiGHS itself fails on some of these, so it judges the program before it was rescaled."""
    rng = np.random.default_rng(3)
    for data in instances(name, 40):
        changed, factor = rescaled(data, rng)
        solution = solve(problem_of(changed))
        value = highs(data)[1] * factor
        x = solution.x.numpy()
        assert solution.status is Status.OPTIMAL
        assert abs(float(solution.objective) - value) <= 1e-8 * max(abs(value), np.abs(changed.c) @ np.abs(x))
        assert violations(changed, x) <= 1e-8


@pytest.mark.parametrize("name", GENERATORS)
def test_duals_satisfy_their_definition(name):
    for data in instances(name, 20):
        solution = solve(problem_of(data))
        if solution.status is not Status.OPTIMAL:
            continue
        stationarity = data.c - solution.dual_lower.numpy() + solution.dual_upper.numpy()
        size = 1 + np.abs(data.c).max()
        for matrix, dual in ((data.A_ub, solution.dual_ub), (data.A_eq, solution.dual_eq)):
            if matrix is not None:
                stationarity = stationarity + dual.numpy() @ matrix
        assert np.abs(stationarity).max() <= 1e-7 * size
        for dual in (solution.dual_ub, solution.dual_lower, solution.dual_upper):
            assert (dual >= 0).all()
        assert float(solution.gap) <= 1e-8


@pytest.mark.parametrize("name", ["plain", "integers", "transport", "two_sided", "shortest_path"])
def test_the_augmented_lagrangian_method_alone_agrees_too(name):
    for data in instances(name, 30):
        solution = solve(problem_of(data), method="augmented_lagrangian")
        assert solution.status is Status.OPTIMAL
        assert float(solution.objective) == pytest.approx(highs(data)[1], rel=1e-7, abs=1e-8)


def test_penalty_is_the_papers_method():
    """A small epsilon finds the active set, so the primal from its rows is exact; a huge one also activates the third row."""
    rows = np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0]])
    data = Data(np.array([-1.0, -1.0]), rows, np.array([4.0, 6.0, 5.0]), lower=np.zeros(2))
    good = solve(problem_of(data), method="penalty", epsilon=1e-3)
    assert good.status is Status.OPTIMAL
    assert good.x.tolist() == pytest.approx([1.6, 1.2], abs=1e-12)
    assert good.dual_ub.tolist() == pytest.approx([0.4, 0.2, 0.0], abs=1e-6)
    assert solve(problem_of(data), method="penalty", epsilon=1e3).status is Status.ITERATION_LIMIT


def test_a_batch_equals_its_items():
    rng = np.random.default_rng(0)
    batch = [GENERATORS["plain"](np.random.default_rng(7)) for _ in range(5)]
    batch = [data._replace(c=rng.standard_normal(len(data.c))) for data in batch]
    shared = problem_of(batch[0]._replace(c=np.stack([data.c for data in batch])))
    together = solve(shared)
    assert together.x.shape == (5, len(batch[0].c))
    assert together.statuses == (Status.OPTIMAL,) * 5
    for item, data in enumerate(batch):
        alone = solve(problem_of(data))
        torch.testing.assert_close(together.x[item], alone.x)
        torch.testing.assert_close(together.dual_ub[item], alone.dual_ub)


@pytest.mark.parametrize("name", GENERATORS)
def test_items_of_a_batch_do_not_change_each_other(name):
    """Costs and right-hand sides at random: each item has its own iterations, its own end and its own outcome."""
    rng = np.random.default_rng(1)
    data = next(instances(name, 1))
    changed = {
        field: array * rng.uniform(0.5, 1.5, (11, len(array))) * rng.choice([1.0, -1.0, 100.0], (11, 1), p=[0.7, 0.1, 0.2])
        for field, array in data._asdict().items()
        if field in ("c", "b_ub", "b_eq") and array is not None
    }
    together = solve(problem_of(data._replace(**changed)))
    for item in range(11):
        alone = solve(problem_of(data._replace(**{field: rows[item] for field, rows in changed.items()})))
        assert together.statuses[item] is alone.status
        if alone.status is Status.OPTIMAL:
            torch.testing.assert_close(together.objective[item], alone.objective, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(together.x[item], alone.x, rtol=1e-6, atol=1e-7)


def test_per_item_matrices_and_mixed_outcomes():
    a = torch.tensor([[[1.0]], [[1.0]], [[-1.0]]], dtype=torch.float64)
    b = torch.tensor([[2.0], [-3.0], [0.0]], dtype=torch.float64)
    solution = solve(LinearProgram(torch.tensor([-1.0], dtype=torch.float64), a, b, lower=-1.0))
    assert solution.statuses == (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED)
    assert solution.status is Status.INFEASIBLE
    with pytest.raises(ValueError, match="program 1 of 3 is infeasible"):
        solution.check()


@pytest.mark.parametrize("kind", ["scipy", "coo", "csr"])
def test_sparse_matrices(kind):
    data = next(instances("transport", 1))
    dense = solve(problem_of(data))
    table = scipy.sparse.csr_matrix(data.A_eq)
    tensor = torch.from_numpy(data.A_eq)
    matrix = {"scipy": table, "coo": tensor.to_sparse(), "csr": tensor.to_sparse_csr()}[kind]
    problem = problem_of(data._replace(A_eq=None, b_eq=None))
    sparse = solve(LinearProgram(problem.c, A_eq=matrix, b_eq=torch.from_numpy(data.b_eq), lower=problem.lower))
    torch.testing.assert_close(sparse.x, dense.x)


def test_float32_in_float32_out():
    data = next(instances("plain", 1))
    solution = solve(problem_of(data, torch.float32))
    assert solution.x.dtype == torch.float32
    torch.testing.assert_close(solution.x.double(), solve(problem_of(data)).x, atol=1e-4, rtol=1e-4)


def test_the_least_norm_solution_is_taken():
    """Every point of the segment between (1, 0) and (0, 1) is optimal; the middle is the shortest."""
    one = torch.ones(1, dtype=torch.float64)
    solution = solve(
        LinearProgram(torch.ones(2, dtype=torch.float64), A_eq=torch.ones(1, 2, dtype=torch.float64), b_eq=one, lower=0.0)
    )
    assert solution.x.tolist() == pytest.approx([0.5, 0.5], abs=1e-9)
    free = solve(LinearProgram(torch.zeros(3, dtype=torch.float64), lower=-1.0, upper=2.0))
    assert free.x.tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)


def test_a_warm_start_saves_iterations():
    for data in instances("staircase", 10):
        cold = solve(problem_of(data))
        moved = problem_of(data._replace(c=data.c * (1 + 1e-3)))
        warm = solve(moved, warm_start=cold)
        assert warm.status is Status.OPTIMAL
        assert int(warm.iterations) <= int(cold.iterations)
        torch.testing.assert_close(warm.objective, solve(moved).objective)


def test_an_unsolved_program_says_how_far_it_is():
    data = next(instances("plain", 1))
    solution = solve(problem_of(data), method="interior_point", max_iterations=1)
    assert solution.status is Status.ITERATION_LIMIT
    assert 1e-8 < float(solution.error) < np.inf
    assert not bool(solution.unique)


def test_trace_ends_at_the_solution():
    data = next(instances("plain", 1))
    solution = solve(problem_of(data), trace=True)
    (trace,) = solution.traces
    assert len(trace) == int(solution.iterations)
    torch.testing.assert_close(trace[-1], solution.x, atol=1e-6, rtol=1e-6)


def test_thread_count_does_not_matter():
    data = [next(instances("plain", 1))] * 7
    problem = problem_of(data[0]._replace(c=np.random.default_rng(0).standard_normal((7, len(data[0].c)))))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = solve(problem)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one.x, solve(problem).x)


def test_programs_whose_bounds_are_all_zero():
    """Nothing in them says how large x is, and the optimal value is zero."""
    one = torch.ones(1, dtype=torch.float64)
    assert solve(LinearProgram(one, A_ub=-one[None], b_ub=0 * one, lower=0.0)).check().x.tolist() == [0.0]
    for seed in range(10):
        rows = torch.rand(4, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        eye = torch.eye(4, dtype=torch.float64)
        cost = torch.tensor([0.0] * 2 + [1.0] * 8, dtype=torch.float64)
        program = LinearProgram(cost, A_eq=torch.cat([rows, eye, -eye], 1), b_eq=torch.zeros(4, dtype=torch.float64), lower=0.0)
        assert solve(program).check().x.abs().max() <= 1e-8
    assert solve(LinearProgram(-one, A_ub=-one[None], b_ub=0 * one)).status is Status.UNBOUNDED


def test_values_of_one_program_have_no_axis():
    solution = solve(LinearProgram(torch.ones(2), lower=0.0))
    for name in ("objective", "gap", "error", "iterations", "unique"):
        assert getattr(solution, name).shape == ()


def test_data_instead_of_a_program():
    c, rows, rhs = torch.tensor([1.0, 2.0]), torch.tensor([[-1.0, -1.0]]), torch.tensor([-1.0])
    expected = solve(LinearProgram(c, rows, rhs, lower=0.0)).x
    assert torch.equal(solve(c, rows, rhs, lower=0.0).x, expected)
    with pytest.raises(TypeError, match="give one or the other"):
        solve(LinearProgram(c, lower=0.0), upper=1.0)
    with pytest.raises(TypeError, match="expected a LinearProgram, or the cost c as a torch.Tensor, got list"):
        solve([1.0, 2.0])


def test_badly_scaled_rows_that_only_an_exact_polish_solves():
    """A residual that is tiny in the units of the scaled program need not be tiny in those of the program as given."""
    rows = torch.tensor([[0.0, 8e4, 5e-3], [1e-9, 6e-2, 0.0]], dtype=torch.float64)
    rhs = torch.tensor([240000.01, 0.180000003], dtype=torch.float64)
    cost = torch.tensor([2.0, 7.0, 1.0], dtype=torch.float64)
    assert solve(LinearProgram(cost, A_eq=rows, b_eq=rhs, lower=0.0, upper=10.0)).status is Status.OPTIMAL


@pytest.mark.parametrize("name", ["unbounded", "infeasible", "plain"])
def test_traces_are_finite(name):
    for data in instances(name, 10):
        (trace,) = solve(problem_of(data), trace=True).traces
        assert torch.isfinite(trace).all()


def test_a_program_that_was_not_solved_has_no_unique_solution():
    one = torch.ones(2, dtype=torch.float64)
    solution = solve(LinearProgram(one, A_ub=-one[None], b_ub=-one[:1], lower=0.0), method="penalty", epsilon=10.0)
    assert solution.status is Status.ITERATION_LIMIT
    assert not bool(solution.unique)


def test_a_huge_right_hand_side_of_an_equation_keeps_both_sides():
    one = torch.ones(1, dtype=torch.float64)
    solution = solve(LinearProgram(one, A_eq=one[None], b_eq=-1e21 * one))
    assert solution.x.tolist() == [-1e21]


def test_printing_shows_the_status_first():
    cost = torch.tensor([1.0, 1.0])
    solved = solve(cost, A_ub=torch.tensor([[-1.0, -1.0]]), b_ub=torch.tensor([-1.0]), lower=0.0)
    assert str(solved).startswith("Solution(status=optimal, x=tensor(")
    rows, sides = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([1.0, -2.0])
    infeasible = str(solve(cost, A_ub=rows, b_ub=sides))
    assert infeasible.startswith(f"Solution(status=infeasible: {Status.INFEASIBLE.advice}")
    assert "The last iterate, not a solution: x=" in infeasible
    both = str(solve(torch.stack([cost, -cost]), A_ub=torch.tensor([[-1.0, -1.0]]), b_ub=torch.tensor([-1.0]), lower=0.0))
    assert both.startswith(f"Solution(status=1 optimal, 1 unbounded: {Status.UNBOUNDED.advice}")


def test_a_status_reads_as_a_word():
    assert [str(status) for status in Status] == ["optimal", "infeasible", "unbounded", "iteration limit"]
    assert f"{Status.ITERATION_LIMIT}" == "iteration limit"
    assert Status.INFEASIBLE == 1
