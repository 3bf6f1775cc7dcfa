r"""The map from a table to the input of a network.

With ``"quantile"``, each column gets a normal distribution by way of its quantiles in the training rows, whatever its units and
tails:

.. math:: z = \Phi^{-1}(\hat F(x)),

where :math:`\hat F` is the empirical distribution function, linear between at most 1,000 quantiles and taken in the middle of its
jumps; z is clipped at the z of :math:`\hat F = 10^{-7}`. ``"standard"`` gives mean 0 and standard deviation 1, clipped at 100.
``"none"`` leaves a column unchanged.

A missing value (NaN) becomes 0, the middle of its column. Each column with missing values in training also gets an indicator
column that tells where they are. Columns that are constant in training become 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from taskloss import _checks

SCALINGS = ("quantile", "standard", "none")
MAX_QUANTILES = 1000
EDGE = 1e-7
"""Smallest share, and distance of the largest share from 1, that is mapped to a normal quantile."""
MAX_DEVIATIONS = 100.0
"""Standard deviations at which ``"standard"`` clips: a value farther out tells no more than that it is an outlier."""
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class FeatureMap:
    """A map from tables ``(n, d)`` to float32 features ``(n, width)``, fitted to the training rows."""

    scaling: str
    knots: np.ndarray
    """The quantiles of each column, or its mean and standard deviation, shape ``(q, d)``."""
    varies: np.ndarray
    """Mask of the columns that were not constant, shape ``(d,)``."""
    gaps: np.ndarray
    """Mask of the columns that had missing values, shape ``(d,)``."""

    @classmethod
    def fit(cls, table: np.ndarray, scaling: str) -> FeatureMap:
        """Fit to float64 rows ``(n, d)`` without infinities."""
        _checks.check_choice("scaling", scaling, SCALINGS)
        missing = np.isnan(table)
        known = ~missing.all(0)
        filled = np.where(known, table, 0.0)
        if scaling == "quantile":
            # Small tables use every value as a quantile.
            levels = np.linspace(0.0, 1.0, max(2, min(MAX_QUANTILES, len(table))))
            quantile = np.nanquantile if missing.any() else np.quantile
            knots = np.maximum.accumulate(quantile(filled, levels, axis=0), axis=0)
        elif scaling == "standard":
            knots = np.stack([np.nanmean(filled, axis=0), np.nanstd(filled, axis=0)])
        else:
            knots = np.zeros((0, table.shape[1]))
        varies = np.nanmin(filled, axis=0) < np.nanmax(filled, axis=0)
        if scaling == "standard":
            varies &= knots[1] > np.finfo(np.float64).tiny
        return cls(scaling, knots, varies, missing.any(0) & known)

    @property
    def width(self) -> int:
        """Number of columns of the result."""
        return len(self.varies) + int(self.gaps.sum())

    def transform(self, table: np.ndarray) -> Tensor:
        """Return the features of float64 rows ``(n, d)``, float32 of shape ``(n, width)``."""
        missing = np.isnan(table)
        result = np.zeros((len(table), self.width), np.float32)
        for column in np.flatnonzero(self.varies):
            result[:, column] = self._scale(table[:, column], self.knots[:, column])
        result[:, : len(self.varies)][missing] = 0.0
        result[:, len(self.varies) :] = missing[:, self.gaps]
        return torch.from_numpy(result)

    def _scale(self, values: np.ndarray, knots: np.ndarray) -> np.ndarray:
        if self.scaling == "none":
            return values.clip(-FLOAT32_MAX, FLOAT32_MAX)
        if self.scaling == "standard":
            return ((values - knots[0]) / knots[1]).clip(-MAX_DEVIATIONS, MAX_DEVIATIONS)
        levels = np.linspace(0.0, 1.0, len(knots))
        # Among equal knots, interpolation takes the last; on the negated values it takes the first. The mean of both is the
        # middle of the jump.
        share = (np.interp(values, knots, levels) - np.interp(-values, -knots[::-1], -levels[::-1])) / 2
        return ndtri(np.clip(share, EDGE, 1.0 - EDGE))

    def tensors(self) -> dict[str, Tensor]:
        """Return the fitted arrays by name, for a file."""
        arrays = {"knots": self.knots, "varies": self.varies, "gaps": self.gaps}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    @classmethod
    def from_tensors(cls, scaling: str, tensors: Mapping[str, Any]) -> FeatureMap:
        """Return the map whose :meth:`tensors` these are."""
        return cls(scaling, *(tensors[name].numpy() for name in ("knots", "varies", "gaps")))
