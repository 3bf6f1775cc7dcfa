"""PASCAL VOC 2012 action crops for ``benchmarks.batches``: frozen features of a pretrained network, and ten labels per person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from examples.image_retrieval import WEIGHTS, EfficientNetLite0, read_images

CROPS = Path("voc2012_action", "voc2012_action_crops227.npz")
UNKNOWN = -1
"""Target of a person that is not in the official list of a class."""


def read_persons(
    data: Path, cache: Path | None, limit: int | None, advance: Callable[[int, int], None]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features ``(n, 1280)``, labels ``(n, 10)`` of 0, 1 and ``UNKNOWN``, and the image of each person ``(n,)``.

    The features are the pooled output of EfficientNet-Lite0 for the crops of 227 by 227 pixels. ``limit`` takes the first persons
    only.
    """
    with np.load(data / CROPS, allow_pickle=False) as file:
        labels, images = file["labels"][:limit], np.unique(file["image_id"][:limit], return_inverse=True)[1]
        stored = None if cache is None else cache / f"voc_action_efficientnet_lite0_{len(labels)}.npz"
        if stored is not None and stored.exists():
            with np.load(stored, allow_pickle=False) as arrays:
                features = arrays["features"]
        else:
            with np.load(data / WEIGHTS, allow_pickle=False) as weights:
                network = EfficientNetLite0(dict(weights))
            batches = []
            for pixels in read_images(file["jpeg"], file["offset"][: len(labels) + 1], size=32):
                batches.append(network(pixels))
                advance(len(pixels), len(labels))
            features = torch.cat(batches).numpy()
            if stored is not None:
                stored.parent.mkdir(parents=True, exist_ok=True)
                np.savez(stored, features=features)
    # The file marks positives with 1, negatives with -1 and unknown labels with 0.
    return features, np.select([labels == 1, labels == -1], [1, 0], UNKNOWN), images
