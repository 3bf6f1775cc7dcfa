"""The k best items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskloss import _checks, _solver_checks


@dataclass(frozen=True)
class TopK:
    """The k items of the highest scores; psi is 1 on them. Scores of any sign; of equal scores the first ones are taken.

    Args:
        k: number of items, always taken in full.

    >>> TopK(2)(np.array([0.3, -1.0, 2.0]))
    array([1., 0., 1.])
    """

    k: int

    def __post_init__(self) -> None:
        _checks.check_count("k", self.k)

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, ``(..., n)``."""
        rows = _solver_checks.as_score_rows(scores, None, "item")
        if self.k > rows.shape[-1]:
            raise ValueError(f"k={self.k} items were asked for, but scores has {rows.shape[-1]} along its last axis")
        psi = np.zeros(rows.shape)
        np.put_along_axis(psi, np.argsort(-rows, axis=-1, kind="stable")[:, : self.k], 1.0, axis=-1)
        return psi.reshape(np.shape(scores))
