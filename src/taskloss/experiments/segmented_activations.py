"""Activations of a pretrained SqueezeNet on the images of PASCAL VOC that show one class, with the masks of their objects."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from taskloss.experiments.feature_cache import cached_arrays
from taskloss.experiments.pretrained import load_squeezenet
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.voc_detection import CLASSES
from taskloss.experiments.voc_segmentation import BACKGROUND, VOID, read_segmentation

MASK_SIDE = 96
"""Masks are reduced to this many pixels, as their images are, without regard to the aspect ratio."""

LEAST_SHARE, GREATEST_SHARE = 0.1, 0.5
"""Images that are compared with their masks are those whose object covers such a share of the known pixels."""


class ObjectImages(NamedTuple):
    """Images whose masks have exactly one class."""

    activations: Tensor
    """``(n, 512, h, w)`` float16, of the last block of SqueezeNet; none is negative."""
    labels: Tensor
    """``(n,)`` int64: the class."""
    split: np.ndarray
    """``(n,)``: ``"train"`` or ``"val"``."""
    masks: np.ndarray
    """``(n, MASK_SIDE, MASK_SIDE)`` uint8, as in :mod:`taskloss.experiments.voc_segmentation`."""
    classes: int = len(CLASSES)

    def shown(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which pixels of a mask show the object, and which are known (not void); both are bool."""
        mask = self.masks[row]
        return mask != BACKGROUND, mask != VOID

    def choose(self, count: int) -> np.ndarray:
        """Return ``count`` rows of the official validation set, drawn where the object is neither small nor most of the image."""
        rows = []
        for row in np.random.default_rng(0).permutation(np.flatnonzero(self.split == "val")).tolist():
            shown, known = self.shown(row)
            if known.any() and LEAST_SHARE <= shown[known].mean() <= GREATEST_SHARE:
                rows.append(row)
        return np.array(rows[:count])


def make_object_images(runner: Runner, side: int) -> None:
    """Compute the activations of all images, each resized to ``side`` x ``side`` pixels, unless they are cached."""

    def make() -> dict[str, np.ndarray]:
        data = runner.files.data_folder()
        images, network = read_segmentation(data), load_squeezenet(data).eval()
        activations, labels, splits, masks = [], [], [], []
        with runner.show("activations", len(images)) as report, torch.no_grad():
            for done, image in enumerate(images, 1):
                report(done, "activations", None)
                mask = image.mask()
                shown = np.setdiff1d(mask, [BACKGROUND, VOID])
                if len(shown) != 1:
                    continue
                pixels = Image.fromarray(image.pixels()).resize((side, side), Image.Resampling.BICUBIC)
                batch = torch.from_numpy(np.array(pixels)).permute(2, 0, 1)[None]
                activations.append(network.activations(batch)[0].half().numpy())
                labels.append(int(shown[0]) - 1)
                splits.append(image.split)
                masks.append(np.array(Image.fromarray(mask).resize((MASK_SIDE, MASK_SIDE), Image.Resampling.NEAREST)))
        return {
            "activations": np.stack(activations),
            "labels": np.array(labels),
            "split": np.array(splits),
            "masks": np.stack(masks),
        }

    cached_arrays(_path(runner.files, side), make)


def read_object_images(files: Files, side: int) -> ObjectImages:
    """Read what :func:`make_object_images` has made."""
    with np.load(_path(files, side), allow_pickle=False) as arrays:
        return ObjectImages(
            torch.from_numpy(arrays["activations"]), torch.from_numpy(arrays["labels"]), arrays["split"], arrays["masks"]
        )


def _path(files: Files, side: int) -> Path:
    return files.cache / f"voc_objects-squeezenet-{side}.npz"
