"""Metrics of class scores: against scikit-learn, against all pairs, and against their tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
import torch

import taskloss as tl
from taskloss import metrics

COST = np.array([[0.0, 1.0, 2.5, 0.5], [0.25, 0.0, 0.0, 1.0], [4.0, 1.0, 0.0, 1.5], [1.0, 1.0, 1.0, 0.0]])
AREAS = [metrics.one_vs_rest_auc_score, metrics.hand_till_auc_score, metrics.auc_mu_score]


def sample(seed: int, n: int = 60, classes: int = 4, decimals: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Class probabilities with ties, and every class in the target."""
    rng = np.random.default_rng(seed)
    target = rng.permutation(np.r_[np.arange(classes), rng.integers(classes, size=n - classes)])
    scores = np.round(rng.standard_normal((n, classes)) + 1.5 * np.eye(classes)[target], decimals)
    weights = 2.0 ** np.round(scores)
    return weights / weights.sum(axis=1, keepdims=True), target


@pytest.mark.parametrize("average", ["macro", "weighted"])
@pytest.mark.parametrize(("ours", "kind"), [(metrics.one_vs_rest_auc_score, "ovr"), (metrics.hand_till_auc_score, "ovo")])
def test_areas_equal_scikit_learn(ours, kind, average):
    for seed in range(100):
        scores, target = sample(seed, n=8 + seed)
        expected = sklearn.metrics.roc_auc_score(target, scores, multi_class=kind, average=average)
        assert ours(scores, target, average=average) == pytest.approx(expected, abs=1e-12)


def auc_mu_by_pairs(scores: np.ndarray, target: np.ndarray, partition: np.ndarray) -> float:
    """The definition with the paper's partition matrix (a row for each decision), pair of samples by pair of samples."""
    classes = len(partition)
    areas = []
    for i in range(classes):
        for j in range(i):
            v = partition[i] - partition[j]
            wins = [
                0.5 if abs(v @ a - v @ b) < 1e-12 else float(v @ a < v @ b)
                for a in scores[target == i]
                for b in scores[target == j]
            ]
            areas.append(np.mean(wins))
    return float(np.mean(areas))


@pytest.mark.parametrize("cost", [None, COST], ids=["zero-one", "costs"])
def test_auc_mu_equals_its_definition(cost):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        target = rng.permutation(np.r_[np.arange(4), rng.integers(4, size=20)])
        scores = rng.integers(-3, 4, (24, 4)) / 4.0 + np.eye(4)[target] * 0.5
        partition = 1 - np.eye(4) if cost is None else cost.T
        assert metrics.auc_mu_score(scores, target, cost=cost) == pytest.approx(
            auc_mu_by_pairs(scores, target, partition), abs=1e-12
        )


def test_auc_mu_of_two_classes_is_the_area_whatever_the_costs():
    scores, target = sample(0, classes=2)
    expected = sklearn.metrics.roc_auc_score(target, scores[:, 1] - scores[:, 0])
    assert metrics.auc_mu_score(scores, target) == pytest.approx(expected, abs=1e-12)


def test_a_perfect_decision_by_costs_has_the_full_area():
    """Scores that a cost matrix decides rightly for every sample: AUC-mu with these costs is one, with 0/1 costs it is not."""
    cost = np.array([[0.0, 1.0, 1.0], [9.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    rng = np.random.default_rng(1)
    scores = rng.dirichlet(np.ones(3), 400)
    target = (scores @ cost).argmin(axis=1)
    assert metrics.auc_mu_score(scores, target, cost=cost) == 1.0
    assert metrics.auc_mu_score(scores, target, cost=cost.T) < 1.0


def test_choices_equal_their_definitions():
    scores, target = sample(3, n=300)
    predicted = scores.argmax(axis=1)
    untied = (scores == scores.max(axis=1, keepdims=True)).sum(axis=1) == 1
    assert 0 < untied.sum() < 300
    costs = metrics.expected_cost_loss(scores, target, cost=COST, reduction="none")
    np.testing.assert_allclose(costs[untied], COST[target, predicted][untied])
    for i in np.flatnonzero(~untied):
        assert costs[i] == pytest.approx(COST[target[i], scores[i] == scores[i].max()].mean())
    right = metrics.multiclass_accuracy_score(scores[untied], target[untied])
    assert right == pytest.approx(sklearn.metrics.accuracy_score(target[untied], predicted[untied]), abs=1e-12)
    distinct = scores + 1e-9 * np.random.default_rng(0).standard_normal(scores.shape)
    for k in (1, 2, 3):
        expected = sklearn.metrics.top_k_accuracy_score(target, distinct, k=k)
        assert metrics.top_k_error_loss(distinct, target, k=k) == pytest.approx(1 - expected, abs=1e-12)


def test_metrics_equal_the_loss_of_their_task():
    scores, target = sample(4)
    x, y = torch.tensor(scores), torch.tensor(target)
    weight = np.linspace(0, 1, len(target))
    for task, value in (
        (tl.MultiClass(COST), metrics.expected_cost_loss(scores, target, cost=COST, weight=weight)),
        (tl.MultiClass(), 1 - metrics.multiclass_accuracy_score(scores, target, weight=weight)),
        (tl.TopKError(2), metrics.top_k_error_loss(scores, target, k=2, weight=weight)),
    ):
        assert tl.DirectLoss(task)(x, y, weight=weight).item() == pytest.approx(value, abs=1e-12)


def test_reductions_and_ignored_samples():
    scores, target = sample(5)
    marked = np.where(np.arange(60) % 3 == 0, -1, target)
    kept = marked != -1
    for metric, options in (
        (metrics.expected_cost_loss, {"cost": COST}),
        (metrics.multiclass_accuracy_score, {}),
        (metrics.top_k_error_loss, {"k": 2}),
    ):
        each = metric(scores, marked, ignore_index=-1, reduction="none", **options)
        assert np.isnan(each[~kept]).all()
        assert metric(scores, marked, ignore_index=-1, **options) == pytest.approx(each[kept].mean())
        assert metric(scores, marked, ignore_index=-1, reduction="sum", **options) == pytest.approx(each[kept].sum())
        assert metric(scores, marked, ignore_index=-1, **options) == metric(scores[kept], target[kept], **options)
    for area in AREAS:
        assert area(scores, marked, ignore_index=-1) == area(scores[kept], target[kept])


def test_pixels_and_tensors():
    scores, target = sample(6)
    image, labels = torch.tensor(scores).reshape(3, 4, 5, 4).permute(0, 3, 1, 2), torch.tensor(target).reshape(3, 4, 5)
    assert metrics.multiclass_accuracy_score(image, labels) == metrics.multiclass_accuracy_score(scores, target)
    assert metrics.expected_cost_loss(image, labels, reduction="none").shape == (3, 4, 5)
    for area in AREAS:
        assert area(image, labels) == area(scores, target)
    half = torch.tensor(scores).bfloat16()
    assert metrics.auc_mu_score(half, target) == metrics.auc_mu_score(half.float(), target)


@pytest.mark.parametrize("area", AREAS)
def test_missing_classes(area):
    scores, target = sample(7)
    target = np.where(target == 2, 1, target)
    each = area(scores, target, average="none")
    missing = each[2] if each.ndim == 1 else each[2, :]
    assert np.isnan(missing).all()
    assert area(scores, target) == pytest.approx(np.nanmean(each))
    with pytest.raises(ValueError, match="class 2 has no sample"):
        area(scores, target, on_one_class="raise")
    assert math.isnan(area(scores, np.zeros(60, int)))
    with pytest.raises(ValueError, match="average='micro'"):
        area(scores, target, average="micro")
    if each.ndim == 2:
        np.testing.assert_array_equal(each, each.T)
        assert np.isnan(np.diag(each)).all()


@pytest.mark.parametrize("area", AREAS)
def test_the_order_of_samples_and_classes_does_not_matter(area):
    scores, target = sample(8)
    value = area(scores, target)
    order = np.random.default_rng(0).permutation(60)
    assert area(scores[order], target[order]) == value
    names = np.array([2, 0, 3, 1])
    assert area(scores[:, names], np.argsort(names)[target]) == pytest.approx(value, abs=1e-12)


def test_bad_input():
    scores, target = sample(9)
    with pytest.raises(ValueError, match="cost is 2 x 2, but the scores have 4 classes"):
        metrics.auc_mu_score(scores, target, cost=[[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="cost is 2 x 2"):
        metrics.expected_cost_loss(scores, target, cost=[[0, 1], [1, 0]])
    with pytest.raises(ValueError, match=r"target\[0\] is 4"):
        metrics.multiclass_accuracy_score(scores, target * 0 + 4)
    with pytest.raises(ValueError, match="k must be a whole number"):
        metrics.top_k_error_loss(scores, target, k=0)
    assert math.isnan(metrics.multiclass_accuracy_score(np.empty((0, 3)), np.empty(0, int)))
