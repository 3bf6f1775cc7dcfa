"""Membership in a convex hull, decided by HiGHS."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog


def in_convex_hull(point: np.ndarray, vertices: np.ndarray, tolerance: float = 1e-9) -> bool:
    """Return whether ``point`` is within ``tolerance`` (in the largest coordinate) of the hull of the rows of ``vertices``."""
    k, n = vertices.shape
    # Variables: k convex weights and the distance; minimize the distance.
    distance_rows = np.vstack([np.c_[vertices.T, -np.ones(n)], np.c_[-vertices.T, -np.ones(n)]])
    result = linprog(
        c=np.r_[np.zeros(k), 1.0],
        A_ub=distance_rows,
        b_ub=np.r_[point, -point],
        A_eq=np.r_[np.ones(k), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * (k + 1),
    )
    return bool(result.status == 0 and result.fun <= tolerance)
