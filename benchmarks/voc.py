"""PASCAL VOC 2012 for ``benchmarks.segmentation``: the masks of the chosen classes, and frozen features of the images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from taskloss.experiments.feature_cache import cached_arrays
from taskloss.experiments.images import decode_image
from taskloss.experiments.pretrained import EFFICIENTNET_LITE0, load_efficientnet_lite0
from taskloss.experiments.voc_detection import PACKED

SIDE = 192
VOID = 255
BLOCKS = (4, 10, 15)
"""The last blocks of EfficientNet-Lite0 at strides 8, 16 and 32."""


class Images(NamedTuple):
    """Features and masks of images, one row per image."""

    maps: tuple[Tensor, ...]
    """``(n, channels, side, side)`` for each stride, float16, each channel of unit variance in the training images."""
    masks: Tensor
    """``(n, SIDE, SIDE)`` class indices as uint8: 1 and up for the chosen classes, 0 for everything else, or VOID."""

    def rows(self, index: Tensor) -> Images:
        return Images(tuple(maps[index] for maps in self.maps), self.masks[index])


class Parts(NamedTuple):
    """Images for training and validation, both from the official training images, and for the test."""

    training: Images
    validation: Images
    test: Images


def check_data(data: Path) -> None:
    """Exit with advice unless the folder holds the images and the weights."""
    missing = [str(path) for path in (PACKED, EFFICIENTNET_LITE0) if not (data / path).exists()]
    if missing:
        raise SystemExit(f"--data {data} lacks {' and '.join(missing)}; see the top of benchmarks/segmentation.py")


def read_parts(
    data: Path, cache: Path | None, classes: tuple[str, ...], limit: int | None, advance: Callable[[int, int], None]
) -> Parts:
    """Read all images, or the first ``limit`` official training images and as many official validation images."""
    with np.load(data / PACKED, allow_pickle=False) as file:
        official = file["split"]
        chosen = np.concatenate([np.flatnonzero(official == name)[:limit] for name in ("train", "val")])
        masks = torch.from_numpy(_read_masks(file, chosen, classes))
        make = partial(_make_maps, data, file["jpeg"], file["offset"], chosen, advance)
    arrays = make() if cache is None else cached_arrays(cache / f"voc_maps_{len(chosen)}.npz", make)
    maps = [torch.from_numpy(arrays[f"maps{number}"]) for number in range(len(BLOCKS))]
    seen = torch.from_numpy(np.flatnonzero(official[chosen] == "train"))
    seen = seen[torch.randperm(len(seen), generator=torch.Generator().manual_seed(2012))]
    training, validation = seen[len(seen) // 4 :], seen[: len(seen) // 4]
    test = torch.from_numpy(np.flatnonzero(official[chosen] == "val"))
    images = Images(tuple(_standardize(array, training) for array in maps), masks)
    return Parts(*(images.rows(index) for index in (training, validation, test)))


def _read_masks(file: np.lib.npyio.NpzFile, chosen: np.ndarray, classes: tuple[str, ...]) -> np.ndarray:
    flat, offset, size, names = file["mask"], file["mask_offset"], file["size"], file["classes"].tolist()
    index_of = np.zeros(256, np.uint8)
    index_of[VOID] = VOID
    for index, name in enumerate(classes, 1):
        index_of[1 + names.index(name)] = index
    masks = np.full((len(chosen), SIDE, SIDE), VOID, np.uint8)
    for row, image in enumerate(chosen):
        width, height = size[image]
        masks[row, :height, :width] = index_of[flat[offset[image] : offset[image + 1]].reshape(height, width)]
    return masks


@torch.no_grad()
def _make_maps(
    data: Path, jpeg: np.ndarray, offset: np.ndarray, chosen: np.ndarray, advance: Callable[[int, int], None]
) -> dict[str, np.ndarray]:
    network = load_efficientnet_lite0(data)
    batches: list[list[Tensor]] = []
    for rows in np.array_split(chosen, -(-len(chosen) // 32)):
        pixels = np.full((len(rows), SIDE, SIDE, 3), 127, np.uint8)  # The network maps 127 to zero.
        for image, row in zip(pixels, rows, strict=True):
            picture = decode_image(jpeg, offset, row)
            image[: picture.shape[0], : picture.shape[1]] = picture
        outputs = list(network.maps(torch.from_numpy(pixels).permute(0, 3, 1, 2).float()))
        batches.append([outputs[block].half() for block in BLOCKS])
        advance(len(rows), len(chosen))
    return {f"maps{number}": torch.cat(maps).numpy() for number, maps in enumerate(zip(*batches, strict=True))}


def _standardize(maps: Tensor, training: Tensor) -> Tensor:
    seen = maps[training].float()
    mean, deviation = seen.mean((0, 2, 3), keepdim=True), seen.std((0, 2, 3), keepdim=True)
    for rows in torch.arange(len(maps)).split(256):  # In parts, since float32 would take twice the memory.
        maps[rows] = ((maps[rows].float() - mean) / deviation).half()
    return maps
