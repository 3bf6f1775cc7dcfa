"""HiGHS as a second engine: it supplies a pair for one program, which then passes the same checks as any other.

HiGHS (Huangfu and Hall 2018) comes with scipy. Its presolve and its factorization of normal equations make it faster than the
interior-point method of this package on single programs with much fill, and it fails on other programs than that one does. Only x
and the multipliers are taken from it. Certificates of infeasible and unbounded programs are sought by our own methods.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.sparse

from taskloss.lp.interior_point.data import ProgramData

OPTIONS = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
"""Finer than the default of 1e-7, at which the basis may not yet be the optimal one."""

METHODS = ("highs-ipm", "highs-ds")
"""The interior-point method with a crossover to a vertex, the faster one on large programs; else the dual simplex method."""
OPTIMAL, INFEASIBLE, UNBOUNDED = 0, 2, 3
"""Values of ``status`` of ``scipy.optimize.linprog``."""


def highs_pair(program: ProgramData) -> tuple[np.ndarray, np.ndarray] | None:
    """Return x ``(n,)`` and the multipliers ``(m + n,)`` of an optimal vertex of one linear program; None if HiGHS finds none.

    scipy gives the derivative of the optimal value in each right-hand side and bound: the multiplier with the opposite sign.
    """
    sparsity, m, n = program.sparsity, program.num_rows, len(program.cost)
    matrix = scipy.sparse.csr_array((program.entries, sparsity.columns, sparsity.row_start), shape=(m, n))
    lower, upper = program.lower[:m], program.upper[:m]
    equal = np.flatnonzero(lower == upper)
    above = np.flatnonzero((lower < upper) & (upper < np.inf))
    below = np.flatnonzero((lower < upper) & (lower > -np.inf))
    arguments = {
        "A_ub": scipy.sparse.vstack([matrix[above], -matrix[below]], format="csr"),
        "b_ub": np.concatenate([upper[above], -lower[below]]),
        "A_eq": matrix[equal],
        "b_eq": upper[equal],
        "bounds": np.column_stack([program.lower[m:], program.upper[m:]]),
        "options": OPTIONS,
    }
    for method in METHODS:
        solution = scipy.optimize.linprog(program.cost, method=method, **arguments)
        if solution.status in (INFEASIBLE, UNBOUNDED):
            return None
        if solution.status == OPTIMAL:
            break
    else:
        return None
    multipliers = np.zeros(m + n)
    multipliers[equal] = -solution.eqlin.marginals
    multipliers[above] = -solution.ineqlin.marginals[: len(above)]
    multipliers[below] += solution.ineqlin.marginals[len(above) :]
    multipliers[m:] = -solution.lower.marginals - solution.upper.marginals
    # Rounding may leave a multiplier where there is no bound.
    multipliers[(multipliers > 0.0) & (program.upper == np.inf) | (multipliers < 0.0) & (program.lower == -np.inf)] = 0.0
    return solution.x, multipliers
