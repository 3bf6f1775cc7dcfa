"""Segmentation of PASCAL VOC 2012: 2,913 images with a mask of their classes, from a packed file or the official layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from taskloss.experiments.images import decode_image
from taskloss.experiments.voc_annotations import OFFICIAL_FOLDERS, find_official
from taskloss.experiments.voc_detection import PACKED, SPLITS

BACKGROUND, VOID = 0, 255
"""Values of a mask that are no class: the classes are 1 to 20, and void pixels do not count."""


@dataclass(frozen=True, eq=False)
class SegmentedImage:
    """An image and the class of each of its pixels; both are decoded whenever they are asked for."""

    image_id: str
    split: str
    """``"train"`` or ``"val"``."""
    pixels: Callable[[], np.ndarray] = field(repr=False)
    """RGB ``(h, w, 3)`` of type uint8."""
    mask: Callable[[], np.ndarray] = field(repr=False)
    """``(h, w)`` uint8: BACKGROUND, VOID or the number of a class."""


def read_segmentation(data: Path) -> list[SegmentedImage]:
    """Read the images, those for training first, from ``data / PACKED`` or else from the official layout below ``data``."""
    if (data / PACKED).is_file():
        images = _read_packed(data / PACKED)
    else:
        official = find_official(data, "Segmentation")
        if official is None:
            raise FileNotFoundError(
                f"{data} holds no segmentation of PASCAL VOC 2012: expected {PACKED} (the packed images), or the official "
                f"{' or '.join(map(str, OFFICIAL_FOLDERS))} with ImageSets/Segmentation, JPEGImages and SegmentationClass"
            )
        images = _read_official(official)
    return sorted(images, key=lambda image: (SPLITS.index(image.split), image.image_id))


def _read_packed(path: Path) -> list[SegmentedImage]:
    """Read the packed file; the JPEG files and the masks stay in memory."""
    with np.load(path, allow_pickle=False) as file:
        jpeg, offset, masks, first, size = (file[name] for name in ("jpeg", "offset", "mask", "mask_offset", "size"))
        image_ids, splits = file["image_id"].tolist(), file["split"].tolist()

    def mask(index: int) -> np.ndarray:
        width, height = size[index]
        return masks[first[index] : first[index + 1]].reshape(height, width)

    return [
        SegmentedImage(image_id, split, partial(decode_image, jpeg, offset, index), partial(mask, index))
        for index, (image_id, split) in enumerate(zip(image_ids, splits, strict=True))
    ]


def _read_official(folder: Path) -> list[SegmentedImage]:
    images = []
    for split in SPLITS:
        for image_id in (folder / "ImageSets" / "Segmentation" / f"{split}.txt").read_text().split():
            pixels = partial(_open_image, folder / "JPEGImages" / f"{image_id}.jpg")
            # The official masks are images with a palette: their pixels are the numbers of the classes.
            mask = partial(_open_mask, folder / "SegmentationClass" / f"{image_id}.png")
            images.append(SegmentedImage(image_id, split, pixels, mask))
    return images


def _open_image(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.array(image.convert("RGB"))


def _open_mask(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        if image.mode not in ("P", "L"):
            raise ValueError(f"{path} is an image of mode {image.mode}, expected a palette with one number per pixel")
        return np.array(image)
