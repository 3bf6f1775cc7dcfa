"""PASCAL VOC's average precision as its rules are written: threshold by threshold, in plain loops and rational arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.oracles.boxes import Box, overlap


@dataclass(frozen=True)
class Found:
    image: int
    box: Box
    score: float


@dataclass(frozen=True)
class Real:
    image: int
    box: Box
    difficult: bool


def right_and_wrong(found: Sequence[Found], real: Sequence[Real], min_overlap: float) -> tuple[int, int]:
    """Return the numbers of right and wrong detections, taken from the highest score down."""
    taken: set[int] = set()
    right = wrong = 0
    # Of equal overlaps the object that is not difficult goes first, then the one with lower coordinates.
    candidates = sorted(range(len(real)), key=lambda r: (real[r].difficult, tuple(real[r].box)))
    for detection in sorted(found, key=lambda detection: -detection.score):
        best, best_overlap = None, Fraction(0)
        for r in candidates:
            if real[r].image == detection.image and overlap(detection.box, real[r].box) > best_overlap:
                best, best_overlap = r, overlap(detection.box, real[r].box)
        if best is None or best_overlap < Fraction(min_overlap):
            wrong += 1
        elif real[best].difficult:
            pass
        elif best in taken:
            wrong += 1
        else:
            taken.add(best)
            right += 1
    return right, wrong


def average_precision(found: Sequence[Found], real: Sequence[Real], min_overlap: float, interpolation: str) -> float:
    """Return the mean, over levels of recall, of the best precision of a threshold that reaches the level."""
    objects = sum(not r.difficult for r in real)
    points = []
    for cut in {detection.score for detection in found}:
        points.append(right_and_wrong([d for d in found if d.score >= cut], real, min_overlap))
    if interpolation == "every_point":
        levels = [Fraction(k, objects) for k in range(1, objects + 1)]
    else:
        levels = [Fraction(t, 10) for t in range(11)]
    total = Fraction(0)
    for level in levels:
        reached = [
            Fraction(right, right + wrong) for right, wrong in points if right + wrong and Fraction(right, objects) >= level
        ]
        total += max(reached, default=Fraction(0))
    return float(total / len(levels))
