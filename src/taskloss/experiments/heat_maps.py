"""Heat maps from activations of a network: factorizations, how much they explain, and how well they show an object.

The activations of an image are a matrix of channels times pixels, none of them negative. It is factored as ``V ~ F W``, and each
row of W is a heat map (Collins et al., *Deep feature factorization for concept discovery*, ECCV 2018).
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from taskloss.metrics import average_precision_score

ITERATIONS = 300
"""Number of multiplicative updates; beyond, the residual hardly changes."""


def top_channels(activations: Tensor, count: int) -> Tensor:
    """Return the channels with the largest sums as rows, ``(count, h * w)``, of activations ``(channels, h, w)``."""
    matrix = activations.flatten(1)
    return matrix[torch.argsort(matrix.sum(1), descending=True, stable=True)[:count]]


def smooth(activations: Tensor) -> Tensor:
    """Return the means over 3 x 3 neighbouring pixels (fewer at the edges), ``(channels, h, w)``."""
    return functional.avg_pool2d(activations[None], 3, stride=1, padding=1, count_include_pad=False)[0]


def multiplicative_updates(matrix: Tensor, rank: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Factorize a nonnegative matrix ``(s, w)`` as a product of ``(s, rank)`` and ``(rank, w)`` with a small squared residual.

    No update raises the squared residual, and no entry becomes negative: Lee and Seung, *Algorithms for non-negative matrix
    factorization*, NeurIPS 2000.
    """
    generator = torch.Generator().manual_seed(seed)
    target = matrix.double()
    left = torch.rand(len(matrix), rank, dtype=torch.float64, generator=generator)
    right = torch.rand(rank, matrix.shape[1], dtype=torch.float64, generator=generator)
    tiny = torch.finfo(torch.float64).tiny
    for _ in range(ITERATIONS):
        right = right * (left.T @ target) / (left.T @ left @ right + tiny)
        left = left * (target @ right.T) / (left @ (right @ right.T) + tiny)
    return left.to(matrix.dtype), right.to(matrix.dtype)


def explained_shares(matrix: Tensor, product: Tensor) -> tuple[float, float]:
    """Return the shares of the sum and of the energy (the sum of squares) of a nonnegative matrix that a product explains.

    >>> explained_shares(torch.tensor([[3.0, 1.0]]), torch.tensor([[3.0, 0.0]]))
    (0.75, 0.8999999761581421)
    """
    residual = matrix - product
    by_sum = 1 - residual.abs().sum() / matrix.sum()
    return by_sum.item(), (1 - residual.square().sum() / matrix.square().sum()).item()


class Match(NamedTuple):
    """How well a heat map shows an object."""

    precision: float
    """Average precision of the map as a score of the pixels: high if the map covers the whole object and nothing else."""
    inside: float
    """Share of the map's mass that is on the object: high also if the map shows only a part of it. A map of zeros has the share
    of a constant map."""


def match_object(maps: Tensor, shown: np.ndarray, known: np.ndarray) -> list[Match]:
    """Compare each heat map, ``(k, h, w)``, with the pixels that show an object.

    Args:
        maps: the heat maps, not negative; they are resized bilinearly to the size of the mask.
        shown: ``(height, width)`` bool, whether a pixel shows an object.
        known: ``(height, width)`` bool, the pixels that count.
    """
    large = functional.interpolate(maps[None].double(), shown.shape, mode="bilinear")[0]
    target = torch.from_numpy(shown[known])
    matches = []
    for values in large[:, torch.from_numpy(known)]:
        mass = values if values.any() else torch.ones_like(values)
        matches.append(Match(float(average_precision_score(values, target)), float(mass[target].sum() / mass.sum())))
    return matches


def mean_of_better(values: Sequence[float]) -> float:
    """Return the mean of the greater of two values, over all pairs of them.

    >>> mean_of_better([1.0, 2.0, 4.0])  # (2 + 4 + 4) / 3
    3.3333333333333335
    """
    ascending = sorted(values)
    return sum(index * value for index, value in enumerate(ascending)) / (len(values) * (len(values) - 1) / 2)


def overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Return the intersection over union of heat maps ``(k, h, w)``, each in [0, 1], matched so that it is largest.

    The intersection of two maps is the sum of the lesser of their values, the union that of the greater ones.

    >>> overlap(np.array([[[1.0, 0.5]]]), np.array([[[0.5, 0.5]]]))
    0.6666666666666666
    """

    def of_pair(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.minimum(one, other).sum() / np.maximum(one, other).sum())

    matched = ([of_pair(one, other) for one, other in zip(first, order, strict=True)] for order in permutations(second))
    return max(sum(values) / len(values) for values in matched)


def pack_maps(maps: Tensor) -> list[str]:
    """Return heat maps ``(k, h, w)`` as text: each divided by its maximum, in steps of 1/255, one byte per pixel in base64."""
    scaled = maps / maps.amax((1, 2), keepdim=True).clamp(min=torch.finfo(maps.dtype).tiny)
    return [base64.b64encode(one.tobytes()).decode() for one in (255 * scaled).round().to(torch.uint8).numpy()]


def unpack_maps(packed: list[str], height: int) -> np.ndarray:
    """Return the heat maps of :func:`pack_maps`, ``(k, height, w)`` in [0, 1]."""
    flat = [np.frombuffer(base64.b64decode(one), np.uint8) for one in packed]
    return np.stack(flat).reshape(len(packed), height, -1) / 255


def reset_peak_memory() -> int | None:
    """Forget the peak of this process's memory, and return the KiB that it holds now; None where the system is not Linux.

    Memory that was given back to the C library is given back to the system first: otherwise later arrays would take it again
    unseen.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):  # No such file, or a C library without malloc_trim.
        return None
    return _status("VmRSS")


def peak_memory() -> int:
    """Return the KiB that this process held at most since :func:`reset_peak_memory`."""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
