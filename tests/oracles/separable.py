"""Loss-augmented inference over counts by dynamic programming on the full grid, in extended precision.

Independent of the library: it uses neither one-sidedness nor convexity nor monotone rows, but every cell of every row.
"""

from __future__ import annotations

import numpy as np


def row_scores(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return ``sum_{j <= c} (t_j - s_i)``, shape (positives, negatives + 1), in extended precision."""
    s, t = s.astype(np.longdouble), t.astype(np.longdouble)
    return np.concatenate([np.zeros((len(s), 1), np.longdouble), np.cumsum(t[None] - s[:, None], axis=1)], axis=1)


def best_value(
    s: np.ndarray, t: np.ndarray, metric: np.ndarray, loss_weight: float, allowed: np.ndarray | None = None
) -> np.longdouble:
    """Return ``max_c sum_i row_i(c_i) - loss_weight * metric[i, c_i]`` over nondecreasing counts in ``allowed`` cells."""
    rows = row_scores(s, t) - np.longdouble(loss_weight) * metric
    if allowed is not None:
        rows = np.where(allowed, rows, -np.inf)
    best = np.zeros(rows.shape[1], np.longdouble)
    for row in rows:
        best = np.maximum.accumulate(best + row)
    return best[-1]


def value_of(s: np.ndarray, t: np.ndarray, metric_value: float, loss_weight: float, counts: np.ndarray) -> np.longdouble:
    """Return the objective of one count vector with this value of the metric."""
    return row_scores(s, t)[np.arange(len(s)), counts].sum() - np.longdouble(loss_weight) * np.longdouble(metric_value)
