"""Draw the picture of the README: test average precision while a network trains on the bundled Page Blocks data.

    python docs/images/learning_curves.py

Two losses train the same network for the same 300 full-batch steps, over five random splits (60% for training), once with the
labels as they are and once with 20% of the training labels flipped. Nothing is tuned: epsilon, learning rate and hidden layers
are those of ``examples/quickstart.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import taskloss as tl
from taskloss.datasets import load_page_blocks

STEPS = 300
SPLITS = 5
NOISE = {"labels as they are": 0.0, "20% of the training labels flipped": 0.2}
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "direct average precision": tl.DirectLoss("average_precision"),
    "cross-entropy": lambda scores, target: nn.functional.binary_cross_entropy_with_logits(scores, target.float()),
}


def learning_curve(criterion: Callable[[Tensor, Tensor], Tensor], noise: float, split: int) -> list[float]:
    """Train on one split and return the test average precision after every fifth step."""
    torch.manual_seed(split)
    features, labels = load_page_blocks()
    x = torch.from_numpy(features).log1p()
    x = (x - x.mean(0)) / x.std(0)
    target = torch.from_numpy(labels) == 1
    order = torch.randperm(len(x))
    train, test = order.tensor_split([int(0.6 * len(x))])
    noisy = target[train] ^ (torch.rand(len(train)) < noise)
    net = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    curve = []
    for step in range(STEPS + 1):
        if step % 5 == 0:
            with torch.no_grad():
                curve.append(tl.metrics.average_precision_score(net(x[test]), target[test]))
        optimizer.zero_grad()
        criterion(net(x[train]), noisy).backward()
        optimizer.step()
    return curve


def main() -> None:
    """Train, print the mean test average precision at the last step, and write the picture beside this file."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    panels = figure.subplots(1, len(NOISE), sharey=True)
    for axes, (title, noise) in zip(panels, NOISE.items(), strict=True):
        for name, criterion in LOSSES.items():
            curves = torch.tensor([learning_curve(criterion, noise, split) for split in range(SPLITS)])
            steps = torch.arange(curves.shape[1]) * 5
            (line,) = axes.plot(steps, curves.mean(0), label=name)
            axes.fill_between(steps, curves.amin(0), curves.amax(0), color=line.get_color(), alpha=0.15, linewidth=0)
            print(f"{title}, {name}: {curves[:, -1].mean():.3f} (from {curves[:, -1].min():.3f} to {curves[:, -1].max():.3f})")
        axes.set(title=title, xlabel="step", ylim=(0, 1))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("test average precision")
    panels[0].legend(loc="lower right")
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
