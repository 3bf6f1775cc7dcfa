"""Shortest tours by dynamic programming."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import kernel


@kernel
def shortest_tours(costs):
    """Return the shortest round trip through all cities, by dynamic programming over subsets; costs of any sign.

    Bellman 1962; Held and Karp 1962. ``best[S, j]`` is the length of the shortest path that starts in the last city, visits the
    subset S of the others and ends in j, one of them: O(2^n n^2) steps and O(2^n n) memory for n + 1 cities.

    Args:
        costs: from city to city, float64 ``(R, n + 1, n + 1)``; the diagonal is not read.

    Returns:
        The cities in the order of the tour, int64 ``(R, n + 1)``, the last city first.

    >>> square = np.array([[0.0, 1.0, 2.0, 1.0], [1.0, 0.0, 1.0, 2.0], [2.0, 1.0, 0.0, 1.0], [1.0, 2.0, 1.0, 0.0]])
    >>> shortest_tours(square[None])[0].tolist()
    [3, 2, 1, 0]
    """
    n = costs.shape[1] - 1
    subsets = 1 << n
    best = np.empty((subsets, n), np.float64)
    before = np.empty((subsets, n), np.int8)
    result = np.empty((len(costs), n + 1), np.int64)
    for r in range(len(costs)):
        length = costs[r]
        for subset in range(1, subsets):
            for j in range(n):
                if not subset >> j & 1:
                    continue
                rest = subset ^ (1 << j)
                shortest, last = length[n, j], -1
                if rest:
                    shortest = np.inf
                    for i in range(n):
                        if rest >> i & 1 and best[rest, i] + length[i, j] < shortest:
                            shortest, last = best[rest, i] + length[i, j], i
                best[subset, j], before[subset, j] = shortest, last
        subset, city, shortest = subsets - 1, -1, np.inf
        for j in range(n):
            if best[subset, j] + length[j, n] < shortest:
                city, shortest = j, best[subset, j] + length[j, n]
        result[r, 0] = n
        for k in range(n, 0, -1):
            result[r, k] = city
            subset, city = subset ^ (1 << city), before[subset, city]
    return result
