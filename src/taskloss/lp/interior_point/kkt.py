"""The KKT system of a Newton step: its workspace, assembly, factorization, and solution with iterative refinement.

All methods of this package solve systems of one form. That of the interior-point method is assembled here; the others assemble
theirs, see ``factorize_active_set`` in ``active_set`` and ``_write_newton_matrix`` in ``augmented_lagrangian``:

    [ diag(w_x)   A'         ] [ dx ]   [ rhs_x ]
    [ A          -diag(w_y)  ] [ dy ] = [ rhs_y ]

A small *regularization* of the diagonal keeps the factorization stable; refinement removes its effect from the solution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel
from taskloss.lp.interior_point.ldl import factorize, solve_factorized

FULL_ACCURACY = 1e-13
"""Relative residual at which refinement ends, where nothing else is asked for."""
WITHOUT_BOUND = 1e20
"""Weight of a row without a bound: it takes no part."""
NO_REFINEMENT = np.int64(0)
"""Numbers of refinements are numpy's: numba would compile the solver once for each constant Python integer."""


class KKTSystem(NamedTuple):
    """Workspace of the system of size ``N = n + m``, in elimination order; ``nnz`` nonzeros of A, ``fill`` of its factor."""

    off_diagonal: np.ndarray
    """Entries of A where the KKT matrix has them, ``(nnz,)``."""
    diagonal: np.ndarray
    """``w_x`` and ``-w_y`` with their regularization, ``(N,)``."""
    regularization: np.ndarray
    """What was added to the diagonal, ``(N,)``."""
    residual_weight: np.ndarray
    """Weight of each equation's residual, ``(N,)``: smaller where the diagonal entry is large."""
    factor: np.ndarray
    """``(fill,)``."""
    inverse_pivots: np.ndarray
    """``(N,)``."""
    rhs: np.ndarray
    """``(N,)``."""
    solution: np.ndarray
    """``(N,)``."""
    residual: np.ndarray
    """``(N,)``."""
    correction: np.ndarray
    """``(N,)``."""
    work: np.ndarray
    """``(N,)``, zero between factorizations."""


@allocating_kernel
def make_kkt(sparsity):
    """Return a workspace for programs with this sparsity."""
    size = len(sparsity.symbolic.sign)
    return KKTSystem(
        off_diagonal=np.zeros(len(sparsity.symbolic.row), np.float64),
        diagonal=np.zeros(size, np.float64),
        regularization=np.zeros(size, np.float64),
        residual_weight=np.zeros(size, np.float64),
        factor=np.empty(len(sparsity.symbolic.factor_row), np.float64),
        inverse_pivots=np.empty(size, np.float64),
        rhs=np.zeros(size, np.float64),
        solution=np.zeros(size, np.float64),
        residual=np.empty(size, np.float64),
        correction=np.empty(size, np.float64),
        work=np.zeros(size, np.float64),
    )


@inner_kernel
def write_constraint_matrix(program, bounds, kkt):
    """Write A to the KKT matrix. Columns of fixed variables are zero: these take no part in a step."""
    sparsity = program.sparsity
    m = len(sparsity.row_start) - 1
    for entry in range(len(program.entries)):
        fixed = bounds.equality[m + sparsity.columns[entry]] > 0.0
        kkt.off_diagonal[sparsity.kkt_entry[entry]] = 0.0 if fixed else program.entries[entry]


@inner_kernel
def write_diagonal(program, bounds, scaling, relaxation, regularization, kkt):
    """Write theta plus the quadratic term, and one over theta, to the diagonal of the KKT matrix, with regularization."""
    sparsity = program.sparsity
    m = len(sparsity.row_position)
    for column in range(len(sparsity.column_position)):
        position = sparsity.column_position[column]
        fixed = bounds.equality[m + column] > 0.0
        kkt.regularization[position] = 0.0 if fixed else regularization
        weight = scaling.theta[m + column] + program.quadratic[column]
        kkt.diagonal[position] = 1.0 if fixed else weight + regularization
    for row in range(m):
        position = sparsity.row_position[row]
        bounded = scaling.theta[row] + bounds.equality[row] > 0.0
        weight = scaling.inverse_theta[row] + (relaxation + regularization) if bounded else WITHOUT_BOUND
        kkt.regularization[position] = -regularization
        kkt.diagonal[position] = -weight


@inner_kernel
def factorize_kkt(sparsity, kkt):
    """Factorize the matrix that was assembled in ``kkt``."""
    for k in range(len(kkt.diagonal)):
        kkt.residual_weight[k] = 1.0 / max(abs(kkt.diagonal[k]), 1.0)
    factorize(sparsity.symbolic, kkt.off_diagonal, kkt.diagonal, kkt.factor, kkt.inverse_pivots, kkt.work)


@inner_kernel
def solve_kkt(sparsity, kkt, rhs_x, rhs_y, dx, dy, tolerance, max_refinements):
    """Solve for ``dx (n,)`` and ``dy (m,)``; return the relative residual that remains.

    Refinement ends at ``tolerance``. With an infinite tolerance there is none, and zero is returned without computing the
    residual.
    """
    for column in range(len(dx)):
        kkt.rhs[sparsity.column_position[column]] = rhs_x[column]
    for row in range(len(dy)):
        kkt.rhs[sparsity.row_position[row]] = rhs_y[row]
    error = _solve_refined(sparsity.symbolic, kkt, tolerance, max_refinements)
    for column in range(len(dx)):
        dx[column] = kkt.solution[sparsity.column_position[column]]
    for row in range(len(dy)):
        dy[row] = kkt.solution[sparsity.row_position[row]]
    return error


@inner_kernel
def _solve_refined(symbolic, kkt, tolerance, max_refinements):
    """Solve ``(K - diag(regularization)) solution = rhs`` by iterative refinement; return the relative residual."""
    size = len(kkt.rhs)
    for k in range(size):
        kkt.solution[k] = kkt.rhs[k]
    solve_factorized(symbolic, kkt.factor, kkt.inverse_pivots, kkt.solution)
    if tolerance == np.inf:
        return 0.0
    scale = 1e-300
    for k in range(size):
        scale = max(scale, abs(kkt.rhs[k]) * kkt.residual_weight[k])
    error = _write_residual(symbolic, kkt)
    for _ in range(max_refinements):
        if not tolerance * scale < error < np.inf:
            break
        for k in range(size):
            kkt.correction[k] = kkt.residual[k]
        solve_factorized(symbolic, kkt.factor, kkt.inverse_pivots, kkt.correction)
        for k in range(size):
            kkt.solution[k] += kkt.correction[k]
        refined = _write_residual(symbolic, kkt)
        if not refined < error:
            for k in range(size):
                kkt.solution[k] -= kkt.correction[k]
            break
        helped_little = refined > 0.5 * error
        error = refined
        if helped_little:
            break
    return error / scale


@inner_kernel
def _write_residual(symbolic, kkt):
    """Write ``rhs - (K - diag(regularization)) solution`` and return its largest weighted entry; infinity if any is NaN."""
    start, rows = symbolic.start, symbolic.row
    solution, residual = kkt.solution, kkt.residual
    size = len(solution)
    for k in range(size):
        residual[k] = kkt.rhs[k] + kkt.regularization[k] * solution[k]
    for k in range(size):
        value = solution[k]
        product = kkt.diagonal[k] * value
        for entry in range(start[k], start[k + 1]):
            row = rows[entry]
            residual[row] -= kkt.off_diagonal[entry] * value
            product += kkt.off_diagonal[entry] * solution[row]
        residual[k] -= product
    total = 0.0
    largest = 0.0
    for k in range(size):
        total += residual[k]
        largest = max(largest, abs(residual[k]) * kkt.residual_weight[k])
    return largest if np.isfinite(total) and largest < np.inf else np.inf
