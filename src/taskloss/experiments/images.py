"""JPEG images that are stored one after another in one array of bytes, as the packed data files hold them."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def decode_image(jpeg: np.ndarray, offset: np.ndarray, index: int) -> np.ndarray:
    """Decode image ``index``, the bytes ``jpeg[offset[index]:offset[index + 1]]``, to RGB pixels ``(h, w, 3)`` of type uint8."""
    file = jpeg[offset[index] : offset[index + 1]].tobytes()
    with Image.open(io.BytesIO(file)) as image:
        return np.array(image.convert("RGB"))


def read_images(jpeg: np.ndarray, offset: np.ndarray, size: int) -> Iterator[Tensor]:
    """Yield batches of at most ``size`` images of one shape, float32 RGB pixels ``(batch, 3, h, w)`` in 0..255.

    Args:
        jpeg: all files one after another, uint8.
        offset: ``(n + 1,)``, where each file begins and the last one ends.
        size: number of images per batch; the last batch may have fewer.
    """
    count = len(offset) - 1
    for first in range(0, count, size):
        pixels = np.stack([decode_image(jpeg, offset, index) for index in range(first, min(first + size, count))])
        yield torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
