"""Small labelled images: Cat&Dog, CIFAR-10, CIFAR-100, Tiny-ImageNet and STL-10, from their official layouts or packed files.

A packed file holds the images as JPEG files one after another (``experiments/images.py``) with one label per image. The binary
versions of CIFAR (Krizhevsky 2009) hold records of label bytes and the pixels of one image. The binary version of STL-10 (Coates
et al. 2011) has pixels and labels in separate files, and stores every channel of an image by columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from taskloss._checks import check_choice, check_count
from taskloss._warn import warn_caller
from taskloss.experiments.images import decode_image

NAMES = ("cat_dog", "cifar10", "cifar100", "tiny_imagenet100", "stl10")
CLASSES = {"cat_dog": 2, "cifar10": 10, "cifar100": 100, "tiny_imagenet100": 100, "stl10": 10}
"""Number of classes of each set."""
CIFAR_SIDE, STL_SIDE = 32, 96
TINY_IMAGENET_CLASSES = 200
"""Classes of the official Tiny-ImageNet; every second one, in the order of their WordNet numbers, is in ``tiny_imagenet100``."""


class LabelledImages(NamedTuple):
    """Images with one class each."""

    pixels: np.ndarray
    """``(n, 3, side, side)`` uint8, RGB."""
    labels: np.ndarray
    """``(n,)`` int64, from 0."""


class ImageSet(NamedTuple):
    """A data set of images."""

    training: LabelledImages
    test: LabelledImages | None
    """None where the source has no test part: Cat&Dog and the packed STL-10."""
    classes: int


class _Layout(NamedTuple):
    """One form in which a data set can be below the data folder."""

    expected: str
    """What belongs to the layout, for messages."""
    signs: tuple[str, ...]
    """Glob patterns; the layout is there if each of them matches."""
    read: Callable[[Path, int], tuple[LabelledImages, LabelledImages | None]]
    """Reads the training and the test part from the data folder, at the given side."""


def read_image_set(folder: Path, name: str, side: int) -> ImageSet:
    """Read a data set of images; the order of the images is the same in every run.

    An official layout is preferred to the packed files. Images are resized to ``side`` x ``side`` pixels, by averaging where they
    shrink and bilinearly otherwise; the aspect ratio of images that are not square is not kept. Nothing is cached.

    Args:
        folder: the data folder; the layouts are looked for directly below it.
        name: one of NAMES.
        side: width and height of the images.

    Raises:
        FileNotFoundError: no layout of the set is below the folder, or a file of the layout is missing.
        ValueError: a file has the wrong size or a label that is not of the set.
    """
    check_choice("name", name, NAMES)
    check_count("side", side)
    layouts = _LAYOUTS[name]
    found = next((layout for layout in layouts if all(any(folder.glob(sign)) for sign in layout.signs)), None)
    if found is None:
        expected = " or ".join(layout.expected for layout in layouts)
        raise FileNotFoundError(f"{folder} holds no data set {name}: expected {expected}")
    training, test = found.read(folder, side)
    classes = CLASSES[name]
    for part in (training, test):
        if part is not None and not ((part.labels >= 0) & (part.labels < classes)).all():
            raise ValueError(
                f"{name} in {folder} has labels {part.labels.min()} to {part.labels.max()}, expected {classes} classes"
            )
    return ImageSet(training, test, classes)


def _resize(pixels: np.ndarray, side: int) -> np.ndarray:
    """Resize RGB pixels ``(h, w, 3)`` of type uint8 to ``(side, side, 3)``."""
    if pixels.shape[:2] == (side, side):
        return pixels
    kernel = Image.Resampling.BOX if min(pixels.shape[:2]) >= side else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(pixels).resize((side, side), kernel))


def _collect(images: Iterator[np.ndarray], count: int, side: int) -> np.ndarray:
    """Resize ``count`` images, RGB ``(h, w, 3)`` each, into one array ``(count, 3, side, side)``."""
    pixels = np.empty((count, 3, side, side), np.uint8)
    for row, image in zip(pixels, images, strict=True):
        row[...] = _resize(image, side).transpose(2, 0, 1)
    return pixels


def _read_packed(folder: Path, side: int, *, training: Path, test: Path | None) -> tuple[LabelledImages, LabelledImages | None]:
    return _read_packed_part(folder / training, side), None if test is None else _read_packed_part(folder / test, side)


def _read_packed_part(path: Path, side: int) -> LabelledImages:
    with np.load(path, allow_pickle=False) as file:
        jpeg, offset, labels = file["jpeg"], file["offset"], file["labels"].astype(np.int64)
    if len(offset) != len(labels) + 1 or offset[-1] != len(jpeg):
        raise ValueError(
            f"{path} has {len(labels)} labels, {len(offset)} offsets up to {offset[-1]} and {len(jpeg)} bytes of images; "
            "expected one offset more than labels, and the last offset at the end of the images"
        )
    return LabelledImages(_collect((decode_image(jpeg, offset, row) for row in range(len(labels))), len(labels), side), labels)


def _read_records(path: Path, size: int) -> np.ndarray:
    """Read a file of records of ``size`` bytes each, ``(n, size)`` uint8."""
    values = np.fromfile(path, np.uint8)
    if len(values) == 0 or len(values) % size:
        raise ValueError(f"{path} has {len(values)} bytes, expected a multiple of {size}: the download may be incomplete")
    return values.reshape(-1, size)


def _read_cifar(
    folder: Path, side: int, *, training: Sequence[Path], test: Path, label_bytes: int
) -> tuple[LabelledImages, LabelledImages | None]:
    """Read the binary version; the last of the label bytes is the class (the first of CIFAR-100's two is a group of classes)."""
    parts = []
    for paths in (training, [test]):
        records = np.concatenate([_read_records(folder / path, label_bytes + 3 * CIFAR_SIDE**2) for path in paths])
        pixels = records[:, label_bytes:].reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE)
        labels = records[:, label_bytes - 1].astype(np.int64)
        parts.append(LabelledImages(_resize_all(pixels, side), labels))
    return parts[0], parts[1]


def _resize_all(pixels: np.ndarray, side: int) -> np.ndarray:
    """Resize ``(n, 3, h, w)`` uint8 to ``(n, 3, side, side)``, contiguous."""
    if pixels.shape[2:] == (side, side):
        return np.ascontiguousarray(pixels)
    return _collect((np.ascontiguousarray(image.transpose(1, 2, 0)) for image in pixels), len(pixels), side)


def _read_stl(folder: Path, side: int) -> tuple[LabelledImages, LabelledImages | None]:
    parts = []
    for part in ("train", "test"):
        base = folder / "stl10_binary"
        by_columns = _read_records(base / f"{part}_X.bin", 3 * STL_SIDE**2).reshape(-1, 3, STL_SIDE, STL_SIDE)
        labels = np.fromfile(base / f"{part}_y.bin", np.uint8)
        if len(labels) != len(by_columns):
            raise ValueError(f"{base / part}_y.bin has {len(labels)} bytes, expected one for each of {len(by_columns)} images")
        parts.append(LabelledImages(_resize_all(by_columns.transpose(0, 1, 3, 2), side), labels.astype(np.int64) - 1))
    return parts[0], parts[1]


def _decode_file(path: Path) -> np.ndarray:
    file = np.fromfile(path, np.uint8)
    return decode_image(file, np.array([0, len(file)]), 0)


def _read_cat_dog(folder: Path, side: int, *, patterns: tuple[str, str]) -> tuple[LabelledImages, LabelledImages | None]:
    """Read the images of cats (0) and dogs (1); a few files of the public download are empty or broken and are left out."""
    pixels, labels, broken = [], [], []
    for label, pattern in enumerate(patterns):
        for path in sorted(folder.glob(pattern)):
            try:
                pixels.append(_resize(_decode_file(path), side))
            except OSError:  # Pillow's error for files that it cannot identify or that end too early.
                broken.append(path)
                continue
            labels.append(label)
    if not pixels:
        raise ValueError(f"none of the {len(broken)} files {' and '.join(patterns)} in {folder} is an image")
    if broken:
        warn_caller(f"left out {len(broken)} files that are no images, the first of them {broken[0]}")
    return LabelledImages(np.ascontiguousarray(np.stack(pixels).transpose(0, 3, 1, 2)), np.array(labels, np.int64)), None


def _read_tiny_imagenet(folder: Path, side: int) -> tuple[LabelledImages, LabelledImages | None]:
    """Read every second class; the official validation part, whose labels are public, is the test part."""
    base = folder / "tiny-imagenet-200"
    wnids = sorted(path.name for path in (base / "train").iterdir() if path.is_dir())
    if len(wnids) != TINY_IMAGENET_CLASSES:
        raise ValueError(f"{base / 'train'} has {len(wnids)} folders of classes, expected {TINY_IMAGENET_CLASSES}")
    label_of = {wnid: label for label, wnid in enumerate(wnids[::2])}
    folders = [(base / "train" / wnid / "images", label) for wnid, label in label_of.items()]
    training = [(path, label) for images, label in folders for path in sorted(images.glob("*.JPEG"))]
    lines = (line.split("\t") for line in (base / "val" / "val_annotations.txt").read_text().splitlines() if line.strip())
    test = sorted((base / "val" / "images" / name, label_of[wnid]) for name, wnid, *_ in lines if wnid in label_of)
    return _read_files(training, side), _read_files(test, side)


def _read_files(files: Sequence[tuple[Path, int]], side: int) -> LabelledImages:
    labels = np.array([label for _, label in files], np.int64)
    return LabelledImages(_collect((_decode_file(path) for path, _ in files), len(files), side), labels)


def _packed(training: str, test: str | None = None) -> _Layout:
    names = (training,) if test is None else (training, test)
    read = partial(_read_packed, training=Path(training), test=None if test is None else Path(test))
    return _Layout(f"{' and '.join(names)} (packed)", names, read)


def _cat_dog(expected: str, cats: str, dogs: str) -> _Layout:
    return _Layout(expected, (cats, dogs), partial(_read_cat_dog, patterns=(cats, dogs)))


def _cifar(folder: str, training: Sequence[str], test: str, label_bytes: int) -> _Layout:
    paths = [Path(folder, name) for name in training]
    read = partial(_read_cifar, training=paths, test=Path(folder, test), label_bytes=label_bytes)
    return _Layout(f"{folder} with {', '.join((*training, test))} (the official binary version)", (folder,), read)


# The official layouts are first: they are preferred.
_LAYOUTS: dict[str, tuple[_Layout, ...]] = {
    "cat_dog": (
        _cat_dog("PetImages/Cat/*.jpg and PetImages/Dog/*.jpg", "PetImages/Cat/*.jpg", "PetImages/Dog/*.jpg"),
        _cat_dog("train/cat.0.jpg, train/dog.0.jpg and so on (Kaggle)", "train/cat.*.jpg", "train/dog.*.jpg"),
        _packed("cat_dog_64/cat_dog_64.npz"),
    ),
    "cifar10": (
        _cifar("cifar-10-batches-bin", [f"data_batch_{number}.bin" for number in range(1, 6)], "test_batch.bin", 1),
        _packed("cifar10_jpeg/cifar10_train.npz", "cifar10_jpeg/cifar10_test.npz"),
    ),
    "cifar100": (_cifar("cifar-100-binary", ["train.bin"], "test.bin", 2),),
    "tiny_imagenet100": (
        _Layout("tiny-imagenet-200 with train and val", ("tiny-imagenet-200",), _read_tiny_imagenet),
        _packed("tiny_imagenet100_32/tin100_train.npz", "tiny_imagenet100_32/tin100_val.npz"),
    ),
    "stl10": (
        _Layout(
            "stl10_binary with train_X.bin, train_y.bin, test_X.bin and test_y.bin (the official binary version)",
            ("stl10_binary",),
            _read_stl,
        ),
        _packed("stl10_train3996_96/stl10_train3996_96.npz"),
    ),
}
