r"""Average precision of object detection by the rules of PASCAL VOC (Everingham et al. 2010).

A detection is assigned to the ground-truth box of its image that it overlaps most. It is right if the overlap reaches the
threshold and no detection with a higher score was assigned to the same box with enough overlap; otherwise it is wrong, even if
another box would have been free. A detection assigned to a difficult box with enough overlap is ignored, and difficult boxes do
not count as objects to be found.

With R objects, and precision :math:`p_k` and recall :math:`r_k` after the k-th threshold, the average precision is

.. math:: \mathrm{AP} = \sum_k (r_k - r_{k-1}) \, \max_{l \ge k} p_l \quad\text{(every point)}, \qquad
          \mathrm{AP} = \frac{1}{11} \sum_{t=0}^{10} \max_{r_k \ge t/10} p_k \quad\text{(eleven points)},

where a maximum over nothing is 0. The maximum makes precision a decreasing function of recall, its monotone envelope.
:func:`taskloss.metrics.average_precision_score` has no envelope: with the labels of :func:`match_detections`,
``ignore_index=-1`` and ``num_relevant=R`` it returns
:math:`\sum_k (r_k - r_{k-1}) p_k`, which is at most the value of every point.

Ties. Detections of equal score enter together, at one threshold, as in the metrics of taskloss. The numbers of right and wrong
detections up to a threshold do not depend on the order within a tie, because an assignment never depends on other detections. A
detection with equal overlap with several boxes is assigned to one that is not difficult, and among those to the first by
coordinates. So the value does not depend on the order of the detections or of the ground truth.

Two differences from the devkit of VOC: it orders ties as its input happens to be, and it counts the last pixel of a box as
inside. Boxes here are half-open (:mod:`taskloss.experiments.boxes`); for the overlaps of the devkit add 1 to xmax and ymax of
its boxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taskloss import _checks
from taskloss.experiments.boxes import as_boxes, as_scores, intersection_over_union

INTERPOLATIONS = ("every_point", "eleven_points")


@dataclass(frozen=True)
class Detections:
    """Detections of one class in many images."""

    image: Any
    """Number of the image of each detection, integers, shape (k,)."""
    boxes: Any
    """Shape (k, 4)."""
    scores: Any
    """Shape (k,); higher is more certain."""

    def __post_init__(self) -> None:
        boxes = as_boxes("boxes of the detections", self.boxes)
        object.__setattr__(self, "boxes", boxes)
        object.__setattr__(self, "scores", as_scores(self.scores, len(boxes)))
        object.__setattr__(self, "image", _as_image_numbers("detections", self.image, len(boxes)))


@dataclass(frozen=True)
class GroundTruth:
    """The objects of one class in many images."""

    image: Any
    """Number of the image of each object, integers, shape (n,)."""
    boxes: Any
    """Shape (n, 4)."""
    difficult: Any = None
    """Whether the object is difficult, bool or 0/1, shape (n,); default: none is."""

    def __post_init__(self) -> None:
        boxes = as_boxes("boxes of the ground truth", self.boxes)
        object.__setattr__(self, "boxes", boxes)
        object.__setattr__(self, "image", _as_image_numbers("ground truth", self.image, len(boxes)))
        object.__setattr__(self, "difficult", _as_flags(self.difficult, len(boxes)))


def voc_average_precision(
    detections: Detections, truth: GroundTruth, *, min_overlap: float = 0.5, interpolation: str = "every_point"
) -> float:
    """Return the average precision of one class over many images.

    Args:
        detections: of the class, in all images.
        truth: the objects of the class, in all images.
        min_overlap: least intersection over union of a right detection.
        interpolation: ``"every_point"`` (VOC 2010 and later) or ``"eleven_points"`` (VOC 2007).

    Returns:
        A number from 0 to 1; NaN if no object counts, that is, if there is none or all are difficult.

    One image has two objects. The second detection misses, so recall 1/2 has precision 1 and recall 1 has precision 2/3.

    >>> truth = GroundTruth(image=[0, 0], boxes=[[0, 0, 10, 10], [20, 0, 30, 10]])
    >>> found = Detections(image=[0, 0, 0], boxes=[[0, 0, 10, 9], [50, 0, 60, 10], [20, 0, 30, 10]], scores=[0.9, 0.8, 0.7])
    >>> round(voc_average_precision(found, truth), 4)
    0.8333
    >>> round(voc_average_precision(found, truth, interpolation="eleven_points"), 4)
    0.8485
    """
    _checks.check_choice("interpolation", interpolation, INTERPOLATIONS)
    labels = match_detections(detections, truth, min_overlap=min_overlap)
    objects = int((~truth.difficult).sum())
    if not objects:
        return float("nan")
    right, precision = _precisions(detections.scores[labels >= 0], labels[labels >= 0])
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    if interpolation == "every_point":
        return float((np.diff(right, prepend=0) * envelope).sum() / objects)
    # The first threshold whose recall is at least t/10, compared in whole numbers: 3/10 must reach 0.3.
    first = np.searchsorted(10 * right, objects * np.arange(11))
    return float(np.append(envelope, 0.0)[first].sum() / 11)


def match_detections(detections: Detections, truth: GroundTruth, *, min_overlap: float = 0.5) -> np.ndarray:
    """Return the label of each detection by the rules of VOC: 1 is right, 0 is wrong, -1 is ignored; int64, shape (k,).

    Of equal scores on one object the detection with the lowest index is the right one.
    """
    _checks.check_fraction("min_overlap", min_overlap)
    assigned = _assign(detections, truth, min_overlap)
    labels = np.zeros(len(assigned), np.int64)
    order = np.argsort(-detections.scores, kind="stable")
    order = order[assigned[order] >= 0]
    # np.unique finds the first detection of each object.
    _, first = np.unique(assigned[order], return_index=True)
    labels[order[first]] = 1
    labels[order[truth.difficult[assigned[order]]]] = -1
    return labels


def _assign(detections: Detections, truth: GroundTruth, min_overlap: float) -> np.ndarray:
    """Return the index of the object that each detection overlaps most, or -1 where the overlap is below ``min_overlap``."""
    assigned = np.full(len(detections.boxes), -1, np.int64)
    # The first of equal overlaps wins, so objects that are not difficult come first, then those with lower coordinates.
    by_image = np.lexsort((*truth.boxes.T[::-1], truth.difficult, truth.image))
    images, counts = np.unique(truth.image[by_image], return_counts=True)
    stops = np.cumsum(counts)
    detection_order = np.argsort(detections.image, kind="stable")
    low = np.searchsorted(detections.image[detection_order], images, side="left")
    high = np.searchsorted(detections.image[detection_order], images, side="right")
    for start, stop, begin, end in zip(stops - counts, stops, low, high, strict=True):
        objects, inside = by_image[start:stop], detection_order[begin:end]
        overlap = intersection_over_union(detections.boxes[inside], truth.boxes[objects])
        best = overlap.argmax(axis=1)
        reached = overlap[np.arange(len(inside)), best] >= min_overlap
        assigned[inside[reached]] = objects[best[reached]]
    return assigned


def _precisions(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of right detections and the precision at each threshold, from the highest score down."""
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    # The last detection of each score: its successor has another score, or there is none.
    ends = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))[: len(order)]
    right = np.cumsum(labels[order])[ends]
    return right, right / (ends + 1)


def _as_image_numbers(name: str, image: Any, boxes: int) -> np.ndarray:
    """Return the image of each box as int64, shape (boxes,)."""
    array = np.asarray(image)
    if array.shape != (boxes,):
        raise ValueError(f"image of the {name} has shape {array.shape}; expected one number per box, shape ({boxes},)")
    if boxes and array.dtype.kind not in "iu":
        raise TypeError(f"image of the {name} must hold integers, got {array.dtype}")
    return array.astype(np.int64)


def _as_flags(difficult: Any, boxes: int) -> np.ndarray:
    """Return the flags as bool, shape (boxes,); None flags nothing."""
    if difficult is None:
        return np.zeros(boxes, np.bool_)
    array = np.asarray(difficult)
    if array.shape != (boxes,):
        raise ValueError(f"difficult has shape {array.shape}; expected one flag per object, shape ({boxes},)")
    if not np.isin(array, (0, 1)).all():
        raise ValueError("difficult must be bool or 0/1")
    return array.astype(np.bool_)
