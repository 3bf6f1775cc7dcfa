"""Conic form to linear program: rows to bounds, values and duals against HiGHS, gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch

from taskloss.interop.conic import ConicLayout
from taskloss.lp import differentiable_solve, solve


def layout_of(matrix: np.ndarray, num_equations: int, varying: list[tuple[int, int]] = ()) -> tuple[ConicLayout, torch.Tensor]:
    """Return the layout of a dense ``[F | g]``, sorted by column as cvxpy does, and its entries ``(1, E)``."""
    columns, rows = np.nonzero((matrix != 0.0).T)
    known = matrix[rows, columns].copy()
    for row, column in varying:
        known[(rows == row) & (columns == column)] = np.nan
    size = (matrix.shape[0], matrix.shape[1] - 1)
    return ConicLayout(rows, columns, known, size, num_equations), torch.as_tensor(matrix[rows, columns])[None]


def test_rows_by_hand():
    matrix = np.array(
        [
            [-1.0, -1.0, 3.0],  # x + y = 3
            [2.0, 0.0, -1.0],  # x >= 0.5
            [0.0, -4.0, 8.0],  # y <= 2
            [1.0, 0.0, 0.0],  # x >= 0: the second lower bound of x stays a row
            [0.0, 1.0, 1.0],  # y >= -1, but its entry is not known: a row
            [0.0, 0.0, 5.0],  # 5 >= 0: a row without entries
        ]
    )
    layout, entries = layout_of(matrix, 1, [(4, 1)])
    program = layout.program(torch.tensor([[1.0, 2.0]]).double(), entries)
    assert program.A_eq.to_dense().tolist() == [[1.0, 1.0]]
    assert program.b_eq.tolist() == [[3.0]]
    assert program.lower.tolist() == [[0.5, -torch.inf]]
    assert program.upper.tolist() == [[torch.inf, 2.0]]
    assert program.A_ub.to_dense().tolist() == [[[-1.0, 0.0], [0.0, -1.0], [0.0, 0.0]]]
    assert program.b_ub.tolist() == [[0.0, 1.0, 5.0]]
    # min x + 2y: y = -1 and x = 4, with F'y = q for the duals: one unit of b costs 1, one of the bound of y another 1.
    solution = solve(program)
    assert solution.x.tolist() == [[4.0, -1.0]]
    np.testing.assert_allclose(layout.duals(solution), [[-1.0, 0.0, 0.0, 0.0, 1.0, 0.0]], atol=1e-12)


def test_duals_of_scaled_bounds_by_hand():
    # min -x subject to 6 - 2x >= 0: one unit more of the right-hand side gives 1/2.
    layout, entries = layout_of(np.array([[-2.0, 6.0]]), 0)
    solution = solve(layout.program(torch.tensor([[-1.0]]).double(), entries))
    assert solution.x.tolist() == [[3.0]]
    assert layout.duals(solution).tolist() == [[0.5]]


def random_conic(seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return ``[F | g]``, q and the number of equations of a feasible, bounded program: 2 equations, 4 rows, 10 bounds."""
    rng = np.random.default_rng(seed)
    point, rows = rng.uniform(0.5, 1.5, 5), rng.normal(size=(6, 5))
    slack = np.where(np.arange(6) < 2, 0.0, rng.uniform(0.1, 1.0, 6))
    bounds = np.concatenate([np.diag(rng.uniform(0.5, 2.0, 5)), -np.diag(rng.uniform(0.5, 2.0, 5))])
    matrix = np.concatenate([rows, bounds])
    g = np.concatenate([slack - rows @ point, rng.uniform(0.1, 1.0, 10) - bounds @ point])
    return np.column_stack([matrix, g]), rng.normal(size=5), 2


@pytest.mark.parametrize("seed", range(5))
def test_against_highs(seed):
    matrix, q, num_equations = random_conic(seed)
    layout, entries = layout_of(matrix, num_equations)
    assert len(layout.lower) == len(layout.upper) == 5
    f, g = matrix[:, :-1], matrix[:, -1]
    expected = scipy.optimize.linprog(
        q, -f[num_equations:], g[num_equations:], -f[:num_equations], g[:num_equations], bounds=(None, None)
    )
    cost = torch.as_tensor(q)[None]
    for chosen in (layout, layout.without_bounds):
        solution = solve(chosen.program(cost, entries)).check()
        np.testing.assert_allclose(solution.x[0], expected.x, atol=1e-8)
        duals = chosen.duals(solution)[0].numpy()
        np.testing.assert_allclose(duals, -np.concatenate([expected.eqlin.marginals, expected.ineqlin.marginals]), atol=1e-8)
    np.testing.assert_allclose(solve(layout.dual_program(cost, entries)).check().x[0], duals, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_against_finite_differences(seed):
    matrix, q, num_equations = random_conic(seed)
    # Nothing is known but the bounds, whose right-hand sides vary as well.
    varying = [(row, column) for row in range(16) for column in range(6) if row < 6 or column == 5]
    layout, entries = layout_of(matrix, num_equations, varying)
    free = torch.as_tensor(np.isnan(layout._known))
    cost = torch.as_tensor(q)[None]

    def answers(values: torch.Tensor, cost: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        given = torch.where(free, values, entries)
        x = differentiable_solve(layout.program(cost, given)).x
        return x, differentiable_solve(layout.dual_program(cost, given)).x

    assert torch.autograd.gradcheck(answers, (entries.requires_grad_(), cost.requires_grad_()), atol=1e-5)


def test_an_empty_interval_is_left_to_the_rows():
    layout, entries = layout_of(np.array([[1.0, -1.0], [-1.0, -1.0]]), 0)  # x >= 1 and x <= -1
    assert layout.has_empty_interval(entries)
    solution = solve(layout.without_bounds.program(torch.ones(1, 1).double(), entries))
    assert solution.status.name == "INFEASIBLE"
    assert solution.certificate.tolist() == [1.0, 1.0]
    assert not layout.has_empty_interval(torch.tensor([[1.0, -1.0, -1.0, 1.0]]).double())
