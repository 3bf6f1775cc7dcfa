"""The average precision of PASCAL VOC: by hand, against its rules in plain loops, and against pycocotools where both agree."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskloss as tl
from taskloss.experiments.detection_metric import INTERPOLATIONS, Detections, GroundTruth, match_detections, voc_average_precision
from tests.oracles import voc_detection as oracle


def average_precision(found, real, **options):
    """Return the average precision of lists of (image, box, score) and (image, box, difficult)."""
    return voc_average_precision(as_detections(found), as_truth(real), **options)


def as_detections(found):
    image, boxes, scores = zip(*found, strict=True) if found else ((), (), ())
    return Detections(image=np.array(image, int), boxes=boxes, scores=scores)


def as_truth(real):
    image, boxes, difficult = zip(*real, strict=True) if real else ((), (), ())
    return GroundTruth(image=np.array(image, int), boxes=boxes, difficult=difficult)


def square(left, top=0, side=10):
    return (left, top, left + side, top + side)


class TestByHand:
    """Objects of 10 x 10 at x = 0, 20, 40 in image 0."""

    real = ((0, square(0), False), (0, square(20), False), (0, square(40), False))

    def test_all_found(self):
        found = [(0, square(20), 0.3), (0, square(0), 0.9), (0, square(40), 0.5)]
        for interpolation in INTERPOLATIONS:
            assert average_precision(found, self.real, interpolation=interpolation) == 1.0

    def test_one_missed_and_one_wrong(self):
        # Right, wrong, right: precision 1, 1/2, 2/3 at recall 1/3, 1/3, 2/3. The last third of recall is never reached.
        found = [(0, square(0), 0.9), (0, square(70), 0.8), (0, square(20), 0.7)]
        assert average_precision(found, self.real) == pytest.approx((1 + 2 / 3) / 3)
        # Recall 0, 0.1, 0.2 and 0.3 have precision 1; 0.4, 0.5 and 0.6 have 2/3.
        assert average_precision(found, self.real, interpolation="eleven_points") == pytest.approx((4 + 3 * 2 / 3) / 11)

    def test_the_envelope_lifts_an_early_error(self):
        # Wrong, right, right, right: precision 1/2, 2/3, 3/4 rises, so all recall has 3/4. Without envelope it is their mean.
        found = [(0, square(70), 0.9), (0, square(0), 0.8), (0, square(20), 0.7), (0, square(40), 0.6)]
        assert average_precision(found, self.real) == 0.75
        labels = match_detections(as_detections(found), as_truth(self.real))
        assert labels.tolist() == [0, 1, 1, 1]
        assert tl.metrics.average_precision_score([0.9, 0.8, 0.7, 0.6], labels) == pytest.approx((1 / 2 + 2 / 3 + 3 / 4) / 3)

    def test_a_second_detection_of_an_object_is_wrong(self):
        found = [(0, square(0), 0.9), (0, square(1), 0.8)]
        assert match_detections(as_detections(found), as_truth(self.real)).tolist() == [1, 0]
        assert match_detections(as_detections(found[::-1]), as_truth(self.real)).tolist() == [0, 1]

    def test_a_detection_does_not_turn_to_its_second_best_object(self):
        # Both detections overlap the first object most; the second one also overlaps the second object by 7/13.
        real = [(0, (0, 0, 10, 10), False), (0, (4, 0, 14, 10), False)]
        found = [(0, (0, 0, 10, 10), 0.9), (0, (1, 0, 11, 10), 0.8)]
        assert match_detections(as_detections(found), as_truth(real)).tolist() == [1, 0]
        assert average_precision(found, real) == 0.5

    def test_an_overlap_of_exactly_one_half_is_enough(self):
        for height, label in ((5, 1), (4.999, 0)):
            found = Detections(image=[0], boxes=[[0, 0, 10, height]], scores=[1.0])
            assert match_detections(found, as_truth(self.real[:1])).tolist() == [label]
        assert average_precision([(0, (0, 0, 10, 4), 1.0)], self.real[:1], min_overlap=0.4) == 1.0

    def test_another_image_does_not_count(self):
        assert average_precision([(1, square(0), 0.9)], self.real) == 0.0

    def test_difficult_objects_are_neither_right_nor_wrong(self):
        real = [(0, square(0), True), (0, square(20), False)]
        found = [(0, square(0), 0.9), (0, square(1), 0.8), (0, square(20), 0.7)]
        assert match_detections(as_detections(found), as_truth(real)).tolist() == [-1, -1, 1]
        assert average_precision(found, real) == 1.0

    def test_equal_scores_enter_together(self):
        # One right and one wrong at the same threshold: precision 1/2, whichever is listed first.
        found = [(0, square(0), 0.9), (0, square(70), 0.9)]
        assert average_precision(found, self.real[:1]) == average_precision(found[::-1], self.real[:1]) == 0.5

    def test_equal_overlaps_prefer_objects_that_are_not_difficult(self):
        real = [(0, (0, 0, 10, 10), True), (0, (2, 0, 12, 10), False)]
        found = [(0, (1, 0, 11, 10), 0.9)]
        assert average_precision(found, real) == average_precision(found, real[::-1]) == 1.0

    def test_equal_overlaps_prefer_the_lower_coordinates(self):
        # The first detection overlaps both objects by 9/11. It takes the left one, which the second detection then finds taken.
        real = [(0, (0, 0, 10, 10), False), (0, (2, 0, 12, 10), False)]
        found = [(0, (1, 0, 11, 10), 0.9), (0, (0, 0, 10, 10), 0.8)]
        assert average_precision(found, real) == average_precision(found, real[::-1]) == 0.5

    def test_nothing_to_find_or_nothing_found(self):
        assert np.isnan(average_precision([(0, square(0), 0.9)], []))
        assert np.isnan(average_precision([(0, square(0), 0.9)], [(0, square(0), True)]))
        assert np.isnan(average_precision([], []))
        assert average_precision([], self.real) == 0.0
        assert average_precision([], self.real, interpolation="eleven_points") == 0.0

    def test_three_of_ten_reach_a_recall_of_three_tenths(self):
        real = [(0, square(20 * k), False) for k in range(10)]
        found = [(0, square(20 * k), 1.0 - k / 10) for k in range(3)]
        assert average_precision(found, real, interpolation="eleven_points") == pytest.approx(4 / 11)

    def test_infinite_scores(self):
        found = [(0, square(0), np.inf), (0, square(70), np.inf), (0, square(20), -np.inf)]
        assert average_precision(found, self.real[:2]) == pytest.approx(2 / 3)


corners = st.integers(0, 6)
objects = st.lists(
    st.tuples(
        st.integers(0, 2), st.builds(lambda x, y, w, h: (x, y, x + w, y + h), corners, corners, corners, corners), st.booleans()
    ),
    max_size=7,
)
detections = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.builds(lambda x, y, w, h: (x, y, x + w, y + h), corners, corners, corners, corners),
        st.integers(0, 5),
    ),
    max_size=12,
)


class TestProperties:
    # Overlaps of whole numbers compare with these thresholds without rounding.
    @given(
        found=detections,
        real=objects,
        interpolation=st.sampled_from(INTERPOLATIONS),
        min_overlap=st.sampled_from([0.125, 0.5, 0.75]),
    )
    def test_equals_the_rules_in_plain_loops(self, found, real, interpolation, min_overlap):
        value = average_precision(found, real, interpolation=interpolation, min_overlap=min_overlap)
        if all(difficult for *_, difficult in real):
            assert np.isnan(value)
            return
        expected = oracle.average_precision(
            [oracle.Found(*f) for f in found], [oracle.Real(*r) for r in real], min_overlap, interpolation
        )
        assert value == pytest.approx(expected, abs=1e-12)

    @given(found=detections, real=objects, seed=st.integers(0, 1000), interpolation=st.sampled_from(INTERPOLATIONS))
    def test_the_order_of_the_input_does_not_matter(self, found, real, seed, interpolation):
        rng = np.random.default_rng(seed)
        shuffled = [found[k] for k in rng.permutation(len(found))], [real[k] for k in rng.permutation(len(real))]
        value = average_precision(found, real, interpolation=interpolation)
        np.testing.assert_equal(average_precision(*shuffled, interpolation=interpolation), value)

    @given(found=detections, real=objects)
    def test_without_the_envelope_it_is_the_average_precision_of_the_library(self, found, real):
        labels = match_detections(as_detections(found), as_truth(real))
        relevant = sum(not difficult for *_, difficult in real)
        assert (labels == 1).sum() <= relevant
        if not {0, 1} <= set(labels.tolist()):
            return
        value = average_precision(found, real)
        scores = np.array([score for *_, score in found], float)
        plain = tl.metrics.average_precision_score(scores, labels, ignore_index=-1, num_relevant=relevant)
        assert plain <= value + 1e-12
        # If precision falls from threshold to threshold, the envelope changes nothing.
        kept = labels >= 0
        precision = [labels[kept & (scores >= cut)].mean() for cut in np.unique(scores[kept])[::-1]]
        if (np.diff(precision) <= 0).all():
            assert plain == pytest.approx(value, abs=1e-12)

    @given(found=detections, real=objects)
    def test_a_wrong_detection_at_the_end_changes_nothing(self, found, real):
        value = average_precision(found, real)
        np.testing.assert_equal(average_precision([*found, (9, square(0), -1)], real), value)


class TestInput:
    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda: Detections(image=[0], boxes=[[0, 0, 1, 1]] * 2, scores=[1, 2]), ValueError, "expected one number per box"),
            (lambda: Detections(image=[0.5], boxes=[[0, 0, 1, 1]], scores=[1]), TypeError, "must hold integers"),
            (lambda: Detections(image=[0], boxes=[[0, 0, 1, 1]], scores=[np.nan]), ValueError, "is NaN"),
            (lambda: Detections(image=[0], boxes=[[0, 0, 1]], scores=[1]), ValueError, "boxes of the detections has shape"),
            (lambda: GroundTruth(image=[0], boxes=[[0, 0, 1, 1]], difficult=[2]), ValueError, "bool or 0/1"),
            (lambda: GroundTruth(image=[0], boxes=[[0, 0, 1, 1]], difficult=[0, 1]), ValueError, "one flag per object"),
            (lambda: average_precision([], [], interpolation="101_points"), ValueError, "is not known"),
            (lambda: average_precision([], [], min_overlap=0.0), ValueError, "min_overlap must be"),
        ],
    )
    def test_bad_input(self, make, error, message):
        with pytest.raises(error, match=message):
            make()


def coco_average_precision(found, real, recalls):
    """Return pycocotools' mean of the interpolated precision at some levels of recall; difficult objects are its crowds."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def corner_and_size(box):
        return [box[0], box[1], box[2] - box[0], box[3] - box[1]]

    images = sorted({image for image, *_ in [*found, *real]})
    annotations = [
        {
            "id": k + 1,
            "image_id": image,
            "category_id": 1,
            "bbox": corner_and_size(box),
            "area": 100.0,
            "iscrowd": int(difficult),
        }
        for k, (image, box, difficult) in enumerate(real)
    ]
    results = [
        {"image_id": image, "category_id": 1, "bbox": corner_and_size(box), "score": float(score)} for image, box, score in found
    ]
    # It prints its progress.
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": image} for image in images],
            "categories": [{"id": 1}],
            "annotations": annotations,
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.params.iouThrs = np.array([0.5])
        evaluation.params.recThrs = np.asarray(recalls)
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
        evaluation.params.maxDets = [1000]
        evaluation.evaluate()
        evaluation.accumulate()
    return float(evaluation.eval["precision"].mean())


@pytest.mark.parametrize("seed", range(5))
def test_pycocotools_agrees_where_objects_lie_apart(seed):
    """COCO gives a detection the best object that is still free, and VOC the best of all.

    Where no detection reaches two objects the rules are the same. The area form differs, 101 levels of recall for all data, but
    pycocotools takes others: each k/R is every point, and each tenth is eleven points. Half a step to the left of each level
    avoids its rounding.
    """
    pytest.importorskip("pycocotools", reason="pycocotools is a peer, not a dependency")
    rng = np.random.default_rng(seed)
    real = [(image, square(30 * k, side=10), bool(rng.random() < 0.2)) for image in range(8) for k in range(5)]
    found = []
    for image, (left, *_), difficult in real:
        # For crowds COCO divides by the area of the detection. Inside a difficult object both overlaps are above one half.
        for _ in range(rng.integers(0, 4)):
            height = rng.uniform(5.5 if difficult else 2.0, 10.0)
            found.append((image, (left, 0.0, left + 10.0, height), rng.random()))
    found += [(int(rng.integers(0, 8)), square(30.0 * k, 50), rng.random()) for k in range(15)]
    relevant = sum(not difficult for *_, difficult in real)
    every_point = (np.arange(1, relevant + 1) - 0.5) / relevant
    assert average_precision(found, real) == pytest.approx(coco_average_precision(found, real, every_point), abs=1e-9)
    # Recall is a multiple of 1/R: a level less than that below t/10 asks for the same number of objects.
    eleven_points = np.maximum(np.arange(11) / 10 - 1e-9, 0.0)
    expected = coco_average_precision(found, real, eleven_points)
    assert average_precision(found, real, interpolation="eleven_points") == pytest.approx(expected, abs=1e-9)
    # The usual 101 levels come close.
    assert average_precision(found, real) == pytest.approx(coco_average_precision(found, real, np.linspace(0, 1, 101)), abs=0.02)


def test_pycocotools_turns_to_the_second_best_object():
    pytest.importorskip("pycocotools", reason="pycocotools is a peer, not a dependency")
    real = [(0, (0, 0, 10, 10), False), (0, (4, 0, 14, 10), False)]
    found = [(0, (0, 0, 10, 10), 0.9), (0, (1, 0, 11, 10), 0.8)]
    assert average_precision(found, real) == 0.5
    assert coco_average_precision(found, real, [0.25, 0.75]) == pytest.approx(1.0)
