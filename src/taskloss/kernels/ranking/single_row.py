r"""Loss-augmented inference when only one positive counts: reciprocal rank and precision at a recall.

``m(i, c) = k / (k + c)`` for i = k and zero else (k = 1 is the reciprocal rank). All other rows only want to stay where they
are, but the counts must not fall: moving row k up to c drags the rows after it up to at least c, moving it down to c drags the
rows before it down to at most c. So the objective is a function of one count, scanned outward from the natural one in O(P +
N). Each step adds the cost of one more negative passing the rows dragged along, a sum of score differences of one sign.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel


@kernel
def augment_single_row(lists, above, at_or_above, row, pull):
    """Least and greatest maximizing counts; ``row`` is k of each ranking, from 1 (beyond the positives: nothing counts)."""
    least = above.copy()
    greatest = at_or_above.copy()
    for r in range(len(pull)):
        start, stop = lists.positive_start[r], lists.positive_start[r + 1]
        s = lists.positives[start:stop]
        t = lists.negatives[lists.negative_start[r] : lists.negative_start[r + 1]]
        k = row[r] - 1
        if k >= len(s):
            continue
        if pull[r] > 0:
            low, high = _scan_up(s, t, above[start:stop], k, pull[r])
            for i in range(k, len(s)):
                least[start + i] = max(above[start + i], low)
                greatest[start + i] = max(at_or_above[start + i], high)
        else:
            low, high = _scan_down(s, t, at_or_above[start:stop], k, pull[r])
            for i in range(k + 1):
                least[start + i] = min(above[start + i], low)
                greatest[start + i] = min(at_or_above[start + i], high)
    return least, greatest


@kernel
def _scan_up(s, t, natural, k, pull):
    """Least and greatest best count of row k at or above its natural one."""
    low = high = natural[k]
    best = value = cost = 0.0
    dragged = k
    rank = np.float64(k + 1)
    for c in range(natural[k], len(t)):
        # The rows from k on that stand at c or below are passed by t[c], which scores no higher than they do.
        if c > natural[k]:
            cost += (dragged - k) * (t[c - 1] - t[c])
        while dragged < len(s) and natural[dragged] <= c:
            cost += s[dragged] - t[c]
            dragged += 1
        value += pull * rank / ((rank + c) * (rank + c + 1)) - cost
        if value > best:
            best, low = value, c + 1
        if value >= best:
            high = c + 1
    return low, high


@kernel
def _scan_down(s, t, natural, k, pull):
    """Least and greatest best count of row k at or below its natural one."""
    low = high = natural[k]
    best = value = cost = 0.0
    dragged = k
    rank = np.float64(k + 1)
    for c in range(natural[k] - 1, -1, -1):
        # The rows up to k that stand above c pass t[c], which scores no lower than they do.
        if c < natural[k] - 1:
            cost += (k - dragged) * (t[c] - t[c + 1])
        while dragged >= 0 and natural[dragged] > c:
            cost += t[c] - s[dragged]
            dragged -= 1
        value += -pull * rank / ((rank + c) * (rank + c + 1)) - cost
        if value > best:
            best, high = value, c
        if value >= best:
            low = c
    return low, high


@kernel
def precision_at_row(lists, counts, row):
    """``k / (k + c_k)`` of each ranking, zero beyond the positives; shape ``(R,)``."""
    result = np.zeros(len(row))
    for r in range(len(row)):
        i = lists.positive_start[r] + row[r] - 1
        if i < lists.positive_start[r + 1]:
            result[r] = row[r] / (row[r] + counts[i])
    return result
