"""Reading the input of the public scores and reducing their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskloss import _checks
from taskloss.kernels.sums import order_free_sum
from taskloss.layout import to_numpy


def as_scores(scores: Any) -> np.ndarray:
    """Return scores as float32 or float64."""
    array = to_numpy(scores)
    return array if array.dtype == np.float32 else array.astype(np.float64)


def as_optional_array(data: Any) -> np.ndarray | None:
    """Return data that numpy or torch can read as an array; None stays None."""
    return None if data is None else to_numpy(data)


def reduce_values(values: np.ndarray, weights: np.ndarray, shape: tuple[int, ...], reduction: str) -> float | np.ndarray:
    """Reduce one value per item to their weighted mean or sum without undefined ones (NaN), or return all of them.

    Values and weights are flat; ``shape`` is that of the array of all.
    """
    _checks.check_reduction(reduction)
    if reduction == "none":
        return (values * weights).reshape(shape)
    defined = ~np.isnan(values)
    total = float(order_free_sum(values[defined] * weights[defined]))
    if reduction == "sum":
        return total
    mass = float(order_free_sum(weights[defined]))
    return total / mass if mass > 0 else float("nan")
