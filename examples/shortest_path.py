"""Learn to find the cheapest path through a landscape from pictures and their best paths; no costs are given.

    python examples/shortest_path.py

Each picture shows a grid of terrains, from grass to rock, with noise. A small network predicts a cost for every cell, and
Dijkstra's algorithm finds the cheapest path. The only supervision is the best path of each picture. The loss is the share of
cells that differ from it, and its direct gradient goes through the solver.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn

import taskloss as tl

GRID, PATCH = 12, 4
COSTS = np.array([1.0, 2.0, 3.5, 6.0, 9.0])
COLOURS = np.array([[0.35, 0.65, 0.25], [0.75, 0.70, 0.40], [0.10, 0.35, 0.15], [0.20, 0.35, 0.70], [0.45, 0.42, 0.40]])
EPSILON = 0.3
SOLVER = tl.solvers.GridShortestPath(neighbours=8)


def make_landscapes(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return pictures (count, 3, 48, 48), true costs and best paths, both (count, 12, 12)."""
    rng = np.random.default_rng(seed)
    rough = np.pad(rng.standard_normal((count, GRID, GRID)), ((0, 0), (1, 1), (1, 1)), mode="edge")
    height = sum(rough[:, i : i + GRID, j : j + GRID] for i in range(3) for j in range(3))
    terrain = np.searchsorted(np.quantile(height, [0.3, 0.5, 0.7, 0.85]), height)
    pixels = COLOURS[terrain].repeat(PATCH, axis=1).repeat(PATCH, axis=2)
    pixels = pixels + 0.05 * rng.standard_normal(pixels.shape)
    pictures = torch.tensor(pixels, dtype=torch.float32).permute(0, 3, 1, 2).contiguous()
    costs = COSTS[terrain]
    return pictures, torch.tensor(costs), torch.tensor(SOLVER(-costs))


class CostNetwork(nn.Module):
    """A network from pictures to scores; the scores are minus the costs of the cells.

    No cost is below epsilon, so augmented inference, which subtracts up to epsilon, never sees a negative cost. The output is
    centred in each picture: only differences between costs distinguish paths, and otherwise all costs would fall together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, PATCH, stride=PATCH),
            nn.ReLU(),
            nn.Conv2d(32, 32, 1),
            nn.ReLU(),
            nn.Conv2d(32, 1, 1),
            nn.Flatten(1, 2),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return scores (count, 12, 12)."""
        output = self.layers(pictures)
        return -(EPSILON + nn.functional.softplus(output - output.mean((1, 2), keepdim=True)))


def evaluate(network: nn.Module, pictures: torch.Tensor, costs: torch.Tensor, paths: torch.Tensor) -> str:
    """Return the share of predicted paths that are optimal, and their total cost relative to the best paths, as text."""
    with torch.no_grad():
        predicted = torch.tensor(SOLVER(network(pictures).numpy()))
    spent, least = (predicted * costs).sum((1, 2)), (paths * costs).sum((1, 2))
    return f"optimal paths {(spent <= least + 1e-9).double().mean():.3f}, cost ratio {spent.sum() / least.sum():.4f}"


def main() -> None:
    """Train on best paths; print how good the predicted paths of new pictures are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    # The layers are small: more threads would only slow them down.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pictures, _, paths = make_landscapes(2000, seed=0)
    held_out = make_landscapes(500, seed=1)
    network = CostNetwork()
    criterion = tl.DirectLoss(tl.Structured(SOLVER, batched=True), epsilon=EPSILON, update="negative")
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    print(f"before training: held-out {evaluate(network, *held_out)}", flush=True)
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        losses = []
        for batch in torch.randperm(len(pictures)).split(50):
            optimizer.zero_grad()
            loss = criterion(network(pictures[batch]), paths[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
        print(
            f"epoch {epoch:>2}: training loss {np.mean(losses):.4f}, held-out {evaluate(network, *held_out)}, "
            f"{time.perf_counter() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
