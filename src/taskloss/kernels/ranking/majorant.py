r"""Loss-augmented inference for AUC, partial AUC and recall at a false positive rate: a concave majorant.

For these metrics ``m(i, c) = M(c)`` does not depend on i, so every row maximizes

.. math::
    \sum_{j \le c} (t_j - s_i) - \text{loss\_weight} \cdot M(c) = H(c) - c\, s_i, \qquad
    H(c) = \sum_{j \le c} t_j - \text{loss\_weight} \cdot M(c).

For each c this is a line in ``s_i``. Only the corners of the concave majorant of H can be optimal, and the optimal corner
moves up as ``s_i`` falls, so the rows may be solved independently and their counts come out nondecreasing. The slopes of the
majorant are the increments of H after pooling adjacent ones that rise; ``c_i`` is the number of increments whose slope is
above ``s_i`` (least) or at least ``s_i`` (greatest). Exact for a loss weight of either sign, in O(P + N).

Here M is constant outside a band of counts, ``M(c) = high - clip(c, low, high)`` with real ``low < high``: from c to c + 1 it
falls by the overlap of ``[c, c + 1]`` with the band. AUC is the band ``[0, N]``; recall at a false positive rate, where only
``c <= B`` counts, is the band ``[B, B + 1]``.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.kernels.sort import scores_of


@kernel
def augment_band(lists, low, high, relevant, loss_weight):
    """Return the least and greatest maximizing counts for a loss weight of either sign.

    ``low`` and ``high`` are the bands, ``relevant`` the positives that the mean is taken over, float64 ``(R,)`` each.
    """
    least = np.zeros(len(lists.positives), np.int64)
    greatest = np.zeros(len(lists.positives), np.int64)
    for r in range(len(loss_weight)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        s, t = scores_of(lists, r)
        if len(t) > 0:
            # Scores are measured from a middle one: the loss weight, added to scores far from zero, would be rounded away.
            middle = t[len(t) // 2]
            scale = 1.0 / (relevant[r] * (high[r] - low[r]))
            slopes, ends = _majorant(t, middle, low[r], high[r], loss_weight[r] * scale)
            _count_slopes(s, middle, slopes, ends, least[rows], greatest[rows])
    return least, greatest


@allocating_kernel
def _majorant(t, middle, low, high, loss_weight):
    """Return the descending slopes of the majorant, measured from ``middle``, and the count at which each of them ends."""
    # A stack of blocks of pooled increments: the first increment, the sum of the differences from it, and the mean.
    firsts = np.empty(len(t), np.float64)
    offset_sums = np.empty(len(t), np.float64)
    slopes = np.empty(len(t), np.float64)
    ends = np.empty(len(t), np.int64)
    blocks = 0
    begin = 0
    for c in range(len(t)):
        overlap = max(0.0, min(np.float64(c + 1), high) - max(np.float64(c), low))
        first = (t[c] - middle) + loss_weight * overlap
        slope = first
        offset_sum = 0.0
        size = 1
        while blocks > 0 and slopes[blocks - 1] < slope:
            blocks -= 1
            begin = ends[blocks - 1] if blocks > 0 else 0
            offset_sum += offset_sums[blocks] + size * (first - firsts[blocks])
            first = firsts[blocks]
            size = c + 1 - begin
            slope = first + offset_sum / size
        firsts[blocks] = first
        offset_sums[blocks] = offset_sum
        slopes[blocks] = slope
        ends[blocks] = c + 1
        blocks += 1
    return slopes[:blocks], ends[:blocks]


@inner_kernel
def _count_slopes(s, middle, slopes, ends, least, greatest):
    """Write the counts at which the slopes fall below each score of one ranking to ``least`` and ``greatest``.

    Args:
        s: scores of the positives, descending, float64 ``(P,)``, read.
        middle: what slopes are measured from.
        slopes: the slopes of the majorant, descending, float64 ``(K,)``, read.
        ends: the count at which each slope ends, int64 ``(K,)``, read.
        least: the count after all slopes above the score, int64 ``(P,)``, written.
        greatest: the count after all slopes not below it, likewise.
    """
    above = 0
    not_below = 0
    for i in range(len(s)):
        score = s[i] - middle
        while above < len(slopes) and slopes[above] > score:
            above += 1
        not_below = max(not_below, above)
        while not_below < len(slopes) and slopes[not_below] >= score:
            not_below += 1
        least[i] = ends[above - 1] if above > 0 else 0
        greatest[i] = ends[not_below - 1] if not_below > 0 else 0


@kernel
def band_mean(lists, above, at_or_above, low, high, relevant):
    """Return ``M(c)`` of each ranking, float64 ``(R,)``, with the arguments of :func:`augment_band`.

    A positive with negatives tied to it counts the mean of M over the real counts from ``above`` to ``at_or_above``, which is the
    diagonal of a ROC curve.
    """
    result = np.zeros(len(low), np.float64)
    for r in range(len(low)):
        for i in range(lists.positive_start[r], lists.positive_start[r + 1]):
            first, last = np.float64(above[i]), np.float64(at_or_above[i])
            if first == last:
                result[r] += high[r] - min(max(first, low[r]), high[r])
            else:
                result[r] += _band_integral(first, last, low[r], high[r]) / (last - first)
        result[r] /= relevant[r] * (high[r] - low[r])
    return result


@inner_kernel
def _band_integral(first, last, low, high):
    """Return the integral of ``high - clip(x, low, high)`` for x from ``first`` to ``last``."""
    before = max(0.0, min(last, low) - first)
    inside_first, inside_last = min(max(first, low), high), min(max(last, low), high)
    return before * (high - low) + (inside_last - inside_first) * (high - (inside_first + inside_last) / 2)
