"""Enumeration of all structures of a small instance: simple paths, monotone paths, matchings.

Independent of the library: by walks and permutations, without any minimization.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from tests.oracles.linear import Answers

Vertex = tuple[int, int]


def _walk(path: list[Vertex], end: Vertex, shape: Vertex, moves: list[Vertex]) -> Iterator[list[Vertex]]:
    """Yield every continuation of ``path`` to ``end`` that visits no vertex twice."""
    if path[-1] == end:
        yield path
        return
    for di, dj in moves:
        vertex = path[-1][0] + di, path[-1][1] + dj
        if 0 <= vertex[0] < shape[0] and 0 <= vertex[1] < shape[1] and vertex not in path:
            yield from _walk([*path, vertex], end, shape, moves)


def _indicators(paths: Iterator[list[Vertex]], shape: Vertex) -> np.ndarray:
    rows = []
    for path in paths:
        psi = np.zeros(shape)
        for vertex in path:
            psi[vertex] = 1.0
        rows.append(psi.reshape(-1))
    return np.unique(rows, axis=0)


@functools.cache
def all_paths(shape: Vertex, neighbours: int, start: Vertex = (0, 0), end: Vertex | None = None) -> np.ndarray:
    """Return indicators of the vertex sets of all simple paths, corner to corner by default, one per row."""
    steps = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0) and (neighbours == 8 or i == 0 or j == 0)]
    end = (shape[0] - 1, shape[1] - 1) if end is None else end
    return _indicators(_walk([start], end, shape, steps), shape)


@functools.cache
def all_monotone_paths(shape: Vertex, diagonal: bool) -> np.ndarray:
    """Return indicators of the vertex sets of all paths from the first corner to the last that go down or right, one per row."""
    steps = [(0, 1), (1, 0), *([(1, 1)] if diagonal else [])]
    return _indicators(_walk([(0, 0)], (shape[0] - 1, shape[1] - 1), shape, steps), shape)


@functools.cache
def all_matchings(shape: Vertex) -> np.ndarray:
    """Return the flat matrices of all matchings that cover the shorter side, one per row."""
    m, n = shape
    rows = []
    for columns in itertools.permutations(range(max(m, n)), min(m, n)):
        psi = np.zeros((min(m, n), max(m, n)))
        psi[range(min(m, n)), columns] = 1.0
        rows.append((psi if m <= n else psi.T).reshape(-1))
    return np.array(rows)


def structure_answers(structures: np.ndarray, target: np.ndarray, loss: str) -> Answers:
    """Return features and losses of all structures: Hamming loss to the true one, or cost or regret under the true costs."""
    target = target.reshape(-1)
    if loss == "hamming":
        losses = np.abs(structures - target).mean(axis=1)
        return Answers(structures / len(target), losses, losses == 0)
    costs = structures @ target
    losses = costs - costs.min() if loss == "regret" else costs
    return Answers(structures, losses, costs <= costs.min() + 1e-12)
