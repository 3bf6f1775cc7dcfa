r"""Metrics of confusion counts: their values, and the most that one sample can change them.

A metric depends on a labeling of P positives and N negatives only through its ``a`` true positives and ``b`` false positives:

==================  ============================================================================
metric              value
==================  ============================================================================
accuracy            ``(a + N - b) / (P + N)``
balanced accuracy   mean of ``a / P`` and ``(N - b) / N``; if a class is missing, the rate of the other
F-beta              ``(1 + beta^2) a / (beta^2 P + a + b)``
Jaccard             ``a / (P + b)``
G-mean              ``sqrt(a / P * (N - b) / N)``
MCC                 ``(a N - b P) / sqrt(P N k (P + N - k))`` with ``k = a + b``
==================  ============================================================================

All of them grow with a and fall with b. A quotient 0/0 counts as ``zero_division``: F-beta and Jaccard when there is neither
a positive nor a false positive, a rate of the G-mean when its class is missing. MCC is 0/0 when all samples, or all
predictions, belong to one class: as in scikit-learn it is then 0, except that it counts as ``zero_division`` when all samples
belong to one class and are labeled correctly.

A metric is named by an integer, as in :mod:`taskloss.kernels.ranking.terms`.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel

ACCURACY, BALANCED_ACCURACY, F_BETA, JACCARD, G_MEAN, MCC = range(6)


@inlined_kernel
def _ratio(numerator, denominator, zero_division):
    return numerator / denominator if denominator > 0 else zero_division


@inlined_kernel
def metric_value(metric, a, b, positives, negatives, beta2, zero_division):
    """Return the metric of one labeling; all arguments but ``metric`` float64, ``beta2`` the square of the F-score's beta."""
    if metric == F_BETA:
        return _ratio((1.0 + beta2) * a, beta2 * positives + a + b, zero_division)
    if metric == JACCARD:
        return _ratio(a, positives + b, zero_division)
    if metric == ACCURACY:
        return _ratio(a + (negatives - b), positives + negatives, zero_division)
    if metric == G_MEAN:
        return np.sqrt(_ratio(a, positives, zero_division) * _ratio(negatives - b, negatives, zero_division))
    if metric == BALANCED_ACCURACY:
        if positives == 0.0 or negatives == 0.0:
            return _ratio(a + (negatives - b), positives + negatives, zero_division)
        return (a / positives + (negatives - b) / negatives) / 2.0
    return _correlation(a, b, positives, negatives, zero_division)


@inlined_kernel
def _correlation(a, b, positives, negatives, zero_division):
    """Return Matthews' correlation; 1 and -1 are exact, whatever the roots round to."""
    if a == positives and b == 0.0:
        return 1.0 if positives > 0.0 and negatives > 0.0 else zero_division
    labeled_1 = a + b
    labeled_0 = positives + negatives - labeled_1
    if positives == 0.0 or negatives == 0.0 or labeled_1 == 0.0 or labeled_0 == 0.0:
        return 0.0
    if a == 0.0 and b == negatives:
        return -1.0
    return (a * negatives - b * positives) / (np.sqrt(positives * negatives) * np.sqrt(labeled_1 * labeled_0))


@kernel
def metric_values(metric, true_positives, false_positives, positives, negatives, beta2, zero_division):
    """Return the metric of R labelings, float64 ``(R,)``; the four counts are integers or floats ``(R,)``."""
    result = np.empty(len(true_positives), np.float64)
    for r in range(len(result)):
        a, b = np.float64(true_positives[r]), np.float64(false_positives[r])
        result[r] = metric_value(metric, a, b, np.float64(positives[r]), np.float64(negatives[r]), beta2, zero_division)
    return result


@kernel
def largest_change(metric, sign, a, b, a_most, b_most, positives, negatives, beta2):
    r"""Return upper bounds of the change of the metric when one positive, and when one negative, flips during an update.

    The positive update (``sign > 0``) only lowers a from at most ``a_most`` and raises b from at least ``b``; the negative
    update only raises a from at least ``a`` and lowers b from at most ``b_most``. With ``c = beta^2 P``, one true positive
    less, or one false positive more, lowers F-beta by

    .. math::
        \frac{(1 + \beta^2)(c + b)}{(c + a + b)(c + a + b - 1)}, \qquad \frac{(1 + \beta^2)\, a}{(c + a + b)(c + a + b + 1)},

    each largest at an end of its ranges or at the maximum of :func:`_largest_share_change`. Samples whose flip costs more than
    the bound keep their labels, so they need not be sorted. The bounds are infinite where no useful ones are known.
    """
    if positives == 0.0 or negatives == 0.0:
        return np.inf, np.inf
    if metric == ACCURACY:
        return 1.0 / (positives + negatives), 1.0 / (positives + negatives)
    if metric == BALANCED_ACCURACY:
        return 0.5 / positives, 0.5 / negatives
    if metric == JACCARD:
        if sign > 0:
            return 1.0 / (positives + b), a_most / ((positives + b) * (positives + b + 1.0))
        return 1.0 / positives, 1.0 / (positives + 1.0)
    if metric == F_BETA:
        c = beta2 * positives
        if sign > 0:
            return (1.0 + beta2) / (c + b + 1.0), (1.0 + beta2) * _largest_share_change(0.0, a_most, c + b)
        return (
            (1.0 + beta2) * _largest_share_change(c, c + b_most, a),
            (1.0 + beta2) * _largest_share_change(a, positives, c),
        )
    return np.inf, np.inf


@inlined_kernel
def _largest_share_change(low, high, rest):
    """Return the maximum of ``x / ((x + rest)(x + rest + 1))`` for x in ``low..high``; it peaks at ``sqrt(rest (rest + 1))``."""
    x = min(max(np.sqrt(rest * (rest + 1.0)), low), high)
    return x / ((x + rest) * (x + rest + 1.0)) if x > 0.0 else 0.0
