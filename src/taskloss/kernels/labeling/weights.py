"""Weights ``v`` of the samples in the joint score of a labeling; all arguments and results have shape ``(R,)``.

They give epsilon its meaning: flipping one sample changes the loss by about its weight.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel


@kernel
def per_sample(positives, negatives):
    """Return ``1/n`` for each of n samples."""
    weights = np.empty(len(positives), np.float64)
    for r in range(len(weights)):
        weights[r] = 1.0 / max(positives[r] + negatives[r], 1)
    return weights


@kernel
def per_positive(positives, negatives):
    """Return ``1/P``; for a labeling without positives ``1/n``."""
    weights = np.empty(len(positives), np.float64)
    for r in range(len(weights)):
        weights[r] = 1.0 / (positives[r] if positives[r] > 0 else max(negatives[r], 1))
    return weights


@kernel
def per_class(positives, negatives, share_alone):
    """Return ``1/(2 P)`` for positives and ``1/(2 N)`` for negatives; ``share_alone / P`` or ``/ N`` where a class is missing."""
    positive_weights, negative_weights = np.empty(len(positives), np.float64), np.empty(len(positives), np.float64)
    for r in range(len(positives)):
        share = 0.5 if positives[r] > 0 and negatives[r] > 0 else share_alone
        positive_weights[r] = share / max(positives[r], 1)
        negative_weights[r] = share / max(negatives[r], 1)
    return positive_weights, negative_weights


@kernel
def per_pair(positives, negatives):
    """Return ``n/(4 P N)``; where a class is missing ``1/n``."""
    weights = np.empty(len(positives), np.float64)
    for r in range(len(weights)):
        size, pairs = max(positives[r] + negatives[r], 1), positives[r] * negatives[r]
        weights[r] = size / (4.0 * pairs) if pairs > 0 else 1.0 / size
    return weights
