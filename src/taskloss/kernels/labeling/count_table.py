r"""Loss-augmented inference for any metric of confusion counts: every pair of counts is tried.

With a true and b false positives, the best labeling gives label 1 to the a positives and the b negatives with the highest scores.
Against the prediction it costs the distances from zero of the samples that flip. Let ``A(a)`` and ``B(b)`` be the sums of these
distances over positives and negatives, ``v_+`` and ``v_-`` the weights of the joint score; then inference is

.. math:: \max_{a, b} \; -w\, M(a, b) - v_+ A(a) - v_- B(b), \qquad 0 \le a \le P, \; 0 \le b \le N .

The (P + 1)(N + 1) values of the metric are computed in blocks of rows, in threads, and discarded: memory does not grow with
the table. Ties are broken as in :mod:`taskloss.kernels.labeling.flips`: the fewest flips of samples away from zero, and of
the samples at zero the mean of the least and the greatest number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel
from taskloss.kernels.labeling.flips import running_sums, threshold_after

BLOCK_CELLS = 2**17
"""Cells of the table that are computed at once: a few megabytes per thread."""
CELL_LIMIT = 2**30
"""The largest table; with a metric of a few numpy operations it takes some ten seconds."""

MetricBlock = Callable[[np.ndarray, np.ndarray, int, int], np.ndarray]
"""``(true positives, false positives, P, N) -> values``: two float64 arrays of one shape, and float64 values of this shape."""
MetricRows = Callable[[int, int, int, int], np.ndarray]
"""``(first, last, P, N) -> values``, float64 ``(last - first, N + 1)``: for all b and each true positive count of a range."""


def rows_of_blocks(metric: MetricBlock) -> MetricRows:
    """Return the rows of a metric that is a function of arrays."""

    def rows(first: int, last: int, positives: int, negatives: int) -> np.ndarray:
        shape = (last - first, negatives + 1)
        true_positives = np.broadcast_to(np.arange(first, last, dtype=np.float64)[:, None], shape)
        false_positives = np.broadcast_to(np.arange(negatives + 1, dtype=np.float64), shape)
        return metric(true_positives, false_positives, positives, negatives)

    return rows


class Side(NamedTuple):
    """The n samples of one label in one labeling."""

    above: np.ndarray
    """Scores above zero, ascending."""
    below: np.ndarray
    """Absolute values of the scores below zero, ascending."""
    costs: np.ndarray
    """Cost of labeling c samples 1, for c = 0..n, without the weight of the joint score; float64 ``(n + 1,)``."""


class Best(NamedTuple):
    """The best cell of a part of the table.

    Among equally good cells that differ only in samples at zero, ``least`` and ``greatest`` are those with the fewest and the
    most flips of these.
    """

    value: float
    flips: int
    """Samples away from zero that flip."""
    a_least: int
    b_least: int
    a_greatest: int
    b_greatest: int


def make_side(above: np.ndarray, below: np.ndarray, at_zero: int) -> Side:
    """Return the :class:`Side` of samples with these ascending distances from zero, and of ``at_zero`` samples at zero."""
    costs = np.concatenate([running_sums(above)[::-1], np.zeros(at_zero, np.float64), running_sums(below)[1:]])
    return Side(above=above, below=below, costs=costs)


def search_table(
    metric: MetricRows, weight: float, positives: Side, negatives: Side, weights: tuple[float, float]
) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the best labeling: its four thresholds and shares, float64 ``(4,)``, and its true and false positives.

    ``weight`` is that of the loss, ``weights`` are those of positives and negatives in the joint score.
    """
    size = (len(positives.costs) - 1, len(negatives.costs) - 1)
    costs = (weights[0] * positives.costs, weights[1] * negatives.costs)
    # The ranges of a and b in which only samples at zero differ from the prediction.
    box = np.array([len(positives.above), size[0] - len(positives.below), len(negatives.above), size[1] - len(negatives.below)])
    rows = max(1, BLOCK_CELLS // (size[1] + 1))

    def best_of_block(first: int) -> Best:
        values = metric(first, min(first + rows, size[0] + 1), *size)
        return _best_of_block(values, float(weight), first, *costs, box)

    best = Best(-np.inf, 0, 0, 0, 0, 0)
    for block_best in _map_in_threads(best_of_block, range(0, size[0] + 1, rows)):
        best = Best(*_merge(best, block_best, box, weight > 0))
    a = (best.a_least, best.a_greatest)
    b = (best.b_least, best.b_greatest)
    thresholds = np.array([*_threshold(positives, a), *_threshold(negatives, b)])
    return thresholds, (best.a_greatest, best.b_greatest)


def _map_in_threads(function: Callable[[int], Best], firsts: range) -> Iterable[Best]:
    """Return the results in order; the blocks, and so the result, do not depend on the number of threads."""
    threads = min(len(firsts), os.cpu_count() or 1)
    if threads == 1:
        return map(function, firsts)
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, firsts))


def _threshold(side: Side, counts: tuple[int, int]) -> tuple[float, float]:
    """Return the threshold and share that label the least and the greatest number ``counts`` of samples 1, on average."""
    at_zero = len(side.costs) - 1 - len(side.above) - len(side.below)
    fewest, most = min(counts), max(counts)
    if most < len(side.above):
        return threshold_after(side.above, len(side.above) - most, 0, 0, True)
    if fewest > len(side.above) + at_zero:
        return threshold_after(side.below, fewest - len(side.above) - at_zero, 0, 0, False)
    share = ((fewest + most) / 2 - len(side.above)) / at_zero if at_zero else 0.5
    return 0.0, share


@inlined_kernel
def _outside(count, low, high):
    """Return the signed distance of a count from the range ``low..high``."""
    return count - high if count > high else (count - low if count < low else 0)


@kernel
def _merge(best, other, box, positive_update):
    """Return the better of two cells, or both in one if they are equally good and differ only in samples at zero."""
    if other.value < best.value or (other.value == best.value and other.flips > best.flips):
        return best
    if other.value > best.value or other.flips < best.flips:
        return other
    same_a = _outside(best.a_least, box[0], box[1]) == _outside(other.a_least, box[0], box[1])
    same_b = _outside(best.b_least, box[2], box[3]) == _outside(other.b_least, box[2], box[3])
    if not (same_a and same_b):
        return best
    # The positive update flips positives to 0 and negatives to 1, the negative update the other way round.
    sign = 1 if positive_update else -1
    a_least, b_least, a_greatest, b_greatest = best.a_least, best.b_least, best.a_greatest, best.b_greatest
    if (sign * other.b_least, -sign * other.a_least) < (sign * b_least, -sign * a_least):
        a_least, b_least = other.a_least, other.b_least
    if (sign * other.b_greatest, -sign * other.a_greatest) > (sign * b_greatest, -sign * a_greatest):
        a_greatest, b_greatest = other.a_greatest, other.b_greatest
    return Best(best.value, best.flips, a_least, b_least, a_greatest, b_greatest)


@kernel
def _best_of_block(values, weight, first, positive_costs, negative_costs, box):
    """Return the best cell of some rows of the table.

    Args:
        values: the metric for a = ``first``, ... and b = 0..N, float64 ``(rows, N + 1)``, read.
        weight: the weight of the loss.
        first: a of the first row.
        positive_costs: ``v_+ A(a)``, float64 ``(P + 1,)``, read.
        negative_costs: ``v_- B(b)``, float64 ``(N + 1,)``, read.
        box: the ranges of a and of b in which only samples at zero differ from the prediction, int64 ``(4,)``, read.
    """
    best = Best(-np.inf, 0, 0, 0, 0, 0)
    for row in range(len(values)):
        a = first + row
        for b in range(values.shape[1]):
            value = -weight * values[row, b] - positive_costs[a] - negative_costs[b]
            if value >= best.value:
                flips = abs(_outside(a, box[0], box[1])) + abs(_outside(b, box[2], box[3]))
                best = _merge(best, Best(value, flips, a, b, a, b), box, weight > 0)
    return best
