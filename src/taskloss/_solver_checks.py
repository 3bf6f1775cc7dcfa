"""Checks of the data of solvers (graphs, knapsacks, mixed-integer programs) and their messages; no mathematics."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskloss._checks import check_finite, first_index
from taskloss._output_checks import CLIP_COSTS, COSTS_ABOVE_ZERO


def as_score_rows(scores: Any, length: int | None, meaning: str) -> np.ndarray:
    """Return scores ``(..., n)`` as finite float64 rows ``(R, n)``; ``meaning`` says what one score belongs to."""
    array = np.asarray(scores, np.float64)
    if array.ndim == 0 or array.shape[-1] == 0 or (length is not None and array.shape[-1] != length):
        expected = "at least one" if length is None else str(length)
        raise ValueError(f"scores has shape {array.shape}; expected {expected} along the last axis, one score per {meaning}")
    check_finite(array, None)
    return np.ascontiguousarray(array).reshape(-1, array.shape[-1])


def as_edges(edges: Any) -> np.ndarray:
    """Return the edges of a graph, pairs of vertices counted from 0, as a read-only int64 array ``(E, 2)``."""
    array = np.asarray(edges)
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise ValueError(f"edges has shape {array.shape}; expected one pair of vertices (tail, head) per edge, shape (E, 2)")
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"edges must be integers, got {array.dtype}; number the vertices from 0")
    if array.min() < 0:
        index, text = first_index(array < 0)
        raise ValueError(f"edges[{text}] is {array[index]}; expected vertices numbered from 0")
    return read_only(array.astype(np.int64))


def as_graph_vertex(name: str, vertex: Any, vertices: int) -> int:
    """Return a vertex counted from the front, if the graph has it."""
    if isinstance(vertex, bool) or not isinstance(vertex, (int, np.integer)) or not -vertices <= vertex < vertices:
        raise ValueError(f"{name}={vertex!r} is no vertex of this graph; its edges name the vertices 0 to {vertices - 1}")
    return int(vertex) % vertices


def check_path_exists(exists: bool, start: int, end: int) -> None:
    """Raise if there is no path of at least one edge."""
    if start == end:
        raise ValueError(f"start and end are both vertex {start}; expected two different vertices")
    if not exists:
        raise ValueError(
            f"no path leads from vertex {start} to vertex {end}; add edges, or set directed=False if they go both ways"
        )


def check_edge_costs(costs: np.ndarray) -> None:
    """Check that costs of edges are at least zero, as Dijkstra's algorithm needs them."""
    bad = costs < 0
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(
            f"the cost at [{text}] is {costs[index]}: in a graph with cycles, shortest paths need costs (minus the scores) of at "
            f"least zero. {COSTS_ABOVE_ZERO}; or leave out the edges that close cycles; {CLIP_COSTS}"
        )


def as_weights(weights: Any) -> np.ndarray:
    """Return the weights of items, one row per capacity, as a read-only float64 array ``(m, n)``."""
    array = np.asarray(weights, np.float64)
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise ValueError(f"weights has shape {array.shape}; expected (items,), or (capacities, items) for several capacities")
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(f"weights[{text}] is {array[index]}; expected finite weights of at least zero")
    return read_only(array.reshape(-1, array.shape[-1]))


def as_capacity(name: str, value: Any, capacities: int, *, finite: bool = True) -> np.ndarray:
    """Return one number of at least zero per capacity, float64 ``(m,)``, read only."""
    array = np.asarray(value, np.float64)
    if array.ndim > 1 or array.size not in (1, capacities):
        raise ValueError(f"{name} has shape {array.shape}; expected a number, or one for each of the {capacities} capacities")
    if np.isnan(array).any() or (array < 0).any() or (finite and np.isinf(array).any()):
        raise ValueError(f"{name} is {value!r}; expected {'finite ' if finite else ''}numbers of at least zero")
    return read_only(np.broadcast_to(array.reshape(-1), (capacities,)).copy())


def as_rhs(name: str, value: Any, rows: int) -> np.ndarray:
    """Return the right-hand side of ``rows`` constraints, float64, read only."""
    array = np.asarray(value, np.float64)
    if array.shape != (rows,):
        matrix = name.replace("b", "A", 1)
        raise ValueError(f"{name} has shape {array.shape} and {matrix} has {rows} rows; expected one number per row, ({rows},)")
    if np.isnan(array).any():
        raise ValueError(f"{name} contains NaN; expected numbers")
    return read_only(array)


def as_per_variable(name: str, value: Any, variables: int | None) -> np.ndarray:
    """Return a number, or one per variable, as a read-only float64 array ``()`` or ``(n,)``."""
    array = np.asarray(value, np.float64)
    if array.ndim > 1 or (array.ndim == 1 and variables is not None and len(array) != variables):
        expected = "one per variable" if variables is None else f"one for each of the {variables} variables"
        raise ValueError(f"{name} has shape {array.shape}; expected a number, or {expected}")
    if np.isnan(array).any():
        raise ValueError(f"{name} contains NaN; expected numbers")
    return read_only(array)


def check_same_columns(sizes: dict[str, int]) -> int | None:
    """Return the number of variables, if all data that tell it agree; None if nothing tells."""
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(f"the numbers of variables differ: {listed}; expected one column, bound or flag per variable")
    return next(iter(sizes.values()), None)


def check_flags(name: str, flags: np.ndarray) -> None:
    """Check that flags are 0 or 1: other numbers have meanings of their own in ``scipy.optimize.milp``."""
    bad = (flags != 0) & (flags != 1)
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(f"{name}{f'[{text}]' if text else ''} is {flags[index]}; expected True or False")


def check_auxiliary(auxiliary: int, variables: int | None) -> None:
    """Check that some variables have a score."""
    if variables is not None and auxiliary >= variables:
        raise ValueError(f"auxiliary={auxiliary} of the {variables} variables have no score; expected at least one that has")


def check_given_together(matrix_name: str, matrix: Any, rhs_name: str, rhs: Any) -> None:
    """Check that a matrix and its right-hand side are both there or both left out."""
    if (matrix is None) != (rhs is None):
        given, missing = (rhs_name, matrix_name) if matrix is None else (matrix_name, rhs_name)
        raise ValueError(f"{given} was given without {missing}; give both or none")


def check_integer_program(status: int, instance: int, message: str) -> None:
    """Raise if ``scipy.optimize.milp`` ended with another status than optimal."""
    if status == 0:
        return
    if "unbounded" in message:
        status = 3
    elif "Model error" in message:
        status = 4
    advice = {
        1: "The limit of time was reached before a solution was proved to be the best: raise time_limit, or relative_gap",
        2: "No point satisfies all the constraints: check the constraints and the bounds, lower=0 and upper=1 by default",
        3: "The scores can grow without bound: give the variables bounds (lower, upper)",
    }.get(status, "HiGHS failed: bring the data to comparable scales")
    raise ValueError(f"the mixed-integer program of instance {instance} was not solved ({message}). {advice}")


def check_cities(cities: Any) -> int:
    """Return the number of cities if a tour has an edge for each pair of neighbours."""
    if isinstance(cities, bool) or not isinstance(cities, (int, np.integer)) or cities < 3:
        raise ValueError(f"cities must be a whole number of at least 3, got {cities!r}")
    return int(cities)


def check_ratio(name: str, value: Any) -> float:
    """Return a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0.0 <= float(value) <= 1.0:
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
    return float(value)


def check_packed_knapsacks(name: str, packed: np.ndarray) -> None:
    """Check values, weights and capacities in one array ``(..., 1 + m, n + 1)``."""
    if packed.ndim < 3 or packed.shape[-2] < 2 or packed.shape[-1] < 2:
        raise ValueError(
            f"{name} has shape {packed.shape}; expected (batch, 1 + capacities, items + 1), as PricedKnapsack.pack gives it"
        )
    bad = ~np.isfinite(packed)
    bad[..., 1:, :] |= packed[..., 1:, :] < 0
    if bad.any():
        index, text = first_index(bad)
        raise ValueError(
            f"{name}[{text}] is {packed[index]}; expected finite numbers, and weights and capacities (all rows but the first) "
            "of at least zero: let the network give softplus(output)"
        )


def check_searched(complete: np.ndarray) -> None:
    """Raise if the branch and bound of a knapsack reached its limit."""
    if not complete.all():
        raise ValueError(
            f"the knapsack of instance {int(complete.argmin())} is too hard for branch and bound; use fewer items or capacities"
        )


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a copy of an array that cannot be written to."""
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy
