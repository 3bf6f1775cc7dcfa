"""Exact metrics of confusion counts equal scikit-learn's; they are one minus the losses of their tasks."""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import taskloss as tl
from taskloss import metrics

PAIRS = {
    "accuracy": (metrics.accuracy_score, sklearn.metrics.accuracy_score),
    "balanced accuracy": (metrics.balanced_accuracy_score, sklearn.metrics.balanced_accuracy_score),
    "f1": (metrics.fbeta_score, functools.partial(sklearn.metrics.f1_score, zero_division=1.0)),
    "f2, 0/0 is 0": (
        functools.partial(metrics.fbeta_score, beta=2.0, zero_division=0.0),
        functools.partial(sklearn.metrics.fbeta_score, beta=2.0, zero_division=0.0),
    ),
    "jaccard": (metrics.jaccard_score, functools.partial(sklearn.metrics.jaccard_score, zero_division=1.0)),
    "mcc": (functools.partial(metrics.mcc_score, zero_division=0.0), sklearn.metrics.matthews_corrcoef),
}
every_pair = pytest.mark.parametrize(("ours", "theirs"), PAIRS.values(), ids=PAIRS)
any_score = st.integers(-2, 2).map(float) | st.floats(-1e300, 1e300) | st.floats(-1e-300, 1e-300)


@every_pair
@settings(max_examples=100)
@given(samples=st.lists(st.tuples(any_score, st.booleans()), min_size=1, max_size=30))
def test_equals_scikit_learn(ours, theirs, samples):
    scores, target = map(np.array, zip(*samples, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one class
        assert ours(scores, target) == pytest.approx(theirs(target, scores > 0), abs=1e-12)


@every_pair
def test_calling_forms(ours, theirs):
    rng = np.random.default_rng(0)
    scores, target = rng.standard_normal((40, 3)), rng.random((40, 3)) < 0.4
    columns = [theirs(target[:, k], scores[:, k] > 0) for k in range(3)]
    assert ours(scores, target) == pytest.approx(np.mean(columns), abs=1e-12)
    np.testing.assert_allclose(ours(scores, target, reduction="none"), columns, atol=1e-12)
    np.testing.assert_allclose(ours(scores.T, target.T, dim=1, reduction="none"), columns, atol=1e-12)
    np.testing.assert_allclose(ours(scores.reshape(8, 5, 3), target.reshape(8, 5, 3), dim=(0, 1), reduction="none"), columns)
    assert ours(scores, target, reduction="sum") == pytest.approx(np.sum(columns), abs=1e-12)
    weight = np.array([1.0, 0.0, 3.0])
    assert ours(scores, target, weight=weight) == pytest.approx(np.average(columns, weights=weight), abs=1e-12)
    groups = np.array([7, -2, 1000])[np.arange(120) % 3]
    by_group = ours(scores.reshape(-1), target.reshape(-1), groups=groups, reduction="none")
    assert by_group == pytest.approx([columns[1], columns[0], columns[2]], abs=1e-12)
    marked = np.where(np.arange(40) % 4 == 0, -1, target[:, 0])
    kept = marked >= 0
    assert ours(scores[:, 0], marked, ignore_index=-1) == pytest.approx(theirs(target[kept, 0], scores[kept, 0] > 0), abs=1e-12)
    tensor = torch.tensor(scores[:, 0]).bfloat16()
    assert ours(tensor, torch.tensor(target[:, 0])) == pytest.approx(
        theirs(target[:, 0], (tensor.float() > 0).numpy()), abs=1e-12
    )
    mask = np.arange(40) % 3
    rest = [theirs(mask == k, scores[:, k] > 0) for k in range(3)]
    np.testing.assert_allclose(ours(scores, mask, reduction="none"), rest, atol=1e-12)


def test_zero_division():
    nothing, alarm = ([-1.0, -2.0], [0, 0]), ([1.0, -2.0], [0, 0])
    for score in (metrics.fbeta_score, metrics.jaccard_score, metrics.mcc_score):
        assert score(*nothing) == 1.0
        assert score(*nothing, zero_division=0.25) == 0.25
        assert math.isnan(score(*nothing, zero_division=math.nan))
        assert score(*alarm) == 0.0
    assert metrics.g_mean_score(*nothing) == 1.0
    assert metrics.g_mean_score(*alarm) == pytest.approx(math.sqrt(0.5))
    both = np.array([[-1.0, 1.0], [-2.0, -2.0]]), np.array([[0, 0], [0, 1]])
    assert metrics.jaccard_score(*both) == 0.5
    assert metrics.jaccard_score(*both, zero_division=math.nan) == 0.0
    with pytest.raises(ValueError, match="zero_division must be between 0 and 1, got 2"):
        metrics.jaccard_score(*nothing, zero_division=2)
    with pytest.raises(TypeError, match="zero_division must be a number"):
        metrics.jaccard_score(*nothing, zero_division="warn")


def test_labelings_without_samples_are_left_out():
    assert math.isnan(metrics.accuracy_score([], []))
    scores, target = np.ones((2, 3)), np.array([[1, 1, -1], [0, 1, -1]])
    np.testing.assert_array_equal(metrics.accuracy_score(scores, target, ignore_index=-1, reduction="none"), [0.5, 1.0, np.nan])
    assert metrics.accuracy_score(scores, target, ignore_index=-1) == 0.75


def test_metrics_equal_one_minus_the_loss_of_their_task():
    rng = np.random.default_rng(1)
    scores, target = np.round(rng.standard_normal((30, 6)), 1), rng.random((30, 6)) < 0.3
    target[:, 0] = False
    pairs = [
        (tl.ZeroOne(), metrics.accuracy_score(scores, target)),
        (tl.BalancedError(), metrics.balanced_accuracy_score(scores, target)),
        (tl.FScore(0.7), metrics.fbeta_score(scores, target, beta=0.7)),
        (tl.Dice(), metrics.fbeta_score(scores, target)),
        (tl.Jaccard(zero_division=0.5), metrics.jaccard_score(scores, target, zero_division=0.5)),
        (tl.GMean(), metrics.g_mean_score(scores, target)),
        (tl.MCC(), (1 + metrics.mcc_score(scores, target)) / 2),
    ]
    for task, value in pairs:
        assert tl.DirectLoss(task)(torch.tensor(scores), torch.tensor(target)).item() == pytest.approx(1 - value, abs=1e-12), task


@pytest.mark.parametrize("shape", [(40,), (3, 8, 9), (2, 3, 4, 5)])
def test_mean_iou_equals_scikit_learn_of_the_predicted_classes(shape):
    rng = np.random.default_rng(2)
    mask = rng.integers(0, 4, shape)
    scores = rng.standard_normal((shape[0], 5, *shape[1:])) + 2 * (
        np.arange(5).reshape(1, 5, *(1,) * (len(shape) - 1)) == mask[:, None]
    )
    predicted = scores.argmax(1)
    expected = sklearn.metrics.jaccard_score(mask.ravel(), predicted.ravel(), labels=range(5), average=None, zero_division=0.0)
    np.testing.assert_allclose(metrics.mean_iou_score(scores, mask, reduction="none", zero_division=0.0), expected, atol=1e-12)
    there = np.isin(np.arange(5), np.concatenate([mask.ravel(), predicted.ravel()]))
    assert metrics.mean_iou_score(scores, mask) == pytest.approx(expected[there].mean(), abs=1e-12)
    ignored = rng.random(shape) < 0.2
    kept = sklearn.metrics.jaccard_score(mask[~ignored], predicted[~ignored], labels=range(5), average=None, zero_division=0.0)
    scores[np.broadcast_to(ignored[:, None], scores.shape)] = np.nan
    marked = np.where(ignored, 255, mask)
    given = metrics.mean_iou_score(scores, marked, ignore_index=255, reduction="none", zero_division=0.0)
    np.testing.assert_allclose(given, kept, atol=1e-12)
    with pytest.raises(ValueError, match="finite"):
        metrics.mean_iou_score(scores, mask)
    if len(shape) > 1:
        axes = tuple(range(2, len(shape) + 1))
        assert metrics.mean_iou_score(scores, marked, ignore_index=255, dim=axes, reduction="none").shape == (shape[0], 5)


def test_mean_iou_wants_classes():
    with pytest.raises(ValueError, match=r"\(3, 1\).*one score per class along axis 1.*jaccard_score"):
        metrics.mean_iou_score(np.zeros((3, 1)), np.zeros((3, 1)))
