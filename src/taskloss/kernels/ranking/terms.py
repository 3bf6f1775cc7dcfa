r"""The terms of separable ranking metrics, and their decrease when a negative rises.

A ranking metric is *separable* when it is a sum over the positives in which each is seen only through its rank ``i`` among the
positives (1 is the top) and the number ``c`` of negatives above it:

.. math:: M(c) = \text{scale} \cdot \sum_i m(i, c_i).

A metric is named by an integer rather than passed as a function: numba can cache such kernels on disk, and the branch costs
nothing.

The solvers never need ``m`` itself for a block of positives ``a..b``, only the *drop* of the metric when one more negative
passes above all of them, ``drop(a, b, c) = sum_{i=a..b} m(i, c) - m(i, c + 1)``. Differences of prefix tables (harmonic numbers)
equal it in exact arithmetic but are noise in float64 from 100,000 samples on; the formulas below keep full relative precision.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inlined_kernel, inner_kernel, kernel

AVERAGE_PRECISION = 0
NDCG = 1

# From this rank on, the asymptotic series of the harmonic numbers is exact to the last bits with the terms kept below.
_SERIES_FROM = 64
# Blocks of up to this many positives are summed term by term.
_SHORT_BLOCK = 16
_LN2 = np.log(2.0)


@inner_kernel
def discount(rank):
    """Return ``d(rank) = 1 / log2(1 + rank)``, the weight of this rank (from 1) in a discounted cumulative gain."""
    # The rank is an integer, so 1 + rank is exact and the slower log1p would be no more accurate.
    return _LN2 / np.log(1.0 + rank)


@inlined_kernel
def _discount_drop(p, steps):
    r"""Return ``d(p) - d(p + steps)`` without cancellation, as ``ln 2 * ratio / (ln(1 + p) (ln(1 + p) + ratio))``.

    Here ``ratio = ln((1 + p + steps)/(1 + p)) = 2 artanh z`` with ``z = steps / (2 + 2 p + steps)``. For small z a series
    replaces the second logarithm; far down the list, the usual case, its first three terms are exact.
    """
    logarithm = np.log(1.0 + p)
    z = steps / (2.0 + 2.0 * p + steps)
    w = z * z
    if w < 1e-6:
        ratio = 2.0 * z * (1.0 + w * (1 / 3 + w * (1 / 5)))
    elif w < 0.0025:
        ratio = 2.0 * z * (1.0 + w * (1 / 3 + w * (1 / 5 + w * (1 / 7 + w * (1 / 9 + w / 11)))))
    else:
        ratio = np.log1p(steps / (1.0 + p))
    return _LN2 * ratio / (logarithm * (logarithm + ratio))


@kernel
def term(metric, i, c):
    """Return ``m(i, c)``, without the metric's scale: the precision at the positive, or its discount."""
    if metric == NDCG:
        return discount(np.float64(i + c))
    return i / (i + c)


@inlined_kernel
def row_drop(metric, i, c):
    """Return ``m(i, c) - m(i, c + 1)``, the drop of one positive."""
    n = np.float64(i + c)
    if metric == NDCG:
        return _discount_drop(n, 1.0)
    return i / (n * (n + 1.0))


@kernel
def drop(metric, a, b, c):
    """Return the drop of the positives ``a..b`` when the number of negatives above them grows from ``c`` to ``c + 1``.

    For NDCG the sum telescopes: one more negative moves the whole block down by one rank.
    """
    if metric == NDCG:
        return _discount_drop(np.float64(a + c), np.float64(b - a + 1))
    return _average_precision_drop(a, b, c)


@inner_kernel
def _average_precision_drop(a, b, c):
    r"""Return ``sum_{i=a..b} i / ((i + c)(i + c + 1))``, accurate to a few units in the last place.

    With ``p = a + c``, ``q = b + c + 1``, ``d = q - p`` and ``u = d / p`` the sum is ``(H_q - H_p) - c d / (p q)``, where
    ``H`` are the harmonic numbers. The two parts nearly cancel when c is large, so they are not computed separately. Since
    ``c = p - a``,

    .. math:: \text{sum} = [\ln(1 + u) - u / (1 + u)] + (a - 1/2) d / (p q) + R(q) - R(p),

    where ``R(n) = -1/(12 n^2) + 1/(120 n^4) - 1/(252 n^6)`` is the remainder of ``H_n`` after ``ln n + 1/(2 n)`` and a
    constant. With ``v = u / (2 + u)`` the bracket is a sum of positive terms, ``2 v^2 / (1 + v) + 2 v^3/3 + 2 v^5/5 + ...``.
    """
    total = 0.0
    first = a
    # Positives of short blocks and of low ranks are added one by one; the formula takes the others, with ``first`` for a.
    last_single = b if b - a < _SHORT_BLOCK else min(b, _SERIES_FROM - 1 - c)
    while first <= last_single:
        total += row_drop(AVERAGE_PRECISION, first, c)
        first += 1
    if first > b:
        return total
    p = np.float64(first + c)
    q = np.float64(b + c + 1)
    d = q - p
    v = d / (p + q)
    if v < 0.1:
        w = v * v
        tail = w * (1 / 3 + w * (1 / 5 + w * (1 / 7 + w * (1 / 9 + w * (1 / 11 + w * (1 / 13 + w * (1 / 15 + w / 17)))))))
        bracket = 2.0 * v * (v / (1.0 + v) + tail)
    else:
        bracket = np.log1p(d / p) - d / q
    return total + bracket + (first - 0.5) * d / (p * q) + (_harmonic_remainder(q) - _harmonic_remainder(p))


@inner_kernel
def _harmonic_remainder(n):
    """Return ``R(n)`` of :func:`_average_precision_drop`."""
    square = 1.0 / (n * n)
    return square * (-1 / 12 + square * (1 / 120 - square / 252))
