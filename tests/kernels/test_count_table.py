"""The table of all pairs of confusion counts: its result does not depend on blocks or threads."""

from __future__ import annotations

import warnings

import numba
import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.kernels.labeling import count_table
from taskloss.labelings import read_labelings
from taskloss.tasks import large_tables


def gradients(task: tl.Task, scores: np.ndarray, target: np.ndarray) -> list[torch.Tensor]:
    result = []
    for update in ("positive", "negative"):
        leaf = torch.tensor(scores, requires_grad=True)
        tl.DirectLoss(task, update=update)(leaf, torch.tensor(target)).backward()
        result.append(leaf.grad)
    return result


@pytest.mark.parametrize(("weight", "counts"), [(3.0, (0, 1)), (-0.5, (1, 1)), (-2.0, (2, 1)), (-3.0, (2, 0))])
def test_four_items_by_hand(weight, counts):
    """The F1-score of the four items of ``test_flips.py``, as a function."""
    task = tl.ConfusionMetric(lambda tp, fp, fn, tn: 2 * tp / (2 * tp + fp + fn))
    _, labelings = read_labelings(np.array([2.0, -1.0, 1.0, -3.0]), np.array([True, True, False, False]))
    answer = task.augment(labelings, task.sample_weights(labelings), weight)
    assert (answer.true_positives[0], answer.false_positives[0]) == counts


def plateau(tp, fp, fn, tn):
    """Return a metric with plateaus, on which many cells are equally good."""
    return np.floor(4 * tp / (tp + fn)) / 4 - np.floor(3 * fp / (fp + tn)) / 3


@pytest.mark.parametrize("kind", ["continuous", "ties", "zeros"])
def test_the_result_does_not_depend_on_blocks_or_threads(kind, monkeypatch):
    rng = np.random.default_rng(0)
    target = rng.random(120) < 0.4
    scores = {"continuous": rng.standard_normal(120), "ties": rng.integers(-3, 4, 120) / 4.0, "zeros": np.zeros(120)}[kind]
    task = tl.ConfusionMetric(plateau)
    in_one_block = gradients(task, scores, target)
    assert any(gradient.any() for gradient in in_one_block)
    for cells in (1, 500, 2000):
        monkeypatch.setattr(count_table, "BLOCK_CELLS", cells)
        for threads in (1, 3):
            monkeypatch.setattr(count_table.os, "cpu_count", lambda threads=threads: threads)
            for given, expected in zip(gradients(task, scores, target), in_one_block, strict=True):
                assert torch.equal(given, expected)


def test_memory_does_not_grow_with_the_table():
    largest = 0

    def metric(tp, fp, fn, tn):
        nonlocal largest
        largest = max(largest, tp.size)
        return tp / (tp + fp + fn)

    scores, target = np.random.default_rng(1).standard_normal(4000), np.arange(4000) % 4 == 0
    gradients(tl.ConfusionMetric(metric), scores, target)
    assert largest <= count_table.BLOCK_CELLS < 1000 * 3000


def test_a_table_that_is_too_large_says_so(monkeypatch):
    monkeypatch.setattr(count_table, "CELL_LIMIT", 1000)
    scores, target = torch.zeros(101, requires_grad=True), torch.arange(101) < 20
    message = r"1,722 in all.*20 positives and 81 negatives.*limit is 1,000.*FScore, Jaccard.*groups="
    with pytest.raises(ValueError, match=message):
        tl.DirectLoss(tl.ConfusionMetric(plateau))(scores, target)
    assert tl.DirectLoss(tl.ConfusionMetric(plateau))(scores.detach(), target).item() == 1.0


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda tp, fp, fn, tn: [1, 2, 3], r"one number for each element.*got list of shape \(3,\)"),
        (lambda tp, fp, fn, tn: "high", "one number for each element.*got str"),
        (lambda tp, fp, fn, tn: tp / 0.0, "infinite"),
    ],
)
def test_a_metric_that_returns_nonsense(fn, message):
    with pytest.raises(ValueError, match=message):
        tl.DirectLoss(tl.ConfusionMetric(fn))(torch.randn(30).abs(), torch.arange(30) % 2 == 0)


def half_specific(tp, fp, fn, tn):
    """NaN without negatives, a jump at half the positives."""
    return (1.0 if 2 * tp >= tp + fn else 0.5) * tn / (tn + fp)


@pytest.mark.parametrize("update", ["positive", "negative", "central"])
def test_a_compiled_function_gives_the_same(update):
    def vectorized(tp, fp, fn, tn):
        return np.where(2 * tp >= tp + fn, 1.0, 0.5) * tn / (tn + fp)

    generator = torch.Generator().manual_seed(0)
    scores, target = torch.randn(400, 3, generator=generator).double(), torch.rand(400, 3, generator=generator) < 0.3
    target[:, 2] = True  # No negatives: 0/0.
    results = []
    for fn in (vectorized, numba.njit(half_specific)):
        leaf = scores.clone().requires_grad_()
        value = tl.DirectLoss(tl.ConfusionMetric(fn, weighting="classes"), update=update)(leaf, target)
        value.backward()
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(*results)


def test_a_compiled_function_must_be_finite():
    task = tl.ConfusionMetric(numba.njit(lambda tp, fp, fn, tn: tp / 0.0))
    with pytest.raises(ValueError, match="infinite"):
        tl.DirectLoss(task)(torch.randn(30).requires_grad_(), torch.arange(30) % 2 == 0)


def test_a_large_table_of_a_plain_function_is_announced_once(monkeypatch):
    monkeypatch.setattr(large_tables, "SLOW_CELLS", 100)
    scores, target = torch.randn(40, requires_grad=True), torch.arange(40) % 4 == 0
    criterion = tl.DirectLoss(tl.ConfusionMetric(lambda tp, fp, fn, tn: tp / (tp + fn + fp + 1)), update="positive")
    with pytest.warns(UserWarning, match=r"ConfusionMetric asks your numpy function for 341 values in every step.*numba.njit"):
        criterion(scores, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        criterion(scores, target)
