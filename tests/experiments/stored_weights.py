"""Random weights of the two pretrained networks, in the names and types of their files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

# Kernel, stride, input and output channels of each block, from the paper's table of EfficientNet-B0.
BLOCKS = [
    (3, 1, 32, 16),
    (3, 2, 16, 24),
    (3, 1, 24, 24),
    (5, 2, 24, 40),
    (5, 1, 40, 40),
    (3, 2, 40, 80),
    (3, 1, 80, 80),
    (3, 1, 80, 80),
    (5, 1, 80, 112),
    (5, 1, 112, 112),
    (5, 1, 112, 112),
    (5, 2, 112, 192),
    (5, 1, 192, 192),
    (5, 1, 192, 192),
    (5, 1, 192, 192),
    (3, 1, 192, 320),
]
# Input, squeezed and expanded channels of fire2 to fire9; the output has twice the expanded ones.
FIRES = [
    (64, 16, 64),
    (128, 16, 64),
    (128, 32, 128),
    (256, 32, 128),
    (256, 48, 192),
    (384, 48, 192),
    (384, 64, 256),
    (512, 64, 256),
]


def random_weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float16)


def squeezenet_weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"conv1": (64, 3, 3, 3), "conv10": (1000, 512, 1, 1)}
    for number, (channels, squeezed, expanded) in enumerate(FIRES, 2):
        shapes[f"fire{number}.squeeze1x1"] = (squeezed, channels, 1, 1)
        shapes[f"fire{number}.expand1x1"] = (expanded, squeezed, 1, 1)
        shapes[f"fire{number}.expand3x3"] = (expanded, squeezed, 3, 3)
    weights = {f"{name}.weight": random_weight(rng, *shape) for name, shape in shapes.items()}
    return weights | {f"{name}.bias": rng.normal(size=shape[0]).astype(np.float32) for name, shape in shapes.items()}


def efficientnet_weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"_conv_stem": ((32, 3, 3, 3), "_bn0"), "_conv_head": ((1280, 320, 1, 1), "_bn1")}
    for number, (kernel, _, channels, outputs) in enumerate(BLOCKS):
        block, inside = f"_blocks.{number}", channels if number == 0 else 6 * channels
        if number > 0:
            shapes[f"{block}._expand_conv"] = ((inside, channels, 1, 1), f"{block}._bn0")
        shapes[f"{block}._depthwise_conv"] = ((inside, 1, kernel, kernel), f"{block}._bn1")
        shapes[f"{block}._project_conv"] = ((outputs, inside, 1, 1), f"{block}._bn2")
    weights = {"_fc.weight": random_weight(rng, 1000, 1280), "_fc.bias": rng.normal(size=1000).astype(np.float32)}
    for layer, (shape, norm) in shapes.items():
        weights[f"{layer}.weight"] = random_weight(rng, *shape)
        for name, low, high in (("weight", 0.5, 1.5), ("bias", 0.0, 1.0), ("running_mean", -0.5, 0.5), ("running_var", 0.5, 1.5)):
            weights[f"{norm}.{name}"] = rng.uniform(low, high, shape[0]).astype(np.float32)
    return weights


def write_weights(path: Path, weights: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **weights)
