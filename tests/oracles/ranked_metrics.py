"""Metrics straight from their definitions: of lists of labels from top to bottom, and of scores with ties.

``ranked`` are the labels, shape (answers, samples); ``relevant`` is the number of relevant items, those in no list included.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Metric = Callable[[np.ndarray, int], np.ndarray]


def average_precision(ranked: np.ndarray, relevant: int) -> np.ndarray:
    precision = np.cumsum(ranked, axis=1) / np.arange(1, ranked.shape[1] + 1)
    return (precision * ranked).sum(axis=1) / relevant


def ndcg(ranked: np.ndarray, relevant: int) -> np.ndarray:
    discounts = 1 / np.log2(np.arange(2, max(ranked.shape[1], relevant) + 2))
    return ranked @ discounts[: ranked.shape[1]] / discounts[:relevant].sum()


def average_precision_at(k: int) -> Metric:
    def metric(ranked: np.ndarray, relevant: int) -> np.ndarray:
        precision = np.cumsum(ranked, axis=1) / np.arange(1, ranked.shape[1] + 1)
        return (precision * ranked)[:, :k].sum(axis=1) / min(k, relevant)

    return metric


def ndcg_at(k: int) -> Metric:
    def metric(ranked: np.ndarray, relevant: int) -> np.ndarray:
        discounts = 1 / np.log2(np.arange(2, k + 2))
        top = ranked[:, :k]
        return top @ discounts[: top.shape[1]] / discounts[: min(k, relevant)].sum()

    return metric


def partial_auc(low: float, high: float) -> Metric:
    """Return the mean of the true positive rate over false positive rates from ``low`` to ``high``, as a metric."""

    def metric(ranked: np.ndarray, relevant: int) -> np.ndarray:
        result = np.empty(len(ranked))
        for a, labels in enumerate(ranked):
            negatives = int((labels == 0).sum())
            # Before the n-th negative the curve is at this many positives, for a width of 1/N.
            heights = np.cumsum(labels)[labels == 0] / labels.sum()
            edges = np.arange(negatives + 1) / negatives
            widths = np.clip(edges[1:], low, high) - np.clip(edges[:-1], low, high)
            result[a] = (heights * widths).sum() / (high - low)
        return result

    return metric


def recall_at_fpr(fpr: float) -> Metric:
    def metric(ranked: np.ndarray, relevant: int) -> np.ndarray:
        false_positive_rate = np.cumsum(1 - ranked, axis=1) / (1 - ranked).sum(axis=1, keepdims=True)
        recall = np.cumsum(ranked, axis=1) / relevant
        return np.where(false_positive_rate <= fpr + 1e-9, recall, 0).max(axis=1)

    return metric


def reciprocal_rank(ranked: np.ndarray, relevant: int) -> np.ndarray:
    return 1 / (1 + ranked.argmax(axis=1))


def precision_at_recall(recall: float) -> Metric:
    def metric(ranked: np.ndarray, relevant: int) -> np.ndarray:
        true_positives = np.cumsum(ranked, axis=1)
        reached = true_positives / relevant >= recall - 1e-9
        first = reached.argmax(axis=1)
        precision = np.take_along_axis(true_positives, first[:, None], 1)[:, 0] / (first + 1)
        return np.where(reached.any(axis=1), precision, 0.0)

    return metric


def precision_at_k(k: int) -> Metric:
    return lambda ranked, relevant: ranked[:, :k].sum(axis=1) / k


def recall_at_k(k: int) -> Metric:
    return lambda ranked, relevant: ranked[:, :k].sum(axis=1) / relevant


def recall_at_precision(precision: float) -> Metric:
    def metric(ranked: np.ndarray, relevant: int) -> np.ndarray:
        true_positives = np.cumsum(ranked, axis=1)
        reached = true_positives / np.arange(1, ranked.shape[1] + 1) >= precision - 1e-9
        return np.where(reached, true_positives, 0).max(axis=1) / relevant

    return metric


def separable(m: Callable[[int, int], float], perfect: Callable[[int], float]) -> Metric:
    """Return ``sum m(i, c) / perfect(relevant)`` as a metric, over positives of rank i among them and below c negatives."""

    def metric(ranked: np.ndarray, relevant: int) -> np.ndarray:
        result = np.zeros(len(ranked))
        for a, labels in enumerate(ranked.tolist()):
            i = c = 0
            for label in labels:
                i, c = i + label, c + 1 - label
                result[a] += m(i, c) if label else 0.0
        return result / perfect(relevant)

    return metric


def threshold_points(scores: np.ndarray, labels: np.ndarray) -> list[tuple[int, int]]:
    """Return (true positives, false positives) of every threshold, from the highest down."""
    return [(int(labels[scores >= cut].sum()), int((1 - labels)[scores >= cut].sum())) for cut in np.unique(scores)[::-1]]
