"""Validation samples, read and ranked; where a threshold can lie between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskloss import _checks
from taskloss.layout import to_numpy
from taskloss.metrics.reduction import as_scores


def read_samples(scores: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores as float64 and labels as bool, flat and checked."""
    values, labels = as_scores(scores).astype(np.float64), to_numpy(target)
    _checks.check_shapes(values, labels)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"scores has shape {values.shape}; expected one score a sample, shape (n,), and at least one sample")
    _checks.check_finite(values, None)
    _checks.check_binary(labels, (labels == 0) | (labels == 1))
    return values, labels == 1


def ranked(values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores from the highest, and how many positives are among the first 1, 2, ... of them."""
    order = np.argsort(-values, kind="stable")
    return values[order], np.cumsum(labels[order])


def just_below(values: np.ndarray, score: float) -> float:
    """A threshold that this score exceeds and the next lower one does not: halfway, or as far below as the scores are spread."""
    lower = values[values < score]
    other = float(lower.max()) if len(lower) else score - max(float(np.ptp(values)), 1.0)
    middle = other + (score - other) / 2
    # Neighbouring floating-point numbers have nothing between them.
    return middle if other <= middle < score else other


def just_above(values: np.ndarray, score: float) -> float:
    """A threshold above the highest score."""
    return score + max(float(np.ptp(values)), 1.0) / 2
