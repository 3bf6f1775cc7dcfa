"""The annotations of PASCAL VOC in their official layout, ``VOCdevkit/VOC2012``, for action classification and detection."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

import numpy as np

OFFICIAL_FOLDERS = (Path("VOCdevkit", "VOC2012"), Path("VOC2012"))
"""Where the official layout may be, below the data folder."""
PERSON = "person"


class Object(NamedTuple):
    """One object of an image."""

    name: str
    """Its class."""
    box: np.ndarray
    """Its edges, as :func:`box_edges` returns them, ``(4,)``."""
    difficult: bool


def find_official(data: Path, image_sets: str) -> Path | None:
    """Return the folder ``VOC2012`` below ``data`` that has ``ImageSets/<image_sets>``, or None."""
    return next((data / path for path in OFFICIAL_FOLDERS if (data / path / "ImageSets" / image_sets).is_dir()), None)


def box_edges(box: np.ndarray) -> np.ndarray:
    """Return the edges (left, top, right, bottom) of boxes ``(..., 4)`` of 1-based pixels, the last pixel included, as float32.

    Edges lie between pixels: a box of the whole image is (0, 0, width, height), and the width of a box is right - left.

    >>> box_edges(np.array([1, 1, 500, 333])).tolist()
    [0.0, 0.0, 500.0, 333.0]
    """
    return (np.asarray(box) - np.array([1, 1, 0, 0])).astype(np.float32)


def read_objects(folder: Path, image_id: str) -> list[Object]:
    """Read the objects of an image from ``folder/Annotations/<image_id>.xml``, in the order of the file."""
    root = ET.parse(folder / "Annotations" / f"{image_id}.xml").getroot()
    objects = []
    for element in root.findall("object"):
        # Persons may have parts, such as a head, with boxes of their own one level below.
        corners = [float(element.findtext(f"bndbox/{corner}", "nan")) for corner in ("xmin", "ymin", "xmax", "ymax")]
        if not np.isfinite(corners).all():
            raise ValueError(f"an object of {image_id} in {folder / 'Annotations'} has no complete bndbox")
        difficult = int(element.findtext("difficult", "0")) == 1
        objects.append(Object(element.findtext("name", "").strip(), box_edges(np.array(corners)), difficult))
    return objects
