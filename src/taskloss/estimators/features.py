r"""From a table to the input of a network.

``"quantile"``: each column becomes normal by its quantiles in the training rows, whatever its units and tails,

.. math:: z = \Phi^{-1}(\hat F(x)),

with :math:`\hat F` the empirical distribution function, linear between at most 1,000 quantiles, in the middle of its jumps, and z
cut off at the z of :math:`\hat F = 10^{-7}`. ``"standard"``: mean 0, standard deviation 1, cut off at 100. ``"none"``: as it is.

A missing value (NaN) becomes 0, the middle of its column, and each column that has some in training gets a column beside it
that tells where. Columns that are constant in training become 0.
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
MOST_QUANTILES = 1000
EDGE = 1e-7
FAR_OUT = 100.0
"""Standard deviations: an outlier beyond says no more than that it is one."""
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class FeatureMap:
    """Fitted to the training rows; maps ``(n, d)`` to float32 ``(n, width)``."""

    scaling: str
    knots: np.ndarray
    """``(q, d)``: quantiles, or mean and standard deviation."""
    varies: np.ndarray
    """``(d,)``: the columns that were not constant."""
    gaps: np.ndarray
    """``(d,)``: the columns with missing values."""

    @classmethod
    def fit(cls, table: np.ndarray, scaling: str) -> FeatureMap:
        """Learn the columns of float64 rows without infinities."""
        _checks.check_choice("scaling", scaling, SCALINGS)
        missing = np.isnan(table)
        known = ~missing.all(0)
        filled = np.where(known, table, 0.0)
        if scaling == "quantile":
            # Dense where the data are few: all of them.
            levels = np.linspace(0.0, 1.0, max(2, min(MOST_QUANTILES, len(table))))
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
        """Columns of the result."""
        return len(self.varies) + int(self.gaps.sum())

    def transform(self, table: np.ndarray) -> Tensor:
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
            return ((values - knots[0]) / knots[1]).clip(-FAR_OUT, FAR_OUT)
        levels = np.linspace(0.0, 1.0, len(knots))
        # Of equal knots interpolation takes the last; seen from the other side, the first. Their mean is the middle of the jump.
        share = (np.interp(values, knots, levels) - np.interp(-values, -knots[::-1], -levels[::-1])) / 2
        return ndtri(np.clip(share, EDGE, 1.0 - EDGE))

    def tensors(self) -> dict[str, Tensor]:
        arrays = {"knots": self.knots, "varies": self.varies, "gaps": self.gaps}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    @classmethod
    def from_tensors(cls, scaling: str, tensors: Mapping[str, Any]) -> FeatureMap:
        return cls(scaling, *(tensors[name].numpy() for name in ("knots", "varies", "gaps")))
