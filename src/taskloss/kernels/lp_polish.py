"""From an almost optimal pair to an exact one: the equations of the active lines, solved once.

Let J be the rows, and X the columns, that stand at a limit; R the other columns; ``B = A_{J,R}``. One factorization of

    [ I   B' ] [ p ]   [ f ]
    [ B   0  ] [ w ] = [ g ]                                              (J and R only; the rest is the identity)

gives all that is needed: with ``f = 0`` the least change ``p = B^+ g`` of x that puts the rows J on their limits; with ``g =
0`` the least-squares multipliers ``w = B^{+T} f`` and the part ``p = (I - B^+ B) f`` of f that no row of J sees. If that part
is zero for a generic f, the active lines determine x; otherwise the solutions form a face, and the least-norm one is found by
the multiplier method with a quadratic term. Rows of J that depend on others make the block singular: a tiny shift, removed
again by refinement, then gives the pseudo-inverse.

All arrays have a last axis of lanes, one a program.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inlined_kernel, inner_kernel
from taskloss.kernels.lp_program import (
    factorize_system,
    largest,
    largest_violation,
    solve_system,
    write_stationarity,
    write_values,
)
from taskloss.kernels.sparse_ldl import ENOUGH

SHIFT = 1e-10
ROUNDING = 1e-15
"""What an equation may miss."""


@inner_kernel
def factorize_active(pattern, entries, system, active):
    """Factorize the system above for the active lines."""
    n = len(pattern.at_column)
    m = len(pattern.at_row)
    for row in range(m):
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            column = m + pattern.columns[entry]
            at = pattern.at_entry[entry]
            for lane in range(len(pattern.lanes)):
                keep = active[row, lane] and not active[column, lane]
                system.matrix[at, lane] = entries[entry, lane] if keep else 0.0
        at = pattern.at_row[row]
        place = pattern.row_place[row]
        for lane in range(len(pattern.lanes)):
            system.matrix[at, lane] = -SHIFT if active[row, lane] else -1.0
            system.shift[place, lane] = -SHIFT if active[row, lane] else 0.0
    for column in range(n):
        at = pattern.at_column[column]
        place = pattern.column_place[column]
        for lane in range(len(pattern.lanes)):
            system.matrix[at, lane] = 1.0
            system.shift[place, lane] = 0.0
    factorize_system(pattern, system)


@inner_kernel
def drop_small_multipliers(program, values, multipliers):
    """Those that are smaller than the distance of the line from its limit become zero."""
    for line in range(len(values)):
        for lane in range(values.shape[1]):
            multiplier = multipliers[line, lane]
            limit = program.high[line, lane] if multiplier > 0.0 else program.low[line, lane]
            if abs(values[line, lane] - limit) > abs(multiplier):
                multipliers[line, lane] = 0.0


@inlined_kernel
def _limit(program, multipliers, line, lane, value):
    """The limit at which an active line stands: by the sign of its multiplier, else the nearer one."""
    low = program.low[line, lane]
    high = program.high[line, lane]
    multiplier = multipliers[line, lane]
    if low == high or multiplier > 0.0:
        return high
    if multiplier < 0.0:
        return low
    return high if high - value < value - low else low


@inner_kernel
def _all_rounding(vectors):
    """Are the vectors of all lanes rounding? Those that are become zero, so that no lane is changed because of another."""
    done = 0
    for lane in range(vectors.shape[1]):
        if largest(vectors[:, lane]) <= ROUNDING:
            vectors[:, lane] = 0.0
            done += 1
    return done == vectors.shape[1]


@inner_kernel
def polish_primal(pattern, program, system, x, multipliers, active):
    """Put the active lines exactly on their limits, unless that takes x out of others."""
    n, width = x.shape
    lines = len(program.low)
    m = lines - n
    values = np.empty((lines, width))
    write_values(pattern, program.entries, x, values)
    before = np.empty(width)
    for lane in range(width):
        before[lane] = largest_violation(program.low[:, lane], program.high[:, lane], values[:, lane])
    moved = x.copy()
    for column in range(n):
        for lane in range(width):
            if active[m + column, lane]:
                moved[column, lane] = _limit(program, multipliers, m + column, lane, x[column, lane])
    change = np.empty((n, width))
    ignored = np.empty((m, width))
    missing = np.zeros((m, width))
    nothing = np.zeros((n, width))
    for _ in range(2):
        write_values(pattern, program.entries, moved, values)
        for row in range(m):
            for lane in range(width):
                value = values[row, lane]
                limit = _limit(program, multipliers, row, lane, value)
                missing[row, lane] = limit - value if active[row, lane] else 0.0
        if _all_rounding(missing):
            break
        solve_system(pattern, system, nothing, missing, change, ignored, ENOUGH, 3)
        for column in range(n):
            for lane in range(width):
                moved[column, lane] += 0.0 if active[m + column, lane] else change[column, lane]
    write_values(pattern, program.entries, moved, values)
    for lane in range(width):
        after = largest_violation(program.low[:, lane], program.high[:, lane], values[:, lane])
        if after <= max(before[lane], 1e-14) and largest(moved[:, lane]) < np.inf:
            x[:, lane] = moved[:, lane]


@inner_kernel
def polish_dual(pattern, program, system, x, multipliers, active):
    """Make the multipliers of the active lines stationary, unless that turns a sign."""
    n, width = x.shape
    lines = len(program.low)
    m = lines - n
    gradient = np.empty((n, width))
    write_stationarity(pattern, program, x, multipliers, gradient)
    before = np.empty(width)
    for lane in range(width):
        before[lane] = largest(gradient[:, lane])
    moved = multipliers.copy()
    moved[m:] = 0.0
    seen = np.empty((n, width))
    change = np.empty((m, width))
    nothing = np.zeros((m, width))
    for _ in range(2):
        write_stationarity(pattern, program, x, moved, gradient)
        for column in range(n):
            for lane in range(width):
                gradient[column, lane] = 0.0 if active[m + column, lane] else -gradient[column, lane]
        if _all_rounding(gradient):
            break
        solve_system(pattern, system, gradient, nothing, seen, change, ENOUGH, 3)
        for row in range(m):
            for lane in range(width):
                moved[row, lane] += change[row, lane] if active[row, lane] else 0.0
    write_stationarity(pattern, program, x, moved, gradient)
    for column in range(n):
        for lane in range(width):
            at_bound = active[m + column, lane]
            moved[m + column, lane] = -gradient[column, lane] if at_bound else 0.0
            gradient[column, lane] = 0.0 if at_bound else gradient[column, lane]
    for lane in range(width):
        allowed = _allow_signs(program, multipliers, moved, lane)
        if allowed and largest(gradient[:, lane]) <= max(before[lane], 1e-14) and largest(moved[:, lane]) < np.inf:
            multipliers[:, lane] = moved[:, lane]


@inner_kernel
def _allow_signs(program, multipliers, moved, lane):
    """May the multipliers of a lane be replaced by ``moved``? A wrong sign that is rounding is removed."""
    for line in range(len(moved)):
        multiplier = moved[line, lane]
        low = program.low[line, lane]
        high = program.high[line, lane]
        turned = multiplier * multipliers[line, lane] < 0.0 and low != high
        unlimited = (multiplier > 0.0 and high == np.inf) or (multiplier < 0.0 and low == -np.inf)
        if turned or unlimited:
            if abs(multiplier) > 1e-13:
                return False
            moved[line, lane] = 0.0
    return True


@inner_kernel
def write_determined(pattern, system, active, determined):
    """Of each lane: do the active lines leave no freedom to x?

    Tested with a vector that is generic: no row space contains it by accident.
    """
    n = len(pattern.at_column)
    m = len(pattern.at_row)
    width = len(pattern.lanes)
    probe = np.zeros((n, width))
    for column in range(n):
        for lane in range(width):
            if not active[m + column, lane]:
                probe[column, lane] = 0.5 + (0.6180339887498949 * (column + 1)) % 1.0
    free = np.empty((n, width))
    ignored = np.empty((m, width))
    solve_system(pattern, system, probe, np.zeros((m, width)), free, ignored, 1e-8, 3)
    for lane in range(width):
        unseen = 0.0
        for column in range(n):
            if not active[m + column, lane]:
                unseen = max(unseen, abs(free[column, lane]))
        determined[lane] = unseen < 1e-6
