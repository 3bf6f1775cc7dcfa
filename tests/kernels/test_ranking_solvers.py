"""The fast solvers of every ranking task against dynamic programming on the full grid."""

from __future__ import annotations

import numpy as np
import pytest

import taskloss as tl
from taskloss.kernels.ranking.cutoff import augment_cut
from taskloss.kernels.ranking.terms import AVERAGE_PRECISION
from taskloss.layout import read_rankings
from tests.kernels.rankings import adversarial_scores
from tests.oracles.separable import best_value, value_of


def reciprocal(i, c):
    return 1 / (1 + c)


SIX_RANKINGS = {"++--": (0, 0), "+-+-": (0, 1), "+--+": (0, 2), "-++-": (1, 1), "-+-+": (1, 2), "--++": (2, 2)}
"""The counts of all rankings of two positives and two negatives."""
JOINT_SCORES = np.array([0, 1, 0, 0, -1, -4])
"""``sum_i sum_{j <= c_i} (t_j - s_i)`` of each for positives 3 and 1 and negatives 2 and 0; ``+-+-`` is the prediction."""

BY_HAND = {
    tl.AveragePrecision(): (1, 5 / 6, 3 / 4, 7 / 12, 1 / 2, 5 / 12),
    tl.AveragePrecision(at=2): (1, 1 / 2, 1 / 2, 1 / 4, 1 / 4, 0),
    tl.NDCG(): tuple(gain / (1 + 0.63093) for gain in (1.63093, 1.5, 1.43068, 1.13093, 1.06161, 0.93068)),
    tl.NDCG(at=2): tuple(gain / (1 + 0.63093) for gain in (1.63093, 1, 1, 0.63093, 0.63093, 0)),
    tl.ROCAUC(): (1, 3 / 4, 1 / 2, 1 / 2, 1 / 4, 0),
    tl.PartialAUC(max_fpr=0.5): (1, 1 / 2, 1 / 2, 0, 0, 0),
    tl.RecallAtFPR(0.5): (1, 1, 1 / 2, 1, 1 / 2, 0),
    tl.ReciprocalRank(): (1, 1, 1, 1 / 2, 1 / 2, 1 / 3),
    tl.PrecisionAtRecall(1.0): (1, 2 / 3, 1 / 2, 2 / 3, 1 / 2, 1 / 2),
    tl.RecallAtPrecision(0.6): (1, 1, 1 / 2, 1, 0, 0),
    tl.PrecisionAtK(1): (1, 1, 1, 0, 0, 0),
    tl.PrecisionAtK(2): (1, 1 / 2, 1 / 2, 1 / 2, 1 / 2, 0),
    tl.RecallAtK(3): (1, 1, 1 / 2, 1, 1 / 2, 1 / 2),
    tl.SeparableMetric(reciprocal, convex=True): (1, 3 / 4, 2 / 3, 1 / 2, 5 / 12, 1 / 3),
    tl.SeparableMetric(reciprocal): (1, 3 / 4, 2 / 3, 1 / 2, 5 / 12, 1 / 3),
}
"""The metric of each of the six rankings; the discounts of NDCG are 1, 0.63093, 0.5 and 0.43068."""


@pytest.mark.parametrize("task", BY_HAND, ids=str)
def test_four_items_by_hand(task):
    _, rankings = read_rankings(np.array([3.0, 1.0, 2.0, 0.0]), np.array([1, 1, 0, 0]))
    metric = np.array(BY_HAND[task])
    for counts, value in zip(SIX_RANKINGS.values(), metric, strict=True):
        assert task.of_counts(rankings, np.array(counts))[0] == pytest.approx(value, abs=1e-5)
    for loss_weight in (-20.3, -5.3, -2.3, 0.7, 2.3, 5.3, 20.3):
        objective = JOINT_SCORES - loss_weight * metric
        best = [counts for counts, value in zip(SIX_RANKINGS.values(), objective, strict=True) if value > objective.max() - 1e-3]
        least, greatest = task.augment(rankings, np.array([loss_weight]))
        assert tuple(least) == tuple(np.min(best, axis=0))
        assert tuple(greatest) == tuple(np.max(best, axis=0))


def grid(task: tl.Task, positives: int, negatives: int) -> np.ndarray:
    """Return ``scale * m(i, c)`` for i = 1..P, c = 0..N, from the definitions."""
    i, c = np.arange(1, positives + 1)[:, None], np.arange(negatives + 1)[None]
    if isinstance(task, tl.SeparableMetric):
        terms = task.m(*np.broadcast_arrays(i, c))
        return terms / terms[:, 0].sum()
    if isinstance(task, tl.AveragePrecision | tl.NDCG):
        k = task.at or positives + negatives
        reachable = min(k, positives)
        if isinstance(task, tl.AveragePrecision):
            return (i + c <= k) * i / (i + c) / reachable
        return (i + c <= k) / np.log2(1 + i + c) / (1 / np.log2(np.arange(2, reachable + 2))).sum()
    if isinstance(task, tl.ROCAUC):
        return np.broadcast_to((negatives - c) / (positives * negatives), (positives, negatives + 1))
    if isinstance(task, tl.PartialAUC):
        low, high = task.min_fpr * negatives, task.max_fpr * negatives
        return np.broadcast_to((high - np.clip(c, low, high)) / (positives * (high - low)), (positives, negatives + 1))
    if isinstance(task, tl.RecallAtFPR):
        return np.broadcast_to((c <= np.floor(task.fpr * negatives + 1e-9)) / positives, (positives, negatives + 1))
    if isinstance(task, tl.ReciprocalRank | tl.PrecisionAtRecall):
        k = 1 if isinstance(task, tl.ReciprocalRank) else max(1, int(np.ceil(task.recall * positives - 1e-9)))
        return np.where(i == k, k / (k + c), 0.0)
    k = task.k if isinstance(task.k, int) else max(1, int(np.floor(task.k * (positives + negatives) + 1e-9)))
    return (i + c <= k) / (k if isinstance(task, tl.PrecisionAtK) else positives)


def root(i, c):
    return i**-0.1 / np.sqrt(i + c)


def plateaus(i, c):
    """Return terms that are neither convex nor concave in c, with flat parts, and uneven in i."""
    return (1 + i % 3) / (1 + (i + c) // 7) + np.exp(-((c / 20) ** 2))


TASKS = [
    tl.AveragePrecision(),
    tl.NDCG(),
    tl.AveragePrecision(at=20),
    tl.NDCG(at=75),
    tl.ROCAUC(),
    tl.PartialAUC(max_fpr=0.13),
    tl.PartialAUC(max_fpr=0.61, min_fpr=0.27),
    tl.RecallAtFPR(0.1),
    tl.ReciprocalRank(),
    tl.PrecisionAtRecall(0.35),
    tl.PrecisionAtK(7),
    tl.PrecisionAtK(0.3),
    tl.RecallAtK(50),
    tl.SeparableMetric(root, convex=True),
    tl.SeparableMetric(root),
    tl.SeparableMetric(plateaus),
]


def instances(rng: np.random.Generator, sizes: list[tuple[int, int]]):
    for positives, negatives in sizes:
        n = positives + negatives
        for name, scores in adversarial_scores(rng, n).items():
            if "huge" not in name:
                labels = rng.permutation(np.arange(n) < positives)
                yield scores + 0.5 * labels * (name == "normal"), labels


def check(task, scores, labels, loss_weight, best):
    """Check that both answers are feasible and as good as the best value, which was computed in extended precision."""
    _, rankings = read_rankings(scores, labels)
    s, t = rankings.lists.positives, rankings.lists.negatives
    least, greatest = task.augment(rankings, np.array([loss_weight]))
    size = max(abs(loss_weight), np.abs(scores).max()) * len(s) * len(t)
    for counts in (least, greatest):
        assert (np.diff(counts) >= 0).all()
        assert counts.min() >= 0
        assert counts.max() <= len(t)
        metric = task.of_counts(rankings, counts)[0]
        assert value_of(s, t, metric, loss_weight, counts) == pytest.approx(best(s, t), abs=1e-14 * size)
    assert (least <= greatest).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_separable_tasks_equal_the_grid(task, sign):
    rng = np.random.default_rng(4)
    for scores, labels in instances(rng, [(1, 1), (1, 30), (30, 1), (7, 200), (200, 20), (60, 90), (200, 200)]):
        positives = int(labels.sum())
        negatives = len(labels) - positives
        metric = grid(task, positives, negatives)
        for weight in (0.02, 1.0, 40.0):
            loss_weight = sign * weight * positives * negatives / 2
            check(task, scores, labels, loss_weight, lambda s, t, m=metric, w=loss_weight: best_value(s, t, m, w))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("precision", [0.3, 0.5, 0.8, 1.0])
def test_recall_at_precision_equals_the_grid(precision, sign):
    rng = np.random.default_rng(5)
    task = tl.RecallAtPrecision(precision)

    def best(s, t, loss_weight):
        """Return the best value over all k such that row k holds and no later row does."""
        i, c = np.arange(1, len(s) + 1)[:, None], np.arange(len(t) + 1)[None]
        holds = c <= np.floor(i * (1 - precision) / precision + 1e-9)
        values = []
        for k in range(len(s) + 1):
            allowed = np.where(i > k, ~holds, np.where(i == k, holds, True))
            values.append(best_value(s, t, np.zeros(holds.shape), 0.0, allowed) - np.longdouble(loss_weight) * k / len(s))
        return max(values)

    for scores, labels in instances(rng, [(1, 1), (1, 20), (20, 1), (25, 40)]):
        positives = int(labels.sum())
        for weight in (0.02, 1.0, 40.0):
            loss_weight = sign * weight * positives * (len(labels) - positives) / 2
            check(task, scores, labels, loss_weight, lambda s, t, w=loss_weight: best(s, t, w))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("task", [*TASKS, tl.RecallAtPrecision(0.4)], ids=str)
def test_one_huge_score_does_not_change_the_others(task, sign):
    rng = np.random.default_rng(6)
    labels = rng.permutation(np.arange(101) < 40)
    labels[0] = False
    scores = rng.standard_normal(101)
    answers = []
    for extreme in (1e6, 1e30):
        scores[0] = extreme
        _, rankings = read_rankings(scores, labels)
        answers.append(task.augment(rankings, np.array([sign * 0.3 * 40 * 61 / 2])))
    np.testing.assert_array_equal(answers[0], answers[1])


def test_a_cut_that_needs_too_large_a_table_is_refused():
    _, rankings = read_rankings(np.zeros(200), np.arange(200) % 2 == 0)
    arguments = rankings.lists, rankings.above, rankings.at_or_above, AVERAGE_PRECISION, np.array([90]), np.ones(1)
    with pytest.raises(ValueError, match="cut at rank 90 needs a table.*Leave out at="):
        augment_cut(*arguments, memory_limit=8000)
