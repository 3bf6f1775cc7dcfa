"""The number of samples that a training step sees, where the data decide it.

A step needs enough samples for the metric of a batch to resemble that of the data; beyond that, more samples per step cost time
and give nothing. ``benchmarks/batch_size.py`` compares this rule with larger batches.
"""

from __future__ import annotations

from torch import Tensor

from taskloss import tasks
from taskloss.tasks.labeling import LabelingTask
from taskloss.training import TrainingSettings

FULL_BATCH = 20_000
"""Up to this many samples in all, each step sees all of its network's."""
SMALL_BATCH, LARGE_BATCH = 4_096, TrainingSettings.batch_size
RAREST_PER_BATCH = 200
"""Samples of the rarest class that a batch should hold."""

WHOLE_LIST = (tasks.AveragePrecision, tasks.ROCAUC, LabelingTask, tasks.MultiClass, tasks.TopKError)
"""Metrics of all samples. Others judge the top of a list, of which a batch has less than the data, so they get large batches."""


def choose_batch_size(task: tasks.Task, target: Tensor, *, queries: bool) -> int:
    """Return the largest number of samples of a step, for all these training samples together.

    >>> import torch
    >>> for share in (10, 40, 1000):                                                 # positives: 10%, 2.5%, 0.1%
    ...     target = (torch.arange(100_000) % share == 0).long()
    ...     print(choose_batch_size(tasks.AveragePrecision(), target, queries=False))
    4096
    8000
    32768
    """
    if queries or not isinstance(task, WHOLE_LIST) or len(target) <= FULL_BATCH:
        return LARGE_BATCH
    needed = -(-RAREST_PER_BATCH * len(target) // max(_rarest(target), 1))
    return min(max(SMALL_BATCH, needed), LARGE_BATCH)


def _rarest(target: Tensor) -> int:
    """Return the number of samples of the rarest class, or of the rarest value of a label."""
    if target.ndim == 1:
        return int(target.unique(return_counts=True)[1].min())
    positives = (target > 0).sum(0)
    return int(positives.minimum(len(target) - positives).min())
