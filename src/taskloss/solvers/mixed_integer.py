"""Any mixed-integer linear program, by HiGHS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskloss import _checks, _solver_checks
from taskloss.solvers.by_value import ByValue
from taskloss.solvers.threads import WORK_PER_THREAD, solve_in_threads


@dataclass(frozen=True, eq=False)
class MixedInteger(ByValue):
    """The best point of ``A_ub x <= b_ub, A_eq x = b_eq, lower <= x <= upper``, some or all of x whole; psi is x.

    Scores of any sign. ``scipy.optimize.milp`` (HiGHS) solves one instance at a time, several in threads: HiGHS works without
    the interpreter lock. By default all variables are 0 or 1 and the solution is proved to be the best one.

    Args:
        A_ub: ``(m_ub, n)``, an array or a scipy sparse matrix.
        b_ub: ``(m_ub,)``.
        A_eq: ``(m_eq, n)``.
        b_eq: ``(m_eq,)``.
        lower: a number or ``(n,)``; ``-inf`` for none.
        upper: a number or ``(n,)``; ``inf`` for none.
        integrality: whether a variable is whole, a flag or ``(n,)``.
        auxiliary: how many of the variables, the last ones, have no score and are no part of psi: start times of a schedule,
            positions in a tour.
        relative_gap: difference to the bound at which HiGHS stops, relative to the objective; 0 for a proof.
        time_limit: seconds for one instance; if they do not suffice, an error is raised.

    >>> neighbours = MixedInteger(A_ub=[[1, 1, 0], [0, 1, 1]], b_ub=[1, 1])      # independent sets of a path
    >>> neighbours(np.array([[2.0, 3.0, 2.0], [2.0, 5.0, 2.0]]))
    array([[1., 0., 1.],
           [0., 1., 0.]])
    """

    A_ub: Any = None
    b_ub: Any = None
    A_eq: Any = None
    b_eq: Any = None
    lower: Any = 0.0
    upper: Any = 1.0
    integrality: Any = True
    auxiliary: int = 0
    relative_gap: float = 0.0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        sizes = {}
        for kind in ("ub", "eq"):
            matrix_name, rhs_name = f"A_{kind}", f"b_{kind}"
            matrix, rhs = getattr(self, matrix_name), getattr(self, rhs_name)
            _solver_checks.check_given_together(matrix_name, matrix, rhs_name, rhs)
            if matrix is not None:
                matrix = _as_sparse(matrix_name, matrix)
                sizes[matrix_name] = matrix.shape[1]
                object.__setattr__(self, matrix_name, matrix)
                object.__setattr__(self, rhs_name, _solver_checks.as_rhs(rhs_name, rhs, matrix.shape[0]))
        for name in ("lower", "upper", "integrality"):
            value = _solver_checks.as_per_variable(name, getattr(self, name), None)
            object.__setattr__(self, name, value)
            if value.ndim:
                sizes[name] = len(value)
        _solver_checks.check_flags("integrality", self.integrality)
        _checks.check_not_negative("auxiliary", self.auxiliary)
        _solver_checks.check_auxiliary(self.auxiliary, _solver_checks.check_same_columns(sizes))
        _solver_checks.check_ratio("relative_gap", self.relative_gap)
        if self.time_limit is not None:
            _checks.check_positive("time_limit", self.time_limit)

    @property
    def num_scores(self) -> int | None:
        """Number of variables that have a score; None if neither a matrix nor a bound tells it."""
        vectors = [value for value in (self.lower, self.upper, self.integrality) if value.ndim]
        columns = [matrix.shape[1] for matrix in (self.A_ub, self.A_eq) if matrix is not None] + [len(v) for v in vectors]
        return columns[0] - self.auxiliary if columns else None

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, ``(..., n - auxiliary)``."""
        rows = _solver_checks.as_score_rows(scores, self.num_scores, "variable")
        return self.solve_rows(rows).reshape(np.shape(scores))

    def solve_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return ``psi`` of finite scores ``(R, n - auxiliary)``."""
        if not len(rows):
            return np.zeros(rows.shape)
        constraints = self._constraints()

        def solve(instances: np.ndarray) -> np.ndarray:
            return np.stack([self._solve_one(rows[instance], int(instance), constraints) for instance in instances])

        return solve_in_threads(solve, np.arange(len(rows)), WORK_PER_THREAD)

    def _constraints(self) -> list[Any]:
        # Loaded here, as below: scipy.optimize would add to the time of every ``import taskloss``.
        from scipy.optimize import LinearConstraint

        constraints = []
        if self.A_ub is not None:
            matrix, rhs = _without_small_rows(self.A_ub, self.b_ub)
            constraints.append(LinearConstraint(matrix, -np.inf, rhs))
        if self.A_eq is not None:
            matrix, rhs = _without_small_rows(self.A_eq, self.b_eq)
            constraints.append(LinearConstraint(matrix, rhs, rhs))
        return constraints

    def _solve_one(self, scores: np.ndarray, instance: int, constraints: list[Any]) -> np.ndarray:
        from scipy.optimize import Bounds, milp

        # HiGHS has absolute tolerances of 1e-6 and 1e-7: scores near a thousand make them relative.
        largest = float(np.abs(scores).max())
        scaled = np.ldexp(scores, 10 - math.frexp(largest)[1])
        costs = np.concatenate([-scaled, np.zeros(self.auxiliary)])
        whole = np.broadcast_to(self.integrality != 0, costs.shape)
        options = {"mip_rel_gap": self.relative_gap}
        if self.time_limit is not None:
            options["time_limit"] = self.time_limit
        bounds = Bounds(self.lower, self.upper)
        result = milp(costs, integrality=whole.astype(np.uint8), bounds=bounds, constraints=constraints, options=options)
        _solver_checks.check_integer_program(result.status, instance, result.message)
        x = np.where(whole, np.rint(result.x), result.x)
        return x[: len(scores)]


def _without_small_rows(matrix: Any, rhs: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return constraints whose rows have an entry of at least 1: what is below the tolerances of HiGHS would not count."""
    from scipy.sparse import diags_array

    largest = abs(matrix).max(axis=1).toarray().reshape(-1)
    unit = np.where((largest > 0.0) & (largest < 1.0), np.ldexp(1.0, np.minimum(1 - np.frexp(largest)[1], 1000)), 1.0)
    return diags_array(unit) @ matrix, rhs * unit


def _as_sparse(name: str, matrix: Any) -> Any:
    """Return a matrix in compressed rows, its entries sorted and read-only."""
    from scipy.sparse import csr_array

    result = csr_array(matrix, dtype=np.float64, copy=True)
    if result.ndim != 2 or result.shape[1] == 0:
        raise ValueError(f"{name} has shape {result.shape}; expected (rows, variables)")
    if not np.isfinite(result.data).all():
        raise ValueError(f"{name} contains NaN or an infinite value; expected finite numbers")
    result.sum_duplicates()
    result.eliminate_zeros()
    for part in (result.data, result.indices, result.indptr):
        part.flags.writeable = False
    return result
