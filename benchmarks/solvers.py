"""Times of the solvers for structured losses, beside HiGHS on the same instances.

    python -m benchmarks.solvers

CPU milliseconds per instance in one thread, on random instances, compilation excluded; HiGHS solves a few instances of each batch
through ``scipy.optimize.milp``, and both must find the same optimum. The last row is wall time in one thread and in two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.measure import median_time, one_thread

from taskloss import solvers
from taskloss.lp import FeasibleSet, LinearProgram

Solver = Callable[[np.ndarray], np.ndarray]


class Case(NamedTuple):
    """A solver, a batch of scores, and the same problem for HiGHS (None if there is no short program for it)."""

    name: str
    size: str
    solver: Solver
    scores: np.ndarray
    highs: Solver | None


def flow(edges: np.ndarray) -> solvers.MixedInteger:
    """Return the paths from the first vertex to the last as a mixed-integer program."""
    vertices = int(edges.max()) + 1
    matrix = np.zeros((vertices, len(edges)))
    matrix[edges[:, 0], np.arange(len(edges))] = 1.0
    matrix[edges[:, 1], np.arange(len(edges))] -= 1.0
    supply = np.zeros(vertices)
    supply[0], supply[-1] = 1.0, -1.0
    return solvers.MixedInteger(A_eq=matrix, b_eq=supply)


def path_cases(rng: np.random.Generator) -> list[Case]:
    """Return grids and a road network."""
    small, large = solvers.grid_edges(5, 5), solvers.grid_edges(30, 30)
    roads = np.concatenate([large, large[:, ::-1]])
    return [
        Case("`ShortestPath`, acyclic", "grid 5 x 5, 40 edges", solvers.ShortestPath(small), -rng.random((500, 40)), flow(small)),
        Case(
            "`ShortestPath`, acyclic",
            "grid 30 x 30, 1,740 edges",
            solvers.ShortestPath(large),
            -rng.random((100, len(large))),
            flow(large),
        ),
        Case(
            "`ShortestPath`, cyclic",
            "the same both ways, 3,480 edges",
            solvers.ShortestPath(roads),
            -rng.random((100, len(roads))),
            flow(roads),
        ),
        Case("`GridShortestPath`", "12 x 12 vertices", solvers.GridShortestPath(), -rng.random((100, 12, 12)), None),
    ]


def knapsack_cases(rng: np.random.Generator) -> list[Case]:
    """Return knapsacks with scores that are independent of the weights, and close to them (the hard case)."""
    cases = []
    for capacities, items in ((1, 48), (2, 32), (3, 60), (5, 40)):
        weights = rng.integers(300, 800, (capacities, items)) / 100.0
        capacity = 0.4 * weights.sum(axis=1)
        highs = solvers.Knapsack(weights, capacity, method="highs")
        size = f"{items} items, {capacities} capacit{'y' if capacities == 1 else 'ies'}"
        solver = solvers.Knapsack(weights, capacity)
        cases.append(Case("`Knapsack`", size, solver, 10.0 * rng.random((200, items)), highs))
        if capacities > 1:
            close = weights.mean(axis=0) + rng.random((20, items))
            cases.append(Case("`Knapsack`", f"{size}, scores near weights", solver, close, highs))
    whole = rng.integers(3, 30, 48)
    table = solvers.Knapsack(whole, 200)
    highs = solvers.Knapsack(whole, 200, method="highs")
    cases.append(Case("`Knapsack`, whole weights", "48 items, capacity 200", table, 10.0 * rng.random((200, 48)), highs))
    relaxed = solvers.Knapsack(weights, capacity, relaxed=True)
    linear = solvers.MixedInteger(A_ub=weights, b_ub=capacity, integrality=False)
    cases.append(Case("`Knapsack(relaxed=True)`", "40 items, 5 capacities", relaxed, 10.0 * rng.random((200, 40)), linear))
    tensors = {"A_ub": torch.tensor(weights), "b_ub": torch.tensor(capacity), "lower": 0.0, "upper": 1.0}
    feasible = FeasibleSet(LinearProgram(torch.zeros(40, dtype=torch.float64), **tensors))
    cases.append(Case("`tl.lp.FeasibleSet`", "the same as a program", feasible, 10.0 * rng.random((200, 40)), linear))
    return cases


def other_cases(rng: np.random.Generator) -> list[Case]:
    """Return round trips, matchings and the best items."""
    cases = []
    for cities, count in ((10, 50), (15, 10), (20, 5)):
        solver = solvers.TravellingSalesman(cities)
        points = rng.random((count, cities, 2))
        lengths = np.linalg.norm(points[:, solver.edges[:, 0]] - points[:, solver.edges[:, 1]], axis=-1)
        cuts = solvers.TravellingSalesman(cities, "cutting_planes") if cities <= 15 else None
        cases.append(Case("`TravellingSalesman`", f"{cities} cities", solver, -lengths, cuts))
    cases.append(Case("`Assignment`", "20 x 20", solvers.Assignment(), rng.random((100, 20, 20)), None))
    cases.append(Case("`TopK(5)`", "100 items", solvers.TopK(5), rng.random((500, 100)), None))
    return cases


def measure(case: Case, compared: int) -> str:
    """Return the row of a case."""
    psi = case.solver(case.scores)
    ours = median_time(lambda: case.solver(case.scores), 3, time.process_time) / len(case.scores)
    theirs = ""
    if case.highs is not None:
        some = case.scores[:compared]
        start = time.process_time()
        best = case.highs(some)
        theirs = f"{1e3 * (time.process_time() - start) / len(some):.2g}"
        difference = np.abs((some * (best - psi[:compared])).sum(axis=-1)).max()
        assert difference <= 1e-5 * np.abs(some).sum(axis=-1).max(), (case.name, difference)
    return f"| {case.name} | {case.size} | {len(case.scores)} | {1e3 * ours:.2g} | {theirs} |"


def thread_row(rng: np.random.Generator) -> str:
    """Return the wall time of a batch of mixed-integer programs in one thread and in two."""
    weights = rng.integers(300, 800, (2, 32)) / 100.0
    solver = solvers.MixedInteger(A_ub=weights, b_ub=0.4 * weights.sum(axis=1))
    scores = 10.0 * rng.random((24, 32))
    times = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        times.append(median_time(lambda: solver(scores), 3) / len(scores))
    return (
        f"threads: `MixedInteger`, 24 knapsacks of 32 items: {1e3 * times[0]:.0f} ms each in one, {1e3 * times[1]:.0f} ms in two"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compared", type=int, default=5, help="instances that HiGHS solves of each batch")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| solver | instance | batch | CPU ms per instance | HiGHS |\n|---|---|---|---|---|")
    with one_thread():
        for case in [*path_cases(rng), *knapsack_cases(rng), *other_cases(rng)]:
            print(measure(case, arguments.compared), flush=True)
        print(thread_row(rng))


if __name__ == "__main__":
    main()
