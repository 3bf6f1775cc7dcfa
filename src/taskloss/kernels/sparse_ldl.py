"""Sparse factorization ``K = L D L'`` of a symmetric quasi-definite matrix, without pivoting.

The matrix of every Newton step for a linear program is quasi-definite: one block positive definite, the other negative definite.
Such a matrix has the factorization for *any* symmetric order of its rows (Vanderbei 1995), so the order is chosen once, to keep
``L`` sparse, and only the numbers change from step to step. The method is the up-looking one: row ``k`` of ``L`` is a
triangular solve whose nonzeros are the paths from the entries of column ``k`` to the root of the elimination tree (Davis 2005).

``K`` is given by its upper triangle in columns: column ``k`` has the row numbers ``index[start[k]:start[k + 1]]``, in ascending
order, the diagonal entry last.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, kernel

ENOUGH = 1e-13
"""Refinement ends at this relative error."""


@kernel
def elimination_tree(start, index):
    """Parent of each column in the elimination tree (-1 at a root), and where each column of ``L`` starts."""
    size = len(start) - 1
    parent = np.full(size, -1, np.int64)
    visited = np.empty(size, np.int64)
    factor_start = np.zeros(size + 1, np.int64)
    for column in range(size):
        visited[column] = column
        for entry in range(start[column], start[column + 1]):
            node = index[entry]
            while visited[node] != column:
                if parent[node] == -1:
                    parent[node] = column
                factor_start[node + 1] += 1
                visited[node] = column
                node = parent[node]
    for column in range(size):
        factor_start[column + 1] += factor_start[column]
    return parent, factor_start


@inner_kernel
def factorize(start, index, matrix, sign, parent, factor_start, factor_index, factor, pivots):
    """Write ``L`` (strictly below the diagonal, by columns) and ``D``; returns how many pivots had to be replaced.

    In exact arithmetic pivot ``k`` has the sign ``sign[k]``. Where rounding destroyed it, the pivot is replaced by
    one of the right sign, which perturbs the matrix; iterative refinement repairs the solution.
    """
    size = len(start) - 1
    visited = np.empty(size, np.int64)
    path = np.empty(size, np.int64)
    filled = factor_start.copy()
    row = np.zeros(size)
    replaced = 0
    for k in range(size):
        visited[k] = k
        top = size
        pivot = matrix[start[k + 1] - 1]
        for entry in range(start[k], start[k + 1] - 1):
            node = index[entry]
            row[node] = matrix[entry]
            length = 0
            while visited[node] != k:
                path[length] = node
                length += 1
                visited[node] = k
                node = parent[node]
            while length > 0:
                top -= 1
                length -= 1
                path[top] = path[length]
        for position in range(top, size):
            node = path[position]
            value = row[node]
            row[node] = 0.0
            end = filled[node]
            if value != 0.0:
                for entry in range(factor_start[node], end):
                    row[factor_index[entry]] -= factor[entry] * value
            quotient = value / pivots[node]
            pivot -= quotient * value
            factor_index[end] = k
            factor[end] = quotient
            filled[node] = end + 1
        if not sign[k] * pivot >= 1e-14:
            pivot = sign[k] * 1e-6
            replaced += 1
        pivots[k] = pivot
    return replaced


@inner_kernel
def solve_factorized(factor_start, factor_index, factor, pivots, vector):
    """Overwrite ``vector`` with the solution of ``L D L' x = vector``."""
    size = len(pivots)
    for column in range(size):
        value = vector[column]
        if value != 0.0:
            for entry in range(factor_start[column], factor_start[column + 1]):
                vector[factor_index[entry]] -= factor[entry] * value
    for column in range(size):
        vector[column] /= pivots[column]
    for column in range(size - 1, -1, -1):
        value = vector[column]
        for entry in range(factor_start[column], factor_start[column + 1]):
            value -= factor[entry] * vector[factor_index[entry]]
        vector[column] = value


@inner_kernel
def write_residual(start, index, matrix, shift, right_side, solution, residual):
    """``residual = right_side - (K - diag(shift)) solution``; returns its largest entry, each against its diagonal entry.

    ``shift`` is what was added to the diagonal to keep the factorization stable. An infinite or undefined entry gives infinity.
    """
    size = len(start) - 1
    for k in range(size):
        residual[k] = right_side[k] + shift[k] * solution[k]
    for k in range(size):
        value = solution[k]
        collected = 0.0
        diagonal = start[k + 1] - 1
        for entry in range(start[k], diagonal):
            residual[index[entry]] -= matrix[entry] * value
            collected += matrix[entry] * solution[index[entry]]
        residual[k] -= collected + matrix[diagonal] * value
    worst = 0.0
    total = 0.0
    for k in range(size):
        error = abs(residual[k]) / max(1.0, abs(matrix[start[k + 1] - 1]))
        total += error
        worst = max(worst, error)
    return worst if np.isfinite(total) else np.inf


@inner_kernel
def solve_refined(
    start, index, matrix, shift, factor_start, factor_index, factor, pivots, right_side, solution, residual, rounds
):
    """Solve ``(K - diag(shift)) solution = right_side`` by refinement; returns the relative error that remains."""
    size = len(pivots)
    solution[:] = right_side
    solve_factorized(factor_start, factor_index, factor, pivots, solution)
    scale = 1e-300
    for k in range(size):
        scale = max(scale, abs(right_side[k]) / max(1.0, abs(matrix[start[k + 1] - 1])))
    error = write_residual(start, index, matrix, shift, right_side, solution, residual)
    for _ in range(rounds):
        if error <= ENOUGH * scale or error == np.inf:
            break
        solve_factorized(factor_start, factor_index, factor, pivots, residual)
        step = residual.copy()
        for k in range(size):
            solution[k] += step[k]
        refined = write_residual(start, index, matrix, shift, right_side, solution, residual)
        if not refined < error:
            for k in range(size):
                solution[k] -= step[k]
            break
        slow = refined > 0.5 * error
        error = refined
        if slow:
            break
    return error / scale
