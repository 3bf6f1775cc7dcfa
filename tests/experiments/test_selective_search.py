"""Selective search: the same boxes every time, OpenCV's boxes, and a drawn rectangle among them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from taskloss.experiments.boxes import intersection_over_union
from taskloss.experiments.selective_search import propose_boxes

RECTANGLE = [20, 12, 52, 36]


def draw(seed: int = 0) -> np.ndarray:
    """Return a rectangle, divided into two colours, before a background of blurred noise."""
    cv2 = pytest.importorskip("cv2", reason="selective search needs taskloss[experiments]")
    image = cv2.GaussianBlur(np.random.default_rng(seed).integers(60, 256, (64, 80, 3), np.uint8), (0, 0), 3)
    left, top, right, bottom = RECTANGLE
    image[top:bottom, left:right] = (200, 30, 30)
    image[top:bottom, left : left + 10] = (240, 40, 60)
    return image


def as_set(boxes: np.ndarray) -> set[tuple[float, ...]]:
    return set(map(tuple, boxes.tolist()))


def search_directly(image: np.ndarray) -> set[tuple[float, ...]]:
    """Return the boxes of OpenCV for an image in OpenCV's own channel order."""
    import cv2

    search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(image)
    search.switchToSelectiveSearchFast()
    return {(x, y, x + w, y + h) for x, y, w, h in search.process().tolist()}


def test_the_same_boxes_in_the_same_order_every_time():
    image = draw()
    boxes = propose_boxes(image)
    assert boxes.dtype == np.float32
    assert len(boxes) > 20
    for _ in range(3):
        assert (propose_boxes(image) == boxes).all()
    # The seed is that of the pixels, not of their place in memory.
    assert (propose_boxes(np.asfortranarray(image)) == boxes).all()


def test_a_limit_keeps_a_prefix():
    image = draw()
    boxes = propose_boxes(image)
    for limit in (1, 7, len(boxes), len(boxes) + 10):
        assert (propose_boxes(image, limit=limit) == boxes[:limit]).all()


def test_the_order_prefers_no_size():
    areas = [
        np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (propose_boxes(draw(seed), min_side=0) for seed in range(8))
    ]
    # The mean rank of the boxes in the first half, by area and from 0 to 1: 1/2, with a standard error of about 0.02.
    ranks = [area.argsort().argsort()[: len(area) // 2].mean() / len(area) for area in areas]
    assert abs(np.mean(ranks) - 0.5) < 0.1


def test_the_boxes_are_those_of_opencv_in_rgb():
    image = draw()
    in_bgr = search_directly(np.ascontiguousarray(image[:, :, ::-1]))
    assert in_bgr != search_directly(image)
    assert as_set(propose_boxes(image, min_side=0)) == in_bgr


@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0])
def test_a_drawn_rectangle_is_found(scale):
    boxes = propose_boxes(draw(), scale=scale)
    assert intersection_over_union(boxes, [RECTANGLE]).max() > 0.9


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.3])
def test_boxes_are_unique_wide_enough_and_inside(scale):
    boxes = propose_boxes(draw(), scale=scale, min_side=16.5)
    assert len(as_set(boxes)) == len(boxes)
    assert ((boxes[:, 2:] - boxes[:, :2]) >= 16.4999).all()
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] <= [80, 64]).all()
    everything = propose_boxes(draw(), scale=scale, min_side=0)
    wide = ((everything[:, 2:] - everything[:, :2]) >= 16.4999).all(axis=1)
    assert as_set(boxes) == as_set(everything[wide])
    assert len(boxes) < len(everything)


def test_one_colour_and_one_pixel():
    assert as_set(propose_boxes(np.full((20, 30, 3), 7, np.uint8))) == {(0, 0, 30, 20)}
    assert propose_boxes(np.zeros((1, 1, 3), np.uint8)).shape == (0, 4)


def test_modes_and_threads():
    cv2 = pytest.importorskip("cv2")
    threads = cv2.getNumThreads()
    assert len(propose_boxes(draw(), mode="single")) < len(propose_boxes(draw())) < len(propose_boxes(draw(), mode="quality"))
    assert cv2.getNumThreads() == threads


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "slow"}, "mode='slow' is not known"),
        ({"scale": 0.0}, "scale must be finite and above zero"),
        ({"min_side": -1}, "min_side must be"),
        ({"limit": 0}, "limit must be"),
        ({"image": np.zeros((4, 4), np.uint8)}, "expected uint8 of shape"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        propose_boxes(**{"image": draw(), **change})


def test_without_opencv(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"pip install 'taskloss\[experiments\]'"):
        propose_boxes(np.zeros((4, 4, 3), np.uint8))
