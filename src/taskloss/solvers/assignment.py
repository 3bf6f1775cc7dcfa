"""Matchings of rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskloss.solvers.grid_paths import as_grids


@dataclass(frozen=True)
class Assignment:
    """The best one-to-one matching of rows and columns; psi is the (partial) permutation matrix.

    ``scipy.optimize.linear_sum_assignment``, O(m^3) per matrix, scores of any sign. In a rectangular matrix every element of the
    shorter side is matched.

    >>> Assignment()(np.array([[1.0, 2.0], [0.0, 4.0]]))
    array([[1., 0.],
           [0., 1.]])
    """

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, ``(..., m, n)``."""
        # Loaded here: scipy.optimize would add to the time of every ``import taskloss``.
        from scipy.optimize import linear_sum_assignment

        matrices = as_grids(scores)
        result = np.zeros(matrices.shape)
        for matrix, psi in zip(matrices, result, strict=True):
            psi[linear_sum_assignment(matrix, maximize=True)] = 1.0
        return result.reshape(np.shape(scores))
