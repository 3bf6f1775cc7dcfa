"""Reading class scores: one pass over the targets and one over the scores."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.choices import IGNORED


@kernel
def read_class_indices(target, scores, ignore, ignored):
    """Read class indices and check them and the scores.

    Args:
        target: integers or bools ``(outer, inner)``.
        scores: float32 or float64 ``(outer, K, inner)``.
        ignore: whether targets equal to ``ignored`` are left out.
        ignored: a whole number.

    Returns:
        The indices, int64 ``(outer, inner)``, ``IGNORED`` for samples that are left out; whether all the others are from 0 to
        K - 1; and whether all their scores are finite.
    """
    outer, classes, inner = scores.shape
    indices = np.empty((outer, inner), np.int64)
    valid = finite = True
    for b in range(outer):
        for j in range(inner):
            index = np.int64(target[b, j])
            if ignore and index == ignored:
                index = np.int64(IGNORED)
            else:
                valid &= 0 <= index < classes
            indices[b, j] = index
        for k in range(classes):
            for j in range(inner):
                finite &= np.isfinite(scores[b, k, j]) | (indices[b, j] == IGNORED)
    return indices, valid, finite
