"""Shortest paths through graphs of edge costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from taskloss import _checks, _solver_checks
from taskloss.kernels.graph_paths import acyclic_paths, cheapest_paths
from taskloss.kernels.sums import summable_rows
from taskloss.solvers.by_value import ByValue
from taskloss.solvers.grid_paths import ROUNDING
from taskloss.solvers.threads import solve_in_threads


class PathGraph(NamedTuple):
    """The part of a graph that a simple path from start to end can use."""

    arcs: np.ndarray
    """Tail, head and edge of each arc, int64 ``(A, 3)``: in a topological order of the tails if acyclic, else sorted by tail."""
    first_arc: np.ndarray
    """Index of the first arc of each tail, int64 ``(vertices + 1,)``; meaningful if sorted by tail."""
    acyclic: bool


@dataclass(frozen=True, eq=False)
class ShortestPath(ByValue):
    """The cheapest path through a graph of edge costs, ``scores = -costs``; psi is 1 on the edges of the path.

    Where the graph has no cycle (as far as paths from start to end go), the best path is found by dynamic programming along a
    topological order, O(E), exact for scores of any sign. Otherwise it is found by Dijkstra's algorithm, O(E log E), which needs
    costs of at least zero: see :class:`~taskloss.solvers.GridShortestPath` for what that means in training. :attr:`acyclic` tells
    which.

    Args:
        edges: pairs of vertices ``(tail, head)``, counted from 0, ``(E, 2)``; the e-th score is that of the e-th edge.
        start: first vertex; negative numbers count from the end.
        end: last vertex.
        directed: whether edges lead from tail to head only, or both ways.
        negative_costs: in a graph with cycles, ``"raise"``, or ``"clip"`` them to zero: no longer exact.

    >>> solver = ShortestPath([(0, 1), (0, 2), (1, 2)])
    >>> solver(-np.array([[1.0, 3.0, 1.0], [1.0, -3.0, 1.0]]))
    array([[1., 0., 1.],
           [0., 1., 0.]])
    """

    edges: Any
    start: int = 0
    end: int = -1
    directed: bool = True
    negative_costs: str = "raise"
    graph: PathGraph = field(init=False, repr=False)

    def __post_init__(self) -> None:
        edges = _solver_checks.as_edges(self.edges)
        _checks.check_flag("directed", self.directed)
        _checks.check_choice("negative_costs", self.negative_costs, ("raise", "clip"))
        vertices = int(edges.max()) + 1
        start, end = (_solver_checks.as_graph_vertex(name, getattr(self, name), vertices) for name in ("start", "end"))
        for name, value in (("edges", edges), ("start", start), ("end", end)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "graph", _path_graph(edges, vertices, start, end, self.directed))

    @property
    def acyclic(self) -> bool:
        """Whether no path from start to end can close a cycle, so that scores may have any sign."""
        return self.graph.acyclic

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, ``(..., E)``."""
        rows = summable_rows(_solver_checks.as_score_rows(scores, len(self.edges), "edge"))
        if self.acyclic:
            vertices = len(self.graph.first_arc) - 1
            psi = self._solve(lambda part: acyclic_paths(part, self.graph.arcs, vertices, self.start, self.end), rows)
        else:
            costs = self._checked_costs(rows)
            first_arc = self.graph.first_arc
            psi = self._solve(lambda part: cheapest_paths(part, self.graph.arcs, first_arc, self.start, self.end), costs)
        return psi.reshape(np.shape(scores))

    def _solve(self, solve: Callable[[np.ndarray], np.ndarray], batch: np.ndarray) -> np.ndarray:
        return solve_in_threads(solve, batch, 10.0 * len(self.graph.arcs))

    def _checked_costs(self, scores: np.ndarray) -> np.ndarray:
        """Return costs of at least zero; those of edges that no path can use are zero."""
        costs = np.zeros(scores.shape)
        used = np.unique(self.graph.arcs[:, 2])
        costs[:, used] = -scores[:, used]
        # Costs that should be epsilon, less epsilon: in float32 they may end a little below zero.
        slack = np.inf if self.negative_costs == "clip" else ROUNDING * np.abs(costs).max(axis=1, keepdims=True)
        costs = np.where((costs < 0.0) & (costs >= -slack), 0.0, costs)
        _solver_checks.check_edge_costs(costs)
        return costs


def grid_edges(height: int, width: int) -> np.ndarray:
    """Return the edges to the right and down of a grid, row by row: for ``ShortestPath`` from corner to corner.

    Vertices are numbered row by row. Each row has first its edges to the right, then its edges down, the order of PyEPO.

    >>> grid_edges(2, 2).tolist()
    [[0, 1], [0, 2], [1, 3], [2, 3]]
    """
    height, width = _checks.check_count("height", height), _checks.check_count("width", width)
    number = np.arange(height * width).reshape(height, width)
    edges = []
    for i in range(height):
        edges += [(number[i, j], number[i, j + 1]) for j in range(width - 1)]
        if i + 1 < height:
            edges += [(number[i, j], number[i + 1, j]) for j in range(width)]
    return np.array(edges, np.int64).reshape(-1, 2)


def _path_graph(edges: np.ndarray, vertices: int, start: int, end: int, directed: bool) -> PathGraph:
    """Return the arcs that lie on a way from start to end, in the order that their algorithm needs."""
    arcs = np.column_stack([edges, np.arange(len(edges))])
    if not directed:
        arcs = np.concatenate([arcs, arcs[:, [1, 0, 2]]])
    # A simple path never enters its start and never leaves its end.
    arcs = arcs[(arcs[:, 0] != arcs[:, 1]) & (arcs[:, 1] != start) & (arcs[:, 0] != end)]
    from_start = _reached(arcs[:, 0], arcs[:, 1], vertices, start)
    to_end = _reached(arcs[:, 1], arcs[:, 0], vertices, end)
    _solver_checks.check_path_exists(bool(from_start[end]), start, end)
    arcs = arcs[from_start[arcs[:, 0]] & to_end[arcs[:, 1]]]
    position = _topological_positions(arcs, vertices)
    key = arcs[:, 0] if position is None else position[arcs[:, 0]]
    first_arc = np.searchsorted(np.sort(arcs[:, 0]), np.arange(vertices + 1))
    return PathGraph(np.ascontiguousarray(arcs[np.argsort(key, kind="stable")]), first_arc, position is not None)


def _heads_by_tail(tails: np.ndarray, heads: np.ndarray, vertices: int) -> list[list[int]]:
    result: list[list[int]] = [[] for _ in range(vertices)]
    for tail, head in zip(tails.tolist(), heads.tolist(), strict=True):
        result[tail].append(head)
    return result


def _reached(tails: np.ndarray, heads: np.ndarray, vertices: int, start: int) -> np.ndarray:
    """Return which vertices can be reached from ``start``, bool ``(vertices,)``."""
    following = _heads_by_tail(tails, heads, vertices)
    reached = np.zeros(vertices, bool)
    reached[start] = True
    waiting = deque([start])
    while waiting:
        for head in following[waiting.popleft()]:
            if not reached[head]:
                reached[head] = True
                waiting.append(head)
    return reached


def _topological_positions(arcs: np.ndarray, vertices: int) -> np.ndarray | None:
    """Return the position of each vertex in a topological order (Kahn 1962); None if the arcs close a cycle."""
    following = _heads_by_tail(arcs[:, 0], arcs[:, 1], vertices)
    entering = np.bincount(arcs[:, 1], minlength=vertices)
    position = np.full(vertices, -1)
    waiting = deque(np.flatnonzero(entering == 0).tolist())
    placed = 0
    while waiting:
        vertex = waiting.popleft()
        position[vertex] = placed
        placed += 1
        for head in following[vertex]:
            entering[head] -= 1
            if entering[head] == 0:
                waiting.append(head)
    return position if placed == vertices else None
