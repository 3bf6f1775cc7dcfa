"""Heat maps of what a pretrained net sees: its activations factored by ``tl.lp.nmf`` (Meng et al. 2021, figure 2).

For each image the activations of the last block of SqueezeNet 1.1 are a matrix V of channels times pixels. It is factored as
``V ~ F W``, and each row of W is a heat map. The picture has the images in its first row, k = 1 below, and k = 2 (red and blue)
in the last row.

    python -m benchmarks.heat_maps --data FOLDER --output heat_maps.png

FOLDER holds ``pretrained/squeezenet_v1.1_imagenet.npz`` (arrays named conv1.weight, fire2.squeeze1x1.weight, ...) and
``stl10_train3996_96/stl10_train3996_96.npz`` (concatenated JPEG files in ``jpeg``, where each begins in ``offset``, ``labels``).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

import taskloss as tl
from taskloss.experiments.images import decode_image
from taskloss.experiments.pretrained import load_squeezenet

SIZE = 227


def read_images(path: Path, per_class: int, classes: tuple[int, ...]) -> np.ndarray:
    """Read the first images of the given classes, ``(n, 96, 96, 3)``."""
    with np.load(path, allow_pickle=False) as file:
        jpeg, offset, labels = file["jpeg"], file["offset"], file["labels"]
    chosen = [i for k in classes for i in np.flatnonzero(labels == k)[:per_class]]
    return np.stack([decode_image(jpeg, offset, i) for i in chosen])


def heat_maps(features: Tensor, rank: int, channels: int) -> tuple[Tensor, float]:
    """Return heat maps ``(rank, h, w)`` in [0, 1] of activations ``(c, h, w)``, and the seconds they took.

    Only the channels with the largest sums are factored.
    """
    matrix = features.flatten(1)
    kept = matrix[torch.argsort(matrix.sum(1), descending=True)[:channels]]
    start = time.perf_counter()
    maps = tl.lp.nmf(kept, rank).W
    seconds = time.perf_counter() - start
    return (maps / maps.amax(1, keepdim=True)).reshape(rank, *features.shape[1:]), seconds


def overlay(image: np.ndarray, maps: Tensor) -> np.ndarray:
    """Lay the maps over the image: the first in red, the second in blue."""
    colours = np.array([[255.0, 30.0, 0.0], [0.0, 80.0, 255.0]])
    large = functional.interpolate(maps[None], image.shape[:2], mode="bicubic")[0].clamp(0, 1).numpy()
    result = 0.6 * image.astype(np.float64)
    for colour, weight in zip(colours, large, strict=False):
        result = result * (1 - 0.75 * weight[..., None]) + 0.75 * weight[..., None] * colour
    return result.clip(0, 255).astype(np.uint8)


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="PNG file")
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--classes", type=int, nargs="+", default=[0, 2, 3, 5, 6, 8], help="classes of STL-10; one image each")
    arguments = parser.parse_args()
    network = load_squeezenet(arguments.data)
    images = read_images(arguments.data / "stl10_train3996_96" / "stl10_train3996_96.npz", 1, tuple(arguments.classes))
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        features = network.activations(functional.interpolate(pixels, (SIZE, SIZE), mode="bilinear"))
    large = [np.asarray(Image.fromarray(image).resize((192, 192), Image.Resampling.BICUBIC)) for image in images]
    rows = [np.hstack(large)]
    for rank in (1, 2):
        results = [heat_maps(image, rank, arguments.channels) for image in features]
        print(f"k = {rank}: {arguments.channels} channels, {features[0].shape[1:].numel()} pixels, seconds per image:", end=" ")
        print(", ".join(f"{seconds:.1f}" for _, seconds in results), flush=True)
        rows.append(np.hstack([overlay(image, maps) for image, (maps, _) in zip(large, results, strict=True)]))
    Image.fromarray(np.vstack(rows)).save(arguments.output)


if __name__ == "__main__":
    main()
