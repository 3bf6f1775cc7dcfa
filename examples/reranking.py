"""Rerank the documents of many queries by mean average precision: padded lists, one ranking per row.

    python examples/reranking.py

Queries have different numbers of documents. There are two ways to pass them, with the same loss: a padded matrix with ``dim=1``
and ``ignore_index``, or flat lists with query ids in ``groups``.
"""

from __future__ import annotations

import torch
from torch import nn

import taskloss as tl

PADDING = -1


def make_queries(queries: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features (queries, 30, 8) and relevance (queries, 30); each list has 5 to 30 documents, the rest is padding."""
    taste = torch.randn(8, generator=generator)
    documents = torch.randn(queries, 30, 8, generator=generator)
    quality = (documents * taste).sum(-1) + 2.0 * torch.randn(queries, 30, generator=generator)
    relevance = (quality > 4.0).long()
    length = torch.randint(5, 31, (queries, 1), generator=generator)
    return documents, relevance.masked_fill(torch.arange(30) >= length, PADDING)


def main() -> None:
    """Train a linear scorer on mean average precision over the queries."""
    documents, relevance = make_queries(500, torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    scorer = nn.Sequential(nn.Linear(8, 1), nn.Flatten(-2))
    criterion = tl.DirectLoss("average_precision", dim=1, ignore_index=PADDING)
    optimizer = torch.optim.AdamW(scorer.parameters(), lr=0.03)
    for step in range(201):
        optimizer.zero_grad()
        loss = criterion(scorer(documents), relevance)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:>3}: mean AP {1 - loss.item():.4f}")

    real = relevance != PADDING
    query = torch.arange(500)[:, None].expand_as(relevance)
    with torch.no_grad():
        scores = scorer(documents)
        padded = criterion(scores, relevance)
        grouped = tl.DirectLoss("average_precision")(scores[real], relevance[real], groups=query[real])
    print(f"padded and grouped forms agree: {torch.allclose(padded, grouped)}")


if __name__ == "__main__":
    main()
