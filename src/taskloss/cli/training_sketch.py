"""A sketch of the training rows, kept in a model: it shows whether labelled rows are new to the model.

Each row, its encoded features and its label, has a hash of 64 bits. The sketch keeps the hashes up to a cutoff, at most
``MAX_HASHES`` different ones: a random sample of all possible rows that is the same for every file, so the rows of another file
with hashes up to the cutoff are compared with all the training rows among them.

Independent rows may be equal too. If the other file is a fresh sample, the probability that one of its rows is among the training
rows is about the share of training rows that have an equal one (Good and Turing's estimate, leave one out).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtrc

MAX_HASHES = 16_384
MAX_PROBABILITY = 1e-6
"""An overlap is clear if fresh rows would have it with at most this probability,"""
MIN_EXCESS = 0.02
"""and if it exceeds that of fresh rows by at least this share; less has no effect that matters."""


class Overlap(NamedTuple):
    """Rows of a file that are among the training rows."""

    compared: int
    """Number of rows that were compared."""
    matches: int
    """Number of these that are among the training rows."""
    expected: float
    """Number of matches of fresh rows."""
    is_clear: bool
    """Whether there are clearly more matches than those of fresh rows."""


@dataclass(frozen=True)
class TrainingSketch:
    """Hashes of the training rows, up to a cutoff."""

    hashes: np.ndarray
    """The different hashes, sorted, uint64."""
    cutoff: int
    """Largest hash that the sketch would hold."""
    rows: int
    """Number of training rows with hashes up to the cutoff."""
    repeated: int
    """Number of these that have an equal one."""

    @classmethod
    def of(cls, features: np.ndarray, target: np.ndarray) -> TrainingSketch:
        """Return the sketch of training rows: encoded features, float32 ``(n, d)``, and labels, int64 ``(n,)``."""
        hashes, counts = np.unique(hash_rows(features, target), return_counts=True)
        cutoff = int(hashes[MAX_HASHES - 1]) if len(hashes) > MAX_HASHES else 2**64 - 1
        counts = counts[:MAX_HASHES]
        return cls(hashes[:MAX_HASHES], cutoff, int(counts.sum()), int(counts[counts > 1].sum()))

    def overlap(self, features: np.ndarray, target: np.ndarray) -> Overlap:
        """Return how many rows of a file are among the training rows."""
        hashes = hash_rows(features, target)
        hashes = hashes[hashes <= np.uint64(self.cutoff)]
        index = np.minimum(np.searchsorted(self.hashes, hashes), max(len(self.hashes) - 1, 0))
        matches = int((self.hashes[index] == hashes).sum()) if len(self.hashes) else 0
        share = self.repeated / max(self.rows, 1)
        # The share is an estimate from some rows: allow three standard errors.
        highest = min(1.0, share + 3.0 * (math.sqrt(share * (1.0 - share) / max(self.rows, 1)) + 1.0 / max(self.rows, 1)))
        compared = len(hashes)
        by_chance = float(bdtrc(matches - 1, compared, highest)) if matches else 1.0
        is_clear = by_chance <= MAX_PROBABILITY and matches / compared - share >= MIN_EXCESS
        return Overlap(compared, matches, share * compared, is_clear)

    def to_dict(self) -> dict[str, Any]:
        """Return the sketch as a dictionary that JSON can hold."""
        text = base64.b64encode(self.hashes.astype("<u8").tobytes()).decode()
        return {"hashes": text, "cutoff": self.cutoff, "rows": self.rows, "repeated": self.repeated}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> TrainingSketch:
        """Return the sketch that :meth:`to_dict` described; raise a ValueError if it is not one."""
        hashes = np.frombuffer(base64.b64decode(record["hashes"], validate=True), "<u8").astype(np.uint64)
        numbers = [record[name] for name in ("cutoff", "rows", "repeated")]
        if not all(type(number) is int and 0 <= number < 2**64 for number in numbers) or record["repeated"] > record["rows"]:
            raise ValueError(f"a sketch of training rows cannot have the numbers {numbers}")
        return cls(hashes, *numbers)


def hash_rows(features: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return one hash of 64 bits per row; equal rows have equal hashes, whatever the file that they come from.

    >>> rows = np.array([[1.0, -0.0], [1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    >>> hashes = hash_rows(rows, np.array([1, 1, 1]))
    >>> bool(hashes[0] == hashes[1]), bool(hashes[1] == hashes[2])
    (True, False)
    """
    words = np.ascontiguousarray(features + np.float32(0.0), np.float32).view(np.uint32).astype(np.uint64)
    hashes = _mix(target.astype(np.uint64))
    for column in words.T:
        hashes = _mix(hashes ^ column)
    return hashes


def _mix(values: np.ndarray) -> np.ndarray:
    """Return well mixed 64-bit numbers, each a function of one value: the finalizer of SplitMix64 (Steele et al. 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: np.ndarray = mixed ^ (mixed >> np.uint64(31))
    return result
