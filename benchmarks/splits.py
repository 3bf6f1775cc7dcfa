"""The split of a table that the benchmarks share: the same for every method of a seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor, nn

from taskloss.training import TrainingData

TEST_FRACTION = 0.4
VALIDATION_FRACTION = 0.3
"""Of the samples that are not for the test."""


class Split(NamedTuple):
    """The samples of one seed, ready for a network."""

    training: TrainingData
    validation: TrainingData
    test: TrainingData


def split_samples(features: np.ndarray, target: np.ndarray, seed: int) -> Split:
    """A random split with the same share of each class everywhere.

    Features become normal by their quantiles, whatever their units and tails; the quantiles are those of the training samples.
    """
    seen, test, seen_target, test_target = train_test_split(
        features, target, test_size=TEST_FRACTION, stratify=target, random_state=seed
    )
    training, validation, training_target, validation_target = train_test_split(
        seen, seen_target, test_size=VALIDATION_FRACTION, stratify=seen_target, random_state=seed
    )
    quantiles = QuantileTransformer(n_quantiles=min(1000, len(training)), output_distribution="normal", random_state=seed)
    quantiles.fit(training)

    def prepare(raw: np.ndarray, labels: np.ndarray) -> TrainingData:
        return TrainingData(torch.as_tensor(quantiles.transform(raw), dtype=torch.float32), torch.as_tensor(labels))

    return Split(prepare(training, training_target), prepare(validation, validation_target), prepare(test, test_target))


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """The loss that everybody starts from; scores are logits."""
    return nn.functional.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))
