"""Enumeration of all labelings: joint score, metrics and the tie rule, evaluated on every element of ``{0, 1}^n``.

Independent of the library: no flips, no thresholds, no sorting. Where a metric has another definition than the library's (by
sets, rates or correlations), that one is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np

Metric = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``(answers, truth) -> values``, one value per answer; answers of shape (k, n), truth of shape (n,), bool."""


@functools.cache
def all_labelings(n: int) -> np.ndarray:
    """Return all labelings of n samples, bool, shape (2^n, n)."""
    return (np.arange(2**n)[:, None] >> np.arange(n)) % 2 == 1


def _divide(numerator: np.ndarray, denominator: np.ndarray, otherwise: float) -> np.ndarray:
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    return np.divide(numerator, denominator, out=np.full(numerator.shape, otherwise), where=denominator != 0)


def accuracy(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return (answers == truth).mean(axis=1)


def balanced_accuracy(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    rates = [(answers == truth)[:, truth == label].mean(axis=1) for label in np.unique(truth)]
    return np.mean(rates, axis=0)


def f_score(beta: float, zero_division: float = 1.0) -> Metric:
    def value(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
        hits = (answers & truth).sum(axis=1)
        precision, recall = _divide(hits, answers.sum(axis=1), 0.0), _divide(hits, truth.sum(), 0.0)
        mean = _divide((1 + beta**2) * precision * recall, beta**2 * precision + recall, 0.0)
        return np.where((answers | truth).any(axis=1), mean, zero_division)

    return value


def jaccard(zero_division: float = 1.0) -> Metric:
    return lambda answers, truth: _divide((answers & truth).sum(axis=1), (answers | truth).sum(axis=1), zero_division)


def g_mean(zero_division: float = 1.0) -> Metric:
    def value(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
        sensitivity = _divide((answers & truth).sum(axis=1), truth.sum(), zero_division)
        specificity = _divide((~answers & ~truth).sum(axis=1), (~truth).sum(), zero_division)
        return np.sqrt(sensitivity) * np.sqrt(specificity)

    return value


def half_correlation(zero_division: float = 1.0) -> Metric:
    """Return ``(1 + MCC)/2`` as a metric, with MCC as Pearson's correlation of two 0/1 vectors."""

    def value(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
        x, y = answers - answers.mean(axis=1, keepdims=True), truth - truth.mean()
        spread = np.sqrt((x**2).sum(axis=1) * (y**2).sum())
        correlation = np.where(spread > 1e-9, _divide(x @ y, spread, 0.0), 0.0)
        if truth.all() or not truth.any():
            correlation = np.where((answers == truth).all(axis=1), zero_division, 0.0)
        return (1 + correlation) / 2

    return value


@dataclass(frozen=True)
class Optimum:
    """The set of maximizers of ``F + weight * L``."""

    value: float
    labels: np.ndarray
    """All maximizers, shape (k, n), bool."""
    accidental: bool
    """Whether the maximizers differ in loss, so that F and L balance by chance: rounding decides such a tie."""


def maximize(scores: np.ndarray, weights: np.ndarray, weight: float = 0.0, metric: np.ndarray | float = 0.0) -> Optimum:
    """Maximize ``sum v s y + weight * (1 - metric)`` over all labelings; a difference within rounding is a tie."""
    answers = all_labelings(len(scores))
    objective = answers @ (weights * scores) + weight * (1.0 - metric)
    best = objective.max()
    tied = objective >= best - 1e-12 * max(1.0, np.abs(weights * scores).sum(), abs(weight))
    accidental = weight != 0 and bool(np.ptp(np.broadcast_to(metric, tied.shape)[tied]) > 1e-12)
    return Optimum(float(best), answers[tied], accidental)


def tie_rule_labels(optimum: Optimum, scores: np.ndarray, truth: np.ndarray, sign: int) -> np.ndarray | None:
    """Return the mean labels by the tie rule, or None where the rule does not single out one answer.

    The rule takes the fewest flips of samples away from zero; of the samples at zero it takes the mean of the least and the
    greatest number of flips toward a worse (``sign > 0``) or a better answer, negatives before positives; then it averages over
    samples of equal label and score.
    """
    zero = scores == 0
    changes = ((optimum.labels != (scores > 0)) & ~zero).sum(axis=1)
    nearest = optimum.labels[changes == changes.min()].astype(float)
    alike = [(scores == scores[k]) & (truth == truth[k]) for k in range(len(scores))]
    means = np.stack([nearest[:, same].mean(axis=1) for same in alike], axis=1)
    if np.ptp(means[:, ~zero], axis=0).max(initial=0.0) > 0:
        return None
    toward = nearest != truth if sign > 0 else nearest == truth
    moved = [(toward[:, zero & (truth == label)]).sum(axis=1) for label in (False, True)]
    order = np.lexsort((moved[1], moved[0]))
    return (means[order[0]] + means[order[-1]]) / 2


@numba.njit(cache=True)
def exhaustive_table(s, t, weight, jaccard):
    """Return ``(value, a, b)`` of ``argmax F - weight * M`` over all pairs of counts, with M the F1-score or the Jaccard index.

    ``s`` and ``t``, the scores of positives and negatives, are descending; F has the weight 1/P for each sample.
    """
    positives, negatives = len(s), len(t)
    best, best_a, best_b = -np.inf, 0, 0
    positive_sum = 0.0
    for a in range(positives + 1):
        if a > 0:
            positive_sum += s[a - 1] / positives
        total = positive_sum
        for b in range(negatives + 1):
            if b > 0:
                total += t[b - 1] / positives
            metric = a / (positives + b) if jaccard else 2.0 * a / (positives + a + b)
            if total - weight * metric > best:
                best, best_a, best_b = total - weight * metric, a, b
    return best, best_a, best_b
