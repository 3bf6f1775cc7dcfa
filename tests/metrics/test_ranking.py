"""Exact metrics equal scikit-learn's, ties included."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import taskloss as tl
from taskloss import metrics
from taskloss.metrics import average_precision_score, roc_auc_score

PAIRS = [
    (average_precision_score, sklearn.metrics.average_precision_score),
    (roc_auc_score, sklearn.metrics.roc_auc_score),
]
any_score = st.integers(-3, 3).map(float) | st.floats(-1e300, 1e300) | st.floats(-1e-300, 1e-300)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@settings(max_examples=300)
@given(samples=st.lists(st.tuples(any_score, st.booleans()), min_size=2, max_size=60))
def test_equals_scikit_learn(ours, theirs, samples):
    scores, target = map(np.array, zip(*samples, strict=True))
    if target.any() and not target.all():
        assert ours(scores, target) == pytest.approx(theirs(target, scores), abs=1e-12)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("decimals", [1, 3, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_scikit_learn_on_many_samples(ours, theirs, decimals, dtype):
    rng = np.random.default_rng(decimals)
    target = rng.random(100_000) < 0.05
    scores = np.round(rng.standard_normal(100_000) + target, decimals).astype(dtype)
    assert ours(scores, target) == pytest.approx(theirs(target, scores), abs=1e-12)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_calling_forms(ours, theirs):
    rng = np.random.default_rng(0)
    scores, target = rng.standard_normal((40, 3)), rng.random((40, 3)) < 0.4
    columns = [theirs(target[:, k], scores[:, k]) for k in range(3)]
    assert ours(scores, target) == pytest.approx(np.mean(columns), abs=1e-12)
    np.testing.assert_allclose(ours(scores, target, reduction="none"), columns, atol=1e-12)
    np.testing.assert_allclose(ours(scores.T, target.T, dim=1, reduction="none"), columns, atol=1e-12)
    assert ours(scores, target, reduction="sum") == pytest.approx(np.sum(columns), abs=1e-12)
    weight = np.array([1.0, 0.0, 3.0])
    assert ours(scores, target, weight=weight) == pytest.approx(np.average(columns, weights=weight), abs=1e-12)
    groups = np.array([7, -2, 1000])[np.arange(120) % 3]
    assert ours(scores.reshape(-1), target.reshape(-1), groups=groups, reduction="none") == pytest.approx(
        [columns[1], columns[0], columns[2]], abs=1e-12
    )
    tensor = torch.tensor(scores[:, 0]).bfloat16()
    assert ours(tensor, torch.tensor(target[:, 0])) == pytest.approx(theirs(target[:, 0], tensor.float()), abs=1e-12)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_one_class_is_undefined(ours, theirs):
    assert math.isnan(ours([0.1, 0.2], [1, 1]))
    assert math.isnan(ours([], []))
    scores, target = np.array([[0.1, 0.5], [0.2, 0.4]]), np.array([[1, 1], [1, 0]])
    assert ours(scores, target) == 1.0
    np.testing.assert_array_equal(ours(scores, target, reduction="none"), [np.nan, 1.0])
    with pytest.raises(ValueError, match="ranking 0 has one class only"):
        ours(scores, target, on_one_class="raise")


def test_average_precision_with_missing_relevant_items():
    assert average_precision_score([3.0, 2.0, 1.0], [1, 0, 1], num_relevant=4) == pytest.approx((1 + 2 / 3) / 4)
    assert average_precision_score([3.0, 2.0], [0, 0], num_relevant=2) == 0.0
    assert average_precision_score([3.0, 2.0], [1, 1], num_relevant=4) == 0.5


def test_integer_scores_and_unknown_options():
    assert roc_auc_score([3, 2, 1], [1, 1, 0]) == 1.0
    with pytest.raises(TypeError, match="num_relevant"):
        roc_auc_score([3.0, 2.0], [1, 0], num_relevant=2)
    with pytest.raises(ValueError, match="reduction='max'"):
        roc_auc_score([3.0, 2.0], [1, 0], reduction="max")


def test_metrics_equal_one_minus_the_loss_of_their_task():
    """The enumeration tests hold the tasks' values to their definitions; the scores must be the same numbers."""
    rng = np.random.default_rng(1)
    scores, target = np.round(rng.standard_normal((60, 4)), 1), rng.random((60, 4)) < 0.3
    pairs = [
        (tl.NDCG(), metrics.ndcg_score(scores, target)),
        (tl.ROCAUC(), metrics.roc_auc_score(scores, target)),
        (tl.PartialAUC(max_fpr=0.3, min_fpr=0.1), metrics.partial_auc_score(scores, target, max_fpr=0.3, min_fpr=0.1)),
        (tl.RecallAtFPR(0.2), metrics.recall_at_fpr_score(scores, target, fpr=0.2)),
        (tl.ReciprocalRank(), metrics.reciprocal_rank_score(scores, target)),
        (tl.PrecisionAtRecall(0.5), metrics.precision_at_recall_score(scores, target, recall=0.5)),
        (tl.RecallAtPrecision(0.5), metrics.recall_at_precision_score(scores, target, precision=0.5)),
        (tl.PrecisionAtK(7), metrics.precision_at_k_score(scores, target, k=7)),
        (tl.RecallAtK(0.2), metrics.recall_at_k_score(scores, target, k=0.2)),
    ]
    for task, value in pairs:
        loss = tl.DirectLoss(task)(torch.tensor(scores), torch.tensor(target))
        assert loss.item() == pytest.approx(1 - value, abs=1e-12), task
        assert task.score(scores, target) == pytest.approx(value, abs=1e-12), task


@pytest.mark.parametrize("max_fpr", [0.05, 0.37, 1.0])
def test_standardized_partial_auc_equals_scikit_learn(max_fpr):
    rng = np.random.default_rng(2)
    for _ in range(50):
        scores, target = np.round(rng.standard_normal(40), 1), rng.random(40) < 0.4
        ours = metrics.partial_auc_score(scores, target, max_fpr=max_fpr, standardize=True)
        assert ours == pytest.approx(sklearn.metrics.roc_auc_score(target, scores, max_fpr=max_fpr), abs=1e-12)


def test_ndcg_equals_scikit_learn_on_many_samples():
    rng = np.random.default_rng(3)
    target = rng.random(5000) < 0.1
    scores = np.round(rng.standard_normal(5000) + target, 2)
    assert metrics.ndcg_score(scores, target) == pytest.approx(sklearn.metrics.ndcg_score([target], [scores]), abs=1e-12)


@pytest.mark.parametrize("at", [None, 1, 4, 30])
@pytest.mark.parametrize("gain", ["linear", "exponential"])
def test_graded_ndcg_equals_scikit_learn(gain, at):
    rng = np.random.default_rng(4)
    relevance = rng.integers(0, 4, (50, 12))
    relevance[0], relevance[1] = 2, 0
    scores = np.round(rng.standard_normal(relevance.shape), 1)
    gains = 2.0**relevance - 1 if gain == "exponential" else relevance
    expected = [sklearn.metrics.ndcg_score(gains[[k]], scores[[k]], k=at) for k in range(2, 50)]
    settings = {"gain": gain, "at": at}
    each = metrics.graded_ndcg_score(scores, relevance, dim=1, reduction="none", **settings)
    # Equal gains in all places: any order is ideal, so there is nothing to measure.
    assert np.isnan(each[:2]).all()
    np.testing.assert_allclose(each[2:], expected, atol=1e-12)
    assert metrics.graded_ndcg_score(scores, relevance, dim=1, **settings) == pytest.approx(np.mean(expected), abs=1e-12)
    assert metrics.graded_ndcg_score(scores, relevance, dim=1, reduction="sum", **settings) == pytest.approx(sum(expected))
    groups = np.repeat(np.arange(50)[::-1], 12)
    flat = metrics.graded_ndcg_score(scores.ravel(), relevance.ravel(), groups=groups, reduction="none", **settings)
    np.testing.assert_array_equal(flat[::-1], each)
    padded = np.c_[relevance, np.full(50, -1)], np.c_[scores, np.full(50, np.inf)]
    again = metrics.graded_ndcg_score(padded[1], padded[0], dim=1, ignore_index=-1, reduction="none", **settings)
    np.testing.assert_array_equal(again, each)
    loss = tl.DirectLoss(tl.GradedNDCG(**settings))(torch.tensor(scores.T), torch.tensor(relevance.T))
    assert loss.item() == pytest.approx(1 - np.mean(expected), abs=1e-12)


def test_graded_ndcg_takes_tensors_and_weights_and_refuses_what_makes_no_sense():
    scores, relevance = torch.tensor([[0.3, 0.2], [0.1, 0.9]]).bfloat16(), torch.tensor([[2, 0], [1, 1]])
    each = metrics.graded_ndcg_score(scores, relevance, reduction="none")
    assert metrics.graded_ndcg_score(scores, relevance, weight=[3.0, 1.0]) == pytest.approx((3 * each[0] + each[1]) / 4)
    assert metrics.graded_ndcg_score([1, 2], [1, 0], gain="linear", at=1) == 0.0
    with pytest.raises(ValueError, match="gain='log'"):
        metrics.graded_ndcg_score([0.1], [1], gain="log")
    with pytest.raises(ValueError, match="at must be"):
        metrics.graded_ndcg_score([0.1], [1], at=0)
    with pytest.raises(ValueError, match=r"target\[1\] is -1"):
        metrics.graded_ndcg_score([0.1, 0.2], [1, -1])
    with pytest.raises(ValueError, match="ranking 0 has one class only"):
        metrics.graded_ndcg_score([0.1, 0.2], [1, 1], on_one_class="raise")
    with pytest.raises(TypeError, match="num_relevant"):
        metrics.graded_ndcg_score([0.1, 0.2], [1, 0], num_relevant=3)
