"""Learn to match two sets of points from examples of correct matchings.

    python examples/matching.py

Each instance is a set of points and a second view of the same points: distorted, noisy and in another order. Two small networks
embed the points of the two views, the scores are inner products, and an assignment solver matches the sets one to one. The loss
is the share of wrong entries of the matching itself, and its direct gradient goes through the solver.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn

import taskloss as tl

POINTS, FEATURES = 12, 4
SOLVER = tl.solvers.Assignment()


def make_pairs(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return both views (count, 12, 4) and the true matchings (count, 12, 12): 1 where row and column are the same point."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, POINTS, FEATURES, generator=generator)
    camera = torch.randn(FEATURES, FEATURES, generator=torch.Generator().manual_seed(99))
    seen = torch.tanh(points @ camera) + 0.3 * (points @ camera.T).square()
    seen = seen + 0.3 * torch.randn(seen.shape, generator=generator)
    order = torch.rand(count, POINTS, generator=generator).argsort(1)
    matching = nn.functional.one_hot(order, POINTS).transpose(1, 2)
    return points, seen.gather(1, order[..., None].expand_as(seen)), matching


class Matcher(nn.Module):
    """Two embeddings, and their inner product as the score of each pair of points."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16)) for _ in range(2)
        )

    def forward(self, points: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Return scores (count, 12, 12)."""
        return self.first(points) @ self.second(seen).transpose(1, 2)


def evaluate(matcher: Matcher, points: torch.Tensor, seen: torch.Tensor, matching: torch.Tensor) -> str:
    """Return the shares of points and of whole sets that are matched correctly, as text."""
    with torch.no_grad():
        predicted = torch.tensor(SOLVER(matcher(points, seen).numpy()))
    correct = (predicted * matching).sum((1, 2)) / POINTS
    return f"correct points {correct.mean():.3f}, correct sets {(correct == 1).double().mean():.3f}"


def main() -> None:
    """Train on correct matchings; print how well new sets are matched."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    # The layers are small: more threads would only slow them down.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    points, seen, matching = make_pairs(2000, seed=0)
    held_out = make_pairs(500, seed=1)
    matcher = Matcher()
    criterion = tl.DirectLoss(tl.Structured(SOLVER, batched=True), epsilon=1.0)
    optimizer = torch.optim.Adam(matcher.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    print(f"before training: held-out {evaluate(matcher, *held_out)}", flush=True)
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        losses = []
        for batch in torch.randperm(len(points)).split(50):
            optimizer.zero_grad()
            loss = criterion(matcher(points[batch], seen[batch]), matching[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
        print(
            f"epoch {epoch:>2}: training loss {np.mean(losses):.4f}, held-out {evaluate(matcher, *held_out)}, "
            f"{time.perf_counter() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
