"""Sums that do not depend on the order of their terms, to the last bit."""

from __future__ import annotations

import math

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel

# Above this value the grids below could overflow; the terms are then scaled by a power of two, which is exact.
_LARGEST = 2.0**900
_SHRINK = 2.0**-200


@kernel
def order_free_sum(values):
    """Return the sum of float64 ``values``, bit for bit the same in any order of them.

    Each term is cut into three slices on fixed grids, which depend only on the largest term and the number of terms: the first
    slice is the term rounded to multiples of ``u``, the second the remainder rounded to a finer grid, and so on. The slices of
    one grid are small multiples of one power of two, so their sum is exact in any order; only the addition of the
    three totals rounds. (Demmel and Nguyen, *Fast reproducible floating-point summation*, 2013.)

    >>> order_free_sum(np.array([1e16, 1.0, -1e16, 1.0]))
    2.0
    """
    largest = 0.0
    for value in values:
        largest = max(largest, abs(value))
        if not math.isfinite(value):
            return _plain_sum(values)
    if largest == 0.0:
        return 0.0
    scale = _SHRINK if largest > _LARGEST else 1.0
    width = math.ceil(math.log2(len(values))) + 1
    # |term| < 2^exponent; 2^width terms on the grid 2^(exponent + width - 52) add up to less than 2^53 steps of it.
    exponent = math.frexp(largest * scale)[1]
    first = _rounder(exponent + width - 52)
    second = _rounder(exponent + 2 * width - 2 * 52)
    third = _rounder(exponent + 3 * width - 3 * 52)
    totals = np.zeros(3, np.float64)
    for value in values:
        remainder = value * scale
        for k, rounder in enumerate((first, second, third)):
            piece = (remainder + rounder) - rounder
            totals[k] += piece
            remainder -= piece
    return ((totals[2] + totals[1]) + totals[0]) / scale


@inner_kernel
def _plain_sum(values):
    """Return the sum in the order given, for values that are not all finite."""
    total = 0.0
    for value in values:
        total += value
    return total


@kernel
def order_free_sums(values, start, stop):
    """Return the :func:`order_free_sum` of each segment ``values[start[r] : stop[r]]``, float64 ``(R,)``."""
    result = np.empty(len(start), np.float64)
    for r in range(len(start)):
        result[r] = order_free_sum(values[start[r] : stop[r]])
    return result


def order_free_sums_by_owner(values: np.ndarray, owner: np.ndarray, owners: int) -> np.ndarray:
    """Return the :func:`order_free_sum` of the values of each owner, float64 ``(owners,)``.

    >>> order_free_sums_by_owner(np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), 3).tolist()
    [2.0, 0.0, 5.0]
    """
    stop = np.cumsum(np.bincount(owner, minlength=owners))
    start = np.concatenate((np.zeros(1, np.int64), stop))[:-1]
    # A stable sort takes linear time where the samples of an owner are already contiguous.
    return order_free_sums(values[np.argsort(owner, kind="stable")], start, stop)


def summable_unit(*values: np.ndarray) -> float:
    """Return a power of two such that sums of up to 2^60 ``values``, multiplied by it, stay finite; 1 unless some are huge."""
    largest = max(float(np.abs(part).max(initial=0.0)) for part in values)
    return 2.0**-64 if largest > 2.0**960 else 1.0


def summable_rows(rows: np.ndarray) -> np.ndarray:
    """Return rows ``(R, ...)``, each multiplied by its :func:`summable_unit`: no row depends on another one.

    >>> summable_rows(np.array([[1.0, 2.0], [2.0**1000, 0.0]])).tolist() == [[1.0, 2.0], [2.0**936, 0.0]]
    True
    """
    if summable_unit(rows) == 1.0:
        return rows
    return rows * np.array([summable_unit(row) for row in rows]).reshape(-1, *[1] * (rows.ndim - 1))


@inner_kernel
def _rounder(exponent):
    """Return the constant that rounds a float to multiples of ``2^exponent`` when it is added and subtracted again."""
    return math.ldexp(1.5, exponent + 52)
