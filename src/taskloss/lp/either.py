"""What the engines compute with: numpy arrays on the CPU, or tensors on the device of the data. A row is an item of the batch."""

from __future__ import annotations

import functools
import operator
from typing import Any, TypeAlias

import numpy as np
import torch

Array: TypeAlias = Any
"""A numpy array or a tensor, float64 unless it counts or tells yes from no."""


def module_of(array: Array) -> Any:
    """``torch`` or ``numpy``: where the functions of an array are."""
    return torch if isinstance(array, torch.Tensor) else np


def tensor_of(array: Array) -> torch.Tensor:
    """The same numbers as a tensor."""
    return array if isinstance(array, torch.Tensor) else torch.from_numpy(np.asarray(array, order="C"))


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor as an array of float64."""
    return tensor.to("cpu", torch.float64).numpy(force=True)


def total_of(parts: list[Array]) -> Array:
    """The sum of arrays of one shape; of one, the array itself."""
    return functools.reduce(operator.add, parts)


def columns_of(array: Array, places: np.ndarray) -> Array:
    """``array[:, places]``."""
    if isinstance(array, torch.Tensor):
        return array.index_select(1, torch.from_numpy(places).to(array.device))
    return array.take(places, axis=1)
