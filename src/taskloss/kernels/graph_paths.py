"""Best paths through graphs of weighted edges, as indicators of the edges on the path.

A graph is a list of arcs ``(tail, head, edge)``, one row each: the edge is the column of the scores that the arc belongs to, so
an undirected edge is two arcs with one column.
"""

from __future__ import annotations

import heapq

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel


@kernel
def acyclic_paths(scores, arcs, vertices, start, end):
    """Return the path of highest total score from ``start`` to ``end``, by dynamic programming along a topological order.

    Exact for scores of any sign. Of equally good paths, each vertex is entered by the arc that comes first in ``arcs``.

    Args:
        scores: of the edges, float64 ``(R, E)``.
        arcs: tail, head and edge, int64 ``(A, 3)``, in a topological order of the tails: no arc enters the tail of an earlier
            one. Every tail can be reached from ``start``, and so can ``end``.
        vertices: number of vertices.
        start: first vertex.
        end: last vertex.

    Returns:
        1 on the edges of the path and 0 elsewhere, float64 ``(R, E)``.

    >>> triangle = np.array([[0, 1, 0], [0, 2, 1], [1, 2, 2]])
    >>> acyclic_paths(np.array([[-1.0, -3.0, -1.0], [-1.0, 3.0, 1.0]]), triangle, 3, 0, 2).tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    result = np.zeros(scores.shape, np.float64)
    best = np.empty(vertices, np.float64)
    entered_by = np.empty(vertices, np.int64)
    for r in range(len(scores)):
        best[:] = -np.inf
        best[start] = 0.0
        for a in range(len(arcs)):
            reached = best[arcs[a, 0]] + scores[r, arcs[a, 2]]
            if reached > best[arcs[a, 1]]:
                best[arcs[a, 1]], entered_by[arcs[a, 1]] = reached, a
        _mark_path(result[r], arcs, entered_by, start, end)
    return result


@kernel
def cheapest_paths(costs, arcs, first_arc, start, end):
    """Return the cheapest path from ``start`` to ``end``, by Dijkstra's algorithm.

    Among equally cheap paths the choice depends on the costs and the order of the arcs alone.

    Args:
        costs: of the edges, nonnegative, float64 ``(R, E)``.
        arcs: tail, head and edge, int64 ``(A, 3)``, sorted by tail. A path from ``start`` to ``end`` exists.
        first_arc: index of the first arc of each tail, int64 ``(vertices + 1,)``; the last entry is A.
        start: first vertex.
        end: last vertex.

    Returns:
        1 on the edges of the path and 0 elsewhere, float64 ``(R, E)``.

    >>> both_ways = np.array([[0, 1, 0], [0, 2, 1], [1, 0, 0], [1, 2, 2], [2, 0, 1], [2, 1, 2]])
    >>> cheapest_paths(np.array([[1.0, 3.0, 1.0]]), both_ways, np.array([0, 2, 4, 6]), 0, 2).tolist()
    [[1.0, 0.0, 1.0]]
    """
    result = np.zeros(costs.shape, np.float64)
    vertices = len(first_arc) - 1
    distance = np.empty(vertices, np.float64)
    entered_by = np.empty(vertices, np.int64)
    done = np.empty(vertices, np.bool_)
    for r in range(len(costs)):
        distance[:] = np.inf
        done[:] = False
        distance[start] = 0.0
        heap = [(0.0, start)]
        while not done[end]:
            _, vertex = heapq.heappop(heap)
            if done[vertex]:
                continue
            done[vertex] = True
            for a in range(first_arc[vertex], first_arc[vertex + 1]):
                head, reached = arcs[a, 1], distance[vertex] + costs[r, arcs[a, 2]]
                if reached < distance[head]:
                    distance[head], entered_by[head] = reached, a
                    heapq.heappush(heap, (reached, head))
        _mark_path(result[r], arcs, entered_by, start, end)
    return result


@inner_kernel
def _mark_path(psi, arcs, entered_by, start, end):
    """Set ``psi`` to 1 on the edges of the path, followed back from its end."""
    vertex = end
    while vertex != start:
        a = entered_by[vertex]
        psi[arcs[a, 2]] = 1.0
        vertex = arcs[a, 0]
