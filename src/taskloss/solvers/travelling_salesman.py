"""Shortest round trips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskloss import _checks, _solver_checks
from taskloss.kernels.sums import summable_rows
from taskloss.kernels.tours import shortest_tours
from taskloss.solvers.mixed_integer import MixedInteger
from taskloss.solvers.threads import WORK_PER_THREAD, solve_in_threads

METHODS = ("auto", "held_karp", "cutting_planes")
FEW_CITIES = 15
"""Number of cities up to which dynamic programming is the default."""
MOST_CITIES = 25
"""Number of cities up to which dynamic programming is possible: there it takes 3.6 GB."""


@dataclass(frozen=True)
class TravellingSalesman:
    """The cheapest round trip through all cities, ``scores = -costs`` of the edges; psi is 1 on the edges of the tour.

    Symmetric: an edge is a pair of cities ``i < j``. The scores, of any sign, are in the order of :attr:`edges`, which is that of
    ``itertools.combinations(range(cities), 2)``.

    Args:
        cities: number of cities, at least 3.
        method: ``"held_karp"``: dynamic programming over subsets, O(2^n n^2). ``"cutting_planes"``: a mixed-integer program in
            which every city has two edges; while its solution falls apart into several tours, the constraints that forbid them
            (Dantzig, Fulkerson and Johnson 1954) are added and it is solved again. ``"auto"``: the first up to 15 cities, the
            second beyond.

    >>> solver = TravellingSalesman(4)
    >>> solver.edges.tolist()
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    >>> solver(-np.array([1.0, 9.0, 1.0, 1.0, 9.0, 1.0]))
    array([1., 0., 1., 1., 0., 1.])
    """

    cities: int
    method: str = "auto"

    def __post_init__(self) -> None:
        _solver_checks.check_cities(self.cities)
        _checks.check_choice("method", self.method, METHODS)
        if self.method == "held_karp" and self.cities > MOST_CITIES:
            raise ValueError(
                f"method='held_karp' needs memory for 2^{self.cities - 1} subsets of the {self.cities} cities; it is for up to "
                f"{MOST_CITIES}. Use method='cutting_planes'"
            )

    @property
    def edges(self) -> np.ndarray:
        """Pairs of cities, int64 ``(cities (cities - 1) / 2, 2)``."""
        return np.column_stack(np.triu_indices(self.cities, 1))

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, ``(..., cities (cities - 1) / 2)``."""
        rows = summable_rows(_solver_checks.as_score_rows(scores, self.cities * (self.cities - 1) // 2, "pair of cities"))
        if self.method == "held_karp" or (self.method == "auto" and self.cities <= FEW_CITIES):
            psi = solve_in_threads(self._by_subsets, rows, 2.0**self.cities * self.cities**2)
        else:
            psi = solve_in_threads(self._by_cuts, rows, WORK_PER_THREAD)
        return psi.reshape(np.shape(scores))

    def _by_subsets(self, scores: np.ndarray) -> np.ndarray:
        pairs = self.edges
        costs = np.zeros((len(scores), self.cities, self.cities))
        costs[:, pairs[:, 0], pairs[:, 1]] = costs[:, pairs[:, 1], pairs[:, 0]] = -scores
        tours = shortest_tours(costs)
        chosen = np.zeros(costs.shape)
        instances = np.arange(len(scores))[:, None]
        chosen[instances, tours, np.roll(tours, -1, axis=1)] = 1.0
        return (chosen + chosen.transpose(0, 2, 1))[:, pairs[:, 0], pairs[:, 1]]

    def _by_cuts(self, scores: np.ndarray) -> np.ndarray:
        return np.stack([self._tour_by_cuts(row) for row in scores]) if len(scores) else np.zeros(scores.shape)

    def _tour_by_cuts(self, scores: np.ndarray) -> np.ndarray:
        pairs = self.edges
        degrees = (pairs[:, :1] == np.arange(self.cities)).astype(float) + (pairs[:, 1:] == np.arange(self.cities))
        cuts: list[np.ndarray] = []
        sizes: list[float] = []
        while True:
            matrix, rhs = (np.array(cuts), np.array(sizes)) if cuts else (None, None)
            program = MixedInteger(matrix, rhs, degrees.T, np.full(self.cities, 2.0))
            psi = program.solve_rows(scores[None])[0]
            parts = _tours(pairs[psi > 0.5], self.cities)
            if len(parts) == 1:
                return psi
            for part in parts:
                cuts.append(np.isin(pairs, part).all(axis=1).astype(float))
                sizes.append(len(part) - 1.0)


def _tours(edges: np.ndarray, cities: int) -> list[list[int]]:
    """Return the cities of each tour, if every city has two edges."""
    neighbours: list[list[int]] = [[] for _ in range(cities)]
    for i, j in edges.tolist():
        neighbours[i].append(j)
        neighbours[j].append(i)
    seen: set[int] = set()
    tours = []
    for city in range(cities):
        tour, waiting = [], [city]
        while waiting:
            other = waiting.pop()
            if other not in seen:
                seen.add(other)
                tour.append(other)
                waiting += neighbours[other]
        if tour:
            tours.append(tour)
    return tours
