"""Graded NDCG against all permutations and scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sklearn.metrics
import torch

import taskloss as tl
from tests.oracles.hull import in_convex_hull

PERMUTATIONS = {n: np.argsort(np.array(list(itertools.permutations(range(n)))), axis=1) for n in range(2, 7)}


def random_instance(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    n = int(rng.integers(2, 7))
    relevance = rng.integers(0, 4, n)
    scores = rng.integers(-4, 5, n) / 2.0 if rng.random() < 0.4 else rng.standard_normal(n)
    return scores, relevance, float(2.0 ** rng.integers(-5, 3))


def best_features(scores, gains, weight, features) -> tuple[float, np.ndarray]:
    """The largest ``F + weight * L`` over all permutations, and the features that attain it."""
    objective = features @ (scores - weight * gains) + weight
    best = objective.max()
    return float(best), np.unique(features[objective >= best - 1e-11 * max(1, weight)], axis=0)


def shared(features, keys) -> np.ndarray:
    """The mean of the optimal features is the mean over the orders of tied keys."""
    mean = features.mean(axis=0)
    return np.array([mean[keys == key].mean() for key in keys])


@pytest.mark.parametrize("at", [None, 3])
@pytest.mark.parametrize("gain", ["exponential", "linear"])
@pytest.mark.parametrize("loss", ["positive", "negative", "hinge", "perceptron"])
def test_values_and_gradients_equal_enumeration(loss, gain, at):
    rng = np.random.default_rng(3)
    task = tl.GradedNDCG(gain=gain, at=at)
    checked = 0
    for _ in range(1000):
        scores, relevance, epsilon = random_instance(rng)
        if np.ptp(relevance) == 0:
            continue
        checked += 1
        gains = 2.0**relevance - 1 if gain == "exponential" else relevance.astype(float)
        ranks = PERMUTATIONS[len(scores)] + 1
        discounts = np.where(ranks <= (at or len(scores)), 1 / np.log2(1 + ranks), 0)
        features = discounts / (discounts @ gains).max()
        _, predicted = best_features(scores, gains, 0.0, features)
        ideal = features[features @ gains >= 1 - 1e-12]
        truth_value = (ideal @ scores).max()
        truth = np.unique(ideal[ideal @ scores >= truth_value - 1e-11], axis=0)

        if loss in ("positive", "negative"):
            sign = 1 if loss == "positive" else -1
            criterion = tl.DirectLoss(task, epsilon=epsilon, update=loss)
            _, augmented = best_features(scores, gains, sign * epsilon, features)
            first, second, factor = augmented, predicted, sign / epsilon
            expected = 1 - (shared(predicted, scores) * gains).sum()
        elif loss == "hinge":
            criterion = tl.StructuredHingeLoss(task)
            best, first = best_features(scores, gains, 1.0, features)
            second, factor, expected = truth, 1.0, best - truth_value
        else:
            criterion = tl.PerceptronLoss(task)
            first, second, factor, expected = predicted, truth, 1.0, (features @ scores).max() - truth_value

        tensor = torch.tensor(scores, requires_grad=True)
        value = criterion(tensor, torch.tensor(relevance))
        value.backward()
        assert value.item() == pytest.approx(expected, abs=1e-11)
        gradient, tolerance = tensor.grad.numpy(), 1e-11 * max(1.0, abs(factor))
        if len(first) == len(second) == 1:
            np.testing.assert_allclose(gradient, factor * (first[0] - second[0]), atol=tolerance)
        elif checked < 200:
            differences = factor * (first[:, None] - second[None]).reshape(-1, len(scores))
            assert in_convex_hull(gradient, differences, 100 * tolerance)
    assert checked > 700


@pytest.mark.parametrize("k", [None, 1, 5])
def test_value_equals_scikit_learn(k):
    rng = np.random.default_rng(0)
    for _ in range(100):
        relevance = rng.integers(0, 4, (1, 12))
        scores = np.round(rng.standard_normal((1, 12)), 1)
        value = tl.DirectLoss(tl.GradedNDCG(gain="linear", at=k))(torch.tensor(scores[0]), torch.tensor(relevance[0])).item()
        assert value == pytest.approx(1 - sklearn.metrics.ndcg_score(relevance, scores, k=k), abs=1e-12)


def test_bad_relevance_and_settings():
    with pytest.raises(ValueError, match=r"target\[1\] is -1; expected relevance grades"):
        tl.DirectLoss("graded_ndcg")(torch.zeros(2), torch.tensor([1, -1]))
    with pytest.raises(ValueError, match="gain='linear'"):
        tl.DirectLoss("graded_ndcg")(torch.zeros(2), torch.tensor([1, 100]))
    with pytest.raises(ValueError, match="gain='log'"):
        tl.GradedNDCG(gain="log")
    with pytest.raises(ValueError, match="at must be"):
        tl.GradedNDCG(at=0)
