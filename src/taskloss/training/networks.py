"""The default network, and its reproducible initial weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

HIDDEN = (64, 64)
"""Default widths of the hidden layers."""


def build_mlp(
    features: int, *, hidden: Sequence[int] = HIDDEN, outputs: int | None = None, dropout: float = 0.0, seed: int = 0
) -> nn.Sequential:
    """Return a ReLU network whose initial weights depend on nothing but the seed.

    Args:
        features: number of columns of the input.
        hidden: widths of the hidden layers.
        outputs: number of scores per sample, shape ``(n, features) -> (n, outputs)``; by default one, of shape ``(n,)``.
        dropout: share of hidden units that are dropped in each training step.
        seed: seed of the initial weights.

    >>> build_mlp(5)(torch.zeros(3, 5)).shape, build_mlp(5, outputs=2)(torch.zeros(3, 5)).shape
    (torch.Size([3]), torch.Size([3, 2]))
    """
    layers: list[nn.Module] = []
    width = features
    with seeded(seed, torch.device("cpu")):
        for next_width in hidden:
            layers += [nn.Linear(width, next_width), nn.ReLU(inplace=True)]
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = next_width
        layers.append(nn.Linear(width, outputs or 1))
        if outputs is None:
            layers.append(nn.Flatten(0))
    return nn.Sequential(*layers)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch for a block, and restore the caller's random state (CPU and CUDA) afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"):
        torch.manual_seed(seed)
        yield
