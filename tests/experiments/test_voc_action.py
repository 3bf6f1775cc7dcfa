"""Persons of PASCAL VOC 2012: both layouts, the crops, and splits by image."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from taskloss.experiments.voc_action import (
    CLASSES,
    FILL,
    PACKED,
    UNKNOWN,
    Persons,
    read_official,
    read_packed,
    read_persons,
    split_thirds,
    warp_box,
)
from tests.experiments.devkit import as_jpeg, write_annotation, write_image, write_list

DATA = Path(os.environ.get("TASKLOSS_DATA", Path(__file__).parents[3] / "shared" / "data"))

# Image, object index, box as in the annotations, official labels of all ten classes (0: not in the list).
PERSONS = [
    ("2010_000002", 1, (1, 1, 60, 90), [0, 1, -1, -1, -1, -1, -1, -1, -1, -1]),
    ("2010_000002", 2, (41, 11, 100, 80), [1, -1, -1, -1, -1, -1, 1, -1, -1, -1]),
    ("2011_000001", 1, (20.5, 30, 79.5, 89), [-1, -1, -1, -1, -1, -1, -1, -1, -1, 1]),
]
SIZES = {"2010_000002": (120, 90), "2011_000001": (100, 100)}


@pytest.fixture
def official(tmp_path) -> Path:
    """The persons above in the official layout; the last image is listed first, and a horse stands between the persons."""
    folder = tmp_path / "official" / "VOCdevkit" / "VOC2012"
    for image_id, size in SIZES.items():
        boxes = [box for image, _, box, _ in PERSONS if image == image_id]
        things = [("person", box, None) for box in boxes]
        things.insert(1, ("horse", (5, 5, 50, 50), 0))
        write_annotation(folder, image_id, things)
        write_image(folder, image_id, *size)
    for column, name in enumerate(CLASSES):
        # A person whose label is 0 above is not in the list of the class.
        lines = [f"{image}  {index} {labels[column]:2d}" for image, index, _, labels in reversed(PERSONS) if labels[column] != 0]
        write_list(folder / "ImageSets" / "Action" / f"{name}_trainval.txt", [*lines, ""])
    return tmp_path / "official"


@pytest.fixture
def packed(tmp_path) -> Path:
    """The same persons as a packed file, in another order."""
    order = [2, 1, 0]
    crops = []
    for row in order:
        image_id, _, (xmin, ymin, xmax, ymax), _ = PERSONS[row]
        image = write_image(tmp_path / "sources", image_id, *SIZES[image_id])
        crops.append(warp_box(image, np.array([xmin - 1, ymin - 1, xmax, ymax])))
    path = tmp_path / "packed" / PACKED
    path.parent.mkdir(parents=True)
    np.savez(
        path,
        **as_jpeg(crops),
        labels=np.array([PERSONS[row][3] for row in order], np.int8),
        classes=np.array(CLASSES),
        image_id=np.array([PERSONS[row][0] for row in order]),
        object_index=np.array([PERSONS[row][1] for row in order], np.int16),
        box=np.array([PERSONS[row][2] for row in order], np.float32),
    )
    return tmp_path / "packed"


def check_persons(persons: Persons) -> None:
    """Compare with values written by hand."""
    assert persons.classes == CLASSES
    assert persons.labels.dtype == persons.image.dtype == np.int64
    assert persons.labels.tolist() == [
        [UNKNOWN, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    ]
    assert persons.image.tolist() == [0, 0, 1]
    assert persons.image_id.tolist() == ["2010_000002", "2010_000002", "2011_000001"]
    assert persons.box.tolist() == [[0, 0, 60, 90], [40, 10, 100, 80], [19.5, 29, 79.5, 89]]


def test_both_layouts_give_the_same(official, packed):
    one, other = read_persons(official), read_persons(packed)
    check_persons(one)
    check_persons(other)
    for row in range(3):
        ours, theirs = one.crop(row), other.crop(row)
        assert ours.shape == theirs.shape == (227, 227, 3)
        assert ours.dtype == theirs.dtype == np.uint8
        assert np.abs(ours.astype(int) - theirs).mean() < 2  # The packed crops went through JPEG.


def test_explicit_zeros_are_unknown(official):
    path = official / "VOCdevkit" / "VOC2012" / "ImageSets" / "Action" / "reading_trainval.txt"
    path.write_text(path.read_text().replace("2011_000001  1 -1", "2011_000001  1  0"))
    labels = read_persons(official).labels[:, CLASSES.index("reading")]
    assert labels.tolist() == [0, 0, UNKNOWN]


def test_folder_without_devkit_is_found_too(official, tmp_path):
    (tmp_path / "plain").mkdir()
    (official / "VOCdevkit" / "VOC2012").rename(tmp_path / "plain" / "VOC2012")
    check_persons(read_persons(tmp_path / "plain"))


def test_packed_file_is_preferred(official, packed):
    (official / PACKED).parent.mkdir()
    (packed / PACKED).rename(official / PACKED)
    for path in (official / "VOCdevkit" / "VOC2012" / "JPEGImages").iterdir():
        path.unlink()
    assert read_persons(official).crop(0).shape == (227, 227, 3)


def test_missing_data_name_both_layouts(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        read_persons(tmp_path)
    for part in (str(tmp_path), str(PACKED), "VOCdevkit/VOC2012", "ImageSets/Action"):
        assert part in str(error.value)


def test_missing_person_is_named(official):
    write_annotation(official / "VOCdevkit" / "VOC2012", "2010_000002", [("person", (1, 1, 60, 90), 0)])
    with pytest.raises(ValueError, match="lists person 2 of 2010_000002, but its annotation has 1 persons"):
        read_persons(official)


def test_incomplete_box_is_named(official):
    path = official / "VOCdevkit" / "VOC2012" / "Annotations" / "2010_000002.xml"
    path.write_text(path.read_text().replace("<xmin>", "<xmi>").replace("</xmin>", "</xmi>"))
    with pytest.raises(ValueError, match="2010_000002"):
        read_persons(official)


def test_batches_of_crops(packed):
    persons = read_persons(packed)
    batches = list(persons.crops(2))
    assert [tuple(batch.shape) for batch in batches] == [(2, 3, 227, 227), (1, 3, 227, 227)]
    assert batches[0].dtype == torch.uint8
    (chosen,) = persons.crops(5, np.array([2, 0]))
    np.testing.assert_array_equal(chosen.permute(0, 2, 3, 1), np.stack([persons.crop(2), persons.crop(0)]))


# --- the geometry of a crop -----------------------------------------------------------------------------------------------


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_box_of_195_pixels_is_not_resized():
    image = noise(300, 280)
    # The sides of the box are 227 - 2 * 16 pixels, so a pixel of the crop is one of the image, and 16 around it are context.
    np.testing.assert_array_equal(warp_box(image, np.array([50, 40, 245, 235])), np.asarray(image)[24:251, 34:261])


def test_outside_of_the_image_is_filled():
    image = noise(195, 300)
    crop = warp_box(image, np.array([0, 0, 195, 195]))
    np.testing.assert_array_equal(crop[16:, 16:211], np.asarray(image)[:211])
    filled = np.ones((227, 227), bool)
    filled[16:, 16:211] = False
    assert (crop[filled] == FILL).all()


@pytest.mark.parametrize(("width", "height"), [(39, 390), (390, 39), (16, 70)])
def test_whole_image_has_sixteen_pixels_around_it_whatever_its_aspect(width, height):
    crop = warp_box(Image.new("RGB", (width, height), (255, 0, 0)), np.array([0, 0, width, height]))
    is_red = (crop == (255, 0, 0)).all(-1)
    assert is_red[16:211, 16:211].all()
    assert is_red.sum() == 195 * 195
    assert (crop[~is_red] == FILL).all()


def test_halves_stay_halves():
    pixels = np.zeros((78, 39, 3), np.uint8)
    pixels[39:] = 200
    crop = warp_box(Image.fromarray(pixels), np.array([0, 0, 39, 78]))
    inside = crop[16:211, 113, 0].astype(int)
    assert inside[:90].max() <= 2
    assert inside[-90:].min() >= 198
    assert abs(int(np.argmax(inside > 100)) - 97.5) <= 1


def test_part_of_the_margin_is_filled():
    # The margin is 80 * 16 / 195 = 6.56 pixels, of which 2 are in the image: (6.56 - 2) * 195 / 80 = 11.1 pixels are filled.
    crop = warp_box(Image.new("RGB", (200, 200), (255, 0, 0)), np.array([2, 50, 82, 130]))
    assert (crop == FILL).all(-1).all(0).sum() == 11
    assert (crop[:, 11:] == (255, 0, 0)).all()


def test_box_outside_the_image_is_refused():
    with pytest.raises(ValueError, match="has no pixel in an image of 20 x 30"):
        warp_box(Image.new("RGB", (20, 30)), np.array([40, 5, 50, 10]))


# --- splits ---------------------------------------------------------------------------------------------------------------


def test_thirds_share_no_image():
    image = np.sort(np.random.default_rng(0).integers(0, 100, 400)) * 7  # The numbers need not be consecutive.
    parts = split_thirds(image, seed=3)
    assert sorted(np.concatenate(parts).tolist()) == list(range(400))
    images = [set(image[rows].tolist()) for rows in parts]
    assert sum(map(len, images)) == len(np.unique(image))
    sizes = [len(part) for part in images]
    assert max(sizes) - min(sizes) <= 1
    assert all(np.array_equal(one, other) for one, other in zip(parts, split_thirds(image, seed=3), strict=True))
    assert not np.array_equal(parts[0], split_thirds(image, seed=4)[0])


# --- the real file --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Persons:
    if not (DATA / PACKED).exists():
        pytest.skip("no image data: set TASKLOSS_DATA to its folder")
    return read_packed(DATA / PACKED)


def test_real_counts(real):
    assert len(real) == 6278
    assert real.classes == CLASSES
    assert len(np.unique(real.image)) == real.image.max() + 1 == 4588
    assert (real.labels == 1).sum(0).tolist() == [495, 457, 619, 530, 578, 534, 561, 456, 476, 597]
    assert (real.labels == UNKNOWN).sum(0).tolist() == [608, *[0] * 9]
    assert np.bincount((real.labels == 1).sum(1)).tolist() == [1043, 5167, 68]
    parts = split_thirds(real.image, seed=0)
    assert all(2000 < len(rows) < 2200 for rows in parts)


def test_real_crops_are_filled_where_ours_are(real):
    with np.load(DATA / PACKED, allow_pickle=False) as file:
        sizes = dict(zip(file["image_id"].tolist(), file["image_size"].tolist(), strict=True))
    compared = 0
    for row in range(0, len(real), 100):
        blank = warp_box(Image.new("RGB", tuple(sizes[real.image_id[row]]), (255, 255, 255)), real.box[row])
        filled = (blank == FILL).all(-1)
        # JPEG smears the edge of the image over the last filled pixels, so the outermost of them is left out.
        filled[1:] &= filled[:-1]
        filled[:-1] &= filled[1:]
        filled[:, 1:] &= filled[:, :-1]
        filled[:, :-1] &= filled[:, 1:]
        if filled.any():
            compared += 1
            assert np.abs(real.crop(row)[filled].astype(int) - FILL).mean() < 8
    assert compared > 20


def test_official_reader_needs_the_lists(tmp_path):
    (tmp_path / "ImageSets" / "Action").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="jumping_trainval.txt"):
        read_official(tmp_path)
