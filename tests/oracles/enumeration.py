"""Enumeration of all rankings: the paper's pairwise definitions, evaluated on every permutation.

Independent of the library: no counts, no interleavings, no sorting of the scores. An answer is a permutation; its pairwise
signs ``y_ij`` (1 when positive i is ranked above negative j, else -1), joint score and feature follow the paper word for word.
The metrics of a permutation are in :mod:`tests.oracles.ranked_metrics`.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Answers:
    """Every ranking of samples with these labels, samples in the order of the labels.

    Permutations that agree on all pairs of a positive and a negative are one answer: they have the same joint score,
    feature and labels from top to bottom.
    """

    orders: np.ndarray
    """All permutations: ``orders[p, rank]`` is a sample, ranks from 0, shape (permutations, samples)."""
    signs: np.ndarray
    """``y_ij``, shape (answers, positives, negatives)."""
    ranked_labels: np.ndarray
    """Labels of each ranking from top to bottom, shape (answers, samples)."""
    feature: np.ndarray
    """``psi``, shape (answers, samples)."""


@functools.cache
def all_rankings(labels: tuple[int, ...]) -> Answers:
    n = len(labels)
    positives = [k for k in range(n) if labels[k] == 1]
    negatives = [k for k in range(n) if labels[k] == 0]
    orders = np.array(list(itertools.permutations(range(n))))
    rank = np.argsort(orders, axis=1)  # rank[p, sample]
    signs = np.where(rank[:, positives, None] < rank[:, None, negatives], 1, -1)
    _, first = np.unique(signs.reshape(len(orders), -1), axis=0, return_index=True)
    signs = signs[first]
    feature = np.zeros((len(first), n))
    pairs = len(positives) * len(negatives)
    feature[:, positives] = signs.sum(axis=2) / pairs
    feature[:, negatives] = -signs.sum(axis=1) / pairs
    return Answers(orders, signs, np.array(labels)[orders[first]], feature)


@dataclass(frozen=True)
class Optimum:
    """The set of maximizers of ``F + weight * L``."""

    value: float
    features: np.ndarray
    """Features of all maximizers, shape (k, samples)."""
    negatives_above: np.ndarray
    """The number of pairs that each of them has in the wrong order, shape (k,)."""
    accidental: bool = False
    """Whether the maximizers differ in loss, so that F and L balance by chance: rounding decides such a tie."""


def maximize(scores: np.ndarray, labels: tuple[int, ...], weight: float = 0.0, metric: np.ndarray | float = 0.0) -> Optimum:
    """Maximize ``F + weight * (1 - metric)`` over all rankings, ``metric`` of shape (answers,); differences of 1e-11 are ties."""
    answers = all_rankings(labels)
    objective = answers.feature @ scores + weight * (1.0 - metric)
    best = objective.max()
    tied = objective >= best - 1e-11 * max(1.0, np.abs(scores).max(), abs(weight))
    wrong = (answers.signs[tied] == -1).sum(axis=(1, 2))
    accidental = weight != 0 and bool(np.ptp(np.broadcast_to(metric, tied.shape)[tied]) > 1e-12)
    return Optimum(float(best), answers.feature[tied], wrong, accidental)


def tie_rule_feature(optimum: Optimum, scores: np.ndarray, labels: tuple[int, ...]) -> np.ndarray:
    """Return the mean of the least and the greatest maximizer, averaged over samples of equal label and equal score."""
    least = optimum.features[optimum.negatives_above.argmin()]
    greatest = optimum.features[optimum.negatives_above.argmax()]
    feature = (least + greatest) / 2
    alike = (scores[:, None] == scores) & (np.array(labels)[:, None] == labels)
    return alike @ feature / alike.sum(axis=1)


def truth_feature(labels: tuple[int, ...]) -> np.ndarray:
    """Return the feature of the ranking with every positive above every negative."""
    answers = all_rankings(labels)
    return answers.feature[(answers.signs == 1).all(axis=(1, 2)).argmax()]


def labels_by_score(scores: np.ndarray, labels: tuple[int, ...]) -> np.ndarray:
    """Return the labels from top to bottom of every permutation by descending score: all orders of tied samples, each once."""
    orders = all_rankings(labels).orders
    return np.array(labels)[orders[(np.diff(scores[orders], axis=1) <= 0).all(axis=1)]]
