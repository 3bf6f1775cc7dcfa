"""Box proposals by selective search (Uijlings et al. 2013), the regions that R-CNN classifies."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from taskloss import _checks
from taskloss.experiments.boxes import as_image, import_opencv

MODES = ("single", "fast", "quality")


def propose_boxes(
    image: np.ndarray, *, mode: str = "fast", scale: float = 1.0, min_side: float = 8.0, limit: int | None = None
) -> np.ndarray:
    """Return the boxes that selective search proposes for an image, each box once, in a random order that the image determines.

    The same image gives the same boxes in the same order, and ``limit`` keeps the first of them, so a lower limit gives a prefix.
    The order is not that of OpenCV, which ranks a region by a random number times its level in the hierarchy. Small regions
    therefore come first there, where Uijlings et al. put large ones first, and the random numbers are those of C's ``rand``,
    which ``cv2.setRNGSeed`` does not reach. A random order has no such preference. Its seed is a checksum of the pixels.

    OpenCV searches in one thread during the call; the number of threads is a setting of the process and is restored afterwards.

    Args:
        image: uint8 RGB, shape (h, w, 3).
        mode: ``"single"``, ``"fast"`` or ``"quality"``, with more segmentations and more boxes from one to the next.
        scale: factor by which the image is resized before the search. Above 1 finds smaller regions; the boxes are those of
            the image as given.
        min_side: least width and least height of a box, in pixels of the image as given.
        limit: largest number of boxes (default: all).

    Returns:
        float32, shape (k, 4), ``(xmin, ymin, xmax, ymax)`` as in :mod:`taskloss.experiments.boxes`, within the image.
    """
    cv2 = import_opencv()
    image = as_image(image)
    _checks.check_choice("mode", mode, MODES)
    _checks.check_positive("scale", scale)
    _checks.check_optional_count("limit", limit)
    if not 0.0 <= min_side < np.inf:
        raise ValueError(f"min_side must be a finite number of at least 0, got {min_side!r}")
    height, width = image.shape[:2]
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        resized = image if scale == 1.0 else _resize(cv2, image, scale)
        corner_and_size = _search(cv2, resized, mode)
    finally:
        cv2.setNumThreads(threads)
    # np.unique also sorts, so that the order in which OpenCV lists the boxes is forgotten.
    x, y, w, h = np.unique(corner_and_size, axis=0).T
    ratio_x, ratio_y = width / resized.shape[1], height / resized.shape[0]
    boxes = np.stack([x * ratio_x, y * ratio_y, (x + w) * ratio_x, (y + h) * ratio_y], axis=1)
    boxes = boxes[(w * ratio_x >= min_side) & (h * ratio_y >= min_side)].astype(np.float32)
    order = np.random.default_rng(zlib.crc32(image.tobytes())).permutation(len(boxes))
    return boxes[order[:limit]]


def _resize(cv2: Any, image: np.ndarray, scale: float) -> np.ndarray:
    """Return the image resized by about ``scale``, to whole pixels."""
    height, width = image.shape[:2]
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC if scale > 1.0 else cv2.INTER_AREA))


def _search(cv2: Any, image: np.ndarray, mode: str) -> np.ndarray:
    """Return the boxes of OpenCV's selective search as rows (x, y, width, height) of whole numbers."""
    try:
        search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    except AttributeError as error:
        raise ImportError(
            "this OpenCV has no selective search, which is in its contrib modules; uninstall opencv-python and "
            "pip install 'taskloss[experiments]'"
        ) from error
    search.setBaseImage(np.ascontiguousarray(image[:, :, ::-1]))  # OpenCV expects BGR.
    switch = {
        "single": search.switchToSingleStrategy,
        "fast": search.switchToSelectiveSearchFast,
        "quality": search.switchToSelectiveSearchQuality,
    }
    switch[mode]()
    return np.asarray(search.process(), np.int64).reshape(-1, 4)
