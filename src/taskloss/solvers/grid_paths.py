"""Paths through grids of vertex scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskloss import _checks, _output_checks
from taskloss.kernels import grid_paths
from taskloss.kernels.sums import summable_rows

# Costs this far below zero, relative to the largest one, are zeros that were rounded.
ROUNDING = 1e-6


@dataclass(frozen=True)
class GridShortestPath:
    """The cheapest path through a grid of vertex costs, ``scores = -costs``; psi is 1 on the vertices of the path.

    Dijkstra's algorithm, O(HW log HW) per grid. It needs costs of at least zero, and the augmented inference of
    :class:`~taskloss.Structured` lowers them by up to epsilon (Hamming loss) or by epsilon times the true costs (the others). So
    let the network's costs be at least that, as in ``scores = -(epsilon + softplus(output))``, and the inference stays exact;
    with ``loss="regret"`` and ``update="negative"`` any costs of at least zero will do.

    Args:
        neighbours: 4, or 8 with the diagonals.
        start: row and column of the first vertex; negative numbers count from the end.
        end: row and column of the last vertex.
        negative_costs: ``"raise"``, or ``"clip"`` them to zero: no longer exact, as blackbox differentiation does it.

    >>> GridShortestPath(neighbours=4)(-np.array([[1.0, 9.0, 1.0], [1.0, 9.0, 1.0], [1.0, 1.0, 1.0]]))
    array([[1., 0., 0.],
           [1., 0., 0.],
           [1., 1., 1.]])
    """

    neighbours: int = 8
    start: tuple[int, int] = (0, 0)
    end: tuple[int, int] = (-1, -1)
    negative_costs: str = "raise"

    def __post_init__(self) -> None:
        if self.neighbours not in (4, 8):
            raise ValueError(f"neighbours must be 4 or 8, got {self.neighbours!r}")
        _checks.check_choice("negative_costs", self.negative_costs, ("raise", "clip"))

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, ``(..., H, W)``."""
        costs = -_finite_grids(scores)
        # Costs that should be epsilon, less epsilon: in float32 they may end a little below zero.
        slack = np.inf if self.negative_costs == "clip" else ROUNDING * np.abs(costs).max(axis=(1, 2), keepdims=True)
        costs = np.where((costs < 0.0) & (costs >= -slack), 0.0, costs)
        _output_checks.check_path_costs(costs)
        size = costs.shape[1:]
        start, end = (_output_checks.as_vertex(name, getattr(self, name), size) for name in ("start", "end"))
        return grid_paths.shortest_paths(costs, self.neighbours, start, end).reshape(np.shape(scores))


@dataclass(frozen=True)
class MonotoneGridPath:
    """The best path from the first vertex to the last that only moves down, right, or down and right.

    Dynamic programming, O(HW) per grid, exact for scores of any sign. It is also the alignment of two sequences (dynamic time
    warping): ``scores[i, j]`` says how well element i of the one fits element j of the other.

    Args:
        diagonal: whether a step may go down and right at once.

    >>> MonotoneGridPath()(np.array([[1.0, -1.0, -1.0], [-1.0, 2.0, 3.0]]))
    array([[1., 0., 0.],
           [0., 1., 1.]])
    """

    diagonal: bool = True

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, ``(..., H, W)``."""
        return grid_paths.monotone_paths(_finite_grids(scores), self.diagonal).reshape(np.shape(scores))


def as_grids(scores: np.ndarray) -> np.ndarray:
    """Return scores ``(..., H, W)`` as float64 grids ``(R, H, W)``."""
    array = np.asarray(scores, np.float64)
    _output_checks.check_grid_shape(array.shape)
    return np.ascontiguousarray(array).reshape(-1, *array.shape[-2:])


def _finite_grids(scores: np.ndarray) -> np.ndarray:
    """Return scores as grids whose paths have finite totals."""
    _checks.check_finite(np.asarray(scores), None)
    return summable_rows(as_grids(scores))
