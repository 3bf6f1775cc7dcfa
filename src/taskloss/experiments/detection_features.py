"""Proposals of PASCAL VOC images with the features of a pretrained network: what R-CNN learns from and is tested on.

A chunk of images is one run, so that several processes share the work and a killed experiment continues.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from taskloss.experiments.boxes import intersection_over_union, warp_crops
from taskloss.experiments.feature_cache import cached_arrays
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.pretrained import load_squeezenet
from taskloss.experiments.runner import Files
from taskloss.experiments.selective_search import propose_boxes
from taskloss.experiments.voc_detection import CLASSES, AnnotatedImage, read_detection

NEAR = 0.3
"""Proposals that overlap an object at least so much are preferred in training."""
BATCH = 64


class Proposals(NamedTuple):
    """Boxes of several images, one row per box."""

    features: np.ndarray
    """``(k, 512)`` float16."""
    boxes: np.ndarray
    """``(k, 4)``, as in :mod:`taskloss.experiments.boxes`."""
    image: np.ndarray
    """``(k,)``: number of the image in its split."""
    overlap: np.ndarray
    """``(k, 20)`` float16: the largest overlap with an object of each class that is not difficult."""


def run_chunk(cell: Cell, files: Files) -> Record:
    """Compute the proposals and features of a chunk of images; they are kept in the cache, the record has their number."""
    return {"boxes": len(_read_chunk(cell, files).boxes)}


def read_proposals(cells: list[Cell], files: Files) -> Proposals:
    """Return the proposals of the chunks; those whose file has been removed are made again."""
    chunks = [_read_chunk(cell, files) for cell in cells]
    return Proposals(*(np.concatenate(arrays) for arrays in zip(*chunks, strict=True)))


def _read_chunk(cell: Cell, files: Files) -> Proposals:
    return Proposals(**cached_arrays(_path(cell, files), lambda: _make_chunk(cell, files)))


def _path(cell: Cell, files: Files) -> Path:
    name = "-".join(str(cell[key]) for key in ("split", "first", "images", "near", "others", "side"))
    return files.cache / "voc_detection" / f"{name}.npz"


@torch.no_grad()
def _make_chunk(cell: Cell, files: Files) -> dict[str, np.ndarray]:
    images = read_detection(files.data_folder()).of_split(cell["split"])[cell["first"] : cell["first"] + cell["images"]]
    network = load_squeezenet(files.data_folder()).eval()
    parts: list[Proposals] = []
    for number, image in enumerate(images, cell["first"]):
        pixels = image.pixels()
        boxes, overlap = _choose_boxes(image, propose_boxes(pixels), cell, np.random.default_rng(number))
        # The context of R-CNN, 16 of 227 pixels, at this side.
        crops = torch.from_numpy(warp_crops(pixels, boxes, cell["side"], round(16 * cell["side"] / 227))).permute(0, 3, 1, 2)
        features = torch.cat([network.features(batch.float()) for batch in crops.split(BATCH)])
        parts.append(
            Proposals(features.half().numpy(), boxes.astype(np.float32), np.full(len(boxes), number), overlap.astype(np.float16))
        )
    return dict(zip(Proposals._fields, map(np.concatenate, zip(*parts, strict=True)), strict=True))


def _choose_boxes(
    image: AnnotatedImage, proposed: np.ndarray, cell: Cell, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the boxes that are kept, and their overlaps with each class.

    In training, the boxes of the objects and at most ``near`` and ``others`` proposals near to and far from objects; in the test,
    at most ``others`` proposals, and nothing is known of the objects.
    """
    if cell["split"] == "val":
        boxes = proposed[: cell["others"]]
        return boxes, _overlaps(image, boxes)
    best = _overlaps(image, proposed).max(1, initial=0.0)
    near, far = (rng.permutation(np.flatnonzero(mask)) for mask in (best >= NEAR, best < NEAR))
    kept = np.concatenate([near[: cell["near"]], far[: cell["others"]]])
    boxes = np.concatenate([image.boxes[~image.difficult], proposed[kept]])
    return boxes, _overlaps(image, boxes)


def _overlaps(image: AnnotatedImage, boxes: np.ndarray) -> np.ndarray:
    overlaps = np.zeros((len(boxes), len(CLASSES)))
    for index in range(len(CLASSES)):
        objects = image.boxes[(image.box_class == index) & ~image.difficult]
        if len(objects):
            overlaps[:, index] = intersection_over_union(boxes, objects).max(1)
    return overlaps
