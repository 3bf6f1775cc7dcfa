"""The entries of the matrix of a program: dense, or sparse in torch's or scipy's formats; one matrix or one an item."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch


class Coordinates(NamedTuple):
    """Rows and columns of the entries, sorted by row, and a tensor with their values, attached to the graph.

    ``values`` is ``(entries,)`` or ``(B, entries)`` for a sparse matrix. Of a dense one it is the matrix itself, ``(rows,
    columns)`` or ``(B, rows, columns)``: its gradient has entries where the matrix has none.
    """

    rows: np.ndarray
    columns: np.ndarray
    values: torch.Tensor
    dense: bool

    def numbers(self, items: int) -> np.ndarray:
        """The values as float64, a row an item."""
        array = self.values.detach().to("cpu", torch.float64).numpy()
        if self.dense:
            array = array[..., self.rows, self.columns]
        return array[None] if array.ndim == 1 and items == 1 else np.array(np.broadcast_to(array, (items, array.shape[-1])))

    def gradient(self, pairs: list[tuple[np.ndarray, np.ndarray]]) -> torch.Tensor:
        """The gradient in ``values``, where that of item b is the matrix ``sum left[b] right[b]'`` over the pairs."""
        return torch.from_numpy(sum(self._outer(left, right) for left, right in pairs)).to(self.values)

    def _outer(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        shared = self.values.ndim == (2 if self.dense else 1)
        if self.dense:
            return left.T @ right if shared else left[:, :, None] * right[:, None, :]
        each = left[:, self.rows] * right[:, self.columns]
        return each.sum(0) if shared else each


def coordinates(matrix: Any) -> Coordinates:
    """The entries of a dense matrix that are not zero, or all that a sparse matrix stores.

    >>> matrix = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    >>> rows, columns, values, dense = coordinates(matrix.to_sparse_csr())
    >>> rows.tolist(), columns.tolist(), values.tolist()
    ([0, 1], [1, 0], [2.0, 3.0])
    """
    if scipy.sparse.issparse(matrix):
        table = matrix.tocsr()
        if not table.has_canonical_format:
            table = table.copy()
            table.sum_duplicates()
        return Coordinates(_rows_of(table.indptr), table.indices.astype(np.int64), torch.from_numpy(table.data), False)
    if matrix.layout == torch.strided:
        dense = matrix.detach().cpu().numpy()
        present = (dense != 0.0).any(axis=0) if dense.ndim == 3 else dense != 0.0
        rows, columns = np.nonzero(present)
        return Coordinates(rows, columns, matrix, True)
    if matrix.layout == torch.sparse_coo:
        joined = matrix.coalesce()
        rows, columns = joined.indices().cpu().numpy()
        return Coordinates(rows, columns, joined.values(), False)
    starts, columns = matrix.crow_indices().cpu().numpy(), matrix.col_indices().cpu().numpy()
    if starts.ndim == 2:
        if (starts != starts[0]).any() or (columns != columns[0]).any():
            raise ValueError(
                "the matrices of a batched CSR tensor store different entries; expected the same places in all of them: "
                "store zeros where a matrix has no entry, or give a dense tensor"
            )
        starts, columns = starts[0], columns[0]
    return Coordinates(_rows_of(starts), columns.astype(np.int64), matrix.values(), False)


def _rows_of(starts: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))
