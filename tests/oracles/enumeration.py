"""All rankings, one by one: the paper's pairwise definitions, evaluated on every permutation.

Independent of the library: no counts, no interleavings, no sorting of the scores. An answer is a permutation; its pairwise signs
``y_ij`` (1 when positive i stands above negative j, else -1), joint score, loss and feature follow the paper word for word.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Answers:
    """Every ranking of one label pattern; the samples are in the order of the labels."""

    signs: np.ndarray
    """``y_ij``, shape (answers, positives, negatives)."""
    average_precision: np.ndarray
    """Shape (answers,)."""
    feature: np.ndarray
    """``psi``, shape (answers, samples)."""


@functools.cache
def all_rankings(labels: tuple[int, ...]) -> Answers:
    n = len(labels)
    positives = [k for k in range(n) if labels[k] == 1]
    negatives = [k for k in range(n) if labels[k] == 0]
    orders = np.array(list(itertools.permutations(range(n))))  # orders[a, place] = sample
    place = np.argsort(orders, axis=1)  # place[a, sample]
    signs = np.where(place[:, positives, None] < place[:, None, negatives], 1, -1)
    ranked_labels = np.array(labels)[orders]
    precision = np.cumsum(ranked_labels, axis=1) / np.arange(1, n + 1)
    average_precision = (precision * ranked_labels).sum(axis=1) / len(positives)
    feature = np.zeros((len(orders), n))
    pairs = len(positives) * len(negatives)
    feature[:, positives] = signs.sum(axis=2) / pairs
    feature[:, negatives] = -signs.sum(axis=1) / pairs
    return Answers(signs, average_precision, feature)


@dataclass(frozen=True)
class Optimum:
    """The set of maximizers of ``F + weight * L``."""

    value: float
    features: np.ndarray
    """Features of all the maximizers, without repetition, shape (k, samples)."""
    negatives_above: np.ndarray
    """How many (positive, negative) pairs each of them has in the wrong order, shape (k,)."""
    accidental: bool = False
    """The maximizers differ in loss, so F and L happen to balance: in floating point the last bit decides such a tie."""


def maximize(scores: np.ndarray, labels: tuple[int, ...], weight: float, missing: int = 0) -> Optimum:
    """Maximize over all permutations; answers within 1e-11 of the best are tied. ``missing`` relevant items are in no list."""
    answers = all_rankings(labels)
    share = sum(labels) / (sum(labels) + missing)
    objective = answers.feature @ scores + weight * (1.0 - share * answers.average_precision)
    best = objective.max()
    tied = objective >= best - 1e-11 * max(1.0, np.abs(scores).max(), abs(weight))
    features, first = np.unique(answers.feature[tied], axis=0, return_index=True)
    wrong = (answers.signs[tied][first] == -1).sum(axis=(1, 2))
    return Optimum(float(best), features, wrong, weight != 0 and bool(np.ptp(answers.average_precision[tied]) > 1e-12))


def tie_rule_feature(optimum: Optimum, scores: np.ndarray, labels: tuple[int, ...]) -> np.ndarray:
    """Mean of the least and the greatest maximizer, then over samples of equal label and equal score."""
    least = optimum.features[optimum.negatives_above.argmin()]
    greatest = optimum.features[optimum.negatives_above.argmax()]
    feature = (least + greatest) / 2
    result = np.empty_like(feature)
    for k in range(len(scores)):
        alike = [j for j in range(len(scores)) if scores[j] == scores[k] and labels[j] == labels[k]]
        result[k] = feature[alike].mean()
    return result


def truth_feature(labels: tuple[int, ...]) -> np.ndarray:
    """Every positive above every negative."""
    answers = all_rankings(labels)
    return answers.feature[(answers.signs == 1).all(axis=(1, 2)).argmax()]
