"""From an almost optimal pair to an exact one: the equations of the active lines, solved once.

Let J be the rows, and X the columns, that stand at a limit; R the other columns; ``B = A_{J,R}``. One factorization of

    [ I   B' ] [ p ]   [ f ]
    [ B   0  ] [ w ] = [ g ]                                              (J and R only; the rest is the identity)

gives all that is needed: with ``f = 0`` the least change ``p = B^+ g`` of x that puts the rows J on their limits; with ``g =
0`` the least-squares multipliers ``w = B^{+T} f`` and the part ``p = (I - B^+ B) f`` of f that no row of J sees. If that part
is zero for a generic f, the active lines determine x; otherwise the solutions form a face, and the least-norm one is found by
the multiplier method with a quadratic term. Rows of J that depend on others make the block singular: a tiny shift, removed
again by refinement, then gives the pseudo-inverse.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel
from taskloss.kernels.lp_multipliers import largest_violation
from taskloss.kernels.lp_program import (
    factorize_system,
    largest,
    solve_system,
    write_stationarity,
    write_values,
)
from taskloss.kernels.sparse_ldl import ENOUGH

SHIFT = 1e-10


@inner_kernel
def factorize_active(pattern, entries, system, active):
    """Factorize the system above for the active lines."""
    n = len(pattern.at_column)
    m = len(pattern.at_row)
    for row in range(m):
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            keep = active[row] and not active[m + pattern.columns[entry]]
            system.matrix[pattern.at_entry[entry]] = entries[entry] if keep else 0.0
        system.matrix[pattern.at_row[row]] = -SHIFT if active[row] else -1.0
    for column in range(n):
        system.matrix[pattern.at_column[column]] = 1.0
    system.shift[:] = 0.0
    for row in range(m):
        if active[row]:
            system.shift[pattern.row_place[row]] = -SHIFT
    factorize_system(pattern, system)


@inner_kernel
def _limit(program, multipliers, line, value):
    """The limit at which an active line stands: by the sign of its multiplier, else the nearer one."""
    if program.low[line] == program.high[line] or multipliers[line] > 0.0:
        return program.high[line]
    if multipliers[line] < 0.0:
        return program.low[line]
    return program.high[line] if program.high[line] - value < value - program.low[line] else program.low[line]


@inner_kernel
def polish_primal(pattern, program, system, x, multipliers, active):
    """Put the active lines exactly on their limits, unless that takes x out of others. Returns the largest violation."""
    n = len(x)
    lines = len(program.low)
    m = lines - n
    values = np.empty(lines)
    write_values(pattern, program.entries, x, values)
    before = largest_violation(program, values)
    moved = x.copy()
    for column in range(n):
        if active[m + column]:
            moved[column] = _limit(program, multipliers, m + column, x[column])
    change = np.empty(n)
    ignored = np.empty(m)
    missing = np.zeros(m)
    for _ in range(2):
        write_values(pattern, program.entries, moved, values)
        for row in range(m):
            missing[row] = _limit(program, multipliers, row, values[row]) - values[row] if active[row] else 0.0
        if largest(missing) <= 1e-15:
            break
        solve_system(pattern, system, np.zeros(n), missing, change, ignored, ENOUGH, 3)
        for column in range(n):
            if not active[m + column]:
                moved[column] += change[column]
    write_values(pattern, program.entries, moved, values)
    after = largest_violation(program, values)
    if after <= max(before, 1e-14) and largest(moved) < np.inf:
        x[:] = moved
        return after
    return before


@inner_kernel
def polish_dual(pattern, program, system, x, multipliers, active):
    """Make the multipliers of the active lines stationary, unless that turns a sign."""
    n = len(x)
    lines = len(program.low)
    m = lines - n
    gradient = np.empty(n)
    write_stationarity(pattern, program, x, multipliers, gradient)
    before = largest(gradient)
    moved = multipliers.copy()
    seen = np.empty(n)
    change = np.empty(m)
    for line in range(m, lines):
        moved[line] = 0.0
    for _ in range(2):
        write_stationarity(pattern, program, x, moved, gradient)
        for column in range(n):
            if active[m + column]:
                gradient[column] = 0.0
        if largest(gradient) <= 1e-15:
            break
        solve_system(pattern, system, -gradient, np.zeros(m), seen, change, ENOUGH, 3)
        for row in range(m):
            if active[row]:
                moved[row] += change[row]
    write_stationarity(pattern, program, x, moved, gradient)
    for column in range(n):
        if active[m + column]:
            moved[m + column] = -gradient[column]
            gradient[column] = 0.0
    for line in range(lines):
        turned = moved[line] * multipliers[line] < 0.0 and program.low[line] != program.high[line]
        unlimited = (moved[line] > 0.0 and program.high[line] == np.inf) or (moved[line] < 0.0 and program.low[line] == -np.inf)
        if turned or unlimited:
            if abs(moved[line]) > 1e-13:
                return
            moved[line] = 0.0
    if largest(gradient) <= max(before, 1e-14) and largest(moved) < np.inf:
        multipliers[:] = moved


@inner_kernel
def is_determined(pattern, system, active):
    """Do the active lines leave no freedom to x? Tested with a vector that is generic: no row space contains it by accident."""
    n = len(pattern.at_column)
    m = len(pattern.at_row)
    probe = np.zeros(n)
    for column in range(n):
        if not active[m + column]:
            probe[column] = 0.5 + (0.6180339887498949 * (column + 1)) % 1.0
    free = np.empty(n)
    ignored = np.empty(m)
    solve_system(pattern, system, probe, np.zeros(m), free, ignored, 1e-8, 3)
    unseen = 0.0
    for column in range(n):
        if not active[m + column]:
            unseen = max(unseen, abs(free[column]))
    return unseen < 1e-6
