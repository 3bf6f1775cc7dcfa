"""Separable nonnegative matrix factorization by linear programming, with gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from taskloss.lp.formulations.nmf import nmf_program
from taskloss.lp.layer import differentiable_solve


class Factorization(NamedTuple):
    """``V ~ F W``."""

    F: Tensor
    """How much of each anchor is in each row, ``(s, rank)``."""
    W: Tensor
    """The anchors, rows of V, ``(rank, w)``."""
    anchors: Tensor
    """Which rows they are, int64, from the highest weight to the lowest."""
    weights: Tensor
    """The diagonal of C, ``(s,)``: 1 for a clear anchor, 0 for a row that generates nothing."""


def nmf(V: Tensor, rank: int, *, exact: bool = False, tolerance: float = 1e-6) -> Factorization:
    r"""Factorize a matrix of nonnegative numbers by its own rows: ``rank`` of them, the anchors, generate all the others.

    The program of :func:`taskloss.lp.formulations.nmf_program` on the rows of V divided by their sums; rows of zeros take no part. The
    anchors are the rows with the largest ``C_jj``. F comes from the columns of C, with the gradient of the program's solution in
    V (its active set); W are rows of V. The choice of the anchors itself has no gradient.

    Recht, Re, Tropp, Bittorf, *Factoring nonnegative matrices with linear programs*, NeurIPS 2012; Meng et al. (2021),
    section A.3, for activations of a convolutional net: V of shape (channels, height * width), each row of W a heat map.

    Args:
        V: ``(s, w)``, nonnegative, float32 or float64.
        rank: how many anchors.
        exact: demand ``V = C V``, as the paper does; real matrices have no such C, and the error says so.
        tolerance: of the solver, relative.

    >>> V = torch.tensor([[2.0, 0.0, 2.0], [1.0, 1.0, 2.0], [0.0, 3.0, 3.0]])
    >>> factors = nmf(V, 2)
    >>> sorted(factors.anchors.tolist()), (factors.F @ factors.W - V).abs().max().item() < 1e-5
    ([0, 2], True)
    """
    _check_matrix(V, rank)
    sums = V.sum(1)
    used = torch.nonzero(sums > 0)[:, 0]
    if rank > len(used):
        raise ValueError(f"rank={rank}, but only {len(used)} rows of V are not all zero; expected a rank of at most that")
    rows = (V[used] / sums[used, None]).double()
    solution = differentiable_solve(nmf_program(rows, rank, exact=exact), tolerance=tolerance).check()
    C = solution.x[: len(used) ** 2].reshape(len(used), len(used))
    chosen = torch.argsort(C.detach().diagonal(), descending=True, stable=True)[:rank]
    anchors = used[chosen]
    shares = C[:, chosen].to(V.dtype) * sums[used, None] / sums[anchors]
    F = V.new_zeros(len(V), rank).index_copy(0, used, shares)
    weights = V.new_zeros(len(V)).index_copy(0, used, C.diagonal().to(V.dtype))
    return Factorization(F, V[anchors], anchors, weights)


def _check_matrix(V: Tensor, rank: int) -> None:
    if not isinstance(V, Tensor):
        raise TypeError(f"V must be a torch.Tensor, got {type(V).__name__}; use torch.as_tensor(V)")
    if V.ndim != 2 or not V.dtype.is_floating_point:
        raise ValueError(f"V has shape {tuple(V.shape)} and dtype {V.dtype}; expected a floating-point matrix (rows, columns)")
    if not bool(torch.isfinite(V).all()) or bool((V < 0).any()):
        raise ValueError("V must be finite and not negative; take the activations after a ReLU, or V.clamp(min=0)")
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank:
        raise ValueError(f"rank must be a whole number of at least 1, got {rank!r}")
