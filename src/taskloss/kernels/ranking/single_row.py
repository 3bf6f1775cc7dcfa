r"""Loss-augmented inference for reciprocal rank and precision at a recall: only one positive counts.

``m(i, c) = k / (k + c)`` for i = k and zero otherwise (k = 1 is the reciprocal rank). All other rows are best at their natural
counts, but the counts must be nondecreasing: raising row k to c raises the rows after it to at least c, and lowering it to c
lowers the rows before it to at most c. So the objective is a function of one count, scanned outward from the natural one in
O(P + N). Each step adds the cost of one more negative passing row k and the rows that move along, a sum of score
differences of one sign.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel
from taskloss.kernels.sort import scores_of


@kernel
def augment_single_row(lists, above, at_or_above, row, loss_weight):
    """Return the least and greatest maximizing counts for a loss weight of either sign.

    ``above`` and ``at_or_above`` are the counts of the prediction; ``row`` is k of each ranking, from 1, int64 ``(R,)``. A k
    greater than the number of positives leaves the prediction.
    """
    least = above.copy()
    greatest = at_or_above.copy()
    for r in range(len(loss_weight)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        s, t = scores_of(lists, r)
        k = row[r] - 1
        if k >= len(s):
            continue
        if loss_weight[r] > 0:
            low, high = _scan_up(s, t, above[start:stop], k, loss_weight[r])
            for i in range(k, len(s)):
                least[start + i] = max(above[start + i], low)
                greatest[start + i] = max(at_or_above[start + i], high)
        else:
            low, high = _scan_down(s, t, at_or_above[start:stop], k, -loss_weight[r])
            for i in range(k + 1):
                least[start + i] = min(above[start + i], low)
                greatest[start + i] = min(at_or_above[start + i], high)
    return least, greatest


@inner_kernel
def _scan_up(s, t, natural, k, loss_weight):
    """Return the least and greatest optimal count of row k (from 0) at or above its natural one."""
    low = high = natural[k]
    best = value = cost = 0.0
    moved_end = k
    i = np.float64(k + 1)
    for c in range(natural[k], len(t)):
        # t[c] passes the rows from k on with counts up to c, s[k:moved_end]; it scores no higher than they do.
        if c > natural[k]:
            cost += (moved_end - k) * (t[c - 1] - t[c])
        while moved_end < len(s) and natural[moved_end] <= c:
            cost += s[moved_end] - t[c]
            moved_end += 1
        value += loss_weight * i / ((i + c) * (i + c + 1)) - cost
        if value > best:
            best, low = value, c + 1
        if value >= best:
            high = c + 1
    return low, high


@inner_kernel
def _scan_down(s, t, natural, k, metric_weight):
    """Return the least and greatest optimal count of row k (from 0) at or below its natural one."""
    low = high = natural[k]
    best = value = cost = 0.0
    next_row = k
    i = np.float64(k + 1)
    for c in range(natural[k] - 1, -1, -1):
        # The rows up to k with counts above c, s[next_row + 1:k + 1], pass t[c], which scores no lower than they do.
        if c < natural[k] - 1:
            cost += (k - next_row) * (t[c] - t[c + 1])
        while next_row >= 0 and natural[next_row] > c:
            cost += t[c] - s[next_row]
            next_row -= 1
        value += metric_weight * i / ((i + c) * (i + c + 1)) - cost
        if value > best:
            best, high = value, c
        if value >= best:
            low = c
    return low, high


@kernel
def precision_at_row(lists, counts, row):
    """Return ``k / (k + c_k)`` of each ranking, float64 ``(R,)``; zero where k is greater than the number of positives."""
    result = np.zeros(len(row), np.float64)
    for r in range(len(row)):
        i = lists.positive_start[r] + row[r] - 1
        if i < lists.positive_start[r + 1]:
            result[r] = row[r] / (row[r] + counts[i])
    return result
