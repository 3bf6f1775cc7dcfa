"""Overlap, non-maximum suppression and crops: by hand, against definitions in rational arithmetic, and bad input."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskloss.experiments.boxes import intersection_over_union, non_maximum_suppression, warp_crops
from tests.oracles import boxes as oracle

# Sides of 0 and below 0 are among them.
coordinates = st.integers(0, 7)
boxes_strategy = st.lists(st.tuples(coordinates, coordinates, coordinates, coordinates), max_size=9)


def as_array(boxes):
    return np.array(boxes, float).reshape(-1, 4)


class TestIntersectionOverUnion:
    def test_three_boxes_by_hand(self):
        # Two squares of area 4 that share a column of area 2, and one that touches the second at an edge.
        boxes = [[0, 0, 2, 2], [1, 0, 3, 2], [3, 0, 5, 2]]
        expected = [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 1]]
        assert intersection_over_union(boxes, boxes).tolist() == expected

    @given(first=boxes_strategy, second=boxes_strategy)
    def test_equals_counted_cells(self, first, second):
        result = intersection_over_union(as_array(first), as_array(second))
        assert result.shape == (len(first), len(second))
        assert result.tolist() == [[float(oracle.overlap(a, b)) for b in second] for a in first]

    @given(boxes=st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 4), min_size=1, max_size=6))
    def test_symmetric_bounded_and_one_of_a_box_with_itself(self, boxes):
        boxes = as_array(boxes)
        result = intersection_over_union(boxes, boxes)
        assert (result == result.T).all()
        assert ((result >= 0) & (result <= 1)).all()
        sides = boxes[:, 2:] - boxes[:, :2]
        has_area = (sides > 0).all(axis=1) & (sides.prod(axis=1) > 0)
        assert (np.diag(result) == has_area).all()

    def test_boxes_without_area_overlap_nothing(self):
        flat, inverted, tiny = [1, 1, 1, 5], [5, 5, 1, 1], [0, 0, 1e-200, 1e-200]
        assert (intersection_over_union([flat, inverted, tiny], [flat, inverted, tiny, [0, 0, 9, 9]]) == 0).all()

    @pytest.mark.parametrize("boxes", [[1, 2, 3, 4], [[1, 2, 3]], np.zeros((0, 5))])
    def test_wrong_shape(self, boxes):
        with pytest.raises(ValueError, match=r"second has shape .* expected \(k, 4\)"):
            intersection_over_union([], boxes)

    def test_not_finite(self):
        with pytest.raises(ValueError, match=r"first\[1\] is .* must be finite"):
            intersection_over_union([[0, 0, 1, 1], [0, 0, np.nan, 1]], [])


class TestNonMaximumSuppression:
    def test_three_boxes_by_hand(self):
        # The middle box overlaps both others by 1/3; these do not overlap each other.
        boxes = [[0, 0, 2, 2], [1, 0, 3, 2], [2, 0, 4, 2]]
        assert non_maximum_suppression(boxes, [0.5, 0.9, 0.7], 0.3).tolist() == [1]
        assert non_maximum_suppression(boxes, [0.9, 0.5, 0.7], 0.3).tolist() == [0, 2]
        assert non_maximum_suppression(boxes, [0.9, 0.8, 0.7], 0.3).tolist() == [0, 2]
        assert non_maximum_suppression(boxes, [0.5, 0.9, 0.7], 0.4).tolist() == [1, 2, 0]

    def test_an_overlap_equal_to_the_threshold_is_kept(self):
        assert non_maximum_suppression([[0, 0, 2, 2], [0, 0, 2, 1]], [1, 0], 0.5).tolist() == [0, 1]

    # These thresholds are exact in binary, so rounding cannot move an overlap across one.
    @given(data=st.data(), boxes=boxes_strategy, threshold=st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]))
    def test_equals_the_definition(self, data, boxes, threshold):
        scores = data.draw(st.lists(st.integers(0, 4), min_size=len(boxes), max_size=len(boxes)))
        kept = non_maximum_suppression(as_array(boxes), scores, threshold)
        assert kept.tolist() == oracle.suppression(boxes, scores, threshold)

    @given(seed=st.integers(0, 10_000), threshold=st.floats(0, 1))
    def test_kept_boxes_overlap_little_and_dropped_ones_have_a_reason(self, seed, threshold):
        rng = np.random.default_rng(seed)
        corners = rng.random((40, 2)) * 20
        boxes, scores = np.hstack([corners, corners + rng.random((40, 2)) * 20]), rng.random(40)
        kept = non_maximum_suppression(boxes, scores, threshold)
        overlaps = intersection_over_union(boxes, boxes)
        assert (np.diff(scores[kept]) < 0).all()
        assert (np.triu(overlaps[np.ix_(kept, kept)], 1) <= threshold).all()
        for dropped in set(range(40)) - set(kept.tolist()):
            assert ((overlaps[kept, dropped] > threshold) & (scores[kept] > scores[dropped])).any()

    def test_no_boxes(self):
        kept = non_maximum_suppression([], [], 0.5)
        assert kept.shape == (0,)
        assert kept.dtype.kind == "i"

    @pytest.mark.parametrize(
        ("scores", "threshold", "message"),
        [
            ([0.5], 0.5, "expected one score per box"),
            ([0.5, np.nan], 0.5, r"scores\[1\] is NaN"),
            ([0.5, 0.4], 1.5, "from 0 to 1"),
            ([0.5, 0.4], np.nan, "from 0 to 1"),
        ],
    )
    def test_bad_input(self, scores, threshold, message):
        with pytest.raises(ValueError, match=message):
            non_maximum_suppression([[0, 0, 1, 1], [0, 0, 2, 2]], scores, threshold)


class TestWarpCrops:
    @pytest.fixture(autouse=True)
    def needs_opencv(self):
        pytest.importorskip("cv2", reason="crops need taskloss[experiments]")

    @pytest.fixture
    def image(self):
        return np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)

    @given(left=st.integers(-15, 35), top=st.integers(-15, 25), context=st.integers(0, 4))
    def test_without_a_change_of_scale_a_crop_is_a_slice(self, left, top, context):
        image = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
        fill = (1, 2, 3)
        size = 10 + 2 * context
        (crop,) = warp_crops(image, [[left, top, left + 10, top + 10]], size, context, fill)
        padded = np.full((120, 130, 3), fill, np.uint8)
        padded[50:70, 50:80] = image
        assert (crop == padded[50 + top - context :, 50 + left - context :][:size, :size]).all()

    @given(
        corner=st.tuples(st.floats(30, 60), st.floats(30, 60)),
        sides=st.tuples(st.floats(10, 60), st.floats(10, 60)),
        context=st.integers(0, 8),
    )
    def test_the_aspect_ratio_changes_and_the_context_surrounds_the_box(self, corner, sides, context):
        # Pixel values equal to coordinates: bicubic interpolation reproduces a linear function.
        x, y = np.meshgrid(np.arange(150), np.arange(150))
        image = np.stack([x, y, x + 20], axis=2).astype(np.uint8)
        size = 32
        (crop,) = warp_crops(image, [[*corner, corner[0] + sides[0], corner[1] + sides[1]]], size, context)
        inner = (np.arange(size) + 0.5 - context) / (size - 2 * context)
        columns, rows = (start + side * inner - 0.5 for start, side in zip(corner, sides, strict=True))
        inside = (rows[:, None] > 3) & (rows[:, None] < 146) & (columns > 3) & (columns < 146)
        expected = np.stack([*np.meshgrid(columns, rows), np.broadcast_to(columns + 20, (size, size))], axis=2)
        assert inside.mean() > 0.5
        assert np.abs(crop - expected)[inside].max() <= 0.6  # half a grey level, and 1/64 of a pixel

    def test_several_boxes(self, image):
        boxes = [[0, 0, 30, 20], [5, 5, 9, 19]]
        crops = warp_crops(image, boxes, size=24, context=2)
        assert crops.shape == (2, 24, 24, 3)
        assert crops.dtype == np.uint8
        for crop, box in zip(crops, boxes, strict=True):
            assert (crop == warp_crops(image, [box], size=24, context=2)[0]).all()

    def test_default_size_and_fill(self, image):
        crops = warp_crops(image, [[100, 100, 120, 120]])
        assert crops.shape == (1, 227, 227, 3)
        assert (crops == [124, 117, 104]).all()

    def test_no_boxes_and_other_memory_layouts(self, image):
        assert warp_crops(image, np.zeros((0, 4)), size=8, context=1).shape == (0, 8, 8, 3)
        flipped = image[:, ::-1]
        box = [[3, 2, 17, 12]]
        assert (warp_crops(flipped, box) == warp_crops(flipped.copy(), box)).all()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"boxes": [[0, 0, 1, 1], [3, 3, 3, 9]]}, r"boxes\[1\] is .* no area"),
            ({"size": 32, "context": 16}, "leaves no pixel"),
            ({"context": -1}, "context must be"),
            ({"image": np.zeros((5, 5), np.uint8)}, "expected uint8 of shape"),
            ({"image": np.zeros((5, 5, 3))}, "expected uint8 of shape"),
        ],
    )
    def test_bad_input(self, image, change, message):
        with pytest.raises(ValueError, match=message):
            warp_crops(**{"image": image, "boxes": [[0, 0, 5, 5]], **change})


def test_without_opencv(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"pip install 'taskloss\[experiments\]'"):
        warp_crops(np.zeros((4, 4, 3), np.uint8), [[0, 0, 2, 2]])
