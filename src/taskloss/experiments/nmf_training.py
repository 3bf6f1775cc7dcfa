"""Training with a factorization of the activations as a regularizer: one heat map shall explain all channels of an image."""

from __future__ import annotations

import time
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from taskloss.experiments.heat_maps import Match, match_object
from taskloss.experiments.journal import Cell, Record
from taskloss.experiments.runner import Files
from taskloss.experiments.segmented_activations import ObjectImages, read_object_images
from taskloss.lp import nmf
from taskloss.training import TrainingData, TrainingSettings, seeded, train

CHANNELS = 12
"""Channels of the network that is trained."""
RANK = 1
BATCH, RATE = 64, 0.01
PENALIZED = 4
"""Images of a batch, drawn anew in each step, whose activations are factored."""
PENALTIES: dict[str, tuple[float, ...]] = {"none": (0.0,), "LP": (0.3, 1.0, 3.0), "energy": (1.0, 3.0, 10.0)}
"""The weights of each penalty."""


class Outputs(NamedTuple):
    """What the network makes of a batch."""

    scores: Tensor
    """``(n, classes)``."""
    maps: Tensor
    """Activations of its hidden layer, none negative, ``(n, CHANNELS, h, w)``."""


class MapClassifier(nn.Module):
    """A 1x1 convolution to a few channels, ReLU, the mean over the pixels, and a linear layer."""

    def __init__(self, channels: int, classes: int, seed: int) -> None:
        super().__init__()
        with seeded(seed, torch.device("cpu")):
            self.reduce = nn.Conv2d(channels, CHANNELS, 1)
            self.classify = nn.Linear(CHANNELS, classes)

    def forward(self, activations: Tensor) -> Outputs:
        maps = self.reduce(activations).relu()
        return Outputs(self.classify(maps.mean((2, 3))), maps)


def lp_residual(maps: Tensor) -> Tensor:
    """Return the mean over the images of the share of the activations that ``nmf`` leaves unexplained.

    With V the activations ``(channels, pixels)`` of an image and ``V ~ F W``, this is ``|V - F W|_1 / |V|_1``. An image without
    any activation counts as explained.
    """
    shares = []
    for matrix in maps.flatten(2):
        if not matrix.any():
            shares.append(matrix.sum())
            continue
        factors = nmf(matrix, RANK)
        shares.append((matrix - factors.F @ factors.W).abs().sum() / matrix.sum())
    return torch.stack(shares).mean()


def energy_residual(maps: Tensor) -> Tensor:
    """Return the mean share of the squared activations that no nonnegative matrix of rank 1 explains.

    The best matrix of rank 1 in the squared residual is that of the largest singular value, and it is nonnegative where V is
    (Perron and Frobenius), so this is the residual of the classical factorization, in closed form.
    """
    matrix = maps.flatten(2)
    squares = torch.linalg.eigvalsh(matrix @ matrix.mT)
    return (1 - squares[:, -1] / squares.sum(1).clamp(min=torch.finfo(maps.dtype).tiny)).mean()


class PenalizedCrossEntropy:
    """Cross-entropy plus a penalty on the activations of some images of each batch, drawn by ``seed``."""

    def __init__(self, penalty: str, weight: float, seed: int) -> None:
        self._residual = {"none": None, "LP": lp_residual, "energy": energy_residual}[penalty]
        self._weight, self._generator = weight, torch.Generator().manual_seed(seed)

    def __call__(self, outputs: Outputs, target: Tensor) -> Tensor:
        loss = functional.cross_entropy(outputs.scores, target)
        if self._residual is None:
            return loss
        drawn = torch.randperm(len(target), generator=self._generator)[:PENALIZED]
        return loss + self._weight * self._residual(outputs.maps[drawn])


def run_training(cell: Cell, files: Files) -> Record:
    """Train one network, and measure it on the official validation images, which are the test set here."""
    images = read_object_images(files, cell["side"])
    training, test = (np.flatnonzero(images.split == split) for split in ("train", "val"))
    order = np.random.default_rng(cell["seed"]).permutation(training)
    kept = len(order) * 3 // 4
    fitted, validation = order[:kept], order[kept:]
    scale = images.activations[fitted].float().square().mean().sqrt()
    model = MapClassifier(images.activations.shape[1], images.classes, cell["seed"])
    criterion = PenalizedCrossEntropy(cell["penalty"], cell["weight"], cell["seed"])
    settings = TrainingSettings(iterations=cell["iterations"], learning_rate=RATE, batch_size=BATCH)
    start = time.process_time()
    data = TrainingData(images.activations[fitted].float() / scale, images.labels[fitted])
    train(model, criterion, data, None, settings=settings, seed=cell["seed"])
    seconds = time.process_time() - start
    accuracies = {name: _accuracy(model, images, rows, scale) for name, rows in (("validation", validation), ("test", test))}
    examination = _examine(model, images, images.choose(cell["examined"]), scale)
    return {**accuracies, "training seconds": round(seconds, 1), **examination}


@torch.no_grad()
def _accuracy(model: nn.Module, images: ObjectImages, rows: np.ndarray, scale: Tensor) -> float:
    guess = torch.cat([model(images.activations[part].float() / scale).scores.argmax(1) for part in np.array_split(rows, 8)])
    return round((guess == images.labels[rows]).float().mean().item(), 4)


@torch.no_grad()
def _examine(model: nn.Module, images: ObjectImages, rows: np.ndarray, scale: Tensor) -> Record:
    """Return both residuals, and how well heat maps show the object, means over the images of ``rows``."""
    maps = model(images.activations[rows].float() / scale).maps
    matches: dict[str, list[Match]] = {"LP map": [], "mean map": []}
    for row, own in zip(rows, maps, strict=True):
        alive = own.flatten(1).sum(1) > 0
        of_lp = nmf(own.flatten(1), RANK).W.reshape(RANK, *own.shape[1:]) if alive.any() else own[:RANK]
        matches["LP map"] += match_object(of_lp, *images.shown(row))
        matches["mean map"] += match_object(own.mean(0, keepdim=True), *images.shown(row))
    used = (maps.sum((2, 3)) > 0).float().sum(1).mean()
    return {
        "residual": round(lp_residual(maps).item(), 4),
        "energy residual": round(energy_residual(maps).item(), 4),
        # Average precision is not defined where an object fills all known pixels; the share of the mass is.
        **{f"{name}, inside": round(fmean(match.inside for match in own), 4) for name, own in matches.items()},
        "channels": round(used.item(), 2),
    }
