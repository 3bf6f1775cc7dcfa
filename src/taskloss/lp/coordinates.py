"""The entries of a sparse matrix, torch's or scipy's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch


class Coordinates(NamedTuple):
    """Row, column and value of every stored entry; the values of a torch matrix are attached to the graph."""

    rows: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor


def coordinates(matrix: Any) -> Coordinates:
    """The stored entries of a COO or CSR matrix of torch, or of any sparse matrix of scipy.

    >>> matrix = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    >>> [part.tolist() for part in coordinates(matrix.to_sparse_csr())]
    [[0, 1], [1, 0], [2.0, 3.0]]
    """
    if scipy.sparse.issparse(matrix):
        table = matrix.tocoo()
        parts = (table.row.astype(np.int64), table.col.astype(np.int64), table.data)
        return Coordinates(*(torch.from_numpy(part) for part in parts))
    if matrix.layout == torch.sparse_coo:
        joined = matrix.coalesce()
        rows, columns = joined.indices()
        return Coordinates(rows, columns, joined.values())
    if matrix.layout == torch.sparse_csr:
        start = matrix.crow_indices()
        rows = torch.repeat_interleave(torch.arange(len(start) - 1, device=start.device), start.diff())
        return Coordinates(rows, matrix.col_indices(), matrix.values())
    raise TypeError(f"a sparse matrix must be COO or CSR, got {matrix.layout}; use matrix.to_sparse_csr()")
