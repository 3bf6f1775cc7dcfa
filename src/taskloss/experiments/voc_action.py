"""Action classification of PASCAL VOC 2012: crops of persons with ten binary labels, from a packed file or the official layout.

The official annotations mark 6,278 persons in 4,588 images for training and validation; those of the test images are not public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from taskloss.experiments.images import decode_image
from taskloss.experiments.voc_annotations import OFFICIAL_FOLDERS, PERSON, box_edges, find_official, read_objects

PACKED = Path("voc2012_action", "voc2012_action_crops227.npz")
"""Where the packed file is, below the data folder."""
CLASSES = (
    "jumping",
    "phoning",
    "playinginstrument",
    "reading",
    "ridingbike",
    "ridinghorse",
    "running",
    "takingphoto",
    "usingcomputer",
    "walking",
)
UNKNOWN = -1
"""Label of a person that is not in the official list of a class."""
SIDE, CONTEXT = 227, 16
"""Side of a crop, and how many of its pixels at each side show what surrounds the box."""
FILL = (124, 117, 104)
"""RGB colour of the parts of a crop that are outside the image."""


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons with their actions, sorted by image and by their number in the image."""

    classes: tuple[str, ...]
    """Names of the ten actions."""
    labels: np.ndarray
    """``(n, 10)`` int64: 1, 0 or UNKNOWN."""
    image: np.ndarray
    """``(n,)`` int64: the image of each person, numbered from 0; persons of the same image belong into the same split."""
    image_id: np.ndarray
    """``(n,)`` strings: the official name of the image."""
    box: np.ndarray
    """``(n, 4)`` float32: left, top, right and bottom edge in the original image, as ``box_edges`` returns them."""
    crop: Callable[[int], np.ndarray] = field(repr=False)
    """Makes the crop of a person, RGB pixels ``(227, 227, 3)`` of type uint8."""

    def __len__(self) -> int:
        return len(self.labels)

    def crops(self, batch_size: int, rows: np.ndarray | None = None) -> Iterator[Tensor]:
        """Yield the crops of the given rows, or of all persons, in batches: RGB ``(batch, 3, 227, 227)`` of type uint8."""
        chosen = np.arange(len(self)) if rows is None else np.asarray(rows)
        for first in range(0, len(chosen), batch_size):
            pixels = np.stack([self.crop(int(row)) for row in chosen[first : first + batch_size]])
            yield torch.from_numpy(pixels).permute(0, 3, 1, 2)


def read_persons(data: Path) -> Persons:
    """Read the persons from ``data / PACKED`` if it is there, otherwise from the official layout below ``data``."""
    if (data / PACKED).is_file():
        return read_packed(data / PACKED)
    official = find_official(data, "Action")
    if official is not None:
        return read_official(official)
    raise FileNotFoundError(
        f"{data} holds no action classification of PASCAL VOC 2012: expected {PACKED} (the packed crops), or the official "
        f"{' or '.join(map(str, OFFICIAL_FOLDERS))} with ImageSets/Action, Annotations and JPEGImages"
    )


def read_packed(path: Path) -> Persons:
    """Read the persons from the packed file, which holds the crops as JPEG files."""
    with np.load(path, allow_pickle=False) as file:
        jpeg, offset, image_id = file["jpeg"], file["offset"], file["image_id"]
        # The file is in the order of the official splits.
        order = np.lexsort((file["object_index"], image_id))
        labels, box, classes = file["labels"][order], file["box"][order], tuple(file["classes"].tolist())
    return Persons(
        classes=classes,
        labels=_from_official(labels),
        image=np.unique(image_id[order], return_inverse=True)[1].astype(np.int64),
        image_id=image_id[order],
        box=box_edges(box),
        crop=lambda row: decode_image(jpeg, offset, int(order[row])),
    )


def read_official(folder: Path) -> Persons:
    """Read the persons from the official folder ``VOC2012``; images are opened when their crops are made.

    Line ``2010_006215 2 -1`` of ``ImageSets/Action/jumping_trainval.txt`` says that the second person in the annotations of the
    image does not jump.
    """
    listed: dict[tuple[str, int], dict[str, int]] = {}
    for name in CLASSES:
        for line in (folder / "ImageSets" / "Action" / f"{name}_trainval.txt").read_text().splitlines():
            if line.strip():
                image_id, index, label = line.split()
                listed.setdefault((image_id, int(index)), {})[name] = int(label)
    persons = sorted(listed)
    found: dict[str, list[np.ndarray]] = {}
    for image_id, number in persons:
        if image_id not in found:
            found[image_id] = [thing.box for thing in read_objects(folder, image_id) if thing.name == PERSON]
        if not 1 <= number <= len(found[image_id]):
            raise ValueError(
                f"ImageSets/Action lists person {number} of {image_id}, but its annotation has {len(found[image_id])} persons"
            )
    image_ids = np.array([image_id for image_id, _ in persons])
    box = np.array([found[image_id][number - 1] for image_id, number in persons], np.float32).reshape(-1, 4)
    labels = np.array([[listed[person].get(name, 0) for name in CLASSES] for person in persons]).reshape(-1, len(CLASSES))

    def crop(row: int) -> np.ndarray:
        with Image.open(folder / "JPEGImages" / f"{image_ids[row]}.jpg") as image:
            return warp_box(image.convert("RGB"), box[row])

    image_number = np.unique(image_ids, return_inverse=True)[1].astype(np.int64)
    return Persons(CLASSES, _from_official(labels), image_number, image_ids, box, crop)


def _from_official(labels: np.ndarray) -> np.ndarray:
    """Map the official 1, -1 and 0 (not to be used) to 1, 0 and UNKNOWN."""
    return np.select([labels == 1, labels == -1], [1, 0], UNKNOWN).astype(np.int64)


def warp_box(image: Image.Image, box: np.ndarray) -> np.ndarray:
    """Cut a box out of an RGB image as R-CNN does (Girshick et al. 2014, appendix A), ``(227, 227, 3)`` of type uint8.

    The box is enlarged so that CONTEXT pixels of the crop surround it, and is warped with bicubic interpolation; its aspect ratio
    is not kept. Only what is inside the image is warped, so the edge to the filled parts stays sharp.

    Args:
        image: the image.
        box: its edges (left, top, right, bottom), ``(4,)``.
    """
    low, high = np.asarray(box[:2], np.float64), np.asarray(box[2:], np.float64)
    margin = (high - low) * CONTEXT / (SIDE - 2 * CONTEXT)
    low, high = low - margin, high + margin
    inside_low, inside_high = np.maximum(low, 0), np.minimum(high, image.size)
    if not (inside_low < inside_high).all():
        raise ValueError(f"the box {np.asarray(box).tolist()} has no pixel in an image of {image.size[0]} x {image.size[1]}")
    scale = SIDE / (high - low)
    begin, end = (np.rint((edge - low) * scale).astype(int) for edge in (inside_low, inside_high))
    width, height = np.maximum(end - begin, 1).tolist()
    region = (*inside_low.tolist(), *inside_high.tolist())
    crop = Image.new("RGB", (SIDE, SIDE), FILL)
    crop.paste(image.resize((width, height), Image.Resampling.BICUBIC, box=region), tuple(begin.tolist()))
    return np.array(crop)


def split_thirds(image: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split persons into thirds for training, validation and test; those of the same image are in the same third.

    Args:
        image: ``(n,)``, the image of each person.
        seed: of the random split.

    Returns:
        The rows of the three parts, each sorted. The parts have the same number of images, up to one.
    """
    numbers = np.unique(image, return_inverse=True)[1]
    third = np.random.default_rng(seed).permutation(numbers.max(initial=-1) + 1) % 3
    training, validation, test = (np.flatnonzero(third[numbers] == part) for part in range(3))
    return training, validation, test
