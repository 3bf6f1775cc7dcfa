"""Train a small network on average precision, full batch, for a rare class with noisy labels.

    python examples/quickstart.py

The only difference between the two runs is the loss.
"""

from __future__ import annotations

import torch
from torch import nn

import taskloss as tl


def make_data(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points ``(n, 2)`` on two rings and their labels; the positives, 5%, are on the inner ring."""
    target = torch.rand(n, generator=generator) < 0.05
    radius = torch.where(target, 1.0, 2.0) + 0.35 * torch.randn(n, generator=generator)
    angle = 6.2832 * torch.rand(n, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), target


def main() -> None:
    """Train with both losses and print the test average precision."""
    generator = torch.Generator().manual_seed(0)
    x, target = make_data(4000, generator)
    test_x, test_target = make_data(20_000, generator)
    flipped = target ^ (torch.rand(len(target), generator=generator) < 0.1)

    losses = {
        "cross-entropy": lambda scores, labels: nn.functional.binary_cross_entropy_with_logits(scores, labels.float()),
        "direct AP": tl.DirectLoss("average_precision"),
    }
    for name, criterion in losses.items():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        for _ in range(300):
            optimizer.zero_grad()
            criterion(net(x), flipped).backward()
            optimizer.step()
        with torch.no_grad():
            print(f"{name:>14}: test AP {tl.metrics.average_precision_score(net(test_x), test_target):.4f}")


if __name__ == "__main__":
    main()
