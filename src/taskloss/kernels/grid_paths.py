"""Best paths through grids of vertex weights, as indicators of the vertices on the path."""

from __future__ import annotations

import heapq

import numpy as np

from taskloss.kernels._numba import kernel

# Right, left, down, up; then the diagonals.
_ROW_STEPS = np.array([0, 0, 1, -1, 1, 1, -1, -1])
_COLUMN_STEPS = np.array([1, -1, 0, 0, 1, -1, 1, -1])


@kernel
def shortest_paths(costs, neighbours, start, end):
    """Return the cheapest path from ``start`` to ``end`` of each grid, by Dijkstra's algorithm.

    The cost of a path is the sum over its vertices, both ends included. Among equally cheap paths the choice depends on the
    costs alone.

    Args:
        costs: of the vertices, nonnegative, float64 ``(R, H, W)``.
        neighbours: 4, or 8 with the diagonals.
        start: row and column of the first vertex.
        end: row and column of the last vertex.

    Returns:
        1 on the vertices of the path and 0 elsewhere, float64 ``(R, H, W)``.

    >>> shortest_paths(np.array([[[1.0, 9.0], [1.0, 1.0]]]), 4, (0, 0), (1, 1))[0].tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    count, height, width = costs.shape
    result = np.zeros((count, height, width), np.float64)
    first, last = start[0] * width + start[1], end[0] * width + end[1]
    for r in range(count):
        distance = np.full(height * width, np.inf)
        parent = np.full(height * width, -1)
        done = np.zeros(height * width, np.bool_)
        distance[first] = costs[r, start[0], start[1]]
        heap = [(distance[first], first)]
        while not done[last]:
            _, vertex = heapq.heappop(heap)
            if done[vertex]:
                continue
            done[vertex] = True
            row, column = vertex // width, vertex % width
            for step in range(neighbours):
                i, j = row + _ROW_STEPS[step], column + _COLUMN_STEPS[step]
                if 0 <= i < height and 0 <= j < width and not done[i * width + j]:
                    other, reached = i * width + j, distance[vertex] + costs[r, i, j]
                    if reached < distance[other]:
                        distance[other], parent[other] = reached, vertex
                        heapq.heappush(heap, (reached, other))
        vertex = last
        while vertex >= 0:
            result[r, vertex // width, vertex % width] = 1.0
            vertex = parent[vertex]
    return result


@kernel
def monotone_paths(scores, diagonal):
    """Return the path of highest total score from the first vertex to the last, moving right, down or (``diagonal``) both.

    By the recursion ``best[i, j] = scores[i, j] + max(best[i - 1, j - 1], best[i - 1, j], best[i, j - 1])``, for scores of any
    sign, float64 ``(R, H, W)``; the result is 1 on the path and 0 elsewhere, of the same shape. Of equally good steps the
    diagonal one is preferred to the vertical one, and that to the horizontal one.

    >>> monotone_paths(np.array([[[0.0, -1.0, 0.0], [0.0, 2.0, 0.0]]]), True)[0].tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    count, height, width = scores.shape
    result = np.zeros((count, height, width), np.float64)
    best = np.empty((height + 1, width + 1), np.float64)
    for r in range(count):
        best[:] = -np.inf
        best[0, 0] = 0.0
        for i in range(1, height + 1):
            for j in range(1, width + 1):
                before = max(best[i - 1, j], best[i, j - 1])
                # Without diagonal steps, only the first vertex is entered from the corner cell, whose value is 0.
                if diagonal or (i == 1 and j == 1):
                    before = max(before, best[i - 1, j - 1])
                best[i, j] = scores[r, i - 1, j - 1] + before
            best[0, 0] = -np.inf
        i, j = height, width
        result[r, i - 1, j - 1] = 1.0
        while i > 1 or j > 1:
            straight = max(best[i - 1, j], best[i, j - 1])
            if diagonal and i > 1 and j > 1 and best[i - 1, j - 1] >= straight:
                i, j = i - 1, j - 1
            elif best[i - 1, j] == straight:
                i -= 1
            else:
                j -= 1
            result[r, i - 1, j - 1] = 1.0
    return result
