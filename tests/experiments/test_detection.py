"""R-CNN on a tiny data set: the boxes that are kept, their labels, and the experiment from end to end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from taskloss.experiments import detection
from taskloss.experiments.boxes import intersection_over_union
from taskloss.experiments.detection import Detection, plan_chunks
from taskloss.experiments.detection_features import Proposals, read_proposals, run_chunk
from taskloss.experiments.detection_paper import NOISE, TABLE_2
from taskloss.experiments.pretrained import SQUEEZENET
from taskloss.experiments.runner import Files
from taskloss.experiments.voc_detection import CLASSES, PACKED, read_detection
from tests.experiments.devkit import as_jpeg
from tests.experiments.stored_weights import squeezenet_weights, write_weights
from tests.experiments.test_runner import make_runner

IMAGES = 20


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images with a bright rectangle, its box, and a class each; ten for training, ten for validation."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    write_weights(folder / SQUEEZENET, squeezenet_weights(0))
    pictures, boxes = [], []
    for number in range(IMAGES):
        picture = rng.integers(0, 60, (64, 64, 3)).astype(np.uint8)
        left, top = rng.integers(2, 20, 2)
        right, bottom = left + rng.integers(25, 40), top + rng.integers(25, 40)
        picture[top:bottom, left:right, number % 2] = 230
        pictures.append(picture)
        boxes.append((left + 1, top + 1, right, bottom))  # Pixels counted from 1, the last included.
    (folder / PACKED).parent.mkdir()
    np.savez(
        folder / PACKED,
        **as_jpeg(pictures),
        size=np.full((IMAGES, 2), 64),
        original_size=np.full((IMAGES, 2), 64),
        box=np.array(boxes, np.float32),
        box_class=np.arange(IMAGES) % 2,
        box_difficult=np.zeros(IMAGES, np.int8),
        box_offset=np.arange(IMAGES + 1),
        split=np.array(["train"] * 10 + ["val"] * 10),
        image_id=np.array([f"{number:02}" for number in range(IMAGES)]),
        classes=np.array(CLASSES),
    )
    return folder


SMALL = Detection(iterations=2, training_images=10, test_images=8, near=5, others=4, tested_boxes=12, side=32, chunk=4)


def small_cell(**changes) -> dict:
    return {
        "training_images": 10,
        "test_images": 8,
        "near": 5,
        "others": 4,
        "tested_boxes": 12,
        "side": 32,
        "chunk": 4,
        **changes,
    }


def test_chunks_cover_the_images_once():
    chunks = plan_chunks(small_cell(), "train")
    assert [(chunk["first"], chunk["images"]) for chunk in chunks] == [(0, 4), (4, 4), (8, 2)]
    assert all(chunk["others"] == 4 for chunk in chunks)
    assert all(chunk["others"] == 12 for chunk in plan_chunks(small_cell(), "val"))


def test_training_has_the_objects_and_tests_only_proposals(data, tmp_path):
    files = Files(data, tmp_path)
    training, tested = (read_proposals(plan_chunks(small_cell(), split), files) for split in ("train", "val"))
    images = read_detection(data)
    for number, image in enumerate(images.of_split("train")):
        own = training.image == number
        assert np.array_equal(training.boxes[own][0], image.boxes[0])
        assert own.sum() <= 1 + 5 + 4
        overlap = intersection_over_union(training.boxes[own], image.boxes)[:, 0]
        assert np.allclose(training.overlap[own][:, image.box_class[0]], overlap, atol=1e-3)
        assert (overlap[1:] < 0.3).sum() <= 4
    assert not np.delete(training.overlap, [0, 1], axis=1).any()
    assert max(np.bincount(tested.image)) <= 12
    assert tested.features.shape == (len(tested.boxes), 512)


def test_a_chunk_is_the_same_if_its_file_is_made_again(data, tmp_path):
    files, chunk = Files(data, tmp_path), plan_chunks(small_cell(), "train")[0]
    assert run_chunk(chunk, files)["boxes"] == len(read_proposals([chunk], files).boxes)
    first = read_proposals([chunk], files)
    for path in (tmp_path / "voc_detection").iterdir():
        path.unlink()
    for name, one, other in zip(Proposals._fields, first, read_proposals([chunk], files), strict=True):
        assert np.array_equal(one, other), name


def test_a_class_gets_all_its_positives_and_flipped_labels():
    overlap = torch.zeros(9000)
    overlap[:100] = 0.7
    overlap[100:200] = 0.4
    rows, target = detection._draw_boxes(overlap, 0.0, seed=0)
    assert set(range(100)) <= set(rows.tolist())
    assert len(rows) == len(set(rows.tolist())) == 100 + detection.FEWEST_NEGATIVES
    assert torch.equal(target == 1, overlap[rows] >= 0.5)
    _, flipped = detection._draw_boxes(overlap, 0.2, seed=0)
    assert (flipped != target).sum() == round(0.2 * len(rows))


def test_the_experiment_runs_from_end_to_end(data, tmp_path, monkeypatch):
    monkeypatch.setattr(detection, "RATES", (1e-3,))
    monkeypatch.setattr(detection, "EPSILONS", (0.5,))
    # Eighteen classes have no object in these images, so that their AP is not defined.
    monkeypatch.setattr(detection, "CLASSES", CLASSES[:2])
    runner = make_runner(tmp_path)
    runner.files = Files(data, tmp_path)
    results = SMALL.run(runner, 2)
    assert len(results["tuning"]) == 3 * len(NOISE) + 1
    assert len(results["records"]) == (6 * 2 + 1) * 2
    assert all(len(record["test"]) == 2 for record in results["records"])
    assert results["boxes"]["tested"] <= 8 * 12


def test_the_means_of_the_paper_are_those_of_its_rows():
    for row in TABLE_2.values():
        assert len(row) == 21
        assert np.mean(row[:20]) == pytest.approx(row[20], abs=0.051)
