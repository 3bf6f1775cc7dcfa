"""Losses of predicted costs against the formulas of their papers, by enumeration."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss import decisions
from tests.oracles import decisions as papers
from tests.oracles import structures

SOLVERS = {
    "path": (tl.solvers.MonotoneGridPath(), structures.all_monotone_paths((3, 4), True), (3, 4)),
    "matching": (tl.solvers.Assignment(), structures.all_matchings((4, 4)), (4, 4)),
}
every_solver = pytest.mark.parametrize(("solver", "answers", "shape"), SOLVERS.values(), ids=SOLVERS)


def random_costs(shape: tuple[int, ...], seed: int, instances: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((instances, *shape)), rng.random((instances, *shape)) + 0.1


def evaluate(criterion: torch.nn.Module, predicted: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of the instances, and the gradient of their sum in the predicted costs, flat."""
    leaf = torch.tensor(predicted, requires_grad=True)
    values = criterion(leaf, torch.tensor(true))
    values.sum().backward()
    return values.detach().numpy(), leaf.grad.numpy().reshape(len(predicted), -1)


@every_solver
def test_the_structured_hinge_on_doubled_scores_is_spo_plus(solver, answers, shape):
    predicted, true = random_costs(shape, 1)
    values, gradient = papers.spo_plus(answers, predicted.reshape(50, -1), true.reshape(50, -1))
    ours = evaluate(decisions.SPOPlusLoss(solver, batched=True, reduction="none"), predicted, true)
    np.testing.assert_allclose(ours[0], values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours[1], gradient, rtol=0, atol=1e-12)
    hinge = tl.StructuredHingeLoss(tl.Structured(solver, loss="regret"), reduction="none")
    plain = evaluate(lambda costs, target: hinge(-2 * costs, target), predicted, true)
    assert all(np.array_equal(*pair) for pair in zip(ours, plain, strict=True))
    assert np.abs(gradient).max() == 2.0
    assert (values > 0).mean() > 0.9


@every_solver
@pytest.mark.parametrize("lambda_", [0.3, 5.0])
def test_blackbox_differentiation_of_the_regret_is_the_negative_update(solver, answers, shape, lambda_):
    predicted, true = random_costs(shape, 2)
    flat = predicted.reshape(50, -1), true.reshape(50, -1)
    values, gradient = evaluate(decisions.BlackboxLoss(solver, lambda_=lambda_, reduction="none"), predicted, true)
    np.testing.assert_allclose(gradient, papers.blackbox_gradient(answers, *flat, lambda_), rtol=0, atol=1e-12)
    regret = (flat[1] * papers.cheapest(answers, flat[0])).sum(1) - papers.least_cost(answers, flat[1])
    np.testing.assert_allclose(values, regret, rtol=0, atol=1e-12)
    assert gradient.any()


@every_solver
@pytest.mark.parametrize(("difference", "update"), [("backward", "positive"), ("forward", "negative"), ("central", "central")])
@pytest.mark.filterwarnings("ignore:the positive update")
def test_perturbation_gradients_are_direct_updates(solver, answers, shape, difference, update):
    predicted, true = random_costs(shape, 3)
    flat, step = (predicted.reshape(50, -1), true.reshape(50, -1)), 0.7
    values, gradient = papers.perturbation_gradient(answers, *flat, step, difference)
    ours = evaluate(
        decisions.PerturbationGradientLoss(solver, sigma=step, difference=difference, batched=True, reduction="none"),
        predicted,
        true,
    )
    np.testing.assert_allclose(ours[0], values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours[1], gradient, rtol=0, atol=1e-12)
    direct = tl.DirectLoss(tl.Structured(solver, loss="cost"), epsilon=step, update=update, reduction="none")
    cost, direct_gradient = evaluate(lambda costs, target: direct(-costs, target), predicted, true)
    np.testing.assert_allclose(direct_gradient, gradient, rtol=0, atol=1e-12)
    if difference == "backward":
        assert (values >= cost - 1e-12).all()
    if difference == "forward":
        assert (values <= cost + 1e-12).all()


def test_by_hand():
    """Two routes: the first is predicted to cost 3, the second 1; in truth 2 and 5. The regret is 3."""

    def cheaper(scores: np.ndarray) -> np.ndarray:
        return np.eye(2)[scores.argmax()]

    predicted, true = np.array([[3.0, 1.0]]), np.array([[2.0, 5.0]])
    # 2 chat - c = (4, -3): the second route, -(-3) + 2 * 3 - 2 = 7.
    values, gradient = evaluate(decisions.SPOPlusLoss(cheaper), predicted, true)
    assert (values, gradient.tolist()) == (7.0, [[2.0, -2.0]])
    # chat + lambda c = (5, 6): the first route.
    values, gradient = evaluate(decisions.BlackboxLoss(cheaper), predicted, true)
    assert (values, gradient.tolist()) == (3.0, [[1.0, -1.0]])
    # V(5, 6) = 5 and V(1, -4) = -4: (5 + 4) / 2.
    values, gradient = evaluate(decisions.PerturbationGradientLoss(cheaper), predicted, true)
    assert (values, gradient.tolist()) == (4.5, [[0.5, -0.5]])


def test_a_task_of_values_takes_negative_costs():
    """The better of two items, of values 4 and 3, predicted 1 and 2."""
    loss = decisions.SPOPlusLoss(lambda scores: np.eye(2)[scores.argmax()])
    # 2 chat - c = (-2 + 4, -4 + 3) = (2, -1): the second item; 1 - 2 * 1 + 4 = 3.
    assert loss(-torch.tensor([[1.0, 2.0]]), -torch.tensor([[4.0, 3.0]])).item() == 3.0


def test_the_backward_difference_is_warned_of_once():
    def spoken(difference: str) -> list[str]:
        criterion = decisions.PerturbationGradientLoss(tl.solvers.Assignment(), difference=difference)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                evaluate(criterion, *random_costs((3, 3), 4, 2))
        return [str(warning.message) for warning in caught]

    assert spoken("central") == spoken("forward") == []
    (message,) = spoken("backward")
    assert "the positive update of loss='cost'" in message


def test_solvers_that_minimize_are_found_out():
    def cheapest(costs: np.ndarray) -> np.ndarray:
        return np.eye(2)[costs.argmin()]

    predicted, true = torch.tensor([[3.0, 2.0]], requires_grad=True), torch.tensor([[1.0, 5.0]])
    for loss in (decisions.SPOPlusLoss(cheapest), decisions.BlackboxLoss(cheapest), decisions.PerturbationGradientLoss(cheapest)):
        with pytest.raises(ValueError, match="A solver must maximize <scores, psi>: call one that minimizes costs with -scores"):
            loss(predicted, true)


def test_wrong_settings():
    solver = tl.solvers.Assignment()
    with pytest.raises(ValueError, match="difference='both'"):
        decisions.PerturbationGradientLoss(solver, difference="both")
    with pytest.raises(ValueError, match="lambda_ must be finite and above zero"):
        decisions.BlackboxLoss(solver, lambda_=0.0)
    with pytest.raises(ValueError, match="sigma must be finite and above zero"):
        decisions.PerturbationGradientLoss(solver, sigma=-1.0)
    with pytest.raises(TypeError, match="solver must be a function of the scores"):
        decisions.SPOPlusLoss("gurobi")
    for loss in (decisions.SPOPlusLoss, decisions.BlackboxLoss, decisions.PerturbationGradientLoss):
        with pytest.raises(TypeError, match="unknown option 'processes'; expected batched, batch_dims, on_worse"):
            loss(solver, processes=2)
    with pytest.raises(ValueError, match="reduction='max'"):
        decisions.SPOPlusLoss(solver, reduction="max")
