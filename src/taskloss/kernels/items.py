"""The items of a batch (rankings, labelings, samples): what each contributes to their mean or sum."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel
from taskloss.kernels.sums import order_free_sum


def filled(count: int, value: float, dtype: type = np.float64) -> np.ndarray:
    """Return an array of one value; for a few items ``np.full`` and ``np.ones`` take several times as long."""
    array: np.ndarray = np.empty(count, dtype)
    array.fill(value)
    return array


@kernel
def weigh_items(values, defined, weights, mean, factor):
    """Weigh the values of R items; undefined items have the weight zero.

    Args:
        values: float64 ``(R,)``, any value where an item is undefined.
        defined: bool ``(R,)``.
        weights: float64 ``(R,)``, at least zero.
        mean: whether to divide the weights by their sum, where that is not zero.
        factor: what the returned weights are multiplied by.

    Returns:
        The weights times ``factor``, float64 ``(R,)``, and the sum of the weighted values. Sums do not depend on the order.
    """
    weighted, share = np.zeros(len(values), np.float64), np.zeros(len(values), np.float64)
    for r in range(len(values)):
        if defined[r]:
            share[r] = weights[r]
    total = order_free_sum(share) if mean else 0.0
    for r in range(len(values)):
        if total != 0.0:
            share[r] /= total
        weighted[r] = (values[r] if defined[r] else 0.0) * share[r]
        share[r] *= factor
    return share, order_free_sum(weighted)
