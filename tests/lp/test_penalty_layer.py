"""The layer of the paper: its solution, its gradients, and the course of its burn-in."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from taskloss.lp import BurnIn, LinearProgram, LPLayer, PenaltyLayer, Status, solve
from taskloss.lp.formulations import fscore_program
from tests.lp.test_gradients import random_program
from tests.oracles.linear_programs import Data, highs


def two_bounds(second: float) -> tuple[LinearProgram, torch.Tensor]:
    """``max x, x <= 1, x <= second``; epsilon is small enough up to ``second - 1``."""
    rhs = torch.tensor([1.0, second], dtype=torch.float64, requires_grad=True)
    return LinearProgram(-torch.ones(1).double(), A_ub=torch.ones(2, 1).double(), b_ub=rhs), rhs


def test_solution_and_gradient_by_hand():
    """At epsilon 2 the minimizer of ``-x + ((x - 1)^2 + (x - 2)^2) / 4`` is 2.5; the active set takes the mean of both bounds."""
    program, rhs = two_bounds(2.0)
    unrolled = PenaltyLayer(2.0, burn_in=BurnIn())(program)
    assert unrolled.x.tolist() == pytest.approx([2.5])
    assert torch.autograd.grad(unrolled.x.sum(), rhs)[0].tolist() == pytest.approx([0.5, 0.5])
    exact = PenaltyLayer(0.5)(program)
    assert exact.x.tolist() == pytest.approx([1.0])
    assert exact.status is Status.OPTIMAL
    assert torch.autograd.grad(exact.x.sum(), rhs)[0].tolist() == pytest.approx([1.0, 0.0])


def test_with_too_large_an_epsilon_the_bounds_contradict_each_other():
    """At epsilon 2 both bounds have a multiplier, and x is the least-squares solution of x = 1, x = 2."""
    program, rhs = two_bounds(2.0)
    solution = PenaltyLayer(2.0)(program)
    assert solution.status is not Status.OPTIMAL
    assert solution.x.tolist() == pytest.approx([1.5])
    assert torch.autograd.grad(solution.x.sum(), rhs)[0].tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("epsilon", [0.3, 1e-3])
def test_the_gradient_of_contradicting_constraints_is_that_of_least_squares(epsilon):
    """Finite differences in all data: rows, equation and bounds of variables, one direction each; the cost has no gradient."""
    weight = torch.arange(1.0, 6.0, dtype=torch.float64)
    contradictions = 0
    for seed in range(6):
        data, layer = random_program(seed), PenaltyLayer(epsilon)

        def value(*tensors, layer=layer):
            return (layer(*tensors).x * weight).sum()

        contradictions += layer(*data).status is not Status.OPTIMAL
        leaves = [tensor.clone().requires_grad_() for tensor in data]
        for position, (tensor, gradient) in enumerate(zip(data, torch.autograd.grad(value(*leaves), leaves), strict=True)):
            direction = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(position), dtype=torch.float64)
            step = 1e-6 * direction
            ends = [value(*data[:position], tensor + sign * step, *data[position + 1 :]) for sign in (1.0, -1.0)]
            expected = float(ends[0] - ends[1]) / 2e-6
            assert float((gradient * direction).sum()) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert contradictions == {0.3: 3, 1e-3: 0}[epsilon]


def test_a_tiny_epsilon_from_a_cold_start():
    """Where the compiled Newton method stalls on the way from zero, the dense one goes on."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.arange(64) < 6).long()
    for _ in range(10):
        scores = 2 * target - 1 + 0.5 * torch.randn(64, generator=generator, dtype=torch.float64)
        program = fscore_program(scores, target, margin=0.25)
        solution = PenaltyLayer(1e-6)(program)
        assert solution.status is Status.OPTIMAL
        assert float(solution.objective) == pytest.approx(float(solve(program).objective), abs=1e-8)


@pytest.mark.parametrize("batch", [(), (3,)], ids=["single", "batch"])
def test_with_a_small_epsilon_it_is_the_exact_layer(batch):
    weight = torch.arange(1.0, 6.0, dtype=torch.float64)
    for seed in range(6):
        results = []
        for layer in (PenaltyLayer(1e-4), LPLayer()):
            leaves = [tensor.clone().requires_grad_() for tensor in random_program(seed, batch)]
            solution = layer(*leaves)
            # In the cost there is no gradient, and a warning says so.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gradients = torch.autograd.grad((solution.x * weight).sum(), leaves)
            results.append([solution.x.detach(), solution.objective.detach(), *gradients])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
        if not batch:
            expected = highs(Data(*(tensor.numpy() for tensor in random_program(seed))))[1]
            assert float(results[0][1]) == pytest.approx(expected, abs=1e-8)


def test_the_gradient_of_the_fscore_is_that_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.randn(16, generator=generator, dtype=torch.float64), (torch.arange(16) < 5).long()

    def loss(values: torch.Tensor, layer: PenaltyLayer) -> torch.Tensor:
        program = fscore_program(values, target, margin=0.25)
        return 1.0 + program.c @ layer(program).x

    for layer in (PenaltyLayer(1e-4), PenaltyLayer(1e-4, burn_in=BurnIn())):
        leaf = scores.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf, layer), leaf)
        steps = 1e-6 * torch.eye(16, dtype=torch.float64)
        fixed = PenaltyLayer(1e-4)
        differences = [float(loss(scores + step, fixed) - loss(scores - step, fixed)) / 2e-6 for step in steps]
        np.testing.assert_allclose(gradient.numpy(), differences, atol=1e-4)


def test_saturated_scores_keep_the_exact_gradient():
    """With ``1 + tanh(-11)`` = 6e-10 a label is at two bounds up to rounding, but only one of them has a multiplier."""
    scores = torch.tensor([-11.0, 0.3, -0.4, 0.2, -0.8], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1, 1, 1, 0, 0])
    program = fscore_program(scores, target)
    (gradient,) = torch.autograd.grad(program.c @ PenaltyLayer(1e-4)(program).x, scores)
    # The closed form: F = 2 tp / (tp + fp + 3), dF/dtp = (2 - F) / (tp + fp + 3), dF/dfp = -F / (tp + fp + 3).
    labels = torch.tanh(scores.detach())
    tp, fp = float((1 + labels[:3].clamp(max=0.0)).sum()), float(labels[3:].clamp(min=0.0).sum())
    F, total = 2 * tp / (tp + fp + 3), tp + fp + 3
    slope = 1 - labels.square()
    expected = [0.0, 0.0, -(2 - F) / total * float(slope[2]), F / total * float(slope[3]), 0.0]
    assert gradient.tolist() == pytest.approx(expected, abs=1e-8)


def test_the_burn_in_ends_when_the_constraints_were_right_in_a_row():
    layer = PenaltyLayer(0.3, burn_in=BurnIn(growth=1.1, window=3))
    # 0.2 is less than epsilon: both bounds are violated, and the count starts again.
    for second, agreements in ((2.0, 1), (2.0, 2), (1.2, 0), (2.0, 1), (2.0, 2)):
        layer(two_bounds(second)[0])
        assert layer.burning_in
        assert int(layer.agreements) == agreements
    assert float(layer.epsilon) == pytest.approx(0.3 * 1.1**5)
    layer(two_bounds(2.0)[0])
    assert not layer.burning_in
    assert int(layer.iterations) == 6
    # From now on epsilon stays, and x is that of the active constraints.
    assert layer(two_bounds(2.0)[0]).x.tolist() == pytest.approx([1.0])
    assert float(layer.epsilon) == pytest.approx(0.3 * 1.1**5)


def test_the_burn_in_ends_in_any_case():
    layer = PenaltyLayer(2.0, burn_in=BurnIn(growth=1.0, window=2, max_iterations=3))
    assert [layer(two_bounds(2.0)[0]).x.item() for _ in range(3)] == pytest.approx([2.5, 2.5, 2.5])
    assert not layer.burning_in
    assert int(layer.agreements) == 0


def test_evaluation_is_no_iteration_of_the_burn_in():
    layer = PenaltyLayer(0.5, burn_in=BurnIn()).eval()
    assert layer(two_bounds(2.0)[0]).x.tolist() == pytest.approx([1.0])
    assert int(layer.iterations) == 0
    assert float(layer.epsilon) == 0.5


def test_the_state_travels():
    schedule = BurnIn(growth=1.1, window=3)
    layer, other = (PenaltyLayer(0.3, burn_in=schedule) for _ in range(2))
    for _ in range(2):
        layer(two_bounds(2.0)[0])
    other.load_state_dict(layer.state_dict())
    for one in (layer, other):
        one(two_bounds(2.0)[0])
        assert not one.burning_in
        assert float(one.epsilon) == pytest.approx(0.3 * 1.1**2)


def test_a_program_without_a_solution_is_no_agreement():
    layer = PenaltyLayer(0.3, burn_in=BurnIn(window=1))
    rhs = torch.tensor([1.0, -2.0], dtype=torch.float64)
    solution = layer(torch.ones(1).double(), A_ub=torch.tensor([[1.0], [-1.0]]).double(), b_ub=rhs)
    assert solution.status is Status.INFEASIBLE
    assert layer.burning_in


def test_costs_without_a_gradient_are_warned_of_once():
    layer, cost = PenaltyLayer(1e-3), torch.tensor([1.0, 2.0], requires_grad=True)
    with pytest.warns(UserWarning, match="costs c get no gradient"):
        layer(cost, A_eq=torch.ones(1, 2), b_eq=torch.ones(1), lower=0.0).x.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(cost, A_eq=torch.ones(1, 2), b_eq=torch.ones(1), lower=0.0).x.sum().backward()


def test_bad_settings():
    with pytest.raises(ValueError, match="epsilon must be finite and above zero"):
        PenaltyLayer(0.0)
    with pytest.raises(TypeError, match="burn_in must be a BurnIn or None, got int"):
        PenaltyLayer(burn_in=20)
    with pytest.raises(ValueError, match="window must be a whole number"):
        BurnIn(window=0)
    assert repr(PenaltyLayer(0.5)) == "PenaltyLayer(epsilon=0.5, burn_in=None, burning_in=False)"
