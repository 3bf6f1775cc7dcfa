"""Mangasarian's rule for epsilon against small programs worked out by hand and the dual solution of least norm."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from taskloss.lp import LinearProgram, choose_epsilon, newton_solve, solve
from taskloss.lp.formulations import fscore_program
from tests.oracles.least_norm_dual import least_norm_dual
from tests.oracles.linear_programs import instances


def program_of(*data) -> LinearProgram:
    return LinearProgram(*(None if part is None else torch.as_tensor(np.asarray(part, float)) for part in data))


def test_the_exact_bound_of_epsilon_is_found():
    """``max x, x <= 1, x <= 2``: u = (1, 0) up to epsilon 1; at 2 both constraints are violated, u = (3/4, 1/4)."""
    program = program_of([-1.0], [[1.0], [1.0]], [1.0, 2.0])
    assert newton_solve(program, epsilon=2.0).multipliers.tolist() == pytest.approx([0.75, 0.25, 0.0])
    choice = choose_epsilon(program, start=8.0, factor=0.5)
    assert choice.epsilon == 1.0
    assert choice.multipliers.tolist() == pytest.approx([1.0, 0.0, 0.0])
    assert float(choice.value) == pytest.approx(-1.0)


def test_of_several_dual_solutions_it_is_the_one_of_least_norm():
    """``max x, x <= 1`` three times: the duals add up to 1."""
    choice = choose_epsilon(program_of([-1.0], np.ones((3, 1)), np.ones(3)))
    assert choice.multipliers.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])


def test_two_values_can_agree_too_early():
    """``min 2x + y, -x <= 0, x - 2y <= 2, 2x - y <= 0``: the dual solutions are (4 - 3 s, s, 1 - 2 s) with 0 <= s <= 1/2.

    The perturbed one has s = 1 - 1 / (7 epsilon), clipped: 1/2 from epsilon = 2/7 on, and 0, the optimum, only up to 1/7.
    """
    program = program_of([2.0, 1.0], [[-1.0, 0.0], [1.0, -2.0], [2.0, -1.0]], [0.0, 2.0, 0.0])
    deceived = choose_epsilon(program, start=8.0, factor=0.5, verify=False)
    assert deceived.epsilon == 8.0
    assert deceived.multipliers.tolist() == pytest.approx([2.5, 0.5, 0.0, 0.0, 0.0])
    assert float(deceived.value) == pytest.approx(-1.0)
    verified = choose_epsilon(program, start=8.0, factor=0.5)
    assert verified.epsilon == 0.125
    assert verified.multipliers.tolist() == pytest.approx([4.0, 0.0, 1.0, 0.0, 0.0])
    assert float(verified.value) == pytest.approx(0.0, abs=1e-9)
    assert float(solve(program).objective) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", ["plain", "degenerate_vertex", "redundant_rows", "free_and_fixed", "integers", "transport"])
def test_the_multipliers_are_the_least_norm_dual_solution(name):
    compared = 0
    for data in instances(name, 12):
        expected = least_norm_dual(data)
        if expected is not None:
            choice = choose_epsilon(program_of(*data), factor=0.25, max_trials=16)
            scale = 1.0 + np.abs(expected).max()
            np.testing.assert_allclose(choice.multipliers.numpy() / scale, expected / scale, atol=1e-6)
            compared += 1
    assert compared > 6


def test_the_value_is_that_of_the_program_and_the_perturbed_value_is_affine():
    """Below the bound the minimum of the penalty function is ``v - epsilon |u|^2 / 2``."""
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        scores, target = torch.randn(12, generator=generator, dtype=torch.float64), (torch.arange(12) < 4).long()
        program = fscore_program(scores, target, margin=0.25)
        choice, v = choose_epsilon(program), float(solve(program).objective)
        assert float(choice.value) == pytest.approx(v, abs=1e-8)
        for epsilon in (choice.epsilon, 0.5 * choice.epsilon):
            solution = newton_solve(program, epsilon=epsilon)
            u = solution.multipliers
            minimum = float(program.c @ solution.x + 0.5 * epsilon * u @ u)
            assert minimum == pytest.approx(v - 0.5 * epsilon * float(u @ u), abs=1e-8)


def test_a_batch_shares_the_epsilon_at_which_all_agree():
    rhs = torch.tensor([[1.0, 2.0], [1.0, 1.25]], dtype=torch.float64)
    program = LinearProgram(-torch.ones(1).double(), A_ub=torch.ones(2, 1).double(), b_ub=rhs)
    choice = choose_epsilon(program, start=4.0, factor=0.5)
    assert choice.epsilon == 0.25
    assert choice.multipliers.shape == (2, 3)
    assert choice.value.tolist() == pytest.approx([-1.0, -1.0])


def test_programs_without_a_solution_and_bad_calls():
    infeasible = program_of([1.0], [[1.0], [-1.0]], [1.0, -2.0])
    with pytest.raises(ValueError, match="infeasible"):
        choose_epsilon(infeasible)
    with pytest.raises(ValueError, match=r"no two successive values of epsilon from 1 down to 1e-10"):
        choose_epsilon(infeasible, verify=False)
    with pytest.raises(ValueError, match="was not minimized at epsilon=1: the program is unbounded"):
        choose_epsilon(program_of([1.0], [[1.0]], [1.0]), verify=False)
    program = program_of([-1.0], [[1.0]], [1.0])
    with pytest.raises(ValueError, match="factor must be below 1"):
        choose_epsilon(program, factor=2.0)
    with pytest.raises(TypeError, match="expected a LinearProgram, got Tensor"):
        choose_epsilon(torch.ones(1))
