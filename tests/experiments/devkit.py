"""A tiny VOCdevkit, and the JPEG bytes of a packed file, for the readers of PASCAL VOC."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

Thing = tuple[str, tuple[float, float, float, float], int | None]
"""Class, (xmin, ymin, xmax, ymax) as in the annotations, and the flag ``difficult`` (None: not given)."""


def write_annotation(folder: Path, image_id: str, things: list[Thing]) -> None:
    objects = []
    for name, corners, difficult in things:
        box = "".join(
            f"<{tag}>{value}</{tag}>" for tag, value in zip(("xmax", "xmin", "ymax", "ymin"), sorted_tags(corners), strict=True)
        )
        flag = "" if difficult is None else f"<difficult>{difficult}</difficult>"
        # A part comes before the box of the whole, to catch readers that take the first box they find.
        part = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>"
        objects.append(f"<object><name>{name}</name>{part}<bndbox>{box}</bndbox>{flag}</object>")
    path = folder / "Annotations" / f"{image_id}.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<annotation><filename>{image_id}.jpg</filename>{''.join(objects)}</annotation>")


def sorted_tags(corners: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Return xmax, xmin, ymax, ymin: the order of some of the official annotations."""
    xmin, ymin, xmax, ymax = corners
    return xmax, xmin, ymax, ymin


def write_image(folder: Path, image_id: str, width: int, height: int) -> Image.Image:
    """Write a smooth image, so that JPEG changes little, and return it as it is read."""
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([255 * x / width, 255 * y / height, 255 * (1 - x / width)], -1).astype(np.uint8)
    path = folder / "JPEGImages" / f"{image_id}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95)
    with Image.open(path) as image:
        return image.convert("RGB")


def write_list(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def as_jpeg(images: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Return ``jpeg`` and ``offset`` of a packed file."""
    files = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=95)
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    return {"jpeg": np.concatenate(files), "offset": np.cumsum([0, *map(len, files)]).astype(np.int64)}
