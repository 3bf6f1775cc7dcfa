"""Batch samplers for ``torch.utils.data.DataLoader``: batches that hold enough positives, and batches of whole queries.

The metric of a batch is not the metric of the data. Where all the samples do not fit into a step, a batch should resemble the
whole: every target value has its share of each batch, no query is split, and no batch is without positives, whose ranking would
be undefined.

An epoch is a function of the seed and its number alone, the same on all ranks. It is divided into batches whose sizes differ by
at most one wherever that is possible, so there is no short batch at its end. With several ranks, the batches are dealt out in
turn: step s trains on batches ``s * num_replicas`` to ``(s + 1) * num_replicas - 1``, one per rank, and every rank has equally
many. ``batch_size`` and ``min_positives`` are those of one rank.

``division`` makes the batches of an epoch, also for the training loop; ``batch_samplers`` holds the public classes. This package
may import ``_checks``, ``_warn`` and ``layout``.
"""

from taskloss.samplers.batch_samplers import QueryBatchSampler, StratifiedBatchSampler

__all__ = ["QueryBatchSampler", "StratifiedBatchSampler"]
