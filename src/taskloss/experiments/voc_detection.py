"""Object detection of PASCAL VOC 2012: images with boxes of twenty classes, from a packed file or the official layout.

The packed file holds the 2,913 images of the segmentation task (1,464 for training), reduced to a long side of 192 pixels; the
official layout has 11,540 (5,717 for training) at their full size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from taskloss.experiments.images import decode_image
from taskloss.experiments.voc_annotations import OFFICIAL_FOLDERS, find_official, read_objects

PACKED = Path("voc2012_det_seg_192", "voc2012_det_seg_192.npz")
"""Where the packed file is, below the data folder."""
SPLITS = ("train", "val")
CLASSES = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)


@dataclass(frozen=True, eq=False)
class AnnotatedImage:
    """An image with the boxes of its k objects.

    Boxes are edges (left, top, right, bottom) between the pixels of this image: the whole image is (0, 0, width, height), and the
    width of a box is right - left. At full size, the official (xmin, ymin, xmax, ymax), 1-based pixels of which the last is
    included, are the edges (xmin - 1, ymin - 1, xmax, ymax).
    """

    image_id: str
    split: str
    """``"train"`` or ``"val"``."""
    boxes: np.ndarray
    """``(k, 4)`` float32."""
    box_class: np.ndarray
    """``(k,)`` int64: indices of classes."""
    difficult: np.ndarray
    """``(k,)`` bool: whether the official evaluation ignores the object."""
    pixels: Callable[[], np.ndarray] = field(repr=False)
    """Decodes the image, RGB ``(h, w, 3)`` of type uint8; nothing is kept in memory."""


class DetectionData(NamedTuple):
    """The images for training, then those for validation."""

    classes: tuple[str, ...]
    images: tuple[AnnotatedImage, ...]

    def of_split(self, split: str) -> tuple[AnnotatedImage, ...]:
        """Return the images of ``"train"`` or ``"val"``."""
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        return tuple(image for image in self.images if image.split == split)


def read_detection(data: Path) -> DetectionData:
    """Read the boxes from ``data / PACKED`` if it is there, otherwise from the official layout below ``data``."""
    if (data / PACKED).is_file():
        return read_packed(data / PACKED)
    official = find_official(data, "Main")
    if official is not None:
        return read_official(official)
    raise FileNotFoundError(
        f"{data} holds no object detection of PASCAL VOC 2012: expected {PACKED} (the packed images), or the official "
        f"{' or '.join(map(str, OFFICIAL_FOLDERS))} with ImageSets/Main, Annotations and JPEGImages"
    )


def read_packed(path: Path) -> DetectionData:
    """Read the packed file; the JPEG files stay in memory, and an image is decoded whenever it is asked for."""
    with np.load(path, allow_pickle=False) as file:
        jpeg, offset, first = file["jpeg"], file["offset"], file["box_offset"]
        box, box_class, difficult = file["box"], file["box_class"].astype(np.int64), file["box_difficult"] == 1
        scale = file["size"] / file["original_size"]
        image_ids, splits, classes = file["image_id"].tolist(), file["split"].tolist(), tuple(file["classes"].tolist())
    images = []
    for index, (image_id, split) in enumerate(zip(image_ids, splits, strict=True)):
        own = slice(first[index], first[index + 1])
        # The file has the 1-based pixels times the scale, so the left edge is one original pixel before xmin.
        edges = np.maximum(box[own] - np.concatenate([scale[index], [0.0, 0.0]]), 0.0)
        decode = partial(decode_image, jpeg, offset, index)
        images.append(AnnotatedImage(image_id, split, edges.astype(np.float32), box_class[own], difficult[own], decode))
    return DetectionData(classes, tuple(sorted(images, key=_order)))


def read_official(folder: Path) -> DetectionData:
    """Read the official folder ``VOC2012``; an image is opened whenever it is asked for."""
    images = []
    for split in SPLITS:
        for image_id in (folder / "ImageSets" / "Main" / f"{split}.txt").read_text().split():
            objects = read_objects(folder, image_id)
            unknown = [thing.name for thing in objects if thing.name not in CLASSES]
            if unknown:
                raise ValueError(f"{', '.join(unknown)} is no class of PASCAL VOC, but in the annotation of {image_id}")
            images.append(
                AnnotatedImage(
                    image_id,
                    split,
                    np.array([thing.box for thing in objects], np.float32).reshape(-1, 4),
                    np.array([CLASSES.index(thing.name) for thing in objects], np.int64),
                    np.array([thing.difficult for thing in objects], bool),
                    partial(_open_image, folder / "JPEGImages" / f"{image_id}.jpg"),
                )
            )
    return DetectionData(CLASSES, tuple(sorted(images, key=_order)))


def _order(image: AnnotatedImage) -> tuple[int, str]:
    return SPLITS.index(image.split), image.image_id


def _open_image(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.array(image.convert("RGB"))
