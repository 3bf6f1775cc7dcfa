"""Loss-augmented inference over counts by dynamic programming on the full grid, in extended precision.

Independent of the library: no one-sidedness, no convexity, no monotone rows; every cell of every row.
"""

from __future__ import annotations

import numpy as np


def row_scores(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    """``sum_{j <= c} (t_j - s_i)``, shape (positives, negatives + 1), in extended precision."""
    s, t = s.astype(np.longdouble), t.astype(np.longdouble)
    return np.concatenate([np.zeros((len(s), 1), np.longdouble), np.cumsum(t[None] - s[:, None], axis=1)], axis=1)


def best_value(
    s: np.ndarray, t: np.ndarray, metric: np.ndarray, worth: float, allowed: np.ndarray | None = None
) -> np.longdouble:
    """``max_c sum_i row_i(c_i) - worth * metric[i, c_i]`` over nondecreasing counts, cells restricted to ``allowed``."""
    rows = row_scores(s, t) - np.longdouble(worth) * metric
    if allowed is not None:
        rows = np.where(allowed, rows, -np.inf)
    best = np.zeros(rows.shape[1], np.longdouble)
    for row in rows:
        best = np.maximum.accumulate(best + row)
    return best[-1]


def value_of(s: np.ndarray, t: np.ndarray, metric_value: float, worth: float, counts: np.ndarray) -> np.longdouble:
    """The objective of one count vector whose metric is ``metric_value``."""
    return row_scores(s, t)[np.arange(len(s)), counts].sum() - np.longdouble(worth) * np.longdouble(metric_value)
