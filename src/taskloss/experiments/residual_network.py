"""Residual networks for small images, from a few layers to ResNet-18."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from taskloss.training import seeded


class Architecture(NamedTuple):
    """The size of a residual network."""

    widths: Sequence[int]
    """Channels of each group of blocks; every group but the first halves the height and the width."""
    blocks: int
    """Blocks per group."""
    stem_stride: int
    """Stride of the first convolution."""


ARCHITECTURES = {
    "small": Architecture((16, 32, 64), 1, 2),
    "resnet18": Architecture((64, 128, 256, 512), 2, 1),
}
"""``small`` has 8 layers and takes 20 milliseconds per step of 64 images of 32 by 32 pixels on one core."""


class Block(nn.Module):
    """Two 3x3 convolutions, and the input added to their output (He et al. 2016)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width))
        self.second = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.shortcut = (
            nn.Identity()
            if stride == 1 and channels == width
            else nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        )

    def forward(self, x: Tensor) -> Tensor:
        return (self.shortcut(x) + self.second(self.first(x).relu())).relu()


class ResidualNetwork(nn.Module):
    """A residual network of RGB pixels ``(n, 3, h, w)`` in 0..255, of any dtype, which it normalizes by itself.

    Args:
        architecture: the size.
        outputs: 1 for scores ``(n,)``, more for scores ``(n, outputs)``.
        seed: seed of the initial weights.
    """

    def __init__(self, architecture: Architecture, outputs: int, seed: int) -> None:
        super().__init__()
        widths = architecture.widths
        with seeded(seed, torch.device("cpu")):
            layers: list[nn.Module] = [
                nn.Conv2d(3, widths[0], 3, architecture.stem_stride, 1, bias=False),
                nn.BatchNorm2d(widths[0]),
                nn.ReLU(),
            ]
            channels = widths[0]
            for group, width in enumerate(widths):
                for block in range(architecture.blocks):
                    layers.append(Block(channels, width, 2 if group and not block else 1))
                    channels = width
            self.layers = nn.Sequential(*layers)
            self.output = nn.Linear(channels, outputs)
        # Convolutions of few channels are a quarter faster with the channels last.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # mypy knows the other forms only.

    def forward(self, pixels: Tensor) -> Tensor:
        x = (pixels.float() / 128 - 1).contiguous(memory_format=torch.channels_last)
        scores = self.output(self.layers(x).mean((2, 3)))
        return scores[:, 0] if self.output.out_features == 1 else scores
