"""Retrieval and metric learning: one ranking per query, from embeddings and labels.

Each query ranks the items of a gallery by similarity; the items with its label are relevant. Without a gallery the queries search
each other, and the entry of a query itself in its own ranking is marked :data:`SELF`. A query is *defined* when its ranking holds
a relevant item and an irrelevant one; all other queries (such as the only image of a class) are skipped in every mean.

The score matrix of n queries and m items has n m entries, and autograd keeps several more matrices of that size.
:func:`retrieval_loss` and :func:`retrieval_score` process it in chunks of queries. The loss is a sum over queries, so its
gradient with respect to the embeddings is the sum of the gradients of the chunks. The gradient of a chunk is computed at once,
and its scores are then freed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from taskloss import _checks
from taskloss._embedding_checks import as_labels, check_gallery, check_mean_reduction
from taskloss.known_gradient import refuse_second_derivative
from taskloss.metrics import average_precision_score

SELF = -1
"""Marks a query's own entry in the target; pass it to the losses and metrics as ``ignore_index``."""
SIMILARITIES = ("cosine", "dot", "euclidean")
CHUNK_SCORES = 2**20
"""Default number of scores that are held at a time."""


def retrieval_rankings(
    embeddings: Tensor,
    labels: Any,
    *,
    gallery: Tensor | None = None,
    gallery_labels: Any = None,
    similarity: str = SIMILARITIES[0],
) -> tuple[Tensor, Tensor]:
    """Return scores and target with one ranking per query, for any loss or metric with ``dim=1, ignore_index=SELF``.

    Args:
        embeddings: the queries, shape ``(n, d)``.
        labels: classes of the queries, any integers, shape ``(n,)``.
        gallery: the items to search, shape ``(m, d)``; without it, each query searches all other queries.
        gallery_labels: classes of the items, shape ``(m,)``.
        similarity: ``"cosine"``, ``"dot"``, or ``"euclidean"`` (the negated distance).

    Returns:
        Scores ``(n, m)``, differentiable in both sets of embeddings, at least float32 (half precision ties too many
        similarities); and the target ``(n, m)``, int8: 1 for the same label, 0 for another, ``SELF`` for the query itself.

    >>> import taskloss as tl
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], requires_grad=True)
    >>> scores, target = retrieval_rankings(embeddings, [7, 7, 3])
    >>> target
    tensor([[-1,  1,  0],
            [ 1, -1,  0],
            [ 0,  0, -1]], dtype=torch.int8)
    >>> tl.DirectLoss("average_precision")(scores, target, dim=1, ignore_index=SELF).item()
    0.0
    """
    search = _prepare(embeddings, labels, gallery, gallery_labels, similarity)
    rows = torch.arange(len(search.queries), device=search.queries.device)
    return search.scores(search.queries, search.gallery), search.target(rows)


def retrieval_loss(
    embeddings: Tensor,
    labels: Any,
    criterion: Callable[..., Tensor],
    *,
    gallery: Tensor | None = None,
    gallery_labels: Any = None,
    similarity: str = SIMILARITIES[0],
    chunk: int | None = None,
) -> Tensor:
    """Compute the mean loss of the defined queries, in the memory of one chunk of queries.

    Value and gradient equal those of ``criterion(*retrieval_rankings(...), dim=1, ignore_index=SELF)``, up to rounding. The
    gradient is computed together with the value, and the graph keeps only tensors of the size of the embeddings. There is no
    second derivative.

    Args:
        embeddings: the queries; embeddings, labels, gallery and similarity are as for :func:`retrieval_rankings`.
        labels: classes of the queries.
        criterion: a loss of this library, or any function with the same call,
            ``criterion(scores, target, dim=1, ignore_index=SELF, reduction="sum")``. It sees only queries that are defined.
        gallery: the items to search.
        gallery_labels: classes of the items.
        similarity: the measure of similarity.
        chunk: number of queries that are ranked at a time (default: about a million scores); it changes memory and speed, not the
            result.

    >>> import taskloss as tl
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]], requires_grad=True)
    >>> loss = retrieval_loss(embeddings, [7, 7, 3], tl.DirectLoss("average_precision"), chunk=1)
    >>> loss.item()
    0.5
    >>> loss.backward()
    """
    check_mean_reduction(criterion)
    search = _prepare(embeddings, labels, gallery, gallery_labels, similarity)
    inputs = (search.queries, search.gallery)
    needs_grad = tuple(torch.is_grad_enabled() and tensor.requires_grad for tensor in inputs)
    loss: Callable[..., tuple[Tensor, Tensor, Tensor]] = _ChunkedLoss.apply
    return loss(*inputs, search, criterion, search.chunk_size(chunk), needs_grad)[0]


@torch.no_grad()
def retrieval_score(
    embeddings: Tensor,
    labels: Any,
    metric: Callable[..., Any] = average_precision_score,
    *,
    gallery: Tensor | None = None,
    gallery_labels: Any = None,
    similarity: str = SIMILARITIES[0],
    chunk: int | None = None,
) -> float:
    """Compute the mean metric of the defined queries, in the memory of one chunk of queries; NaN if no query is defined.

    With the default metric this is mean average precision (mAP), equal to
    ``average_precision_score(*retrieval_rankings(...), dim=1, ignore_index=SELF)``. Arguments as for :func:`retrieval_loss`;
    ``metric`` is a score of :mod:`taskloss.metrics` or any function with the same call.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    >>> retrieval_score(embeddings, [7, 7, 3])
    0.5
    """
    search = _prepare(embeddings, labels, gallery, gallery_labels, similarity)
    total, count = 0.0, 0
    for rows, target in search.chunks(search.chunk_size(chunk)):
        scores = search.scores(search.queries[rows], search.gallery)
        total += float(metric(scores, target, dim=1, ignore_index=SELF, reduction="sum"))
        count += len(rows)
    return total / count if count else float("nan")


# --- queries and gallery ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Search:
    """Checked queries and gallery; with the cosine, their embeddings have unit length."""

    queries: Tensor
    labels: Tensor
    gallery: Tensor
    gallery_labels: Tensor
    similarity: str
    without_gallery: bool

    def scores(self, queries: Tensor, gallery: Tensor) -> Tensor:
        """Return similarities, shape ``(len(queries), len(gallery))``."""
        # Autocast would round similarities to half precision, where the highest ones are all equal.
        with torch.autocast(queries.device.type, enabled=False):
            if self.similarity == "euclidean":
                # Computed from differences: by a matrix product, the distances of close neighbours would lose digits.
                return -torch.cdist(queries, gallery, compute_mode="donot_use_mm_for_euclid_dist")
            return queries @ gallery.T

    def target(self, rows: Tensor) -> Tensor:
        """Return the relevance for the queries ``rows``, int8 of shape ``(len(rows), m)``."""
        target = (self.labels[rows, None] == self.gallery_labels).to(torch.int8)
        if self.without_gallery:
            target.scatter_(1, rows[:, None], SELF)
        return target

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the indices of the defined queries, up to ``size`` at a time, and their targets."""
        for rows in torch.split(torch.arange(len(self.labels), device=self.labels.device), size):
            target = self.target(rows)
            defined = (target == 1).any(1) & (target == 0).any(1)
            if defined.any():
                yield rows[defined], target[defined]

    def chunk_size(self, chunk: int | None) -> int:
        """Return the number of queries in a chunk: the one given, or that of about ``CHUNK_SCORES`` scores."""
        if chunk is None:
            return max(1, CHUNK_SCORES // max(1, len(self.gallery)))
        return _checks.check_count("chunk", chunk)


def _prepare(embeddings: Tensor, labels: Any, gallery: Tensor | None, gallery_labels: Any, similarity: str) -> _Search:
    _checks.check_choice("similarity", similarity, SIMILARITIES)
    check_gallery(embeddings, gallery, gallery_labels)
    dtype = torch.promote_types(embeddings.dtype, torch.float32)
    if gallery is not None:
        dtype = torch.promote_types(dtype, gallery.dtype)

    def checked(name: str, points: Tensor, classes: Any) -> tuple[Tensor, Tensor]:
        class_ids = as_labels(name, classes, len(points)).to(points.device)
        points = points.to(dtype)
        return functional.normalize(points, dim=1) if similarity == "cosine" else points, class_ids

    queries = checked("labels", embeddings, labels)
    items = queries if gallery is None else checked("gallery_labels", gallery, gallery_labels)
    return _Search(*queries, *items, similarity, without_gallery=gallery is None)


# --- the loss, one chunk at a time ------------------------------------------------------------------------------------


class _ChunkedLoss(torch.autograd.Function):
    """A loss whose forward pass computes the gradients chunk by chunk; the backward pass scales them."""

    @staticmethod
    def forward(
        queries: Tensor,
        gallery: Tensor,
        search: _Search,
        criterion: Callable[..., Tensor],
        chunk: int,
        needs_grad: tuple[bool, bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        value, count = queries.new_zeros(()), 0
        leaves = [tensor.detach().requires_grad_(needed) for tensor, needed in zip((queries, gallery), needs_grad, strict=True)]
        inputs = [leaf for leaf in leaves if leaf.requires_grad]
        for rows, target in search.chunks(chunk):
            with torch.set_grad_enabled(bool(inputs)):
                scores = search.scores(leaves[0][rows], leaves[1])
                loss = criterion(scores, target, dim=1, ignore_index=SELF, reduction="sum")
            if inputs:
                torch.autograd.backward(loss, inputs=inputs)
            value += loss.detach()
            count += len(rows)
        by_queries, by_gallery = (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad / count for leaf in leaves)
        return value / max(count, 1), by_queries, by_gallery

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[:2], *output[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        *points, by_queries, by_gallery = ctx.saved_tensors
        products = (gradient * grad_outputs[0] for gradient in (by_queries, by_gallery))
        return (*(refuse_second_derivative(product, _NOT_TWICE, *points) for product in products), *(None,) * 4)


_NOT_TWICE = (
    "retrieval_loss has no second derivative: the graphs of its chunks are not kept. Leave out create_graph=True; a criterion "
    "with a second derivative can be called on all the scores, criterion(*retrieval_rankings(...), dim=1, ...)"
)
