"""Boxes of PASCAL VOC 2012: both layouts and their convention."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from taskloss.experiments.voc_detection import CLASSES, PACKED, DetectionData, read_detection
from tests.experiments.devkit import as_jpeg, write_annotation, write_image, write_list

DATA = Path(os.environ.get("TASKLOSS_DATA", Path(__file__).parents[3] / "shared" / "data"))

# Image, split, size, and its objects: class, (xmin, ymin, xmax, ymax), difficult.
IMAGES = [
    ("2008_000002", "train", (60, 40), [("dog", (1, 1, 60, 40), 0), ("person", (11, 5, 30, 24), 1)]),
    ("2009_000001", "train", (40, 40), []),
    ("2007_000005", "val", (50, 70), [("tvmonitor", (10.5, 20, 30, 70), None)]),
]


@pytest.fixture
def official(tmp_path) -> Path:
    folder = tmp_path / "official" / "VOCdevkit" / "VOC2012"
    for image_id, _, size, things in IMAGES:
        write_annotation(folder, image_id, things)
        write_image(folder, image_id, *size)
    for name in ("train", "val"):
        lines = [image_id for image_id, split, *_ in reversed(IMAGES) if split == name]
        write_list(folder / "ImageSets" / "Main" / f"{name}.txt", lines)
    return tmp_path / "official"


def write_packed(folder: Path, scale: int) -> Path:
    """Write the same images, reduced by an integer, as a packed file in another order."""
    images = list(reversed(IMAGES))
    pictures = [
        np.asarray(write_image(folder / "sources", image_id, *size).resize((size[0] // scale, size[1] // scale)))
        for image_id, _, size, _ in images
    ]
    things = [thing for *_, own in images for thing in own]
    (folder / PACKED).parent.mkdir(parents=True)
    np.savez(
        folder / PACKED,
        **as_jpeg(pictures),
        size=np.array([picture.shape[1::-1] for picture in pictures], np.int16),
        original_size=np.array([size for _, _, size, _ in images], np.int16),
        box=np.array([np.array(box) / scale for _, box, _ in things], np.float32),
        box_class=np.array([CLASSES.index(name) for name, _, _ in things], np.int8),
        box_difficult=np.array([difficult or 0 for _, _, difficult in things], np.int8),
        box_offset=np.cumsum([0, *(len(own) for *_, own in images)]).astype(np.int32),
        split=np.array([split for _, split, *_ in images]),
        image_id=np.array([image_id for image_id, *_ in images]),
        classes=np.array(CLASSES),
    )
    return folder


def check_data(data: DetectionData, scale: int) -> None:
    """Compare with values written by hand."""
    assert data.classes == CLASSES
    assert [(image.image_id, image.split) for image in data.images] == [
        ("2008_000002", "train"),
        ("2009_000001", "train"),
        ("2007_000005", "val"),
    ]
    dog, nothing, monitor = data.images
    np.testing.assert_allclose(dog.boxes * scale, [[0, 0, 60, 40], [10, 4, 30, 24]], atol=1e-5)
    np.testing.assert_allclose(monitor.boxes * scale, [[9.5, 19, 30, 70]], atol=1e-5)
    assert nothing.boxes.shape == (0, 4)
    assert [image.box_class.tolist() for image in data.images] == [[11, 14], [], [19]]
    assert [image.difficult.tolist() for image in data.images] == [[False, True], [], [False]]
    for image in data.images:
        assert (image.boxes.dtype, image.box_class.dtype, image.difficult.dtype) == (np.float32, np.int64, np.bool_)
        assert image.pixels().dtype == np.uint8
        assert image.boxes.min(initial=0) >= 0
    assert [image.pixels().shape for image in data.images] == [
        (40 // scale, 60 // scale, 3),
        (40 // scale, 40 // scale, 3),
        (70 // scale, 50 // scale, 3),
    ]


def test_official_layout(official):
    check_data(read_detection(official), scale=1)


@pytest.mark.parametrize("scale", [1, 2])
def test_packed_file(tmp_path, scale):
    check_data(read_detection(write_packed(tmp_path, scale)), scale)


def test_both_show_the_same_image(official, tmp_path):
    write_packed(tmp_path, scale=1)
    for one, other in zip(read_detection(official).images, read_detection(tmp_path).images, strict=True):
        assert np.abs(one.pixels().astype(int) - other.pixels()).mean() < 2


def test_images_are_decoded_on_demand(official):
    data = read_detection(official)
    path = official / "VOCdevkit" / "VOC2012" / "JPEGImages" / "2008_000002.jpg"
    path.rename(path.with_suffix(".away"))
    with pytest.raises(FileNotFoundError):
        data.images[0].pixels()
    path.with_suffix(".away").rename(path)
    assert data.images[0].pixels().shape == (40, 60, 3)


def test_splits(official):
    data = read_detection(official)
    assert [len(data.of_split(name)) for name in ("train", "val")] == [2, 1]
    with pytest.raises(ValueError, match="split must be one of train, val, got 'test'"):
        data.of_split("test")


def test_missing_data_name_both_layouts(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        read_detection(tmp_path)
    for part in (str(tmp_path), str(PACKED), "VOCdevkit/VOC2012", "ImageSets/Main"):
        assert part in str(error.value)


def test_unknown_class_is_named(official):
    write_annotation(official / "VOCdevkit" / "VOC2012", "2009_000001", [("unicorn", (1, 1, 2, 2), 0)])
    with pytest.raises(ValueError, match="unicorn.*2009_000001"):
        read_detection(official)


def test_real_counts():
    if not (DATA / PACKED).exists():
        pytest.skip("no image data: set TASKLOSS_DATA to its folder")
    data = read_detection(DATA)
    assert data.classes == CLASSES
    assert [len(data.of_split(name)) for name in ("train", "val")] == [1464, 1449]
    assert sum(len(image.boxes) for image in data.images) == 6934
    for image in data.images[::300]:
        height, width, _ = image.pixels().shape
        assert max(height, width) == 192
        assert (image.boxes[:, :2] >= 0).all()
        assert (image.boxes[:, 2:] <= np.array([width, height]) + 1e-3).all()
        assert (image.boxes[:, :2] < image.boxes[:, 2:]).all()
