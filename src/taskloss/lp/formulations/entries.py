"""Sparse matrices from their entries, differentiable in them; and what the formulations ask of scores and target."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from taskloss.lp.sparse import SparseMatrix

Entries = tuple[Tensor, Tensor, Tensor]
"""Rows, columns and values."""


def sparse_matrix(parts: Sequence[Entries], shape: tuple[int, int]) -> SparseMatrix:
    """A matrix of all the entries, in the graph of their values.

    >>> each = torch.arange(2)
    >>> sparse_matrix([(each, each, torch.ones(2))], (2, 2)).to_dense().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    rows, columns, values = (torch.cat(column) for column in zip(*parts, strict=True))
    return SparseMatrix(rows, columns, values, shape)


def as_program_scores(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Scores ``(n,)`` of a dtype that programs have, and which samples are positive."""
    if not isinstance(scores, Tensor) or not isinstance(target, Tensor) or scores.ndim != 1 or scores.shape != target.shape:
        given = [tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in (scores, target)]
        raise ValueError(f"scores and target are {given[0]} and {given[1]}; expected two tensors of one shape (n,)")
    known = (target == 0) | (target == 1)
    if not bool(known.all()):
        place = int((~known).int().argmax())
        raise ValueError(f"target[{place}] is {target[place].item()}; expected only 0 and 1")
    return scores.to(torch.promote_types(scores.dtype, torch.float32)), target == 1


def refuse_one_class(positive: Tensor, what: str) -> None:
    """Raise unless there are positives and negatives."""
    if not bool(positive.any()) or bool(positive.all()):
        raise ValueError(f"the target has one class only, so {what} is undefined; expected positives and negatives")
