"""Overlap and non-maximum suppression straight from their definitions, for boxes of whole numbers, in rational arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Box = Sequence[int]


def cells(box: Box) -> set[tuple[int, int]]:
    """Return the unit squares of a box."""
    return {(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])}


def overlap(first: Box, second: Box) -> Fraction:
    """Return the share of the unit squares of either box that both have; 0 if there is none."""
    union = cells(first) | cells(second)
    return Fraction(len(cells(first) & cells(second)), len(union)) if union else Fraction(0)


def suppression(boxes: Sequence[Box], scores: Sequence[float], threshold: float) -> list[int]:
    """Return the indices that are kept: those without a kept one that comes earlier and overlaps by more than the threshold.

    The definition is recursive: whether a box is kept depends on the earlier ones alone, which are asked the same question.
    """

    def earlier(i: int, j: int) -> bool:
        return (-scores[i], i) < (-scores[j], j)

    known: dict[int, bool] = {}

    def kept(j: int) -> bool:
        if j not in known:
            known[j] = not any(
                earlier(i, j) and overlap(boxes[i], boxes[j]) > Fraction(threshold) and kept(i) for i in range(len(boxes))
            )
        return known[j]

    return sorted((j for j in range(len(boxes)) if kept(j)), key=lambda j: (-scores[j], j))
