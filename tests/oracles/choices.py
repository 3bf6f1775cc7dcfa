"""Enumeration of all answers of a small batch of class scores.

Independent of the library: an answer gives every sample a set of k classes; its feature, joint score and loss are means over the
samples, written from the definitions. There are no keys or thresholds, and samples are not solved one by one.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from tests.oracles.linear import Answers


@functools.cache
def all_choices(samples: int, classes: int, k: int) -> np.ndarray:
    """Return indicators of every way to give each sample k classes, shape (answers, samples, classes)."""
    sets = list(itertools.combinations(range(classes), k))
    result = np.zeros((len(sets) ** samples, samples, classes))
    for answer, combination in enumerate(itertools.product(sets, repeat=samples)):
        for sample, chosen in enumerate(combination):
            result[answer, sample, list(chosen)] = 1.0
    return result


def choice_answers(scores: np.ndarray, target: np.ndarray, k: int, cost: np.ndarray | None) -> Answers:
    """Return features and losses of all answers: with a cost matrix (k = 1) the mean cost, else the share of missed targets."""
    samples, classes = scores.shape
    chosen = all_choices(samples, classes, k)
    if cost is None:
        losses = np.mean([1.0 - chosen[:, i, target[i]] for i in range(samples)], axis=0)
    else:
        losses = np.mean([chosen[:, i] @ cost[target[i]] for i in range(samples)], axis=0)
    correct = np.all([chosen[:, i, target[i]] == 1 for i in range(samples)], axis=0)
    return Answers(chosen.reshape(len(chosen), -1) / samples, losses, correct)
