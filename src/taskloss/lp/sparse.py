"""A sparse matrix whose values are a tensor: what a program's matrix usually is when a network makes its entries.

torch's own sparse tensors work as well, but their gradients cost more than the linear program: that of a CSR tensor is formed
as a dense matrix.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import torch


@dataclasses.dataclass(frozen=True, eq=False)
class Places:
    """Where the entries of a matrix are. ``order`` sorts them by row; None if they are sorted."""

    rows: np.ndarray
    columns: np.ndarray
    num_rows: int
    order: np.ndarray | None = None

    @functools.cached_property
    def row_lengths(self) -> np.ndarray:
        """How many entries each row has."""
        return np.bincount(self.rows, minlength=self.num_rows)

    @functools.cached_property
    def sorted_columns(self) -> np.ndarray:
        """The columns of the entries, sorted by row."""
        return self.columns if self.order is None else self.columns[self.order]


@dataclasses.dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix with ``values[..., k]`` at row ``rows[k]``, column ``columns[k]``; values at the same place add up.

    Args:
        rows, columns: whole numbers ``(entries,)``, tensors or arrays, in any order.
        values: tensor ``(entries,)``, or ``(B, entries)`` for one matrix an item of a batch.
        size: ``(rows, columns)``.

    >>> values = torch.tensor([2.0, 3.0], requires_grad=True)
    >>> matrix = SparseMatrix([0, 1], [1, 0], values, (2, 2))
    >>> matrix.to_dense().tolist()
    [[0.0, 2.0], [3.0, 0.0]]

    Where the places stay and the values change, ``with_values`` saves the checks and the sorting:

    >>> matrix.with_values(torch.ones(4, 2)).shape
    torch.Size([4, 2, 2])
    """

    rows: Any
    columns: Any
    values: torch.Tensor
    size: tuple[int, int]
    places: Places = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows, columns = (self._checked_places(name, length) for name, length in zip(("rows", "columns"), self.size, strict=True))
        self._check_values(self.values, len(rows))
        if len(columns) != len(rows):
            raise ValueError(f"rows has {len(rows)} entries and columns has {len(columns)}; expected one of each an entry")
        order = np.argsort(rows, kind="stable") if (np.diff(rows) < 0).any() else None
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "places", Places(rows, columns, self.size[0], order))

    def _checked_places(self, name: str, length: int) -> np.ndarray:
        given: Any = getattr(self, name)
        places = np.asarray(given.cpu() if isinstance(given, torch.Tensor) else given)
        if places.ndim != 1 or not (np.issubdtype(places.dtype, np.integer) or not len(places)):
            raise ValueError(f"{name} has shape {places.shape} and type {places.dtype}; expected whole numbers, one an entry")
        if len(places) and not (places.min() >= 0 and places.max() < length):
            raise ValueError(f"{name} goes from {places.min()} to {places.max()}; expected 0 to {length - 1}, as size says")
        return places.astype(np.int64)

    @staticmethod
    def _check_values(values: Any, entries: int) -> None:
        if not isinstance(values, torch.Tensor):
            raise TypeError(f"values must be a torch.Tensor, got {type(values).__name__}; use torch.as_tensor(values)")
        if values.ndim not in (1, 2) or values.shape[-1] != entries:
            raise ValueError(f"values has shape {tuple(values.shape)}; expected ({entries},) or (batch, {entries})")

    def with_values(self, values: torch.Tensor) -> SparseMatrix:
        """The matrix with other values at the same places, in the same order."""
        self._check_values(values, len(self.rows))
        other = object.__new__(SparseMatrix)
        for name in ("rows", "columns", "size", "places"):
            object.__setattr__(other, name, getattr(self, name))
        object.__setattr__(other, "values", values)
        return other

    @property
    def shape(self) -> torch.Size:
        """``(rows, columns)``, after the batch size if there is a matrix an item."""
        return torch.Size([*self.values.shape[:-1], *self.size])

    @property
    def dtype(self) -> torch.dtype:
        """Of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Of the values."""
        return self.values.device

    def to_dense(self) -> torch.Tensor:
        """The same as a dense tensor, attached to the graph."""
        return dense_matrix(self.rows, self.columns, self.values, self.size)


def dense_matrix(rows: np.ndarray, columns: np.ndarray, values: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """The dense matrix, or one a row of ``values``, with these entries."""
    place = torch.from_numpy(rows * size[1] + columns).to(values.device)
    flat = values.new_zeros((*values.shape[:-1], size[0] * size[1]))
    return flat.index_add(-1, place, values).reshape(*values.shape[:-1], *size)
