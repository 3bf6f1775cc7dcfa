"""The table of all pairs of counts: the same whatever its blocks and threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.kernels.labeling import count_table


def gradients(task: tl.Task, scores: np.ndarray, target: np.ndarray) -> list[torch.Tensor]:
    result = []
    for update in ("positive", "negative"):
        leaf = torch.tensor(scores, requires_grad=True)
        tl.DirectLoss(task, update=update)(leaf, torch.tensor(target)).backward()
        result.append(leaf.grad)
    return result


def plateau(tp, fp, fn, tn):
    """Flat in places, so that many cells are equally good."""
    return np.floor(4 * tp / (tp + fn)) / 4 - np.floor(3 * fp / (fp + tn)) / 3


@pytest.mark.parametrize("kind", ["continuous", "ties", "zeros"])
def test_blocks_and_threads_do_not_show(kind, monkeypatch):
    rng = np.random.default_rng(0)
    target = rng.random(120) < 0.4
    scores = {"continuous": rng.standard_normal(120), "ties": rng.integers(-3, 4, 120) / 4.0, "zeros": np.zeros(120)}[kind]
    task = tl.ConfusionMetric(plateau)
    whole = gradients(task, scores, target)
    assert any(gradient.any() for gradient in whole)
    for cells in (1, 500, 2000):
        monkeypatch.setattr(count_table, "BLOCK_CELLS", cells)
        for threads in (1, 3):
            monkeypatch.setattr(count_table.os, "cpu_count", lambda threads=threads: threads)
            for given, expected in zip(gradients(task, scores, target), whole, strict=True):
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
