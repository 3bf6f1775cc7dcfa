"""Parts that programs are assembled from: checked scores and labels, and sparse matrices from blocks of entries."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from taskloss.lp.sparse import SparseMatrix

Block = tuple[Tensor, Tensor, Tensor]
"""Entries of a matrix: row indices, column indices and values, of one shape ``(entries,)``."""


def sparse_matrix(blocks: Sequence[Block], shape: tuple[int, int]) -> SparseMatrix:
    """Return the matrix with the entries of all blocks, differentiable in their values.

    >>> each = torch.arange(2)
    >>> sparse_matrix([(each, each, torch.ones(2))], (2, 2)).to_dense().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    rows, columns, values = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return SparseMatrix(rows, columns, values, shape)


def as_program_scores(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Check scores and target ``(n,)``; return the scores in float32 or float64, and whether each sample is positive."""
    if not isinstance(scores, Tensor) or not isinstance(target, Tensor) or scores.ndim != 1 or scores.shape != target.shape:
        given = [tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in (scores, target)]
        raise ValueError(f"scores and target are {given[0]} and {given[1]}; expected two tensors of one shape (n,)")
    known = (target == 0) | (target == 1)
    if not bool(known.all()):
        index = int((~known).int().argmax())
        raise ValueError(f"target[{index}] is {target[index].item()}; expected only 0 and 1")
    return scores.to(torch.promote_types(scores.dtype, torch.float32)), target == 1


def refuse_one_class(positive: Tensor, metric: str) -> None:
    """Raise unless there are positives and negatives."""
    if not bool(positive.any()) or bool(positive.all()):
        raise ValueError(f"the target has one class only, so {metric} is undefined; expected positives and negatives")
