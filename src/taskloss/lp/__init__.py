"""Linear programs in the network: a solver, and a layer with gradients in all of the data."""

from taskloss.lp.layer import LPLayer, differentiable_solve
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import ActiveSet, Solution, Status
from taskloss.lp.solver import solve
from taskloss.lp.sparse import SparseMatrix

__all__ = ["ActiveSet", "LPLayer", "LinearProgram", "Solution", "SparseMatrix", "Status", "differentiable_solve", "solve"]
