"""The dual solution of least norm of a linear program, by HiGHS and nonnegative least squares."""

from __future__ import annotations

import numpy as np
import scipy.optimize

from tests.oracles.linear_programs import Data

TIGHT = 1e-7
ROUNDING = 1e-12


def least_norm_dual(data: Data) -> np.ndarray | None:
    """Return the multipliers of least 2-norm, inequalities, equations and variables, positive at upper bounds; None if none.

    All constraints are written as ``G x <= h``. By complementarity the dual solutions are the ``u >= 0`` with ``G'u = -c`` that
    are zero wherever the solution of HiGHS is not at the bound.
    """
    n = len(data.c)
    lower = np.full(n, -np.inf) if data.lower is None else data.lower
    upper = np.full(n, np.inf) if data.upper is None else data.upper
    bounds = np.column_stack([lower, upper])
    found = scipy.optimize.linprog(data.c, data.A_ub, data.b_ub, data.A_eq, data.b_eq, bounds, method="highs")
    if found.status != 0:
        return None
    # The multipliers of equations may have any sign.
    rows = [] if data.A_eq is None else [data.A_eq]
    count_ub, count_eq = (0 if matrix is None else len(matrix) for matrix in (data.A_ub, data.A_eq))
    owner, sign = [count_ub + np.arange(count_eq)], [np.ones(count_eq)]
    for first, matrix, bound, direction in (
        (0, data.A_ub, data.b_ub, 1.0),
        (count_ub + count_eq, np.eye(n), upper, 1.0),
        (count_ub + count_eq, np.eye(n), lower, -1.0),
    ):
        if matrix is not None:
            tight = np.flatnonzero(np.abs(matrix @ found.x - bound) <= TIGHT)
            rows.append(direction * matrix[tight])
            owner.append(first + tight)
            sign.append(np.full(len(tight), direction))
    u = _shortest_solution(np.vstack(rows).T, -data.c, free=count_eq)
    multipliers = np.zeros(count_ub + count_eq + n)
    np.add.at(multipliers, np.concatenate(owner), np.concatenate(sign) * u)
    return multipliers


def _shortest_solution(matrix: np.ndarray, rhs: np.ndarray, free: int) -> np.ndarray:
    """Return the shortest u with ``matrix u = rhs``, and ``u >= 0`` but for the first ``free`` entries.

    All solutions are ``u0 + N w``, u0 the shortest one of any sign. The shortest w with ``N w >= -u0`` is the problem LDP of
    Lawson and Hanson (1974, chapter 23): with r the residual of ``min |[N'; -u0'] y - (0, ..., 0, 1)|, y >= 0``, it is
    ``-r / r_last``.
    """
    _, singular, basis = np.linalg.svd(matrix)
    rank = int((singular > 1e-9 * singular[0]).sum())
    u0, N = np.linalg.pinv(matrix, rcond=1e-9) @ rhs, basis[rank:].T
    # An entry that must be zero must not be infeasible by rounding.
    u0[np.abs(u0) < ROUNDING] = 0.0
    N[np.abs(N) < ROUNDING] = 0.0
    if (u0[free:] >= 0.0).all():
        return u0
    E, f = np.vstack([N[free:].T, -u0[free:]]), np.append(np.zeros(N.shape[1]), 1.0)
    y, _ = scipy.optimize.nnls(E, f)
    residual = E @ y - f
    u = u0 - N @ residual[:-1] / residual[-1]
    assert (u[free:] > -TIGHT).all(), "nonnegative least squares was not accurate enough"
    return u
