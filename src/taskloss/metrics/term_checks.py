"""Checks of the user's function ``m(i, c)``, with their messages; see :mod:`taskloss.metrics.separable`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

# Beyond [0, 1] by no more than this is rounding; likewise, relative to the largest value, a term that should have fallen.
_ROUNDING = 1e-9
_ROUNDING_OF_TERMS = 1e-12


def check_term_function(m: Any, sizes: Sequence[str]) -> frozenset[str]:
    """Return which of ``sizes`` the function has parameters for, if it can be called as ``m(i, c)``."""
    if not callable(m):
        raise TypeError(f"m must be a function m(i, c) of numpy arrays, got {type(m).__name__}")
    try:
        hash(m)
    except TypeError as error:
        raise TypeError(f"m cannot be hashed ({error}); pass a function, or make its class a frozen dataclass") from error
    try:
        signature = inspect.signature(m)
    except ValueError:
        # Some compiled functions have no signature; they are called with i and c.
        return frozenset()
    wanted = frozenset(sizes) & signature.parameters.keys()
    try:
        signature.bind(0, 0, **dict.fromkeys(wanted, 0))
    except TypeError as error:
        raise TypeError(
            f"m cannot be called as m(i, c): {error}. It takes i and c by position, and if it has parameters of these names "
            f"{' and '.join(sizes)}; fix others with functools.partial"
        ) from error
    return wanted


def as_terms(values: Any, i: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return what a term function gave, if it is a finite number for each argument, as float64."""
    array = np.asarray(values)
    if array.shape not in ((), i.shape) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"m returned {array.dtype} of shape {array.shape} for i and c of shape {i.shape}; expected a real number for each. "
            "Write it with numpy functions, np.where instead of if"
        )
    terms = np.ascontiguousarray(np.broadcast_to(array, i.shape), np.float64)
    finite = np.isfinite(terms)
    if not finite.all():
        bad = int(finite.argmin())
        raise ValueError(f"m({i[bad]}, {c[bad]}) is {terms[bad]}; expected finite values for i from 1 and c from 0")
    return terms


def check_perfect(perfect: np.ndarray, relevant: np.ndarray) -> None:
    """Check that a perfect list has a value to divide by."""
    bad = ~(perfect > 0)
    if bad.any():
        ranking = int(bad.argmax())
        raise ValueError(
            f"a perfect list of {int(relevant[ranking])} relevant items has the value {perfect[ranking]:g}, the sum of m(i, 0); "
            "expected a value above zero to divide by. Change m, or pass normalize=False"
        )


def check_unit_interval(lowest: np.ndarray, highest: np.ndarray, normalized: bool) -> None:
    """Check that the metric's least and greatest values lie in [0, 1]."""
    bad = (lowest < -_ROUNDING) | (highest > 1 + _ROUNDING)
    if bad.any():
        ranking = int(bad.argmax())
        advice = (
            "m(i, c) must not fall below zero"
            if normalized
            else "Divide m by what a perfect list reaches, or leave normalize=True"
        )
        raise ValueError(
            f"the metric of ranking {ranking} goes from {lowest[ranking]:g}, all negatives above, to {highest[ranking]:g}, none "
            f"above; expected values in [0, 1]. {advice}"
        )


def check_retrieved_together(values: np.ndarray) -> None:
    """Check that the metric stays in [0, 1] when each positive of a tied group counts as its last one."""
    bad = values > 1 + _ROUNDING
    if bad.any():
        raise ValueError(
            f"with ties='together' the metric of ranking {int(bad.argmax())} is {values[bad][0]:g}, above 1: every positive of a "
            "tied group counts as the last of it, which does not suit this m. Use ties='mean' or 'worst'"
        )


def check_falling(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    """Check that ``values[i, c]`` does not grow along c, beyond rounding."""
    growth = np.diff(values, axis=1)
    bad = growth > _ROUNDING_OF_TERMS * np.abs(values).max(initial=0.0)
    if bad.any():
        row, column = np.unravel_index(int(bad.argmax()), bad.shape)
        i, low, high = rows[row], columns[column], columns[column + 1]
        raise ValueError(
            f"m grows with c: m({i}, {low}) is {values[row, column]:g} and m({i}, {high}) is {values[row, column + 1]:g}. "
            "Expected a metric that does not gain when a negative moves above a positive"
        )


def check_convex(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    """Check that ``values[i, c]`` is convex along c, beyond rounding."""
    slopes = np.diff(values, axis=1) / np.diff(columns)
    bad = np.diff(slopes, axis=1) < -_ROUNDING_OF_TERMS * np.abs(values).max(initial=0.0)
    if bad.any():
        row, column = np.unravel_index(int(bad.argmax()), bad.shape)
        terms = ", ".join(f"m({rows[row]}, {columns[k]}) = {values[row, k]:g}" for k in range(column, column + 3))
        raise ValueError(f"m is declared convex in c but is not: {terms}. Leave out convex=True; a table then solves any m")
