"""Figure 2 and section A.3.1 of Meng et al. (2021): heat maps by nonnegative matrix factorization, and training with them."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.feature_cache import cached_arrays
from taskloss.experiments.heat_maps import (
    Match,
    explained_shares,
    match_object,
    mean_of_better,
    multiplicative_updates,
    pack_maps,
    peak_memory,
    reset_peak_memory,
    smooth,
    top_channels,
)
from taskloss.experiments.image_sets import read_image_set
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.nmf_page import make_page
from taskloss.experiments.nmf_training import PENALTIES, run_training
from taskloss.experiments.page import Page
from taskloss.experiments.pretrained import load_squeezenet
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.segmented_activations import make_object_images, read_object_images
from taskloss.lp import nmf

RANKS = (1, 2)
CHANNELS = (20, 128, 512)
"""Numbers of channels that are factored: the paper's, more, and all of SqueezeNet's last block."""
STL_CLASSES = (0, 2, 3, 5, 6, 8, 1, 4, 7, 9)
"""The classes of STL-10 in the order in which their images are taken: airplane, car, cat, dog, horse, ship, and the others."""
STL_SIDE = 96
MEASURED_CHANNELS = (20, 128)
"""Numbers of channels that are factored for images with a mask."""


# --- images to look at --------------------------------------------------------------------------------------------------


def make_looked_at(runner: Runner, images: int, side: int) -> dict[str, np.ndarray]:
    """Return the first ``images`` images, one per class of STL-10, and their activations, and keep them in the cache."""

    def make() -> dict[str, np.ndarray]:
        data = runner.files.data_folder()
        part = read_image_set(data, "stl10", STL_SIDE).training
        rows = [int(np.flatnonzero(part.labels == label)[number // 10]) for number, label in _labels(images)]
        pixels = torch.from_numpy(part.pixels[rows])
        large = torch.nn.functional.interpolate(pixels.float(), (side, side), mode="bilinear")
        with torch.no_grad():
            activations = load_squeezenet(data).eval().activations(large)
        return {"pixels": pixels.permute(0, 2, 3, 1).numpy(), "activations": activations.numpy()}

    return cached_arrays(_looked_at_path(runner.files, images, side), make)


def _labels(images: int) -> list[tuple[int, int]]:
    """Return the number of each image and its class."""
    return [(number, STL_CLASSES[number % len(STL_CLASSES)]) for number in range(images)]


def _looked_at_path(files: Files, images: int, side: int) -> Path:
    return files.cache / f"stl10_{images}-squeezenet-{side}.npz"


def run_heat_map(cell: Cell, files: Files) -> Record:
    """Factorize the activations of one image; seconds are those of the processor, memory is that beyond what was in use."""
    with np.load(_looked_at_path(files, cell["images"], cell["side"]), allow_pickle=False) as arrays:
        activations = torch.from_numpy(arrays["activations"][cell["image"]])
    matrix, rank = top_channels(activations, cell["channels"]), cell["rank"]
    nmf(torch.eye(3), 2)  # Loads what is compiled.
    before, start = reset_peak_memory(), time.process_time()
    factors = nmf(matrix, rank)
    seconds = time.process_time() - start
    mebibytes = None if before is None else round(max(peak_memory() - before, 0) / 1024)
    by_sum, by_energy = explained_shares(matrix, factors.F @ factors.W)
    left, right = multiplicative_updates(matrix, rank)
    return {
        "maps": pack_maps(factors.W.reshape(rank, *activations.shape[1:])),
        "factorization seconds": round(seconds, 2),
        "memory": mebibytes,
        "explained sum": round(by_sum, 4),
        "explained energy": round(by_energy, 4),
        "energy of updates": round(explained_shares(matrix, left @ right)[1], 4),
    }


def pack_image(pixels: np.ndarray) -> str:
    """Return an image ``(h, w, 3)`` as a JPEG file in base64."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=80)
    return base64.b64encode(file.getvalue()).decode()


# --- images with a mask -------------------------------------------------------------------------------------------------


def run_measured(cell: Cell, files: Files) -> Record:
    """Measure how well heat maps show the object of one image, for rank 1 and for the better of the two maps of rank 2.

    Beside them, the mean of all channels, and what a channel and the better of two channels have that are drawn among the 20 with
    the largest sums. The record has one list for each measure of a :class:`~taskloss.experiments.heat_maps.Match`.
    """
    images = read_object_images(files, cell["side"])
    row = int(images.choose(cell["images"])[cell["image"]])
    activations, (shown, known) = images.activations[row].float(), images.shown(row)

    def match(maps: Tensor) -> list[Match]:
        return match_object(maps.reshape(len(maps), *activations.shape[1:]), shown, known)

    def best(maps: Tensor) -> Match:
        return Match(*map(max, zip(*match(maps), strict=True)))

    matches: dict[str, list[Match]] = {"mean of all channels": match(activations.mean(0, keepdim=True))}
    for name, source in (("", activations), (", 3 x 3 means", smooth(activations))):
        alone = match(top_channels(source, CHANNELS[0]))
        matches[f"drawn channels{name}"] = [
            Match(*(reduce(part) for part in zip(*alone, strict=True))) for reduce in (fmean, mean_of_better)
        ]
    for channels in MEASURED_CHANNELS:
        matrix = top_channels(activations, channels)
        matches[f"LP, {channels}"] = [best(nmf(matrix, rank).W) for rank in RANKS]
    matrix = top_channels(smooth(activations), CHANNELS[0])
    matches[f"LP, {CHANNELS[0]}, 3 x 3 means"] = [best(nmf(matrix, rank).W) for rank in RANKS]
    for channels in CHANNELS:
        matrix = top_channels(activations, channels)
        matches[f"updates, {channels}"] = [best(multiplicative_updates(matrix, rank)[1]) for rank in RANKS]
    return {"share": round(float(shown[known].mean()), 4), **_by_measure(matches)}


def _by_measure(matches: dict[str, list[Match]]) -> Record:
    """Return, for each measure and kind of heat map, the values by rank."""
    return {
        measure: {name: [round(getattr(match, measure), 4) for match in by_rank] for name, by_rank in matches.items()}
        for measure in Match._fields
    }


# --- the experiment -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NMF(Experiment):
    """Heat maps of images to look at and of images with masks, and training with a factorization as a penalty."""

    seeds: int = 3
    side: int = 160
    """Images are resized to this many pixels; the grid of the activations has a sixteenth, less the borders."""
    looked_at: int = 6
    measured: int = 30
    examined: int = 60
    """Number of test images whose heat maps are compared with the object after training."""
    iterations: int = 150

    name: ClassVar[str] = "nmf"
    title: ClassVar[str] = "Heat maps by nonnegative matrix factorization, and training with them"
    source: ClassVar[str] = "Meng et al. 2021, figure 2 and section A.3.1"

    def run(self, runner: Runner, seeds: int) -> Results:
        pixels = make_looked_at(runner, self.looked_at, self.side)["pixels"]
        make_object_images(runner, self.side)
        return {
            "size": asdict(self),
            "images": [pack_image(image) for image in pixels],
            "heat maps": runner.run("heat maps", run_heat_map, self._heat_map_cells()),
            "measured": runner.run("heat maps of objects", run_measured, self._measured_cells()),
            "training": runner.run("training", run_training, self._training_cells(range(seeds))),
        }

    def _heat_map_cells(self) -> list[Cell]:
        base = {"experiment": self.name, "part": "looked at", "side": self.side, "images": self.looked_at}
        return [
            {**base, "image": image, "channels": channels, "rank": rank}
            for channels in CHANNELS
            for rank in RANKS
            for image in range(self.looked_at)
        ]

    def _measured_cells(self) -> list[Cell]:
        base = {"experiment": self.name, "part": "measured", "side": self.side, "images": self.measured}
        return [{**base, "image": image} for image in range(self.measured)]

    def _training_cells(self, seeds: Sequence[int]) -> list[Cell]:
        base = {"experiment": self.name, "part": "training", "side": self.side, "examined": self.examined}
        return [
            {**base, "iterations": self.iterations, "penalty": penalty, "weight": weight, "seed": seed}
            for penalty, weights in PENALTIES.items()
            for weight in weights
            for seed in seeds
        ]

    def make_page(self, results: Results) -> Page:
        return make_page(self, results)
