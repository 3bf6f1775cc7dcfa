"""Images that are stored as the bytes of JPEG files."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image

from taskloss.experiments.images import decode_image, read_images


def pack(images: list[Image.Image]) -> tuple[np.ndarray, np.ndarray]:
    files = []
    for image in images:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=95)
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    return np.concatenate(files), np.cumsum([0, *map(len, files)])


def test_reads_batches():
    jpeg, offset = pack([Image.new("RGB", (16, 8), (shade, shade, shade)) for shade in (10, 200, 90)])
    batches = list(read_images(jpeg, offset, size=2))
    assert [tuple(batch.shape) for batch in batches] == [(2, 3, 8, 16), (1, 3, 8, 16)]
    assert {batch.dtype for batch in batches} == {torch.float32}
    assert torch.cat(batches).mean((1, 2, 3)).round().tolist() == [10, 200, 90]


def test_decodes_single_images_of_any_shape():
    jpeg, offset = pack([Image.new("RGB", (16, 8), (250, 0, 0)), Image.new("L", (5, 7), 77)])
    red, grey = decode_image(jpeg, offset, 0), decode_image(jpeg, offset, 1)
    assert (red.shape, red.dtype, grey.shape) == ((8, 16, 3), np.uint8, (7, 5, 3))
    assert np.abs(red.astype(int) - [250, 0, 0]).max() <= 4
    assert np.abs(grey.astype(int) - 77).max() <= 2


def test_no_image_is_no_batch():
    assert list(read_images(np.zeros(0, np.uint8), np.zeros(1, np.int64), size=4)) == []
