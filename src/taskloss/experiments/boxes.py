"""Boxes in images: overlap, non-maximum suppression, and the warped crops that R-CNN classifies.

A box is ``(xmin, ymin, xmax, ymax)`` in continuous, half-open coordinates: pixel ``(row, column)`` covers x from ``column`` to
``column + 1`` and y from ``row`` to ``row + 1``, and the width is ``xmax - xmin``. The files of PASCAL VOC count pixels from 1
and include the last one; subtract 1 from xmin and ymin to get these coordinates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskloss import _checks


def as_boxes(name: str, boxes: Any) -> np.ndarray:
    """Return boxes as float64 of shape (k, 4) if all coordinates are finite; an empty list is no boxes."""
    array = np.asarray(boxes, np.float64)
    if array.shape == (0,):
        array = array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(f"{name} has shape {array.shape}; expected (k, 4), one row (xmin, ymin, xmax, ymax) per box")
    if not np.isfinite(array).all():
        row = int((~np.isfinite(array)).any(axis=1).argmax())
        raise ValueError(f"{name}[{row}] is {array[row].tolist()}: coordinates must be finite")
    return array


def box_areas(boxes: np.ndarray) -> np.ndarray:
    """Return the area of each box, shape (k,); it is 0 where a maximum is not above its minimum."""
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
    return sides[:, 0] * sides[:, 1]


def intersection_over_union(first: Any, second: Any) -> np.ndarray:
    """Return the overlap of every pair of boxes, the area of the intersection divided by that of the union.

    Args:
        first: boxes, shape (a, 4).
        second: boxes, shape (b, 4).

    Returns:
        Overlaps from 0 to 1, shape (a, b); those of a box without area are 0.

    >>> intersection_over_union([[0, 0, 2, 2]], [[1, 0, 3, 2], [0, 0, 2, 2], [2, 0, 4, 2]]).round(4).tolist()
    [[0.3333, 1.0, 0.0]]
    """
    return _overlaps(as_boxes("first", first), as_boxes("second", second))


def _overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the intersection over union of checked boxes, shape (a, b)."""
    # One axis at a time: two-dimensional arrays are several times as fast as one of shape (a, b, 2).
    width = np.minimum(first[:, 2, None], second[:, 2]) - np.maximum(first[:, 0, None], second[:, 0])
    height = np.minimum(first[:, 3, None], second[:, 3]) - np.maximum(first[:, 1, None], second[:, 1])
    shared = np.multiply(np.maximum(width, 0.0, out=width), np.maximum(height, 0.0, out=height), out=width)
    union = np.add(box_areas(first)[:, None], box_areas(second), out=height)
    union -= shared
    # Two boxes without area have a union of 0. The smallest positive number in its place makes their overlap 0 and changes
    # no other.
    return np.divide(shared, np.maximum(union, np.nextafter(0.0, 1.0), out=union), out=shared)


def non_maximum_suppression(boxes: Any, scores: Any, threshold: float) -> np.ndarray:
    """Return the indices of the boxes that greedy non-maximum suppression keeps, in order of falling score.

    A box is kept if its overlap with every box kept before it is at most ``threshold``. Of equal scores the lower index comes
    first.

    Args:
        boxes: shape (k, 4).
        scores: shape (k,), without NaN.
        threshold: largest overlap of two kept boxes, from 0 to 1.

    >>> non_maximum_suppression([[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10]], [0.8, 0.9, 0.3], 0.5).tolist()
    [1, 2]
    """
    boxes = as_boxes("boxes", boxes)
    scores = as_scores(scores, len(boxes))
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold must be an overlap from 0 to 1, got {threshold!r}")
    order = np.argsort(-scores, kind="stable")
    suppresses = _overlaps(boxes[order], boxes[order]) > threshold
    suppressed = np.zeros(len(order), np.bool_)
    kept = []
    for place in range(len(order)):
        if not suppressed[place]:
            kept.append(place)
            suppressed |= suppresses[place]
    return order[kept]


def as_scores(scores: Any, boxes: int) -> np.ndarray:
    """Return scores as float64 of shape (boxes,) if none of them is NaN."""
    array = np.asarray(scores, np.float64)
    if array.shape != (boxes,):
        raise ValueError(f"scores has shape {array.shape}; expected one score per box, shape ({boxes},)")
    if np.isnan(array).any():
        raise ValueError(f"scores[{int(np.isnan(array).argmax())}] is NaN, which has no place in an order")
    return array


def warp_crops(
    image: np.ndarray, boxes: Any, size: int = 227, context: int = 16, fill: tuple[int, int, int] = (124, 117, 104)
) -> np.ndarray:
    """Return the crop of each box, warped to a square as R-CNN does it (Girshick et al. 2014, appendix A).

    The box is enlarged about its centre so that ``context`` pixels of the crop surround it on each side, and is warped without
    keeping its aspect ratio, by bicubic interpolation. As in R-CNN nothing is smoothed first, so a box much larger than ``size``
    is sampled sparsely. OpenCV rounds the sampling points to 1/32 of a pixel.

    Args:
        image: uint8, shape (h, w, 3).
        boxes: shape (k, 4), with positive width and height; they may reach beyond the image.
        size: width and height of a crop in pixels.
        context: pixels of the crop between its edge and the box, less than half of ``size``.
        fill: colour of what lies outside the image, in the channel order of ``image``; default: the mean of ImageNet in RGB.

    Returns:
        uint8, shape (k, size, size, 3).
    """
    cv2 = import_opencv()
    image = as_image(image)
    boxes = as_boxes("boxes", boxes)
    _checks.check_count("size", size)
    _checks.check_not_negative("context", context)
    if 2 * context >= size:
        raise ValueError(f"context={context} leaves no pixel of size={size} for the box; expected less than half of size")
    empty = box_areas(boxes) <= 0.0
    if empty.any():
        row = int(empty.argmax())
        raise ValueError(f"boxes[{row}] is {boxes[row].tolist()}, which has no area to crop; drop such boxes first")
    # Pixels of the image per pixel of the crop, and the sampling point of the crop's first pixel. A pixel's centre lies half a
    # pixel from its corner; OpenCV counts from centre to centre.
    steps = (boxes[:, 2:] - boxes[:, :2]) / (size - 2 * context)
    starts = boxes[:, :2] + (0.5 - context) * steps - 0.5
    transforms = np.zeros((len(boxes), 2, 3))
    transforms[:, [0, 1], [0, 1]] = steps
    transforms[:, :, 2] = starts
    crops = np.empty((len(boxes), size, size, 3), np.uint8)
    colour = tuple(float(channel) for channel in fill)
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    for crop, transform in zip(crops, transforms, strict=True):
        cv2.warpAffine(image, transform, (size, size), crop, flags, cv2.BORDER_CONSTANT, colour)
    return crops


def as_image(image: Any) -> np.ndarray:
    """Return an image as a contiguous uint8 array of shape (h, w, 3) if it is one."""
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise ValueError(f"image is {array.dtype} of shape {array.shape}; expected uint8 of shape (height, width, 3), not empty")
    return np.ascontiguousarray(array)


def import_opencv() -> Any:
    """Return the module cv2, or say how to install it."""
    try:
        import cv2
    except ImportError as error:
        raise ImportError("crops and selective search need OpenCV: pip install 'taskloss[experiments]'") from error
    return cv2
