"""Matrices of linear programs: dense tensors, or sparse ones whose values are a tensor that a network may make.

Every sparse format is read as a :class:`SparseMatrix`. Prefer it to torch's own sparse tensors, whose gradients cost more than
the linear program: that of a CSR tensor is formed as a dense matrix.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
import torch


@dataclasses.dataclass(frozen=True, eq=False)
class Indices:
    """Rows and columns of the entries of a matrix; ``order`` sorts them by row (None: they are sorted)."""

    rows: np.ndarray
    columns: np.ndarray
    num_rows: int
    order: np.ndarray | None = None

    @functools.cached_property
    def row_lengths(self) -> np.ndarray:
        """Number of entries of each row."""
        return np.bincount(self.rows, minlength=self.num_rows)

    @functools.cached_property
    def sorted_columns(self) -> np.ndarray:
        """Columns of the entries, sorted by row."""
        return self.columns if self.order is None else self.columns[self.order]


@dataclasses.dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix with ``values[..., k]`` at row ``rows[k]``, column ``columns[k]``; values at the same indices add up.

    Args:
        rows, columns: integers ``(entries,)``, tensors or arrays, in any order.
        values: tensor ``(entries,)``, or ``(B, entries)`` for one matrix per item of a batch.
        size: ``(rows, columns)``.

    >>> values = torch.tensor([2.0, 3.0], requires_grad=True)
    >>> matrix = SparseMatrix([0, 1], [1, 0], values, (2, 2))
    >>> matrix.to_dense().tolist()
    [[0.0, 2.0], [3.0, 0.0]]

    Where the indices stay and the values change, ``with_values`` saves the checks and the sorting:

    >>> matrix.with_values(torch.ones(4, 2)).shape
    torch.Size([4, 2, 2])
    """

    rows: Any
    columns: Any
    values: torch.Tensor
    size: tuple[int, int]
    indices: Indices = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows, columns = (self._checked_indices(name, length) for name, length in zip(("rows", "columns"), self.size, strict=True))
        self._check_values(self.values, len(rows))
        if len(columns) != len(rows):
            raise ValueError(f"rows has {len(rows)} entries and columns has {len(columns)}; expected one of each per entry")
        order = np.argsort(rows, kind="stable") if (np.diff(rows) < 0).any() else None
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "indices", Indices(rows, columns, self.size[0], order))

    def _checked_indices(self, name: str, length: int) -> np.ndarray:
        given: Any = getattr(self, name)
        indices = np.asarray(given.cpu() if isinstance(given, torch.Tensor) else given)
        if indices.ndim != 1 or not (np.issubdtype(indices.dtype, np.integer) or not len(indices)):
            raise ValueError(f"{name} has shape {indices.shape} and type {indices.dtype}; expected integers, one per entry")
        if len(indices) and not (indices.min() >= 0 and indices.max() < length):
            raise ValueError(f"{name} goes from {indices.min()} to {indices.max()}; expected 0 to {length - 1}, as size says")
        return indices.astype(np.int64)

    @staticmethod
    def _check_values(values: Any, entries: int) -> None:
        if not isinstance(values, torch.Tensor):
            raise TypeError(f"values must be a torch.Tensor, got {type(values).__name__}; use torch.as_tensor(values)")
        if values.ndim not in (1, 2) or values.shape[-1] != entries:
            raise ValueError(f"values has shape {tuple(values.shape)}; expected ({entries},) or (batch, {entries})")

    def with_values(self, values: torch.Tensor) -> SparseMatrix:
        """Return the matrix with other values at the same indices, in the same order."""
        self._check_values(values, len(self.rows))
        return _with_indices(self.indices, values, self.size)

    @property
    def shape(self) -> torch.Size:
        """``(rows, columns)``, after the batch size if there is one matrix per item."""
        return torch.Size([*self.values.shape[:-1], *self.size])

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Device of the values."""
        return self.values.device

    def to_dense(self) -> torch.Tensor:
        """Return the same matrix as a dense tensor, attached to the graph."""
        flat_index = torch.from_numpy(self.rows * self.size[1] + self.columns).to(self.values.device)
        flat = self.values.new_zeros((*self.values.shape[:-1], self.size[0] * self.size[1]))
        return flat.index_add(-1, flat_index, self.values).reshape(self.shape)


Matrix: TypeAlias = torch.Tensor | SparseMatrix
"""What every accepted format is read as: a dense tensor ``(rows, columns)`` or ``(B, rows, columns)``, or a sparse matrix."""


def as_matrix(given: Any) -> Matrix:
    """Read a matrix in any format as a dense tensor or a ``SparseMatrix``, attached to the graph.

    >>> matrix = as_matrix(torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr())
    >>> matrix.rows.tolist(), matrix.columns.tolist(), matrix.values.tolist()
    ([0, 1], [1, 0], [2.0, 3.0])
    """
    if isinstance(given, SparseMatrix) or (isinstance(given, torch.Tensor) and given.layout == torch.strided):
        return given
    size = (int(given.shape[-2]), int(given.shape[-1]))
    if scipy.sparse.issparse(given):
        table = given.tocsr()
        if not table.has_canonical_format:
            table = table.copy()
            table.sum_duplicates()
        indices = Indices(_rows_of(table.indptr), table.indices.astype(np.int64), size[0])
        return _with_indices(indices, torch.from_numpy(table.data), size)
    if given.layout == torch.sparse_coo:
        joined = given.coalesce()
        rows, columns = joined.indices().cpu().numpy()
        return _with_indices(Indices(rows, columns, size[0]), joined.values(), size)
    starts, columns = given.crow_indices().cpu().numpy(), given.col_indices().cpu().numpy()
    if starts.ndim == 2:
        if (starts != starts[0]).any() or (columns != columns[0]).any():
            raise ValueError(
                "the matrices of a batched CSR tensor store different entries; expected the same indices in all of them: "
                "store zeros where a matrix has no entry, or give a dense tensor"
            )
        starts, columns = starts[0], columns[0]
    return _with_indices(Indices(_rows_of(starts), columns.astype(np.int64), size[0]), given.values(), size)


def _with_indices(indices: Indices, values: torch.Tensor, size: tuple[int, int]) -> SparseMatrix:
    """Make a matrix without checks."""
    matrix = object.__new__(SparseMatrix)
    for name, value in (("rows", indices.rows), ("columns", indices.columns), ("values", values), ("size", size)):
        object.__setattr__(matrix, name, value)
    object.__setattr__(matrix, "indices", indices)
    return matrix


def _rows_of(starts: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def values_of(matrix: Matrix) -> torch.Tensor:
    """Return the tensor with the values of a matrix: all that a gradient can be in."""
    return matrix.values if isinstance(matrix, SparseMatrix) else matrix


def dense(matrix: Matrix) -> torch.Tensor:
    """Return the matrix as a dense tensor, attached to the graph."""
    return matrix.to_dense() if isinstance(matrix, SparseMatrix) else matrix


def entries_by_row(matrix: Matrix) -> tuple[Indices, np.ndarray]:
    """Return the indices and the values, float64 ``(entries,)`` or ``(B, entries)``, of the entries sorted by row.

    Of a dense matrix these are the entries that are not zero, in any item of a batch.
    """
    values = values_of(matrix).to("cpu", torch.float64).numpy(force=True)
    if isinstance(matrix, SparseMatrix):
        order = matrix.indices.order
        return matrix.indices, values if order is None else values.take(order, axis=-1)
    present = values != 0.0
    rows, columns = np.nonzero(present.any(axis=0) if present.ndim == 3 else present)
    return Indices(rows, columns, matrix.shape[-2]), values[..., rows, columns]


def matrix_gradient(matrix: Matrix, factors: list[tuple[np.ndarray, np.ndarray]]) -> torch.Tensor:
    """Return the gradient in ``values_of(matrix)`` where that of item b is ``sum_k left_k[b] right_k[b]'``.

    Each factor is a pair ``(left (B, rows), right (B, columns))``. A matrix that is shared by the batch receives the sum over
    items. The gradient of a dense matrix is dense, also where the matrix is zero.
    """
    values = values_of(matrix)
    total: Any = 0.0
    for left, right in factors:
        if isinstance(matrix, SparseMatrix):
            products = left.take(matrix.rows, axis=1) * right.take(matrix.columns, axis=1)
            total = total + (products.sum(0) if values.ndim == 1 else products)
        else:
            total = total + (left.T @ right if values.ndim == 2 else left[:, :, None] * right[:, None, :])
    return torch.from_numpy(np.ascontiguousarray(total)).to(values)
