"""Where on its list a metric looks, per ranking: allowed false positives, needed positives, the top of the list.

Every function returns one value per ranking, computed from the sizes of the R rankings. A fraction of a size is taken with a
margin of ``_MARGIN``, so that rounding neither loses nor adds a whole sample.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel

_MARGIN = 1e-9


@kernel
def false_positive_band(negatives, min_fpr, max_fpr):
    """Return the band between two false positive rates in numbers of negatives, not rounded, two float64 ``(R,)``.

    ``negatives`` is the number of negatives of each ranking, int64 ``(R,)``; a ranking without any counts as one with one.
    """
    low, high = np.empty(len(negatives), np.float64), np.empty(len(negatives), np.float64)
    for r in range(len(negatives)):
        size = max(negatives[r], 1)
        low[r], high[r] = min_fpr * size, max_fpr * size
    return low, high


@kernel
def allowed_false_positives(negatives, fpr):
    """Return ``floor(fpr * N)``, float64 ``(R,)``; ``negatives`` is int64 ``(R,)``."""
    allowed = np.empty(len(negatives), np.float64)
    for r in range(len(negatives)):
        allowed[r] = np.floor(fpr * negatives[r] + _MARGIN)
    return allowed


@kernel
def needed_positives(relevant, recall):
    """Return ``ceil(recall * relevant)``, at least 1, int64 ``(R,)``; ``relevant`` is float64 ``(R,)``."""
    needed = np.empty(len(relevant), np.int64)
    for r in range(len(relevant)):
        needed[r] = max(int(np.ceil(recall * relevant[r] - _MARGIN)), 1)
    return needed


@kernel
def top_of_list(positives, negatives, fraction):
    """Return a fraction of each list, rounded down to at least 1, int64 ``(R,)``; the sizes are int64 ``(R,)``."""
    top = np.empty(len(positives), np.int64)
    for r in range(len(positives)):
        top[r] = max(int(np.floor(fraction * (positives[r] + negatives[r]) + _MARGIN)), 1)
    return top
