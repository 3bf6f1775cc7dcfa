"""The rankings of all pairs of classes: which samples they have, by which score, and the way back for gradients.

K classes have ``K (K - 1) / 2`` pairs a < b, numbered (0, 1), (0, 2), ..., (1, 2), ... A sample of class k is in the ranking of
each pair that has k in it, which are K - 1 entries per sample: entry ``i (K - 1) + c`` belongs to sample i and its c-th other
class.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel


@kernel
def class_pairs(values, target, classes, largest):
    """Return the entries of all pairs of classes: scores, labels (uint8) and pair numbers (int64), each ``(n (K - 1),)``.

    The score of the pair a < b is ``values[:, a] - values[:, b]``; samples of class a are its positives.

    Args:
        values: ``(n, K)``, read.
        target: class indices ``(n,)``, read.
        classes: K.
        largest: differences are clipped to plus or minus this.
    """
    others = classes - 1
    scores = np.empty(len(target) * others, values.dtype)
    labels, pair = np.empty(len(scores), np.uint8), np.empty(len(scores), np.int64)
    for i in range(len(target)):
        own = target[i]
        for c in range(others):
            other = c if c < own else c + 1
            a, b = min(own, other), max(own, other)
            entry = i * others + c
            scores[entry] = max(-largest, min(largest, values[i, a] - values[i, b]))
            labels[entry] = own < other
            pair[entry] = a * classes - (a * (a + 1)) // 2 + b - a - 1
    return scores, labels, pair


@kernel
def sum_class_pairs(gradient, target, classes):
    """Return the gradient ``(n, K)`` with respect to ``values`` of :func:`class_pairs`, given that with respect to its scores."""
    others = classes - 1
    result = np.zeros((len(target), classes), gradient.dtype)
    for i in range(len(target)):
        own = target[i]
        for c in range(others):
            other = c if c < own else c + 1
            part = gradient[i * others + c]
            result[i, min(own, other)] += part
            result[i, max(own, other)] -= part
    return result
