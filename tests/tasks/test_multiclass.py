"""Class tasks against all answers, against cross-entropy's calling forms, and against their symmetries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import taskloss as tl
from tests.contract.cases import LOSSES as CRITERIA
from tests.contract.cases import value_and_gradient
from tests.oracles.choices import choice_answers
from tests.oracles.linear import LOSSES, expected

COST = np.array([[0.0, 1.0, 2.5, 0.5], [0.25, 0.0, 0.0, 1.0], [4.0, 1.0, 0.0, 1.5], [1.0, 1.0, 1.0, 0.0]])


def criterion_of(loss: str, task: tl.Task, epsilon: float) -> torch.nn.Module:
    if loss in ("positive", "negative"):
        return tl.DirectLoss(task, epsilon=epsilon, update=loss)
    return tl.StructuredHingeLoss(task) if loss == "hinge" else tl.PerceptronLoss(task)


def random_scores(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if rng.random() < 0.5:
        return rng.integers(-4, 5, shape) / 4.0
    return rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["zero-one", "costs", "top 1", "top 2", "top 3", "all places"])
def test_values_and_gradients_equal_enumeration(kind, loss):
    rng = np.random.default_rng(20100709)
    ties = 0
    for _ in range(1000):
        samples, classes = int(rng.integers(1, 4)), int(rng.integers(1, 5))
        cost, k = None, 1
        if kind == "costs":
            cost = COST[:classes, :classes]
        elif kind != "zero-one":
            k = classes if kind == "all places" else min(int(kind[-1]), classes)
        task = tl.MultiClass(cost) if kind in ("zero-one", "costs") else tl.TopKError(k)
        scores, target = random_scores(rng, (samples, classes)), rng.integers(classes, size=samples)
        epsilon = float(2.0 ** rng.integers(-5, 4))
        known = expected(choice_answers(scores, target, k, cost), scores, loss, epsilon)
        leaf = torch.tensor(scores, requires_grad=True)
        value = criterion_of(loss, task, epsilon)(leaf, torch.tensor(target))
        value.backward()
        size = max(1.0, np.abs(scores).max())
        assert value.item() == pytest.approx(known.values.mean(), abs=1e-12 * size)
        np.testing.assert_allclose(leaf.grad.numpy().reshape(-1), known.mean_gradient, rtol=0, atol=1e-12 * abs(known.factor))
        ties += known.tied
    assert ties > 0 or kind == "all places"


@pytest.mark.parametrize("loss", LOSSES)
def test_top_one_is_the_error_rate(loss):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(200, 6, generator=generator, dtype=torch.float64).mul(2).round() / 2
    target = torch.randint(6, (200,), generator=generator)
    ones = 1.0 - np.eye(6)
    results = [
        value_and_gradient(criterion_of(loss, task, 0.5), scores, target)
        for task in (tl.MultiClass(), tl.TopKError(1), tl.MultiClass(ones))
    ]
    for value, gradient in results[1:]:
        torch.testing.assert_close(value, results[0][0])
        torch.testing.assert_close(gradient, results[0][1])


@pytest.mark.parametrize("make_loss", CRITERIA.values(), ids=CRITERIA)
def test_the_order_of_classes_does_not_matter(make_loss):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(100, 4, generator=generator, dtype=torch.float64).mul(2).round() / 4
    target = torch.randint(4, (100,), generator=generator)
    for seed in range(4):
        order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
        place = torch.argsort(order)
        for task, renamed in ((tl.MultiClass(COST), tl.MultiClass(COST[order][:, order])), (tl.TopKError(2), tl.TopKError(2))):
            value, gradient = value_and_gradient(make_loss(task), scores, target)
            other, other_gradient = value_and_gradient(make_loss(renamed), scores[:, order], place[target])
            torch.testing.assert_close(other, value, rtol=1e-14, atol=0)
            torch.testing.assert_close(other_gradient, gradient[:, order], rtol=1e-14, atol=0)


def test_equal_scores_give_a_useful_gradient():
    scores = torch.zeros(1, 4, requires_grad=True)
    loss = tl.DirectLoss("multi_class", epsilon=2.0, update="positive")(scores, torch.tensor([2]))
    loss.backward()
    assert loss.item() == 0.75
    wrong = (1 / 3 - 1 / 4) / 2
    torch.testing.assert_close(scores.grad, torch.tensor([[wrong, wrong, -1 / 8, wrong]]))


def test_huge_equal_scores_still_see_the_costs():
    scores = torch.full((1, 3), 1e30, dtype=torch.float64).requires_grad_()
    tl.DirectLoss(tl.MultiClass([[0, 1, 2], [1, 0, 1], [1, 1, 0]]), update="positive")(scores, torch.tensor([0])).backward()
    torch.testing.assert_close(scores.grad, torch.tensor([[-1 / 3, -1 / 3, 2 / 3]], dtype=torch.float64))


def test_the_value_is_the_mean_cost_in_its_own_units():
    scores, target = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1, 1])
    assert tl.DirectLoss(tl.MultiClass([[0, 10], [4, 0]]))(scores, target).item() == pytest.approx(14 / 3)
    assert tl.DirectLoss("multi_class")(scores, target).item() == pytest.approx(2 / 3)


def test_the_hinge_bounds_the_cost():
    generator = torch.Generator().manual_seed(2)
    scores, target = torch.randn(500, 4, generator=generator), torch.randint(4, (500,), generator=generator)
    for task in (tl.MultiClass(COST), tl.TopKError(2)):
        bound = tl.StructuredHingeLoss(task, reduction="none")(scores, target)
        assert (bound >= tl.DirectLoss(task, reduction="none")(scores, target) - 1e-6).all()


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ([[0, 1]], r"shape \(1, 2\); expected a square matrix"),
        ([[0, np.inf], [1, 0]], r"cost\[0, 1\] is inf: costs must be finite"),
        ([[0, 1], [-2, 0]], r"cost\[1, 0\] is -2.0: costs must not be negative"),
        ([[0, 1], [1, 0.5]], r"cost\[1, 1\] is 0.5: the right class must cost nothing"),
        (np.empty((0, 0)), "expected a square matrix"),
    ],
)
def test_cost_matrices_that_make_no_sense(cost, message):
    with pytest.raises(ValueError, match=message):
        tl.MultiClass(cost)


def test_cost_matrices_of_any_kind_and_their_size():
    assert (
        tl.MultiClass(torch.tensor([[0, 1], [2, 0]]))
        == tl.MultiClass(np.array([[0, 1.0], [2, 0]]))
        == tl.MultiClass(((0, 1), (2, 0)))
    )
    assert tl.MultiClass([[0, 1], [1, 0]]) != tl.MultiClass([[0, 1], [2, 0]])
    assert hash(tl.MultiClass([[0, 1], [-0.0, 0]])) == hash(tl.MultiClass([[0, 1], [0, 0]]))
    assert repr(tl.MultiClass([[0, 1], [2, 0]])) == "MultiClass(cost=[[0.0, 1.0], [2.0, 0.0]])"
    assert repr(tl.MultiClass(1 - np.eye(5))) == "MultiClass(cost=<5 x 5 costs>)"
    with pytest.raises(TypeError, match="square matrix of numbers, got list"):
        tl.MultiClass([[0, "a"], [1, 0]])
    with pytest.raises(ValueError, match="cost is 4 x 4, but the scores have 3 classes"):
        tl.DirectLoss(tl.MultiClass(COST))(torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"read-only"):
        tl.MultiClass(COST).cost.values[0, 1] = 3.0


def test_top_k_settings():
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="k must be a whole number of at least 1"):
            tl.TopKError(wrong)
    with pytest.raises(ValueError, match="k=5 classes, but the scores have only 3"):
        tl.DirectLoss("top_k_error")(torch.zeros(2, 3), torch.tensor([0, 1]))


@pytest.mark.parametrize("task", [tl.MultiClass(COST), tl.TopKError(2)], ids=["costs", "top 2"])
@pytest.mark.parametrize("update", ["positive", "negative"])
def test_direct_gradient_is_the_finite_difference_of_the_best_values(task, update):
    """The theory holds on a batch too large to enumerate: the gradient is that of ``(max(F + w L) - max F) / w``."""
    rng = np.random.default_rng(3)
    scores, target, epsilon = rng.standard_normal((40, 4)), rng.integers(4, size=40), 0.7
    weight = epsilon if update == "positive" else -epsilon
    leaf = torch.tensor(scores, requires_grad=True)
    tl.functional.direct_loss(leaf, torch.tensor(target), task, epsilon=epsilon, update=update).backward()

    def best(x, w):
        sets = [[0], [1], [2], [3]] if isinstance(task, tl.MultiClass) else [[a, b] for a in range(4) for b in range(a)]
        values = []
        for row, t in zip(x, target, strict=True):
            losses = [COST[t, s[0]] if len(s) == 1 else float(t not in s) for s in sets]
            values.append(max(row[s].sum() + w * loss for s, loss in zip(sets, losses, strict=True)))
        return np.mean(values)

    step = 1e-6
    for place in [(0, 0), (7, 2), (31, 3), (39, 1)]:
        shift = np.zeros_like(scores)
        shift[place] = step
        up, down = ((best(scores + d, weight) - best(scores + d, 0)) / weight for d in (shift, -shift))
        assert leaf.grad[place].item() == pytest.approx((up - down) / (2 * step), abs=1e-8)
