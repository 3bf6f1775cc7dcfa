"""Average precision against all permutations: values, gradients, the tie rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import taskloss as tl
from tests.oracles.enumeration import maximize, tie_rule_feature, truth_feature
from tests.oracles.hull import in_convex_hull

INSTANCES = 2500
HULL_CHECKS = 150


def random_instance(rng: np.random.Generator) -> tuple[np.ndarray, tuple[int, ...], float]:
    n = int(rng.integers(2, 8))
    labels = np.zeros(n, int)
    labels[rng.permutation(n)[: rng.integers(1, n)]] = 1
    kind = rng.integers(4)
    if kind == 0:
        scores = rng.integers(-2, 3, n) / 2.0  # many ties
    elif kind == 1:
        scores = rng.integers(-8, 9, n) / 4.0  # some ties
    else:
        scores = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 3)
    epsilon = float(2.0 ** rng.integers(-6, 5))
    return scores, tuple(labels.tolist()), epsilon


def library(criterion: torch.nn.Module, scores: np.ndarray, labels: tuple[int, ...]) -> tuple[float, np.ndarray]:
    tensor = torch.tensor(scores, requires_grad=True)
    value = criterion(tensor, torch.tensor(labels))
    value.backward()
    return value.item(), tensor.grad.numpy()


def check_gradient(gradient, first, second, factor, scores, labels, check_hull) -> bool:
    """``factor * (psi(first) - psi(second))`` by the tie rule, and inside the hull of all optimal differences."""
    tolerance = 1e-12 * max(1.0, abs(factor))
    if not first.accidental:
        expected = factor * (tie_rule_feature(first, scores, labels) - tie_rule_feature(second, scores, labels))
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=tolerance)
    tied = len(first.features) > 1 or len(second.features) > 1
    if first.accidental or (tied and check_hull):
        differences = factor * (first.features[:, None] - second.features[None]).reshape(-1, len(scores))
        assert in_convex_hull(gradient, np.unique(differences, axis=0), 1000 * tolerance)
    return tied


@pytest.mark.parametrize("loss", ["positive", "negative", "hinge", "perceptron"])
def test_values_and_gradients_equal_enumeration(loss):
    rng = np.random.default_rng(20160619)
    ties = 0
    for _ in range(INSTANCES):
        scores, labels, epsilon = random_instance(rng)
        predicted = maximize(scores, labels, 0.0)
        truth = truth_feature(labels)
        if loss in ("positive", "negative"):
            sign = 1 if loss == "positive" else -1
            value, gradient = library(tl.DirectLoss("average_precision", epsilon=epsilon, update=loss), scores, labels)
            assert value == pytest.approx(1 - average_precision_score(labels, scores), abs=1e-12)
            first, second, factor = maximize(scores, labels, sign * epsilon), predicted, sign / epsilon
        else:
            second = type(predicted)(0.0, truth[None], np.zeros(1))
            factor = 1.0
            criterion = tl.StructuredHingeLoss if loss == "hinge" else tl.PerceptronLoss
            first = maximize(scores, labels, 1.0) if loss == "hinge" else predicted
            value, gradient = library(criterion("average_precision"), scores, labels)
            assert value == pytest.approx(first.value - truth @ scores, abs=1e-12 * max(1.0, np.abs(scores).max()))
        ties += check_gradient(gradient, first, second, factor, scores, labels, check_hull=ties < HULL_CHECKS)
    assert ties >= 50, "the instances must include ties"


@pytest.mark.parametrize("update", ["positive", "negative"])
def test_missing_relevant_items_equal_enumeration(update):
    rng = np.random.default_rng(7)
    sign = 1 if update == "positive" else -1
    for _ in range(300):
        scores, labels, epsilon = random_instance(rng)
        missing = int(rng.integers(0, 4))
        tensor = torch.tensor(scores, requires_grad=True)
        value = tl.functional.direct_loss(
            tensor, torch.tensor(labels), "average_precision", epsilon=epsilon, update=update, num_relevant=sum(labels) + missing
        )
        value.backward()
        share = sum(labels) / (sum(labels) + missing)
        assert value.item() == pytest.approx(1 - share * average_precision_score(labels, scores), abs=1e-12)
        augmented = maximize(scores, labels, sign * epsilon, missing)
        predicted = maximize(scores, labels, 0.0, missing)
        check_gradient(tensor.grad.numpy(), augmented, predicted, sign / epsilon, scores, labels, check_hull=False)
