"""Knapsacks with one capacity or several."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskloss import _checks, _solver_checks
from taskloss.kernels.box_simplex import maximize_in_boxes
from taskloss.kernels.knapsack import fractional_knapsacks, integer_knapsacks
from taskloss.kernels.priced_knapsack import best_subsets
from taskloss.kernels.sums import summable_rows
from taskloss.solvers.by_value import ByValue
from taskloss.solvers.mixed_integer import MixedInteger
from taskloss.solvers.threads import solve_in_threads

METHODS = ("auto", "dynamic_programming", "branch_and_bound", "highs")
SMALL_TABLE = 100_000
"""Cells of dynamic programming, a tenth of a millisecond, up to which it is the default."""
NODE_LIMIT = 10_000_000
"""Nodes of branch and bound, half a second, after which HiGHS takes over."""


@dataclass(frozen=True, eq=False)
class Knapsack(ByValue):
    """The items of highest total score whose weights fit the capacity, or each of several; psi is 1 on them.

    Scores of any sign: an item with a score of zero or less is left out. The solution is exact; a load may exceed its capacity
    by a relative 1e-9, for rounding.

    Args:
        weights: at least zero, ``(n,)``, or ``(m, n)`` for m capacities.
        capacity: at least zero, a number or ``(m,)``.
        relaxed: whether fractions of items may be taken: the linear relaxation, solved exactly by efficiency for one capacity,
            by the simplex method for several.
        method: ``"dynamic_programming"``: over the load of one capacity, for whole weights, O(n capacity) per instance.
            ``"branch_and_bound"``: depth first with the bound of a surrogate knapsack (:mod:`taskloss.kernels.priced_knapsack`),
            microseconds for most instances, but exponential for the worst ones. ``"highs"``: :class:`MixedInteger`. ``"auto"``:
            dynamic programming if its table is small, else branch and bound, and HiGHS for instances with more than ten million
            nodes.

    >>> Knapsack([2.0, 3.0, 4.0], 6.0)(np.array([3.0, 4.0, 5.0]))
    array([1., 0., 1.])
    >>> Knapsack([[2.0, 3.0, 4.0], [1.0, 1.0, 9.0]], [6.0, 5.0])(np.array([3.0, 4.0, 5.0]))
    array([1., 1., 0.])
    >>> Knapsack([2.0, 3.0, 4.0], 6.0, relaxed=True)(np.array([3.0, 4.0, 5.0]))
    array([1.  , 1.  , 0.25])
    """

    weights: Any
    capacity: Any
    relaxed: bool = False
    method: str = "auto"

    def __post_init__(self) -> None:
        weights = _solver_checks.as_weights(self.weights)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "capacity", _solver_checks.as_capacity("capacity", self.capacity, len(weights)))
        _checks.check_flag("relaxed", self.relaxed)
        _checks.check_choice("method", self.method, METHODS)
        if self.relaxed and self.method != "auto":
            raise ValueError(f"method={self.method!r} is for whole items; leave it out with relaxed=True")
        if self.method == "dynamic_programming" and not self._has_table():
            raise ValueError(
                "dynamic programming needs whole weights of at most 2^53 and one capacity; multiply the weights and the capacity "
                "by a power of ten that makes them whole, or use method='branch_and_bound'"
            )

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, ``(..., n)``."""
        rows = summable_rows(_solver_checks.as_score_rows(scores, self.weights.shape[1], "item"))
        if self.relaxed:
            psi = self._fractions(rows)
        elif self.method == "highs":
            psi = self._by_highs(rows)
        elif self.method == "dynamic_programming" or (self.method == "auto" and self._table_cells() <= SMALL_TABLE):
            psi = self._by_table(rows)
        else:
            psi = solve_in_threads(self._by_search, rows, 1000.0 * self.weights.size)
            unfinished = np.isnan(psi[:, 0])
            if unfinished.any():
                psi[unfinished] = self._by_highs(rows[unfinished])
        return psi.reshape(np.shape(scores))

    def _fractions(self, scores: np.ndarray) -> np.ndarray:
        if len(self.weights) == 1:
            return fractional_knapsacks(scores, self.weights[0], self.capacity[0])
        # In units of the largest fraction that fits alone, no item is heavier than a capacity: the weights of a row then differ
        # from it by no more than the tolerances of the simplex method allow.
        with np.errstate(divide="ignore", over="ignore"):
            ratios = np.divide(self.weights, self.capacity[:, None], out=np.zeros(self.weights.shape), where=self.weights > 0.0)
        parts = np.maximum(ratios.max(axis=0), 1.0)
        matrix, rhs = self._scaled_rows(self.weights / parts, 0)
        upper = np.ones(len(parts))
        psi = solve_in_threads(lambda part: maximize_in_boxes(part, matrix, rhs, upper), scores / parts, 100.0 * matrix.size)
        return psi / parts

    def _by_table(self, scores: np.ndarray) -> np.ndarray:
        weights, capacity = self._whole_weights()
        return solve_in_threads(lambda part: integer_knapsacks(part, weights, capacity), scores, self._table_cells())

    def _by_search(self, scores: np.ndarray) -> np.ndarray:
        """Return the best subsets; NaN for instances whose search was not completed."""
        limit = NODE_LIMIT if self.method == "auto" else np.iinfo(np.int64).max
        hard = np.full(len(self.weights), np.inf)
        psi, complete = best_subsets(scores, self.weights[None], self.capacity[None], hard, limit)
        psi[~complete] = np.nan
        return psi

    def _by_highs(self, scores: np.ndarray) -> np.ndarray:
        # HiGHS has an absolute tolerance of 1e-6: weights near a million make it a relative one of 1e-12.
        weights, capacity = self._scaled_rows(self.weights, 20)
        return MixedInteger(A_ub=weights, b_ub=capacity)(scores)

    def _scaled_rows(self, weights: np.ndarray, exponent: int) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and their capacities in units in which the largest weight of each row is at most ``2^exponent``."""
        largest = weights.max(axis=1)
        unit = np.ldexp(1.0, np.minimum(exponent - np.frexp(largest)[1], 1000))
        # No load is larger than this; a larger capacity could overflow.
        capacity = np.minimum(self.capacity, largest * weights.shape[1])
        return weights * unit[:, None], capacity * unit

    def _has_table(self) -> bool:
        return len(self.weights) == 1 and bool((self.weights == np.floor(self.weights)).all() and self.weights.max() <= 2.0**53)

    def _whole_weights(self) -> tuple[np.ndarray, int]:
        """Return the weights and the capacity in units of the greatest common divisor of the weights."""
        unit = max(math.gcd(*self.weights[0].astype(np.int64).tolist()), 1)
        capacity = min(self.capacity[0] * (1.0 + 1e-9), self.weights.sum())
        return self.weights[0].astype(np.int64) // unit, int(capacity // unit)

    def _table_cells(self) -> float:
        return self.weights.shape[1] * (self._whole_weights()[1] + 1.0) if self._has_table() else np.inf
