"""Every ranking task against all permutations: values, gradients, the tie rule."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import sklearn
import sklearn.metrics
import torch

import taskloss as tl
from tests.oracles import ranked_metrics as oracle
from tests.oracles.enumeration import Optimum, all_rankings, labels_by_score, maximize, tie_rule_feature, truth_feature
from tests.oracles.hull import in_convex_hull
from tests.tasks.batches import values_and_gradients

HULL_CHECKS = 100
MOST_INSTANCES = 2500


@dataclass(frozen=True)
class Case:
    """A task, its metric of a permutation, and its metric of scores with ties."""

    task: tl.Task
    of_ranking: oracle.Metric
    of_scores: Callable[[np.ndarray, np.ndarray], float]
    instances: int = 1000


def mean_over_orders(metric: oracle.Metric) -> Callable[[np.ndarray, np.ndarray], float]:
    def value(scores: np.ndarray, labels: np.ndarray) -> float:
        return float(metric(labels_by_score(scores, tuple(labels.tolist())), int(labels.sum())).mean())

    return value


def worst_order(metric: oracle.Metric) -> Callable[[np.ndarray, np.ndarray], float]:
    def value(scores: np.ndarray, labels: np.ndarray) -> float:
        return float(metric(labels_by_score(scores, tuple(labels.tolist())), int(labels.sum())).min())

    return value


def at_threshold(choose: Callable[[list[tuple[int, int]], int, int], float]) -> Callable[[np.ndarray, np.ndarray], float]:
    return lambda scores, labels: choose(oracle.threshold_points(scores, labels), int(labels.sum()), int((1 - labels).sum()))


def roc_area(low: float, high: float) -> Callable[[np.ndarray, np.ndarray], float]:
    """Area under scikit-learn's ROC curve, a tied group being a straight line, between two false positive rates."""

    def value(scores: np.ndarray, labels: np.ndarray) -> float:
        fpr, tpr, _ = sklearn.metrics.roc_curve(labels, scores, drop_intermediate=False)
        area = 0.0
        for x0, x1, y0, y1 in zip(fpr, fpr[1:], tpr, tpr[1:], strict=False):
            left, right = max(x0, low), min(x1, high)
            if left < right:
                middle = y0 + (y1 - y0) * ((left + right) / 2 - x0) / (x1 - x0)
                area += (right - left) * middle
        return area / (high - low)

    return value


def sklearn_average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(sklearn.metrics.average_precision_score(labels, scores))


def sklearn_ndcg(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(sklearn.metrics.ndcg_score([labels], [scores]))


def sklearn_roc_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(sklearn.metrics.roc_auc_score(labels, scores))


def sklearn_partial_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    standardized = sklearn.metrics.roc_auc_score(labels, scores, max_fpr=0.6)
    lowest = 0.6**2 / 2
    return float((2 * standardized - 1) * (0.6 - lowest) + lowest) / 0.6


def steps(i: np.ndarray, c: np.ndarray) -> np.ndarray:
    """A sum of a concave function and a step, uneven in i."""
    return np.sqrt(1 - c / 10) / i + np.where(i + c <= 3, 1 + i % 2, 0)


steps_oracle = oracle.separable(
    lambda i, c: math.sqrt(1 - c / 10) / i + (1 + i % 2 if i + c <= 3 else 0),
    lambda relevant: sum(1 / i + (1 + i % 2 if i <= 3 else 0) for i in range(1, relevant + 1)),
)

CASES = {
    "average precision": Case(tl.AveragePrecision(), oracle.average_precision, sklearn_average_precision, MOST_INSTANCES),
    "ndcg": Case(tl.NDCG(), oracle.ndcg, sklearn_ndcg),
    "average precision at 3": Case(
        tl.AveragePrecision(at=3),
        oracle.average_precision_at(3),
        at_threshold(
            lambda points, P, N: (
                sum(
                    (tp - before) * tp / (tp + fp)
                    for (before, _), (tp, fp) in zip([(0, 0), *points], points, strict=False)
                    if tp + fp <= 3
                )
                / min(P, 3)
            )
        ),
    ),
    "ndcg at 4": Case(tl.NDCG(at=4), oracle.ndcg_at(4), lambda s, y: sklearn.metrics.ndcg_score([y], [s], k=4)),
    "roc auc": Case(tl.ROCAUC(), oracle.partial_auc(0, 1), sklearn_roc_auc),
    "partial auc": Case(tl.PartialAUC(max_fpr=0.6), oracle.partial_auc(0, 0.6), sklearn_partial_auc),
    "band auc": Case(tl.PartialAUC(max_fpr=0.85, min_fpr=0.3), oracle.partial_auc(0.3, 0.85), roc_area(0.3, 0.85)),
    "recall at fpr": Case(
        tl.RecallAtFPR(0.5),
        oracle.recall_at_fpr(0.5),
        at_threshold(lambda points, P, N: max([tp / P for tp, fp in points if fp / N <= 0.5], default=0.0)),
    ),
    "reciprocal rank": Case(tl.ReciprocalRank(), oracle.reciprocal_rank, worst_order(oracle.reciprocal_rank)),
    "precision at recall": Case(
        tl.PrecisionAtRecall(0.6),
        oracle.precision_at_recall(0.6),
        at_threshold(lambda points, P, N: next(tp / (tp + fp) for tp, fp in points if tp / P >= 0.6 - 1e-9)),
    ),
    "precision at k": Case(tl.PrecisionAtK(3), oracle.precision_at_k(3), mean_over_orders(oracle.precision_at_k(3))),
    "recall at k": Case(tl.RecallAtK(2), oracle.recall_at_k(2), mean_over_orders(oracle.recall_at_k(2))),
    "recall at precision": Case(
        tl.RecallAtPrecision(0.6),
        oracle.recall_at_precision(0.6),
        at_threshold(lambda points, P, N: max([tp / P for tp, fp in points if tp / (tp + fp) >= 0.6 - 1e-9], default=0.0)),
    ),
    "own average precision": Case(
        tl.SeparableMetric(lambda i, c: i / (i + c), ties="together", convex=True),
        oracle.average_precision,
        sklearn_average_precision,
    ),
    "own ndcg": Case(tl.SeparableMetric(lambda i, c: 1 / np.log2(1 + i + c)), oracle.ndcg, sklearn_ndcg),
    "own roc auc": Case(
        tl.SeparableMetric(lambda i, c, num_negatives: 1 - c / num_negatives, convex=True),
        oracle.partial_auc(0, 1),
        sklearn_roc_auc,
    ),
    "own precision at k": Case(
        tl.SeparableMetric(lambda i, c: (i + c <= 3) / 3, normalize=False),
        oracle.precision_at_k(3),
        mean_over_orders(oracle.precision_at_k(3)),
    ),
    "own steps": Case(tl.SeparableMetric(steps), steps_oracle, mean_over_orders(steps_oracle)),
    "own steps, worst order of ties": Case(tl.SeparableMetric(steps, ties="worst"), steps_oracle, worst_order(steps_oracle)),
}


@functools.cache
def metric_of_all(metric: oracle.Metric, labels: tuple[int, ...], relevant: int) -> np.ndarray:
    return metric(all_rankings(labels).ranked_labels, relevant)


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


class Instance(NamedTuple):
    scores: np.ndarray
    labels: tuple[int, ...]
    epsilon: float
    predicted: Optimum


@functools.cache
def instances() -> list[Instance]:
    """The same for every case and loss, which take as many of them as they need."""
    rng = np.random.default_rng(20160619)
    drawn = [random_instance(rng) for _ in range(MOST_INSTANCES)]
    return [Instance(scores, labels, epsilon, maximize(scores, labels)) for scores, labels, epsilon in drawn]


@functools.cache
def value_of(of_scores: Callable[[np.ndarray, np.ndarray], float], number: int) -> float:
    """Of an instance; scikit-learn takes most of its time to look at its arguments."""
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
        return of_scores(instances()[number].scores, np.array(instances()[number].labels))


def check_gradient(gradient, first, second, factor, scores, labels, check_hull) -> bool:
    """``factor * (psi(first) - psi(second))`` by the tie rule, and inside the hull of all optimal differences."""
    tolerance = 1e-12 * max(1.0, abs(factor))
    if not first.accidental:
        expected = factor * (tie_rule_feature(first, scores, labels) - tie_rule_feature(second, scores, labels))
        assert np.abs(gradient - expected).max() <= tolerance
    tied = len(first.features) > 1 or len(second.features) > 1
    if first.accidental or (tied and check_hull):
        differences = factor * (first.features[:, None] - second.features[None]).reshape(-1, len(scores))
        assert in_convex_hull(gradient, differences, 1000 * tolerance)
    return tied


@pytest.mark.parametrize("loss", ["positive", "negative", "hinge", "perceptron"])
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_values_and_gradients_equal_enumeration(case, loss):
    ties = 0
    given = [instance[:3] for instance in instances()[: case.instances]]
    found = values_and_gradients(loss, case.task, given)
    for number, (value, gradient) in enumerate(found):
        scores, labels, epsilon, predicted = instances()[number]
        metric = metric_of_all(case.of_ranking, labels, sum(labels))
        truth = truth_feature(labels)
        if loss in ("positive", "negative"):
            sign = 1 if loss == "positive" else -1
            assert value == pytest.approx(1 - value_of(case.of_scores, number), abs=1e-12)
            first, second, factor = maximize(scores, labels, sign * epsilon, metric), predicted, sign / epsilon
        else:
            second, factor = Optimum(0.0, truth[None], np.zeros(1)), 1.0
            first = maximize(scores, labels, 1.0, metric) if loss == "hinge" else predicted
            assert value == pytest.approx(first.value - truth @ scores, abs=1e-12 * max(1.0, np.abs(scores).max()))
        ties += check_gradient(gradient, first, second, factor, scores, labels, check_hull=ties < HULL_CHECKS)
    assert ties > 0, "the instances must include ties"


def test_every_registered_ranking_task_is_enumerated():
    assert {type(case.task) for case in CASES.values()} >= {
        cls for cls in tl.tasks.registered().values() if cls.target_kind == "binary"
    }


@pytest.mark.parametrize("update", ["positive", "negative"])
@pytest.mark.parametrize(
    "name",
    [
        "average precision",
        "ndcg",
        "recall at fpr",
        "recall at k",
        "precision at recall",
        "recall at precision",
        "own ndcg",
        "own steps",
    ],
)
def test_missing_relevant_items_equal_enumeration(name, update):
    case = CASES[name]
    rng = np.random.default_rng(7)
    sign = 1 if update == "positive" else -1
    for _ in range(200):
        scores, labels, epsilon = random_instance(rng)
        scores = scores + 1e-3 * rng.standard_normal(len(scores))
        relevant = sum(labels) + int(rng.integers(0, 4))
        metric = metric_of_all(case.of_ranking, labels, relevant)
        tensor = torch.tensor(scores, requires_grad=True)
        value = tl.functional.direct_loss(
            tensor, torch.tensor(labels), case.task, epsilon=epsilon, update=update, num_relevant=relevant
        )
        value.backward()
        assert value.item() == pytest.approx(1 - case.of_ranking(labels_by_score(scores, labels), relevant)[0], abs=1e-12)
        augmented, predicted = maximize(scores, labels, sign * epsilon, metric), maximize(scores, labels)
        check_gradient(tensor.grad.numpy(), augmented, predicted, sign / epsilon, scores, labels, check_hull=False)
