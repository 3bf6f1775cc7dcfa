"""The split of a table that the benchmarks share: one per seed, the same for every method."""

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
"""Share of the samples that are not in the test set."""


class Split(NamedTuple):
    """The samples of one seed, ready for a network."""

    training: TrainingData
    validation: TrainingData
    test: TrainingData


def split_samples(features: np.ndarray, target: np.ndarray, seed: int) -> Split:
    """Split at random, with the same share of each class in every part.

    The quantiles of the training samples map each feature to a normal distribution, whatever its units and tails.
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
    """Return the usual binary cross-entropy; scores are logits."""
    return nn.functional.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))
