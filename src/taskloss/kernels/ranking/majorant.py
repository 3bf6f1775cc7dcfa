r"""Loss-augmented inference when the metric's terms do not depend on the positive's place: a concave majorant.

For AUC, partial AUC and recall at a false positive rate, ``m(i, c) = M(c)`` for all i, so every row maximizes

.. math::
    \sum_{j \le c} (t_j - s_i) - \text{pull} \cdot M(c) = H(c) - c\, s_i, \qquad
    H(c) = \sum_{j \le c} t_j - \text{pull} \cdot M(c).

That is a line in ``s_i`` for each c. Only the corners of the concave majorant of H are ever best, and the best corner moves up
as ``s_i`` falls, so the rows can be solved apart and are monotone by themselves. The slopes of the majorant are the increments
of H after pooling adjacent ones that rise; ``c_i`` is the number of increments above ``s_i`` (least) or not below it
(greatest). Exact for a pull of either sign, in O(P + N).

Here M is a band, ``M(c) = high - clip(c, low, high)`` with real ``low < high``: it falls by the overlap of ``[c, c + 1]`` with
the band. All of AUC is the band ``[0, N]``; recall at a false positive rate, where only ``c <= B`` counts, is the band ``[B, B
+ 1]``.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel


@kernel
def augment_band(lists, low, high, pull):
    """Least and greatest maximizing counts of all rankings; ``low``, ``high`` and ``pull`` (any sign) have shape ``(R,)``."""
    least = np.zeros(len(lists.positives), np.int64)
    greatest = np.zeros(len(lists.positives), np.int64)
    for r in range(len(pull)):
        rows = slice(lists.positive_start[r], lists.positive_start[r + 1])
        t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        if len(t) > 0:
            # Measured from a middle score: adding the pull to scores far from zero would round it away.
            middle = t[len(t) // 2]
            slopes, ends = _majorant(t, middle, low[r], high[r], pull[r])
            _count_slopes(lists.positives[rows], middle, slopes, ends, least[rows], greatest[rows])
    return least, greatest


@kernel
def _majorant(t, middle, low, high, pull):
    """Falling slopes of the majorant, measured from ``middle``; block k ends before the increment ``ends[k]``."""
    starts = np.empty(len(t))
    rests = np.empty(len(t))
    slopes = np.empty(len(t))
    ends = np.empty(len(t), np.int64)
    blocks = 0
    begin = 0
    for c in range(len(t)):
        overlap = max(0.0, min(np.float64(c + 1), high) - max(np.float64(c), low))
        start = (t[c] - middle) + pull * overlap
        slope = start
        rest = 0.0
        rows = 1
        while blocks > 0 and slopes[blocks - 1] < slope:
            blocks -= 1
            begin = ends[blocks - 1] if blocks > 0 else 0
            rest += rests[blocks] + rows * (start - starts[blocks])
            start = starts[blocks]
            rows = c + 1 - begin
            slope = start + rest / rows
        starts[blocks] = start
        rests[blocks] = rest
        slopes[blocks] = slope
        ends[blocks] = c + 1
        blocks += 1
    return slopes[:blocks], ends[:blocks]


@kernel
def _count_slopes(s, middle, slopes, ends, least, greatest):
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
def band_sum(lists, above, at_or_above, low, high):
    """``sum_i M(c_i)`` of each ranking, shape ``(R,)``; tied pairs are passed gradually, which is the diagonal of a ROC curve.

    A positive with negatives tied to it counts the mean of M over the counts from ``above`` to ``at_or_above``.
    """
    result = np.zeros(len(low))
    for r in range(len(low)):
        for i in range(lists.positive_start[r], lists.positive_start[r + 1]):
            first, last = np.float64(above[i]), np.float64(at_or_above[i])
            if first == last:
                result[r] += high[r] - min(max(first, low[r]), high[r])
            else:
                result[r] += _band_integral(first, last, low[r], high[r]) / (last - first)
    return result


@kernel
def _band_integral(first, last, low, high):
    """The integral of ``high - clip(x, low, high)`` for x from ``first`` to ``last``."""
    before = max(0.0, min(last, low) - first)
    inside_first, inside_last = min(max(first, low), high), min(max(last, low), high)
    return before * (high - low) + (inside_last - inside_first) * (high - (inside_first + inside_last) / 2)
