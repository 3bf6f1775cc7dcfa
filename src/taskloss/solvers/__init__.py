"""Solvers for :class:`taskloss.Structured`: each maximizes ``<scores, psi>`` over its structures, one file per problem.

All take one instance or any leading batch axes, so they work with ``batched=True`` and without; they are immutable, and equal
settings compare equal. (:class:`CachedSolver` alone has a state, its pool.) They import the kernels and the checks.
"""

from taskloss.solvers.assignment import Assignment
from taskloss.solvers.cache import CachedSolver
from taskloss.solvers.graph_path import ShortestPath, grid_edges
from taskloss.solvers.grid_paths import GridShortestPath, MonotoneGridPath
from taskloss.solvers.knapsack import Knapsack
from taskloss.solvers.mixed_integer import MixedInteger
from taskloss.solvers.top_k import TopK
from taskloss.solvers.travelling_salesman import TravellingSalesman

__all__ = [
    "Assignment",
    "CachedSolver",
    "GridShortestPath",
    "Knapsack",
    "MixedInteger",
    "MonotoneGridPath",
    "ShortestPath",
    "TopK",
    "TravellingSalesman",
    "grid_edges",
]
