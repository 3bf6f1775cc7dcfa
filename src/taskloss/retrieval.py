"""Retrieval and metric learning: from embeddings and labels to one ranking a query.

Each query ranks the items of a gallery by similarity; those with its label are relevant. Without a gallery the queries search one
another, and none finds itself: its own place is marked :data:`SELF`. A query is *defined* when its ranking holds a relevant item
and an irrelevant one; the others (the only image of its class, say) are skipped in every mean.

The score matrix of n queries and m items has n m entries, and a graph on top of it holds several more of that size.
:func:`retrieval_loss` and :func:`retrieval_score` go through it in chunks of queries. The loss is a sum over queries, so the
gradient in the embeddings is the sum of what each chunk sends back: that is made at once, and the chunk's scores are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from taskloss import _checks
from taskloss.metrics import average_precision_score

SELF = -1
"""Marks a query's own place in the target; give it to the losses and metrics as ``ignore_index``."""
SIMILARITIES = ("cosine", "dot", "euclidean")
CHUNK_SCORES = 2**20
"""How many scores are held at a time, unless told otherwise."""


def retrieval_rankings(
    embeddings: Tensor,
    labels: Any,
    *,
    gallery: Tensor | None = None,
    gallery_labels: Any = None,
    similarity: str = SIMILARITIES[0],
) -> tuple[Tensor, Tensor]:
    """Scores and target of one ranking a query, for any loss or metric with ``dim=1, ignore_index=SELF``.

    Args:
        embeddings: the queries, shape ``(n, d)``.
        labels: their classes, any integers, shape ``(n,)``.
        gallery: the items to search, shape ``(m, d)``; left out, the queries search one another, itself excluded.
        gallery_labels: their classes, shape ``(m,)``.
        similarity: ``"cosine"``, ``"dot"``, or ``"euclidean"``: the distance, negated.

    Returns:
        Scores ``(n, m)``, differentiable in both sets of embeddings, float32 at least (half precision ties too many
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
    """The mean loss of the defined queries, in the memory of one chunk of them.

    Value and gradient are those of ``criterion(*retrieval_rankings(...), dim=1, ignore_index=SELF)``, up to rounding. The
    gradient is made together with the value; what the graph keeps has the size of the embeddings. No second derivative.

    Args:
        embeddings: the queries; these and the gallery as for :func:`retrieval_rankings`.
        labels: their classes.
        criterion: a loss of this library, or any function that takes the same call,
            ``criterion(scores, target, dim=1, ignore_index=SELF, reduction="sum")``. It only sees queries that are defined.
        gallery: the items to search.
        gallery_labels: their classes.
        similarity: how to compare.
        chunk: how many queries are ranked at a time (default: a million scores); it changes memory and speed, not the result.

    >>> import taskloss as tl
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]], requires_grad=True)
    >>> loss = retrieval_loss(embeddings, [7, 7, 3], tl.DirectLoss("average_precision"), chunk=1)
    >>> loss.item()
    0.5
    >>> loss.backward()
    """
    _checks.check_mean_reduction(criterion)
    search = _prepare(embeddings, labels, gallery, gallery_labels, similarity)
    inputs = (search.queries, search.gallery)
    wanted = tuple(torch.is_grad_enabled() and tensor.requires_grad for tensor in inputs)
    loss: Callable[..., tuple[Tensor, Tensor, Tensor]] = _ChunkedLoss.apply
    return loss(*inputs, search, criterion, search.chunk_size(chunk), wanted)[0]


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
    """The mean metric of the defined queries, in the memory of one chunk of them; NaN when no query is defined.

    With the default metric that is mean average precision (mAP), equal to
    ``average_precision_score(*retrieval_rankings(...), dim=1, ignore_index=SELF)``. Arguments as for :func:`retrieval_loss`;
    ``metric`` is one of :mod:`taskloss.metrics` or any function that takes the same call.

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
    """Checked input, embeddings of unit length for the cosine. Rankings are made for some queries at a time."""

    queries: Tensor
    labels: Tensor
    gallery: Tensor
    gallery_labels: Tensor
    similarity: str
    among_themselves: bool

    def scores(self, queries: Tensor, gallery: Tensor) -> Tensor:
        """Similarities, shape ``(len(queries), len(gallery))``."""
        # Autocast would round similarities to half precision, where the best of them are all alike.
        with torch.autocast(queries.device.type, enabled=False):
            if self.similarity == "euclidean":
                # By differences: a matrix product would cancel digits where neighbours are close.
                return -torch.cdist(queries, gallery, compute_mode="donot_use_mm_for_euclid_dist")
            return queries @ gallery.T

    def target(self, rows: Tensor) -> Tensor:
        """Relevance for the queries ``rows``, int8 of shape ``(len(rows), m)``."""
        target = (self.labels[rows, None] == self.gallery_labels).to(torch.int8)
        if self.among_themselves:
            target.scatter_(1, rows[:, None], SELF)
        return target

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The defined queries, up to ``size`` at a time, and their targets."""
        for rows in torch.split(torch.arange(len(self.labels), device=self.labels.device), size):
            target = self.target(rows)
            defined = (target == 1).any(1) & (target == 0).any(1)
            if defined.any():
                yield rows[defined], target[defined]

    def chunk_size(self, chunk: int | None) -> int:
        if chunk is None:
            return max(1, CHUNK_SCORES // max(1, len(self.gallery)))
        return _checks.check_count("chunk", chunk)


def _prepare(embeddings: Tensor, labels: Any, gallery: Tensor | None, gallery_labels: Any, similarity: str) -> _Search:
    _checks.check_choice("similarity", similarity, SIMILARITIES)
    _checks.check_gallery(embeddings, gallery, gallery_labels)
    dtype = torch.promote_types(embeddings.dtype, torch.float32)
    if gallery is not None:
        dtype = torch.promote_types(dtype, gallery.dtype)

    def ready(name: str, points: Tensor, classes: Any) -> tuple[Tensor, Tensor]:
        numbers = _checks.as_labels(name, classes, len(points)).to(points.device)
        points = points.to(dtype)
        return functional.normalize(points, dim=1) if similarity == "cosine" else points, numbers

    queries = ready("labels", embeddings, labels)
    items = queries if gallery is None else ready("gallery_labels", gallery, gallery_labels)
    return _Search(*queries, *items, similarity, among_themselves=gallery is None)


# --- the loss, a chunk at a time --------------------------------------------------------------------------------------


class _ChunkedLoss(torch.autograd.Function):
    """Forward makes the gradients chunk by chunk; backward scales them."""

    @staticmethod
    def forward(
        queries: Tensor, gallery: Tensor, search: _Search, criterion: Callable[..., Tensor], chunk: int, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        value, count = queries.new_zeros(()), 0
        leaves = [tensor.detach().requires_grad_(want) for tensor, want in zip((queries, gallery), wanted, strict=True)]
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
        # Gradients are enabled here only when the caller wants to differentiate the result again.
        scale = _Scale.apply if torch.is_grad_enabled() else _Scale.forward
        queries, gallery, *gradients = ctx.saved_tensors
        return (scale(queries, gradients[0], grad_outputs[0]), scale(gallery, gradients[1], grad_outputs[0]), *(None,) * 4)


class _Scale(torch.autograd.Function):
    """The backward pass as a function of the embeddings too, so that a second derivative meets an error, not a silent zero."""

    @staticmethod
    def forward(points: Tensor, gradient: Tensor, grad_value: Tensor) -> Tensor:
        return gradient * grad_value

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        raise RuntimeError(
            "retrieval_loss has no second derivative: the graphs of its chunks are not kept. Leave out create_graph=True; a "
            "criterion with a second derivative can be called on the whole, criterion(*retrieval_rankings(...), dim=1, ...)"
        )
