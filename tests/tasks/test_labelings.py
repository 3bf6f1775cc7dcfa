"""Every task on confusion counts against all labelings: values, gradients, the tie rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import taskloss as tl
from tests.oracles import labelings as oracle
from tests.oracles.hull import in_convex_hull
from tests.tasks.batches import values_and_gradients

HULL_CHECKS = 60


def by_sample(truth: np.ndarray) -> np.ndarray:
    return np.full(len(truth), 1 / len(truth))


def by_positive(truth: np.ndarray) -> np.ndarray:
    return np.full(len(truth), 1 / truth.sum() if truth.any() else 1 / len(truth))


def by_class(truth: np.ndarray) -> np.ndarray:
    return np.where(truth, 0.5 / max(truth.sum(), 1), 0.5 / max((~truth).sum(), 1))


def by_present_class(truth: np.ndarray) -> np.ndarray:
    return by_class(truth) if truth.any() and not truth.all() else by_sample(truth)


def by_pair(truth: np.ndarray) -> np.ndarray:
    pairs = truth.sum() * (~truth).sum()
    return np.full(len(truth), len(truth) / (4 * pairs) if pairs else 1 / len(truth))


@dataclass(frozen=True)
class Case:
    """A task, its metric of labelings and the weights of its joint score."""

    task: tl.Task
    metric: oracle.Metric
    weights: Callable[[np.ndarray], np.ndarray]
    instances: int = 1000


def of_counts(fn) -> oracle.Metric:
    """A metric of the four counts, 0/0 counting 1."""

    def value(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            result = fn(
                *((x & y).sum(axis=1) for x, y in ((answers, truth), (answers, ~truth), (~answers, truth), (~answers, ~truth)))
            )
        return np.where(np.isnan(result), 1.0, result)

    return value


def kappa(tp, fp, fn, tn):
    n = tp + fp + fn + tn
    chance = ((tp + fp) * (tp + fn) + (fn + tn) * (fp + tn)) / n**2
    return ((tp + tn) / n - chance) / (1 - chance)


def cost_weighted(tp, fp, fn, tn):
    return 1 - (5 * fn + fp) / (5 * (tp + fn) + tn + fp)


def specificity_at_sensitivity(tp, fp, fn, tn):
    return np.where(tp >= 0.7 * (tp + fn), tn / (tn + fp), 0.0)


def precision(tp, fp, fn, tn):
    """Not monotone: a true positive more may lower nothing, a false one less may raise nothing."""
    return tp / (tp + fp)


def contrary(tp, fp, fn, tn):
    """Wrong way round in the one count, right in the other, and wavy."""
    return 0.5 + 0.3 * np.cos(tp + 2.0 * fp) - 0.05 * tp + 0.01 * tn


CASES = {
    "zero-one": Case(tl.ZeroOne(), oracle.accuracy, by_sample),
    "balanced error": Case(tl.BalancedError(), oracle.balanced_accuracy, by_present_class),
    "f1": Case(tl.FScore(), oracle.f_score(1.0), by_positive),
    "dice": Case(tl.Dice(), oracle.f_score(1.0), by_positive),
    "f2": Case(tl.FScore(2.0), oracle.f_score(2.0), by_positive),
    "f0.3, zero division 0.25": Case(tl.FScore(0.3, zero_division=0.25), oracle.f_score(0.3, 0.25), by_positive, instances=300),
    "jaccard": Case(tl.Jaccard(), oracle.jaccard(), by_positive),
    "jaccard, zero division 0": Case(tl.Jaccard(zero_division=0.0), oracle.jaccard(0.0), by_positive, instances=300),
    "g-mean": Case(tl.GMean(), oracle.g_mean(), by_class),
    "g-mean, zero division 0.5": Case(tl.GMean(zero_division=0.5), oracle.g_mean(0.5), by_class, instances=300),
    "mcc": Case(tl.MCC(), oracle.half_correlation(), by_pair),
    "mcc, zero division 0": Case(tl.MCC(zero_division=0.0), oracle.half_correlation(0.0), by_pair, instances=300),
    "kappa": Case(tl.ConfusionMetric(kappa), of_counts(kappa), by_positive),
    "cost-weighted": Case(
        tl.ConfusionMetric(cost_weighted, weighting="samples"), of_counts(cost_weighted), by_sample, instances=300
    ),
    "specificity at sensitivity": Case(
        tl.ConfusionMetric(specificity_at_sensitivity, weighting="classes"),
        of_counts(specificity_at_sensitivity),
        by_class,
        instances=300,
    ),
    "precision": Case(tl.ConfusionMetric(precision), of_counts(precision), by_positive, instances=300),
    "not monotone": Case(tl.ConfusionMetric(contrary), of_counts(contrary), by_positive, instances=300),
}


def random_instance(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    kind = int(rng.integers(6))
    n = int(rng.integers(1, 7 if kind < 3 else 11))
    truth = rng.random(n) < rng.choice([0.0, 0.2, 0.5, 0.8, 1.0], p=[0.05, 0.3, 0.3, 0.3, 0.05])
    if kind == 0:
        scores = rng.integers(-2, 3, n) / 2.0  # many ties, many zeros
    elif kind == 1:
        scores = rng.integers(-8, 9, n) / 8.0  # some ties
    elif kind == 2:
        scores = np.full(n, rng.choice([0.0, 0.3, -0.3]))
    else:
        scores = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 2) + truth * rng.integers(0, 2)
        scores[rng.random(n) < 0.1] = 0.0
    return scores, truth, float(2.0 ** rng.integers(-6, 5))


def library(criterion: torch.nn.Module, scores: np.ndarray, truth: np.ndarray) -> tuple[float, np.ndarray]:
    tensor = torch.tensor(scores, requires_grad=True)
    value = criterion(tensor, torch.tensor(truth))
    value.backward()
    return value.item(), tensor.grad.numpy()


def check_gradient(gradient, first, second_labels, factor, scores, truth, weights, sign, check_hull) -> bool:
    """``factor * v * (labels of first - labels of second)`` by the tie rule, and inside the hull of all optimal differences."""
    tolerance = 1e-12 * max(1.0, abs(factor))
    labels = None if first.accidental else oracle.tie_rule_labels(first, scores, truth, sign)
    middle = second_labels.mean(axis=0)
    if labels is not None:
        assert np.abs(gradient - factor * weights * (labels - middle)).max() <= tolerance
    tied = len(first.labels) > 1 or len(second_labels) > 1
    if labels is None or (tied and check_hull):
        differences = factor * weights * (first.labels[:, None].astype(float) - second_labels[None]).reshape(-1, len(scores))
        assert in_convex_hull(gradient, np.unique(differences, axis=0), 1000 * tolerance)
    return tied


@pytest.mark.parametrize("loss", ["positive", "negative", "hinge", "perceptron"])
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_values_and_gradients_equal_enumeration(case, loss):
    rng = np.random.default_rng(19751020)
    instances = [random_instance(rng) for _ in range(case.instances)]
    found = values_and_gradients(loss, case.task, instances)
    ties = 0
    for (scores, truth, epsilon), (value, gradient) in zip(instances, found, strict=True):
        weights = case.weights(truth)
        metric = case.metric(oracle.all_labelings(len(truth)), truth)
        predicted = oracle.maximize(scores, weights)
        sign = -1 if loss == "negative" else 1
        if loss in ("positive", "negative"):
            assert value == pytest.approx(1 - case.metric((scores > 0)[None], truth)[0], abs=1e-12)
            first, second, factor = oracle.maximize(scores, weights, sign * epsilon, metric), predicted.labels, sign / epsilon
        else:
            second, factor = truth[None], 1.0
            first = oracle.maximize(scores, weights, 1.0, metric) if loss == "hinge" else predicted
            assert value == pytest.approx(first.value - truth @ (weights * scores), abs=1e-12 * max(1.0, np.abs(scores).max()))
        ties += check_gradient(gradient, first, second, factor, scores, truth, weights, sign, check_hull=ties < HULL_CHECKS)
    assert ties > 0, "the instances must include ties"


def test_every_registered_labeling_task_is_enumerated():
    assert {type(case.task) for case in CASES.values()} >= {
        cls for cls in tl.tasks.registered().values() if cls.target_kind == "labels"
    }


def small_and_large(rng: np.random.Generator):
    for _ in range(150):
        yield random_instance(rng)
    for n in (50, 400):
        for scale in (0.1, 1.0, 10.0):
            truth = rng.random(n) < 0.3
            scores = (rng.standard_normal(n) + truth) * scale
            yield scores, truth, 1.0
            yield np.round(scores * 2) / 2 + 1e-3, truth, 0.7
    huge = rng.standard_normal(60)
    huge[:2] = 1e30, -1e30
    yield huge, rng.random(60) < 0.5, 1.0


@pytest.mark.parametrize("update", ["positive", "negative"])
@pytest.mark.parametrize(
    ("task", "fn"),
    [
        (tl.FScore(), lambda tp, fp, fn, tn: 2 * tp / (2 * tp + fp + fn)),
        (tl.FScore(2.0), lambda tp, fp, fn, tn: 5 * tp / (5 * tp + fp + 4 * fn)),
        (tl.Jaccard(), lambda tp, fp, fn, tn: tp / (tp + fp + fn)),
    ],
    ids=["f1", "f2", "jaccard"],
)
def test_any_metric_reproduces_the_fast_solvers(task, fn, update):
    rng = np.random.default_rng(3)
    accidental = 0
    for scores, truth, epsilon in small_and_large(rng):
        fast = library(tl.DirectLoss(task, epsilon=epsilon, update=update), scores, truth)
        table = library(tl.DirectLoss(tl.ConfusionMetric(fn), epsilon=epsilon, update=update), scores, truth)
        assert fast[0] == pytest.approx(table[0], abs=1e-15)
        if not np.array_equal(fast[1], table[1]):
            # Only where F and L balance to the last bit: both answers must then be equally good.
            accidental += 1
            assert len(scores) <= 10
            weights = by_positive(truth)
            sign = 1 if update == "positive" else -1
            metric = of_counts(fn)(oracle.all_labelings(len(truth)), truth)
            assert oracle.maximize(scores, weights, sign * epsilon, metric).accidental
    assert accidental < 10
