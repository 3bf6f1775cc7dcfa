"""Reading and ranking validation samples, and placing a threshold between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskloss import _checks
from taskloss._positive import positive_samples
from taskloss.layout import to_numpy
from taskloss.metrics.reduction import as_scores


def read_samples(scores: Any, target: Any, pos_label: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Return checked scores, float64, and labels, bool, both of shape ``(n,)``.

    The target has two labels of any type; ``pos_label`` names the positive one (:mod:`taskloss._positive`).
    """
    values, labels = as_scores(scores).astype(np.float64), to_numpy(target)
    _checks.check_shapes(values, labels)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"scores has shape {values.shape}; expected one score per sample, shape (n,), and at least one sample")
    _checks.check_finite(values, None)
    # The warning about labels names the line that called the public function.
    return values, positive_samples(labels, pos_label, stacklevel=3)


def ranked(values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores in descending order, and the number of positives among the first 1, 2, ... of them."""
    order = np.argsort(-values, kind="stable")
    return values[order], np.cumsum(labels[order])


def just_below(values: np.ndarray, score: float) -> float:
    """Return a threshold halfway from this score to the next lower one, or half the scores' range below the lowest one."""
    lower = values[values < score]
    other = float(lower.max()) if len(lower) else score - max(float(np.ptp(values)), 1.0)
    middle = other + (score - other) / 2
    # There may be no floating-point number between the two.
    return middle if other <= middle < score else other


def just_above(values: np.ndarray, score: float) -> float:
    """Return a threshold above ``score``, the highest one, by half the range of the scores."""
    return score + max(float(np.ptp(values)), 1.0) / 2
