"""Knapsacks with predicted constraints against all plans, finite differences, and the theorem of the direct loss."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.tasks.priced_knapsack import PricedKnapsack
from tests.oracles.decisions import all_subsets

ITEMS, BATCH = 5, 6
PLANS = all_subsets(ITEMS)


def worth(packed: np.ndarray, price: np.ndarray) -> np.ndarray:
    """The worth of all plans, ``(2^n,)``."""
    overload = np.maximum(PLANS @ packed[1:, :-1].T - packed[1:, -1], 0.0)
    return PLANS @ packed[0, :-1] - overload @ price


def random_data(rng: np.random.Generator, capacities: int, ties: bool) -> np.ndarray:
    """Packed values of any sign, weights and capacities; whole ones have ties and loads that equal the capacity."""
    shape = (BATCH, 1 + capacities, ITEMS + 1)
    data = rng.integers(0, 5, shape).astype(float) if ties else rng.random(shape) * 4.0
    data[:, 0] -= 1.0
    data[:, 1:, -1] *= 2.0
    data[:, 0, -1] = 0.0
    return data


def gradient(packed: np.ndarray, plan: np.ndarray, price: np.ndarray) -> np.ndarray:
    """The gradient of the joint score of a plan, by autograd of the plain formula."""
    leaf = torch.tensor(packed, requires_grad=True)
    psi = torch.tensor(plan)
    overload = torch.relu(leaf[1:, :-1] @ psi - leaf[1:, -1])
    (leaf[0, :-1] @ psi - overload @ torch.tensor(price)).backward()
    return leaf.grad.numpy()


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("capacities", [1, 2])
@pytest.mark.parametrize("rule", ["positive", "negative", "central", "hinge", "perceptron"])
def test_values_and_gradients_equal_enumeration(rule, capacities, ties):
    rng = np.random.default_rng(capacities)
    for _ in range(3):
        scores, target = random_data(rng, capacities, ties), random_data(rng, capacities, ties)
        price, planning = rng.integers(0, 4, (2, capacities)) / 2.0
        epsilon = float(2.0 ** rng.integers(-3, 2))
        task = PricedKnapsack(tuple(price.tolist()), planning_price=tuple(planning.tolist()))
        criterion = {
            "hinge": lambda task=task, epsilon=epsilon: tl.StructuredHingeLoss(task, margin=epsilon),
            "perceptron": lambda task=task: tl.PerceptronLoss(task),
        }.get(rule, lambda task=task, epsilon=epsilon: tl.DirectLoss(task, epsilon=epsilon, update=rule))()
        leaf = torch.tensor(scores, requires_grad=True)
        values = criterion(leaf, torch.tensor(target), reduction="none")
        values.sum().backward()
        for k in range(BATCH):
            score, regret = worth(scores[k], planning), -worth(target[k], price)
            regret -= regret.min()
            first, second, factor = {
                "positive": (score + epsilon * regret, score, 1.0 / epsilon),
                "negative": (score, score - epsilon * regret, 1.0 / epsilon),
                "central": (score + epsilon * regret, score - epsilon * regret, 0.5 / epsilon),
                "hinge": (score + epsilon * regret, -regret, 1.0),
                "perceptron": (score, -regret, 1.0),
            }[rule]
            # All pairs of plans that are best, up to rounding.
            answers, references = (np.flatnonzero(total >= total.max() - 1e-11) for total in (first, second))
            slopes = {plan: gradient(scores[k], PLANS[plan], planning) for plan in {*answers.tolist(), *references.tolist()}}
            pairs = [(i, j) for i in answers.tolist() for j in references.tolist()]
            distance = min(np.abs(factor * (slopes[i] - slopes[j]) - leaf.grad[k].numpy()).max() for i, j in pairs)
            assert distance <= 1e-9 * factor
            if rule in ("hinge", "perceptron"):
                expected = [score[i] + (epsilon * regret[i] if rule == "hinge" else 0.0) - score[j] for i, j in pairs]
            else:
                expected = regret[score >= score.max() - 1e-11]
            assert np.abs(np.array(expected) - values[k].item()).min() <= 1e-9


def test_by_hand():
    # Predicted: both items weigh 1.2, and 0.4 above the capacity of 2 costs 1.6: both are planned, worth 3.4.
    # True: 1.5 above the capacity costs 6; the first item alone would be worth 3, both are worth -1.
    task = PricedKnapsack(4.0)
    values, capacity = torch.tensor([[3.0, 2.0]]), torch.tensor([[2.0]], requires_grad=True)
    weights = torch.tensor([[[1.2, 1.2]]], requires_grad=True)
    truth = task.pack(values, torch.tensor([[[1.5, 2.0]]]), torch.tensor([[2.0]]))
    predicted = task.pack(values, weights, capacity)
    assert task.plan(predicted).tolist() == [[1, 1]]
    assert task.worth(torch.ones(1, 2), truth).tolist() == [-1]
    loss = tl.DirectLoss(task, epsilon=1.0, update="negative")(predicted, truth)
    assert loss.item() == 4.0
    loss.backward()
    # At F - L the first item alone is best, 3 - 0 against 3.4 - 4: the joint score of both falls by 4 per unit of weight.
    assert weights.grad.tolist() == [[[-4.0, -4.0]]]
    assert capacity.grad.tolist() == [[4.0]]


def test_the_mean_gradient_is_that_of_the_mean_loss():
    # A weight is predicted as w + t with t uniform on [0, 2]: the derivative of the mean regret is (L(2) - L(0)) / 2.
    task, points = PricedKnapsack(2.0), 20_001
    shift = torch.linspace(0.0, 2.0, points, dtype=torch.float64)
    values = torch.tensor([2.0, 1.6, 1.1], dtype=torch.float64)
    weights = torch.tensor([[0.3, 1.0, 0.8]], dtype=torch.float64).repeat(points, 1)
    weights[:, 0] += shift
    weights.requires_grad_()
    capacity = torch.tensor([2.0], dtype=torch.float64)
    truth = task.pack(values, torch.tensor([[1.9, 0.9, 1.0]], dtype=torch.float64), capacity)
    criterion = tl.DirectLoss(task, epsilon=0.02, update="central", reduction="none")
    regrets = criterion(task.pack(values, weights[:, None], capacity), truth.expand(points, -1, -1))
    (slope,) = torch.autograd.grad(regrets.sum(), weights)
    change = (regrets[-1] - regrets[0]).item()
    assert abs(change) > 0.5
    assert 2.0 * slope[:, 0].mean().item() == pytest.approx(change, rel=0.01)


def test_prices_compare_and_pickle():
    task = PricedKnapsack(2, planning_price=[1.0, 3.0])
    assert task == pickle.loads(pickle.dumps(task)) == PricedKnapsack(2.0, planning_price=(1.0, 3.0))
    assert hash(task) == hash(copy := PricedKnapsack(2.0, planning_price=(1.0, 3.0)))
    assert repr(task) == repr(copy)
    assert tl.DirectLoss(task).update == "central"


def test_data_that_make_no_sense():
    task = PricedKnapsack(1.0)
    good = torch.ones(2, 2, 4)
    bad = good.clone()
    bad[1, 1, 2] = -0.5
    criterion = tl.DirectLoss(task)
    with pytest.raises(ValueError, match=r"scores\[1, 1, 2\] is -0.5; expected.*softplus"):
        criterion(bad, good)
    with pytest.raises(ValueError, match=r"target\[1, 1, 2\] is -0.5"):
        criterion(good, bad)
    with pytest.raises(ValueError, match=r"scores has shape \(4,\); expected \(batch, 1 \+ capacities, items \+ 1\)"):
        criterion(torch.ones(4), torch.ones(4))
    with pytest.raises(ValueError, match=r"scores has shape \(2, 2, 4\) and target has shape \(2, 2, 5\)"):
        criterion(good, torch.ones(2, 2, 5))
    with pytest.raises(ValueError, match="price has shape .* one for each of the 1 capacities"):
        tl.DirectLoss(PricedKnapsack((1.0, 2.0)))(good, good)
    with pytest.raises(ValueError, match="price is -1.0; expected finite numbers of at least zero"):
        PricedKnapsack(-1.0)
    with pytest.raises(ValueError, match=r"expected \(\.\.\., n\), \(\.\.\., m, n\) and \(\.\.\., m\)"):
        task.pack(torch.ones(3), torch.ones(3), torch.ones(1))
    # Weights (batch, items) are no (capacities, items).
    with pytest.raises(ValueError, match=r"weights \(2, 3\) and capacity \(2, 1\); expected .*weights\[\.\.\., None, :\]"):
        task.pack(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 1))
    with pytest.raises(TypeError, match=r"capacity must be a torch.Tensor, got float; use torch.as_tensor\(capacity\)"):
        task.pack(torch.ones(2, 3), torch.ones(2, 1, 3), 1.5)
    with pytest.raises(ValueError, match=r"plans has shape \(1, 3\); expected one plan per packed instance, \(2, 3\)"):
        task.worth(torch.ones(1, 3), good)
    assert task.plan(good.bfloat16()).tolist() == task.plan(good).tolist()
    assert task.worth(torch.ones(2, 3).bfloat16(), good.bfloat16()).tolist() == [1.0, 1.0]
