"""Sparse factorization ``K = L D L'`` of a symmetric quasi-definite matrix, without pivoting.

A KKT matrix is quasi-definite: one block is positive definite, the other negative definite. Such a matrix has the factorization
for *any* symmetric order of its rows (Vanderbei 1995), so the order is chosen once to keep ``L`` sparse (``symbolic``), and only
the numbers change from step to step.

- The leading columns, as long as they are short, are eliminated *right-looking*: a column with entries ``v`` and pivot ``d``
  subtracts ``v_p v_q / d`` from the entry ``(p, q)`` of the columns to come. Programs with few entries per row, such as those of
  metrics, consist of nothing else.
- The others are done row by row, *up-looking*: row k of ``L`` is a triangular solve with the rows above.
"""

from __future__ import annotations

from taskloss.kernels._numba import inner_kernel

SMALLEST_PIVOT = 1e-14
"""A pivot below this, in the sign that it should have, has been lost to rounding."""
REPLACED_PIVOT = 1e-6
"""What takes its place: large enough for its inverse to be harmless, small enough for refinement to converge."""


@inner_kernel
def factorize(symbolic, off_diagonal, diagonal, factor, inverse_pivots, work):
    """Factorize K.

    In exact arithmetic pivot k has the sign ``symbolic.sign[k]``. Where rounding destroyed it, the pivot is replaced by one of
    the right sign, which perturbs the matrix; iterative refinement repairs the solution.

    Args:
        symbolic: :class:`~taskloss.lp.interior_point.symbolic.SymbolicFactor` of K, size N.
        off_diagonal: strict upper triangle of K, ``(nnz,)``; read.
        diagonal: diagonal of K, ``(N,)``; read.
        factor: ``L`` below its unit diagonal, ``(fill,)``; written.
        inverse_pivots: one over ``D``, ``(N,)``; written.
        work: ``(N,)``; zero before and after.
    """
    for entry in range(len(factor)):
        factor[entry] = 0.0
    for entry in range(len(off_diagonal)):
        factor[symbolic.factor_entry[entry]] += off_diagonal[entry]
    for k in range(len(diagonal)):
        inverse_pivots[k] = diagonal[k]
    _eliminate_short_columns(symbolic, factor, inverse_pivots)
    for k in range(symbolic.num_short, len(diagonal)):
        _eliminate_row(symbolic, factor, inverse_pivots, work, k)


@inner_kernel
def _inverse_pivot(pivot, sign):
    return 1.0 / (pivot if pivot * sign > SMALLEST_PIVOT else sign * REPLACED_PIVOT)


@inner_kernel
def _eliminate_short_columns(symbolic, factor, pivots):
    """Eliminate the short columns; ``pivots`` holds pivots on entry and, for these columns, their inverses on return."""
    factor_start = symbolic.factor_start
    factor_row = symbolic.factor_row
    targets = symbolic.short_targets
    pair = 0
    for k in range(symbolic.num_short):
        inverse = _inverse_pivot(pivots[k], symbolic.sign[k])
        pivots[k] = inverse
        end = factor_start[k + 1]
        for first in range(factor_start[k], end):
            value = factor[first]
            quotient = value * inverse
            pivots[factor_row[first]] -= quotient * value
            for second in range(first + 1, end):
                factor[targets[pair]] -= quotient * factor[second]
                pair += 1
            factor[first] = quotient


@inner_kernel
def _eliminate_row(symbolic, factor, pivots, work, k):
    """Compute row k of ``L`` in the columns that are not short, and its pivot."""
    factor_start = symbolic.factor_start
    factor_row = symbolic.factor_row
    first = symbolic.tail_start[k]
    last = symbolic.tail_start[k + 1]
    for t in range(first, last):
        work[symbolic.tail_column[t]] = factor[symbolic.tail_entry[t]]
    pivot = pivots[k]
    for t in range(first, last):
        column = symbolic.tail_column[t]
        entry = symbolic.tail_entry[t]
        value = work[column]
        if value == 0.0:
            # Entries may cancel.
            factor[entry] = 0.0
            continue
        work[column] = 0.0
        for above in range(factor_start[column], entry):
            work[factor_row[above]] -= factor[above] * value
        quotient = value * pivots[column]
        pivot -= quotient * value
        factor[entry] = quotient
    pivots[k] = _inverse_pivot(pivot, symbolic.sign[k])


@inner_kernel
def solve_factorized(symbolic, factor, inverse_pivots, vector):
    """Overwrite ``vector (N,)`` with the solution of ``L D L' x = vector``."""
    factor_start = symbolic.factor_start
    factor_row = symbolic.factor_row
    size = len(vector)
    for column in range(size):
        value = vector[column]
        if value != 0.0:
            for entry in range(factor_start[column], factor_start[column + 1]):
                vector[factor_row[entry]] -= factor[entry] * value
    for column in range(size - 1, -1, -1):
        value = vector[column] * inverse_pivots[column]
        for entry in range(factor_start[column], factor_start[column + 1]):
            value -= factor[entry] * vector[factor_row[entry]]
        vector[column] = value
