"""The number of samples that a step sees: enough to resemble the data, and no more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import taskloss as tl
from taskloss.estimators import TaskLossClassifier, TaskLossRanker
from taskloss.estimators.batch_size import LARGE_BATCH, SMALL_BATCH, choose_batch_size


class Recorder(nn.Module):
    """A linear network that notes the number of samples of each training step."""

    def __init__(self, columns: int, outputs: int, sizes: list[int]) -> None:
        super().__init__()
        self.layer = nn.Linear(columns, outputs)
        self.sizes = sizes

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.sizes.append(len(features))
        return self.layer(features)


def size_of_steps(estimator: type, rows: int, share: float, **settings) -> int:
    """Return the largest number of samples in a step of a fit."""
    rng = np.random.default_rng(0)
    target = (np.arange(rows) < share * rows).astype(np.int64)
    sizes: list[int] = []
    options = {"groups": np.arange(rows) // 20} if estimator is TaskLossRanker else {}
    target = rng.permutation(target)

    def module(columns: int, outputs: int) -> Recorder:
        return Recorder(columns, outputs, sizes)

    estimator(module=module, members=1, max_iter=3, random_state=0, **settings).fit(rng.normal(size=(rows, 2)), target, **options)
    return max(sizes)


def test_steps_of_a_large_table_see_batches():
    size = size_of_steps(TaskLossClassifier, 25_000, 0.1)
    assert size == 20_000 / 5, "four fifths of the rows, in batches of at most 4,096"
    size = size_of_steps(TaskLossClassifier, 25_000, 0.01)
    assert size == 20_000, "where positives are rare, a batch would hold too few"
    size = size_of_steps(TaskLossClassifier, 20_000, 0.1)
    assert size == 16_000, "a table that is not large"
    size = size_of_steps(TaskLossClassifier, 25_000, 0.1, batch_size=5_000)
    assert size == 5_000
    size = size_of_steps(TaskLossRanker, 25_000, 0.1)
    assert size == 20_000


@pytest.mark.parametrize("task", [tl.RecallAtFPR(0.01), tl.PrecisionAtK(50), tl.PrecisionAtRecall(0.9), tl.NDCG(at=10)])
def test_metrics_of_the_top_of_a_list_get_large_batches(task):
    assert choose_batch_size(task, torch.arange(100_000) % 2, queries=False) == LARGE_BATCH


def test_the_rarest_class_or_label_decides():
    classes = torch.tensor([0] * 50_000 + [1] * 40_000 + [2] * 2_000)
    assert choose_batch_size(tl.MultiClass(), classes, queries=False) == 200 * 92_000 // 2_000
    labels = torch.stack([torch.arange(90_000) % 3 == 0, torch.arange(90_000) % 30 == 0], 1).long()
    assert choose_batch_size(tl.FScore(), labels, queries=False) == 6_000
    assert choose_batch_size(tl.FScore(), labels[:, :1], queries=False) == SMALL_BATCH
    assert choose_batch_size(tl.FScore(), torch.zeros(100_000, 2), queries=False) == LARGE_BATCH
