"""Labelled images: every official layout made by hand, the packed files, resizing, and the errors of incomplete downloads."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from taskloss.experiments.image_sets import CLASSES, NAMES, read_image_set
from tests.experiments.devkit import as_jpeg

DATA = Path(os.environ.get("TASKLOSS_DATA", Path(__file__).parents[3] / "shared" / "data"))


def _quadrants(side: int) -> np.ndarray:
    """An image ``(side, side, 3)`` that no flip or rotation leaves alone: red, green / blue, white."""
    image = np.zeros((side, side, 3), np.uint8)
    half = side // 2
    image[:half, :half, 0] = image[:half, half:, 1] = image[half:, :half, 2] = image[half:, half:] = 255
    return image


def _check_quadrants(pixels: np.ndarray, side: int, tolerance: int = 0) -> None:
    """Compare ``(3, side, side)`` with the image above."""
    assert pixels.shape == (3, side, side)
    assert pixels.dtype == np.uint8
    difference = pixels.transpose(1, 2, 0).astype(int) - _quadrants(side)
    # JPEG mixes colours at the edges: there, and only there, they may differ.
    edge = side // 8 if tolerance else 0
    inner = [*range(edge, side // 2 - edge), *range(side // 2 + edge, side - edge)]
    assert abs(difference[np.ix_(inner, inner)]).max() <= tolerance


def _write_cifar(folder: Path, name: str, labels: list[list[int]], first: np.ndarray | None = None) -> None:
    """Write one record per entry of ``labels`` (its label bytes): the image ``first``, then images of constant 1, 2, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    images = [np.full((32, 32, 3), row, np.uint8) for row in range(len(labels))]
    images[0] = images[0] if first is None else first
    records = [bytes(label) + image.transpose(2, 0, 1).tobytes() for label, image in zip(labels, images, strict=True)]
    (folder / name).write_bytes(b"".join(records))


def _save(path: Path, image: np.ndarray, **options: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, "JPEG", quality=95, subsampling=0, **options)


def test_reads_official_cifar10(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    for number in range(1, 6):
        _write_cifar(folder, f"data_batch_{number}.bin", [[number], [9]], _quadrants(32))
    _write_cifar(folder, "test_batch.bin", [[7], [0], [3]])
    images = read_image_set(tmp_path, "cifar10", 32)
    assert images.classes == 10
    assert images.training.labels.tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
    assert images.training.labels.dtype == np.int64
    _check_quadrants(images.training.pixels[0], 32)
    assert (images.training.pixels[1::2] == 1).all()
    assert images.test is not None
    assert images.test.labels.tolist() == [7, 0, 3]
    assert images.test.pixels[:, 0, 0, 0].tolist() == [0, 1, 2]


def test_the_fine_label_is_the_class_of_cifar100(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    _write_cifar(folder, "train.bin", [[3, 99], [19, 0]], _quadrants(32))
    _write_cifar(folder, "test.bin", [[5, 41]])
    images = read_image_set(tmp_path, "cifar100", 32)
    assert images.training.labels.tolist() == [99, 0]
    assert images.test is not None
    assert images.test.labels.tolist() == [41]
    _check_quadrants(images.training.pixels[0], 32)


def _write_stl(tmp_path: Path, labels: list[int]) -> Path:
    folder = tmp_path / "stl10_binary"
    folder.mkdir(parents=True)
    # Channel by channel, every channel by columns.
    image = _quadrants(96).transpose(2, 1, 0).tobytes()
    for part in ("train", "test"):
        (folder / f"{part}_X.bin").write_bytes(image * len(labels))
        (folder / f"{part}_y.bin").write_bytes(bytes(labels))
    return folder


def test_reads_official_stl10(tmp_path):
    _write_stl(tmp_path, [10, 1, 3])
    images = read_image_set(tmp_path, "stl10", 96)
    assert images.training.labels.tolist() == [9, 0, 2]
    assert images.test is not None
    assert images.test.labels.tolist() == [9, 0, 2]
    _check_quadrants(images.training.pixels[2], 96)
    _check_quadrants(read_image_set(tmp_path, "stl10", 32).training.pixels[0], 32)


def test_shrinking_averages_pixels(tmp_path):
    image = np.zeros((32, 32, 3), np.uint8)
    image[::2, ::2] = 200
    _write_cifar(tmp_path / "cifar-100-binary", "train.bin", [[0, 0]], image)
    _write_cifar(tmp_path / "cifar-100-binary", "test.bin", [[0, 0]])
    # One pixel of four is 200: the mean is 50.
    assert (read_image_set(tmp_path, "cifar100", 16).training.pixels == 50).all()
    assert read_image_set(tmp_path, "cifar100", 48).training.pixels.shape == (1, 3, 48, 48)


def test_leaves_out_broken_files_of_pet_images(tmp_path):
    for kind, colour in (("Cat", 40), ("Dog", 200)):
        for number in (0, 1, 10):
            _save(tmp_path / "PetImages" / kind / f"{number}.jpg", np.full((60, 90, 3), colour + number, np.uint8))
    (tmp_path / "PetImages" / "Cat" / "666.jpg").write_bytes(b"")
    whole = (tmp_path / "PetImages" / "Dog" / "1.jpg").read_bytes()
    (tmp_path / "PetImages" / "Dog" / "11702.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "PetImages" / "Dog" / "Thumbs.db").write_bytes(b"not an image")
    with pytest.warns(UserWarning, match=r"left out 2 files that are no images, the first of them .*666\.jpg"):
        images = read_image_set(tmp_path, "cat_dog", 30)
    assert images.test is None
    assert images.classes == 2
    assert images.training.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.training.pixels[:, 0, 15, 15].tolist() == pytest.approx([40, 41, 50, 200, 201, 210], abs=1)


def test_reads_the_kaggle_layout_of_cat_dog(tmp_path):
    _save(tmp_path / "train" / "dog.0.jpg", np.full((40, 40, 3), 90, np.uint8))
    _save(tmp_path / "train" / "cat.0.jpg", _quadrants(64))
    Image.fromarray(np.full((50, 50), 120, np.uint8)).save(tmp_path / "train" / "dog.1.jpg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = read_image_set(tmp_path, "cat_dog", 32)
    assert images.training.labels.tolist() == [0, 1, 1]
    _check_quadrants(images.training.pixels[0], 32, tolerance=12)
    assert (abs(images.training.pixels[2].astype(int) - 120) <= 1).all()


@pytest.fixture
def tiny_imagenet(tmp_path) -> Path:
    """200 classes with one training image each, and four validation images; the brightness of an image is its class."""
    base = tmp_path / "tiny-imagenet-200"
    for number in range(200):
        _save(base / "train" / f"n{number:08d}" / "images" / "a.JPEG", np.full((8, 8, 3), number, np.uint8))
    lines = []
    for name, number in (("val_2", 199), ("val_10", 198), ("val_1", 4), ("val_0", 0)):
        _save(base / "val" / "images" / f"{name}.JPEG", np.full((8, 8, 3), number, np.uint8))
        lines.append(f"{name}.JPEG\tn{number:08d}\t0\t0\t7\t7\n")
    (base / "val" / "val_annotations.txt").write_text("".join(lines))
    return tmp_path


def test_tiny_imagenet100_is_every_second_class(tiny_imagenet):
    images = read_image_set(tiny_imagenet, "tiny_imagenet100", 8)
    assert images.training.labels.tolist() == list(range(100))
    assert images.training.pixels[:, 1, 3, 3].tolist() == pytest.approx(list(range(0, 200, 2)), abs=1)
    assert images.test is not None
    assert images.test.labels.tolist() == [0, 2, 99]  # val_0, val_1 and val_10; val_2 shows a class of the other half.
    assert images.test.pixels[:, 0, 0, 0].tolist() == pytest.approx([0, 4, 198], abs=1)


def test_needs_all_classes_of_tiny_imagenet(tiny_imagenet):
    folder = tiny_imagenet / "tiny-imagenet-200" / "train" / "n00000007"
    (folder / "images" / "a.JPEG").unlink()
    (folder / "images").rmdir()
    folder.rmdir()
    with pytest.raises(ValueError, match="199 folders of classes, expected 200"):
        read_image_set(tiny_imagenet, "tiny_imagenet100", 8)


def _write_packed(path: Path, images: list[np.ndarray], labels: list[int], **changes: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = as_jpeg(images) | {"labels": np.array(labels, np.uint8)}
    np.savez(path, **(arrays | changes))


def test_reads_packed_files_and_prefers_the_official_layout(tmp_path):
    path = tmp_path / "stl10_train3996_96" / "stl10_train3996_96.npz"
    _write_packed(path, [_quadrants(96), np.full((96, 96, 3), 77, np.uint8)], [4, 8])
    images = read_image_set(tmp_path, "stl10", 96)
    assert images.test is None
    assert images.training.labels.tolist() == [4, 8]
    assert images.training.labels.dtype == np.int64
    _check_quadrants(images.training.pixels[0], 96, tolerance=25)
    _write_stl(tmp_path, [1])
    assert read_image_set(tmp_path, "stl10", 96).training.labels.tolist() == [0]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_set_names_the_layouts(tmp_path, name):
    expected = {
        "cat_dog": r"PetImages/Cat/.* or train/cat\.0\.jpg.* or cat_dog_64/cat_dog_64\.npz",
        "cifar10": r"cifar-10-batches-bin with data_batch_1\.bin.* or cifar10_jpeg/cifar10_train\.npz and .*/cifar10_test\.npz",
        "cifar100": r"cifar-100-binary with train\.bin, test\.bin",
        "tiny_imagenet100": r"tiny-imagenet-200 .* or tiny_imagenet100_32/tin100_train\.npz",
        "stl10": r"stl10_binary with train_X\.bin.* or stl10_train3996_96/stl10_train3996_96\.npz",
    }[name]
    with pytest.raises(FileNotFoundError, match=f"holds no data set {name}: expected {expected}"):
        read_image_set(tmp_path, name, 32)


def test_a_missing_file_of_an_official_layout_is_named(tmp_path):
    _write_cifar(tmp_path / "cifar-10-batches-bin", "data_batch_1.bin", [[0]])
    with pytest.raises(FileNotFoundError, match=r"data_batch_2\.bin"):
        read_image_set(tmp_path, "cifar10", 32)


def test_rejects_files_of_wrong_size(tmp_path):
    _write_cifar(tmp_path / "cifar-100-binary", "train.bin", [[0, 0]])
    with (tmp_path / "cifar-100-binary" / "train.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"train\.bin has 3075 bytes, expected a multiple of 3074"):
        read_image_set(tmp_path, "cifar100", 32)
    folder = _write_stl(tmp_path, [1, 2])
    (folder / "train_y.bin").write_bytes(bytes([1]))
    with pytest.raises(ValueError, match=r"train_y\.bin has 1 bytes, expected one for each of 2 images"):
        read_image_set(tmp_path, "stl10", 96)
    path = tmp_path / "cat_dog_64" / "cat_dog_64.npz"
    _write_packed(path, [_quadrants(64)], [1], offset=np.array([0, 5]))
    with pytest.raises(ValueError, match=r"cat_dog_64\.npz has 1 labels, 2 offsets up to 5"):
        read_image_set(tmp_path, "cat_dog", 64)


def test_rejects_labels_that_are_not_of_the_set(tmp_path):
    _write_stl(tmp_path, [0, 1])  # The official labels begin at 1.
    with pytest.raises(ValueError, match="labels -1 to 0, expected 10 classes"):
        read_image_set(tmp_path, "stl10", 96)


def test_rejects_unknown_names_and_sides(tmp_path):
    with pytest.raises(ValueError, match="cifar11"):
        read_image_set(tmp_path, "cifar11", 32)
    with pytest.raises(ValueError, match="side"):
        read_image_set(tmp_path, "cifar10", 0)


def test_packed_stl10_has_its_official_labels():
    if not (DATA / "stl10_train3996_96" / "stl10_train3996_96.npz").exists():
        pytest.skip("no image data: set TASKLOSS_DATA to its folder")
    images = read_image_set(DATA, "stl10", 24)
    assert images.test is None
    assert images.training.pixels.shape == (3996, 3, 24, 24)
    assert images.training.labels[:10].tolist() == [1, 5, 1, 6, 3, 9, 7, 4, 5, 8]
    assert np.bincount(images.training.labels).tolist() == [401, 386, 393, 402, 397, 406, 412, 403, 402, 394]
    assert set(CLASSES) == set(NAMES)
