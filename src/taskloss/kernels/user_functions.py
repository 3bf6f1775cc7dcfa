"""Functions of the user that numba compiled: kernels call them on numbers, in the loop that uses the values.

A plain numpy function makes an array for each of its operations, which takes ten times as long as the rest of a large table. A
function from ``numba.njit`` is compiled again here with the settings of the kernels, so that a division by zero gives NaN or
infinity, as in numpy, and not an exception. The kernels that contain it cannot be cached on disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np


def is_compiled(function: Any) -> bool:
    """Whether a function comes from ``numba.njit``."""
    return bool(numba.extending.is_jitted(function))


def generic_kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel that takes a compiled function as its first argument, in memory for each such function."""
    return numba.njit(nogil=True, error_model="numpy")(function)


@functools.lru_cache(maxsize=256)
def of_numbers(function: Any) -> Any:
    """Return a compiled function with the settings of the kernels."""
    return generic_kernel(function.py_func)


@functools.lru_cache(maxsize=256)
def of_arrays(function: Any) -> Callable[..., Any]:
    """Return a function of arrays: a compiled function element by element, any other function itself."""
    return numba.vectorize(function.py_func) if is_compiled(function) else function


@functools.lru_cache(maxsize=256)
def term_of_numbers(m: Any, names: frozenset[str]) -> Any:
    """Return a compiled term function as one of ``(i, c, num_relevant, num_negatives)``; ``names`` are those that it takes."""
    term = of_numbers(m)
    forms: dict[frozenset[str], Callable[..., Any]] = {
        frozenset(): lambda i, c, r, n: term(i, c),
        frozenset({"num_relevant"}): lambda i, c, r, n: term(i, c, num_relevant=r),
        frozenset({"num_negatives"}): lambda i, c, r, n: term(i, c, num_negatives=n),
        frozenset({"num_relevant", "num_negatives"}): lambda i, c, r, n: term(i, c, num_relevant=r, num_negatives=n),
    }
    return generic_kernel(forms[names])


@functools.lru_cache(maxsize=256)
def term_of_arrays(m: Any, names: frozenset[str]) -> Callable[..., Any]:
    """Return a term function of arrays, called with the sizes of ``names`` by keyword."""
    if not is_compiled(m):
        return m
    elementwise = numba.vectorize(term_of_numbers(m, names).py_func)

    def term(i: np.ndarray, c: np.ndarray, num_relevant: Any = 1, num_negatives: Any = 1) -> np.ndarray:
        with np.errstate(all="ignore"):  # A value that is not finite raises an error of its own.
            return elementwise(i, c, num_relevant, num_negatives)

    return term


@generic_kernel
def write_terms(term, ranks, relevant, negatives, start, step, cells, out):
    """Write the terms of consecutive counts of some positives.

    Args:
        term: a function of :func:`term_of_numbers`.
        ranks: rank of each of k positives, int64 ``(k,)``, read.
        relevant: relevant items of its ranking, likewise.
        negatives: negatives of its ranking, likewise.
        start: the first count of each positive, likewise.
        step: 1 for rising counts, -1 for falling ones.
        cells: the number of counts of each positive, int64 ``(k,)``, read.
        out: the terms of the positives one after another, float64, written.
    """
    first = 0
    for k in range(len(ranks)):
        for j in range(cells[k]):
            out[first + j] = term(ranks[k], start[k] + step * j, relevant[k], negatives[k])
        first += cells[k]


@generic_kernel
def write_values(metric, first, positives, negatives, zero_division, values):
    """Write a metric of confusion counts for true positives from ``first``, false positives from 0; NaN is ``zero_division``.

    Args:
        metric: a function of :func:`of_numbers`, ``(tp, fp, fn, tn) -> value``.
        first: true positives in the first row.
        positives: P.
        negatives: N.
        zero_division: replaces NaN.
        values: float64 ``(rows, N + 1)``, written.
    """
    for row in range(len(values)):
        a = first + row
        for b in range(negatives + 1):
            value = metric(float(a), float(b), float(positives - a), float(negatives - b))
            values[row, b] = zero_division if np.isnan(value) else value
