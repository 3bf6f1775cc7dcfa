"""The textbook dynamic program for average precision over all P x N cells, as in the paper's figure 2, and a lean form of it.

Independent of the library: it uses neither counts nor one-sidedness nor stable increments. Rows are positives, columns
negatives, both by descending score; ``h(i, j)`` is the best value for the first i positives and j negatives.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True)
def textbook_table(s, t, weight):
    """Return value and counts of ``argmax_y F(y) - weight * AP(y)``; the constant ``weight`` of ``L = 1 - AP`` is left out."""
    P, N = len(s), len(t)
    h = np.full((P + 1, N + 1), -np.inf)
    from_positive = np.zeros((P + 1, N + 1), np.bool_)
    b = np.zeros((P + 1, N + 1))
    g = np.zeros((P + 1, N + 1))
    scale = 1.0 / (P * N)
    for i in range(1, P + 1):
        for j in range(1, N + 1):
            pair = scale * (s[i - 1] - t[j - 1])
            b[i, j] = b[i, j - 1] - pair
            g[i, j] = g[i - 1, j] + pair
    h[0, 0] = 0.0
    for i in range(P + 1):
        for j in range(N + 1):
            if i > 0:
                candidate = h[i - 1, j] - weight / P * i / (i + j) + b[i, j]
                if candidate > h[i, j]:
                    h[i, j] = candidate
                    from_positive[i, j] = True
            if j > 0:
                candidate = h[i, j - 1] + g[i, j]
                if candidate > h[i, j]:
                    h[i, j] = candidate
                    from_positive[i, j] = False
    counts = np.zeros(P, np.int64)
    i, j = P, N
    while i > 0:
        if from_positive[i, j]:
            counts[i - 1] = j
            i -= 1
        else:
            j -= 1
    return h[P, N], counts


@numba.njit(cache=True)
def lean_table(s, t, weight):
    """Return the same by one pass with B, G and h as single rows and one byte per cell for backtracking."""
    P, N = len(s), len(t)
    scale = 1.0 / (P * N)
    h = np.empty(N + 1)
    g = np.zeros(N + 1)
    from_positive = np.zeros((P + 1, N + 1), np.bool_)
    h[:] = 0.0
    for i in range(1, P + 1):
        b = 0.0
        for j in range(N + 1):
            if j > 0:
                pair = scale * (s[i - 1] - t[j - 1])
                b -= pair
                g[j] += pair
            best = h[j] - weight / P * i / (i + j) + b
            positive = True
            if j > 0 and h[j - 1] + g[j] >= best:
                best = h[j - 1] + g[j]
                positive = False
            h[j] = best
            from_positive[i, j] = positive
    counts = np.zeros(P, np.int64)
    i, j = P, N
    while i > 0:
        if from_positive[i, j]:
            counts[i - 1] = j
            i -= 1
        else:
            j -= 1
    return h[N], counts
