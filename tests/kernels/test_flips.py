"""The searches over flips against every pair of counts, in extended precision, on sets too large to enumerate."""

from __future__ import annotations

import numpy as np
import pytest

import taskloss as tl
from taskloss.kernels.labeling import confusion
from taskloss.kernels.labeling.samples import sort_segments
from taskloss.labelings import read_labelings
from tests.kernels.rankings import adversarial_scores
from tests.oracles.labelings import exhaustive_table

TASKS = [tl.ZeroOne(), tl.BalancedError(), tl.FScore(), tl.FScore(0.4), tl.FScore(3.0), tl.Jaccard(), tl.GMean(), tl.MCC()]
CONFUSION = tl.ConfusionMetric(lambda tp, fp, fn, tn: np.sqrt(tp * tn) - 0.1 * np.abs(fp - fn), weighting="classes")


@pytest.mark.parametrize(
    ("task", "weight", "counts"),
    [
        (tl.FScore(), 3.0, (0, 1)),
        (tl.FScore(), 0.5, (1, 1)),
        (tl.FScore(), -0.5, (1, 1)),
        (tl.FScore(), -2.0, (2, 1)),
        (tl.FScore(), -3.0, (2, 0)),
        (tl.Jaccard(), 4.0, (0, 1)),
        (tl.Jaccard(), -2.0, (2, 0)),
    ],
    ids=str,
)
def test_four_items_by_hand(task, weight, counts):
    """Positives 2 and -1, negatives 1 and -3: the prediction has one true and one false positive.

    The joint score has the weight 1/2 for each sample. For a = 0, 1, 2 true positives (rows) and b = 0, 1, 2 false ones it is
    (0, 1/2, -1), (1, 3/2, 0), (1/2, 1, -1/2). The F1-score ``2 a / (2 + a + b)`` is 0, then (2/3, 1/2, 2/5) and (1, 4/5, 2/3).
    The Jaccard index ``a / (2 + b)`` is 0, then (1/2, 1/3, 1/4) and (1, 2/3, 1/2). With the weight -3, for example, F + 3 F1 is
    largest at a = 2, b = 0: 1/2 + 3.
    """
    _, labelings = read_labelings(np.array([2.0, -1.0, 1.0, -3.0]), np.array([True, True, False, False]))
    answer = task.augment(labelings, task.sample_weights(labelings), weight)
    assert (answer.true_positives[0], answer.false_positives[0]) == counts


def costs_by_count(scores: np.ndarray) -> np.ndarray:
    """Return the cost of labeling the c highest scores 1, against the prediction, for c = 0..n, in extended precision."""
    falling = np.sort(scores)[::-1].astype(np.longdouble)
    above = np.cumsum(np.maximum(falling, 0)[::-1])[::-1]
    below = np.cumsum(np.maximum(-falling, 0))
    return np.append(above, 0) + np.append(np.longdouble(0), below)


def grid(task: tl.Task, positives: int, negatives: int) -> np.ndarray:
    """Return the task loss for every number of true and false positives."""
    a, b = (x.reshape(-1).astype(float) for x in np.meshgrid(np.arange(positives + 1), np.arange(negatives + 1), indexing="ij"))
    _, labelings = read_labelings(np.zeros((positives + negatives, 1)), (np.arange(positives + negatives) < positives)[:, None])
    tallies = labelings.tallies._replace(
        positives=np.full(len(a), labelings.tallies.positives[0]), negatives=np.full(len(a), labelings.tallies.negatives[0])
    )
    losses = task.loss_of(labelings._replace(tallies=tallies), a, b)
    return losses.reshape(positives + 1, negatives + 1)


def check(task: tl.Task, scores: np.ndarray, labels: np.ndarray, weight: float, losses: np.ndarray) -> None:
    _, labelings = read_labelings(scores, labels)
    weights = task.sample_weights(labelings)
    answer = task.augment(labelings, weights, weight)
    total = weight * losses.astype(np.longdouble)
    cost = [weights[k][0] * costs_by_count(scores[labels == (k == 0)]) for k in range(2)]
    best = (total - cost[0][:, None] - cost[1][None]).max()
    a, b = int(answer.true_positives[0]), int(answer.false_positives[0])
    assert float(total[a, b] - cost[0][a] - cost[1][b]) == pytest.approx(float(best), abs=1e-13 * abs(weight))
    # The thresholds say the same as the counts, apart from samples at zero.
    thresholds = answer.thresholds
    for chosen, count, threshold, share in (
        (labels, a, thresholds[0, 0], thresholds[1, 0]),
        (~labels, b, thresholds[2, 0], thresholds[3, 0]),
    ):
        marked = (scores[chosen] > threshold).sum() + share * (scores[chosen] == threshold).sum()
        assert abs(marked - count) <= 1e-9 + (scores[chosen] == 0).sum()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("task", [*TASKS, CONFUSION], ids=[*map(str, TASKS), "any metric"])
def test_every_search_equals_the_grid(task, sign):
    rng = np.random.default_rng(8)
    for positives, negatives in [(1, 1), (1, 30), (30, 1), (7, 200), (200, 20), (60, 90), (120, 150)]:
        losses = grid(task, positives, negatives)
        for name, scores in adversarial_scores(rng, positives + negatives).items():
            labels = rng.permutation(np.arange(positives + negatives) < positives)
            for weight in (0.02, 1.0, 40.0):
                check(task, scores + 0.5 * labels * (name == "normal"), labels, sign * weight, losses)


@pytest.mark.parametrize("weight", [1.0, -1.0, 0.1, -0.1])
@pytest.mark.parametrize("task", [tl.FScore(), tl.Jaccard()], ids=str)
def test_f_score_and_jaccard_equal_the_exhaustive_table(task, weight):
    rng = np.random.default_rng(12)
    labels = rng.random(3000) < 0.2
    scores = rng.standard_normal(3000) + labels
    _, labelings = read_labelings(scores, labels)
    answer = task.augment(labelings, task.sample_weights(labelings), weight)
    falling = np.sort(scores[labels])[::-1].copy(), np.sort(scores[~labels])[::-1].copy()
    _, a, b = exhaustive_table(*falling, weight, isinstance(task, tl.Jaccard))
    assert (answer.true_positives[0], answer.false_positives[0]) == (a, b)


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("update", ["positive", "negative"])
def test_a_huge_score_does_not_wipe_out_the_others(task, update):
    """Samples too far from zero to flip change the tallies, but not how the others are compared."""
    import torch

    rng = np.random.default_rng(9)
    labels = rng.random(200) < 0.4
    scores = rng.standard_normal(200)
    gradients = []
    for far in (50.0, 1e30, 1e300):
        extended = torch.tensor(np.append(scores, [far, -far, far, -far]), requires_grad=True)
        target = torch.tensor(np.append(labels, [True, True, False, False]))
        tl.DirectLoss(task, update=update)(extended, target).backward()
        gradients.append(extended.grad)
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])
    assert (gradients[0] != 0).sum() > 3


@pytest.mark.parametrize("metric", [confusion.ACCURACY, confusion.BALANCED_ACCURACY, confusion.F_BETA, confusion.JACCARD])
@pytest.mark.parametrize("beta2", [0.09, 1.0, 9.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_flip_changes_a_metric_by_more_than_the_bound(metric, beta2, sign):
    """The bound excludes samples from the search, so it must hold; and it should be attained by some counts."""
    rng = np.random.default_rng(10)
    tightest = 0.0
    for _ in range(200):
        positives, negatives = (int(n) for n in rng.integers(1, 25, 2))
        a, a_most = np.sort(rng.integers(0, positives + 1, 2))
        b, b_most = np.sort(rng.integers(0, negatives + 1, 2))
        rows = np.arange(0, a_most + 1) if sign > 0 else np.arange(a, positives + 1)
        columns = np.arange(b, negatives + 1) if sign > 0 else np.arange(0, b_most + 1)
        cells = [x.reshape(-1) for x in np.meshgrid(rows, columns, indexing="ij")]
        sizes = np.full(len(cells[0]), positives), np.full(len(cells[0]), negatives)
        values = confusion.metric_values(metric, *cells, *sizes, beta2, 1.0).reshape(len(rows), len(columns))
        bounds = confusion.largest_change(metric, sign, *map(float, (a, b, a_most, b_most, positives, negatives)), beta2)
        for axis in range(2):
            change = np.abs(np.diff(values, axis=axis)).max(initial=0.0)
            assert change <= bounds[axis] * (1 + 1e-12)
            tightest = max(tightest, change / bounds[axis] if bounds[axis] > 0 else 0.0)
    assert tightest > 0.999


def test_each_segment_is_sorted_and_nothing_else_is():
    rng = np.random.default_rng(11)
    lengths = np.array([0, 1, 5, 256, 257, 1000, 3])
    start = np.cumsum(lengths + 2) - lengths - 2
    for dtype in (np.float32, np.float64):
        values = rng.standard_normal(int((lengths + 2).sum())).astype(dtype)
        given = values.copy()
        sort_segments(values, start, start + lengths)
        inside = np.zeros(len(values), bool)
        for begin, length in zip(start, lengths, strict=True):
            inside[begin : begin + length] = True
            np.testing.assert_array_equal(values[begin : begin + length], np.sort(given[begin : begin + length]))
        np.testing.assert_array_equal(values[~inside], given[~inside])
