"""Objectives of count vectors in rational arithmetic: no rounding at all."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def objective_gain(s: np.ndarray, t: np.ndarray, start: np.ndarray, end: np.ndarray, weight: float) -> Fraction:
    """Return ``P N / 2`` times the change of ``F + weight * L_AP`` from the counts ``start`` to ``end``, exactly.

    ``s`` and ``t`` are sorted descending. ``F = 1/(P N) sum_ij y_ij (s_i - t_j)``: a negative that passes above a positive
    changes its pair from ``s_i - t_j`` to ``t_j - s_i``.
    """
    loss_weight = Fraction(weight) * len(t) / 2
    total = Fraction(0)
    for i in np.flatnonzero(start != end):
        a, b = int(start[i]), int(end[i])
        sign = 1 if b > a else -1
        passed = sum((Fraction(float(t[j])) for j in range(min(a, b), max(a, b))), Fraction(0))
        total += sign * passed - (b - a) * Fraction(float(s[i]))
        row = int(i) + 1
        total += loss_weight * (Fraction(row, row + a) - Fraction(row, row + b))
    return total
