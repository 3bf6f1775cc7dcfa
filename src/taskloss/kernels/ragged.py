"""Ragged arrays: rows of different lengths, one after another in a flat array."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK_CELLS = 2**18
"""The most values that a caller's function is asked for in one call, unless a single row has more."""


def index_in_row(lengths: np.ndarray) -> np.ndarray:
    """Return the index of each element within its row, from 0.

    >>> index_in_row(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def blocks(lengths: np.ndarray, cells: int | None = None) -> Iterator[slice]:
    """Yield slices of consecutive rows, each of at most ``cells`` (:data:`BLOCK_CELLS`) elements or of a single row.

    >>> list(blocks(np.array([2, 1, 3, 9, 1]), cells=4))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    cells = BLOCK_CELLS if cells is None else cells
    ends = np.cumsum(lengths)
    first = done = 0
    while first < len(lengths):
        last = max(int(np.searchsorted(ends, done + cells, side="right")), first + 1)
        yield slice(first, last)
        first, done = last, int(ends[last - 1])
