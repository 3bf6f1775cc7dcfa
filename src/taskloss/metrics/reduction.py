"""What all the public scores do with their input and their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskloss import _checks
from taskloss.layout import Layout, ranking_weights, to_numpy

REDUCTIONS = ("mean", "sum", "none")


def as_scores(scores: Any) -> np.ndarray:
    """Scores as float32 or float64."""
    array = to_numpy(scores)
    return array if array.dtype == np.float32 else array.astype(np.float64)


def as_optional_array(data: Any) -> np.ndarray | None:
    """Data given as anything that numpy or torch can read, or not given."""
    return None if data is None else to_numpy(data)


def reduce_values(values: np.ndarray, weight: Any, layout: Layout, reduction: str) -> float | np.ndarray:
    """One value an item, NaN where it is undefined, to their weighted mean or sum without those, or to an array of all."""
    _checks.check_choice("reduction", reduction, REDUCTIONS)
    weights = ranking_weights(layout, as_optional_array(weight))
    if reduction == "none":
        return (values * weights).reshape(layout.values_shape)
    defined = ~np.isnan(values)
    total = float(np.dot(values[defined], weights[defined]))
    if reduction == "sum":
        return total
    mass = float(weights[defined].sum())
    return total / mass if mass > 0 else float("nan")
