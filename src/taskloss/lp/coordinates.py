"""The entries of the matrix of a program: dense, or sparse in our, torch's or scipy's format; one matrix or one an item."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import scipy.sparse
import torch

from taskloss.lp.either import Array, array_of, columns_of, tensor_of, total_of
from taskloss.lp.sparse import Places, SparseMatrix


@dataclasses.dataclass(frozen=True, eq=False)
class Coordinates:
    """Where the entries are, and a tensor with their values, attached to the graph.

    ``values`` is ``(entries,)`` or ``(B, entries)`` for a sparse matrix. Of a dense one it is the matrix itself, ``(rows,
    columns)`` or ``(B, rows, columns)``: its gradient has entries where the matrix has none.
    """

    values: torch.Tensor
    sparse_places: Places | None

    @property
    def dense(self) -> bool:
        """Is ``values`` the matrix itself?"""
        return self.sparse_places is None

    @functools.cached_property
    def places(self) -> Places:
        """Where the entries are; of a dense matrix, where it is not zero (a copy to the CPU, if it is elsewhere)."""
        return _nonzero_places(self.values) if self.sparse_places is None else self.sparse_places

    def sorted_numbers(self) -> np.ndarray:
        """The values of the entries, sorted by row, as float64, ``(entries,)`` or ``(B, entries)``."""
        array, places = array_of(self.values), self.places
        if self.dense:
            return array[..., places.rows, places.columns]
        return array if places.order is None else array.take(places.order, axis=-1)

    def gradient(self, pairs: list[tuple[Array, Array]]) -> torch.Tensor:
        """The gradient in ``values``, where that of item b is the matrix ``sum left[b] right[b]'`` over the pairs."""
        return tensor_of(total_of([self._outer(left, right) for left, right in pairs])).to(self.values)

    def _outer(self, left: Array, right: Array) -> Array:
        shared = self.values.ndim == (2 if self.dense else 1)
        if self.dense:
            return left.T @ right if shared else left[:, :, None] * right[:, None, :]
        each = columns_of(left, self.places.rows) * columns_of(right, self.places.columns)
        return each.sum(0) if shared else each


def coordinates(matrix: Any) -> Coordinates:
    """The entries of a dense matrix that are not zero, or all that a sparse matrix stores.

    >>> matrix = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    >>> entries = coordinates(matrix.to_sparse_csr())
    >>> entries.places.rows.tolist(), entries.places.columns.tolist(), entries.values.tolist()
    ([0, 1], [1, 0], [2.0, 3.0])
    """
    if isinstance(matrix, SparseMatrix):
        return Coordinates(matrix.values, matrix.places)
    num_rows = matrix.shape[-2]
    if scipy.sparse.issparse(matrix):
        table = matrix.tocsr()
        if not table.has_canonical_format:
            table = table.copy()
            table.sum_duplicates()
        places = Places(_rows_of(table.indptr), table.indices.astype(np.int64), num_rows)
        return Coordinates(torch.from_numpy(table.data), places)
    if matrix.layout == torch.strided:
        return Coordinates(matrix, None)
    if matrix.layout == torch.sparse_coo:
        joined = matrix.coalesce()
        rows, columns = joined.indices().cpu().numpy()
        return Coordinates(joined.values(), Places(rows, columns, num_rows))
    starts, columns = matrix.crow_indices().cpu().numpy(), matrix.col_indices().cpu().numpy()
    if starts.ndim == 2:
        if (starts != starts[0]).any() or (columns != columns[0]).any():
            raise ValueError(
                "the matrices of a batched CSR tensor store different entries; expected the same places in all of them: "
                "store zeros where a matrix has no entry, or give a dense tensor"
            )
        starts, columns = starts[0], columns[0]
    return Coordinates(matrix.values(), Places(_rows_of(starts), columns.astype(np.int64), num_rows))


def _nonzero_places(matrix: torch.Tensor) -> Places:
    """Where a matrix, or any of a batch, is not zero."""
    numbers = matrix.cpu().numpy(force=True)
    rows, columns = np.nonzero((numbers != 0.0).any(axis=0) if numbers.ndim == 3 else numbers != 0.0)
    return Places(rows, columns, matrix.shape[-2])


def _rows_of(starts: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))
