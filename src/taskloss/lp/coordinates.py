"""The entries of the matrix of a program: dense, or sparse in our, torch's or scipy's format; one matrix or one an item."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch

from taskloss.lp.sparse import Places, SparseMatrix


class Coordinates(NamedTuple):
    """Where the entries are, and a tensor with their values, attached to the graph.

    ``values`` is ``(entries,)`` or ``(B, entries)`` for a sparse matrix. Of a dense one it is the matrix itself, ``(rows,
    columns)`` or ``(B, rows, columns)``: its gradient has entries where the matrix has none.
    """

    places: Places
    values: torch.Tensor
    dense: bool

    def sorted_numbers(self) -> np.ndarray:
        """The values of the entries, sorted by row, as float64, ``(entries,)`` or ``(B, entries)``."""
        array, places = array_of(self.values), self.places
        if self.dense:
            return array[..., places.rows, places.columns]
        return array if places.order is None else array.take(places.order, axis=-1)

    def gradient(self, pairs: list[tuple[np.ndarray, np.ndarray]]) -> torch.Tensor:
        """The gradient in ``values``, where that of item b is the matrix ``sum left[b] right[b]'`` over the pairs."""
        return torch.from_numpy(total_of([self._outer(left, right) for left, right in pairs])).to(self.values)

    def _outer(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        shared = self.values.ndim == (2 if self.dense else 1)
        if self.dense:
            return left.T @ right if shared else left[:, :, None] * right[:, None, :]
        each = left.take(self.places.rows, axis=1) * right.take(self.places.columns, axis=1)
        return each.sum(0) if shared else each


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor as float64."""
    detached = tensor.detach()
    if detached.dtype is not torch.float64 or not detached.is_cpu:
        detached = detached.to("cpu", torch.float64)
    return detached.numpy()


def total_of(parts: list[np.ndarray]) -> np.ndarray:
    """The sum of arrays of one shape; of one, the array itself."""
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)


def coordinates(matrix: Any) -> Coordinates:
    """The entries of a dense matrix that are not zero, or all that a sparse matrix stores.

    >>> matrix = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    >>> places, values, dense = coordinates(matrix.to_sparse_csr())
    >>> places.rows.tolist(), places.columns.tolist(), values.tolist()
    ([0, 1], [1, 0], [2.0, 3.0])
    """
    if isinstance(matrix, SparseMatrix):
        return Coordinates(matrix.places, matrix.values, False)
    num_rows = matrix.shape[-2]
    if scipy.sparse.issparse(matrix):
        table = matrix.tocsr()
        if not table.has_canonical_format:
            table = table.copy()
            table.sum_duplicates()
        places = Places(_rows_of(table.indptr), table.indices.astype(np.int64), num_rows)
        return Coordinates(places, torch.from_numpy(table.data), False)
    if matrix.layout == torch.strided:
        dense = matrix.detach().cpu().numpy()
        present = (dense != 0.0).any(axis=0) if dense.ndim == 3 else dense != 0.0
        rows, columns = np.nonzero(present)
        return Coordinates(Places(rows, columns, num_rows), matrix, True)
    if matrix.layout == torch.sparse_coo:
        joined = matrix.coalesce()
        rows, columns = joined.indices().cpu().numpy()
        return Coordinates(Places(rows, columns, num_rows), joined.values(), False)
    starts, columns = matrix.crow_indices().cpu().numpy(), matrix.col_indices().cpu().numpy()
    if starts.ndim == 2:
        if (starts != starts[0]).any() or (columns != columns[0]).any():
            raise ValueError(
                "the matrices of a batched CSR tensor store different entries; expected the same places in all of them: "
                "store zeros where a matrix has no entry, or give a dense tensor"
            )
        starts, columns = starts[0], columns[0]
    return Coordinates(Places(_rows_of(starts), columns.astype(np.int64), num_rows), matrix.values(), False)


def _rows_of(starts: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))
