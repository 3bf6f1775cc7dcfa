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

from typing import NamedTuple

import numpy as np

from taskloss.kernels._lanes import in_all, larger, load, size_of, store, where_positive
from taskloss.kernels._numba import inner_kernel, plain_kernel
from taskloss.kernels.lane_rows import copy_where, fill, largest_in_lanes
from taskloss.kernels.lp_optimality import violation_in_lanes
from taskloss.kernels.lp_program import factorize_system, solve_system, write_stationarity, write_values
from taskloss.kernels.sparse_ldl import ENOUGH

SHIFT = 1e-10
"""Of the rows of the system."""
SENSITIVE_SHIFT = 1e-7
"""The same where multipliers are gradients: rounding divided by it is what dependent rows get wrong, and nothing judges them."""
ROUNDS = np.int64(3)
"""Of refinement, at most."""
ROUNDING = 1e-15
"""What an equation may miss."""
NO_WORSE = 1e-14
"""What a polished pair may miss, if the other missed less."""


class Polish(NamedTuple):
    """Room: which lines are ``active`` (1 or 0) and their limits (0 for the others); a moved pair; what a system is solved for.

    Of lines: the first four and ``values``. Of columns and rows: right sides and solutions. ``judged``: of lanes.
    """

    active: np.ndarray
    limit: np.ndarray
    values: np.ndarray
    moved_multipliers: np.ndarray
    moved_x: np.ndarray
    right_columns: np.ndarray
    right_rows: np.ndarray
    columns: np.ndarray
    rows: np.ndarray
    judged: np.ndarray


@inner_kernel
def make_polish(pattern):
    """Empty room."""
    n = len(pattern.at_column)
    m = len(pattern.at_row)
    width = len(pattern.lanes)
    return Polish(
        np.empty((m + n, width)),
        np.empty((m + n, width)),
        np.empty((m + n, width)),
        np.empty((m + n, width)),
        np.empty((n, width)),
        np.empty((n, width)),
        np.empty((m, width)),
        np.empty((n, width)),
        np.empty((m, width)),
        np.empty(width),
    )


@plain_kernel
def factorize_active(pattern, entries, system, active, shift):
    """Factorize the system above for the active lines. ``shift``: of the rows, removed again by refinement."""
    lanes = pattern.lanes
    m = len(pattern.at_row)
    zero = in_all(0.0, lanes)
    one = in_all(1.0, lanes)
    shifted = in_all(-shift, lanes)
    for row in range(m):
        kept = load(active, row, lanes)
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            free = one - load(active, m + pattern.columns[entry], lanes)
            store(system.matrix, pattern.at_entry[entry], where_positive(kept * free, load(entries, entry, lanes), zero))
        store(system.matrix, pattern.at_row[row], where_positive(kept, shifted, zero - one))
        store(system.shift, pattern.row_place[row], where_positive(kept, shifted, zero))
    for column in range(len(pattern.at_column)):
        store(system.matrix, pattern.at_column[column], one)
        store(system.shift, pattern.column_place[column], zero)
    factorize_system(pattern, system)


@plain_kernel
def find_active(pattern, program, x, multipliers, guess, room):
    """Fill ``active`` and ``limit``: the lines with a multiplier, and those whose limits are equal.

    With ``guess``, multipliers that are smaller than the distance of the line from its limit become zero first.
    """
    lanes = pattern.lanes
    zero = in_all(0.0, lanes)
    one = in_all(1.0, lanes)
    write_values(pattern, program.entries, x, room.values)
    for line in range(len(program.low)):
        low = load(program.low, line, lanes)
        high = load(program.high, line, lanes)
        multiplier = load(multipliers, line, lanes)
        limit = where_positive(multiplier, high, low)
        if guess:
            distance = size_of(load(room.values, line, lanes) - limit)
            multiplier = where_positive(distance - size_of(multiplier), zero, multiplier)
            store(multipliers, line, multiplier)
        fixed = where_positive(high - low, zero, one)
        active = where_positive(size_of(multiplier) + fixed, one, zero)
        store(room.active, line, active)
        store(room.limit, line, where_positive(active, limit, zero))


@plain_kernel
def _all_rounding(lanes, numbers, judged):
    """Are the numbers of all lanes rounding? Those that are become zero, so that no lane is changed because of another."""
    worst = largest_in_lanes(lanes, numbers)
    store(judged, 0, worst)
    zero = in_all(0.0, lanes)
    kept = worst - in_all(ROUNDING, lanes)
    for row in range(len(numbers)):
        store(numbers, row, where_positive(kept, load(numbers, row, lanes), zero))
    left = 0
    for lane in range(len(lanes)):
        left += judged[lane] > ROUNDING
    return left == 0


@plain_kernel
def _no_worse(lanes, before, after, moved):
    """1 in the lanes where ``moved`` is finite and misses no more than before, except rounding."""
    zero = in_all(0.0, lanes)
    one = in_all(1.0, lanes)
    finite = where_positive(in_all(1e300, lanes) - largest_in_lanes(lanes, moved), one, zero)
    return where_positive(after - larger(before, in_all(NO_WORSE, lanes)), zero, finite)


@plain_kernel
def polish_primal(pattern, program, system, x, room):
    """Put the active lines exactly on their limits, unless that takes x out of others."""
    lanes = pattern.lanes
    n = len(x)
    m = len(program.low) - n
    zero = in_all(0.0, lanes)
    before = violation_in_lanes(lanes, program.low, program.high, room.values)
    for column in range(n):
        line = m + column
        at_limit = where_positive(load(room.active, line, lanes), load(room.limit, line, lanes), load(x, column, lanes))
        store(room.moved_x, column, at_limit)
    fill(lanes, room.right_columns, 0.0)
    for _ in range(2):
        write_values(pattern, program.entries, room.moved_x, room.values)
        for row in range(m):
            missing = load(room.limit, row, lanes) - load(room.values, row, lanes)
            store(room.right_rows, row, where_positive(load(room.active, row, lanes), missing, zero))
        if _all_rounding(lanes, room.right_rows, room.judged):
            break
        solve_system(pattern, system, room.right_columns, room.right_rows, room.columns, room.rows, ENOUGH, ROUNDS)
        for column in range(n):
            change = where_positive(load(room.active, m + column, lanes), zero, load(room.columns, column, lanes))
            store(room.moved_x, column, load(room.moved_x, column, lanes) + change)
    write_values(pattern, program.entries, room.moved_x, room.values)
    after = violation_in_lanes(lanes, program.low, program.high, room.values)
    copy_where(lanes, _no_worse(lanes, before, after, room.moved_x), room.moved_x, x)


@plain_kernel
def polish_dual(pattern, program, system, x, multipliers, room):
    """Make the multipliers of the active lines stationary, unless that turns a sign."""
    lanes = pattern.lanes
    n = len(x)
    m = len(program.low) - n
    zero = in_all(0.0, lanes)
    gradient = room.right_columns
    moved = room.moved_multipliers
    write_stationarity(pattern, program, x, multipliers, gradient)
    before = largest_in_lanes(lanes, gradient)
    for row in range(m):
        store(moved, row, load(multipliers, row, lanes))
    for column in range(n):
        store(moved, m + column, zero)
    fill(lanes, room.right_rows, 0.0)
    for _ in range(2):
        write_stationarity(pattern, program, x, moved, gradient)
        for column in range(n):
            missing = zero - load(gradient, column, lanes)
            store(gradient, column, where_positive(load(room.active, m + column, lanes), zero, missing))
        if _all_rounding(lanes, gradient, room.judged):
            break
        solve_system(pattern, system, gradient, room.right_rows, room.columns, room.rows, ENOUGH, ROUNDS)
        for row in range(m):
            change = where_positive(load(room.active, row, lanes), load(room.rows, row, lanes), zero)
            store(moved, row, load(moved, row, lanes) + change)
    write_stationarity(pattern, program, x, moved, gradient)
    for column in range(n):
        at_bound = load(room.active, m + column, lanes)
        missing = load(gradient, column, lanes)
        store(moved, m + column, where_positive(at_bound, zero - missing, zero))
        store(gradient, column, where_positive(at_bound, zero, missing))
    allowed = _allow_signs(lanes, program, multipliers, moved)
    accepted = allowed * _no_worse(lanes, before, largest_in_lanes(lanes, gradient), moved)
    copy_where(lanes, accepted, moved, multipliers)


@plain_kernel
def _allow_signs(lanes, program, multipliers, moved):
    """1 in the lanes where ``moved`` may replace the multipliers. A wrong sign that is rounding is removed."""
    zero = in_all(0.0, lanes)
    one = in_all(1.0, lanes)
    unlimited = in_all(1e300, lanes)
    rounding = in_all(1e-13, lanes)
    allowed = one
    for line in range(len(moved)):
        multiplier = load(moved, line, lanes)
        low = load(program.low, line, lanes)
        high = load(program.high, line, lanes)
        turned = where_positive(zero - multiplier * load(multipliers, line, lanes), high - low, zero)
        # Positive where there is no limit on the side of the multiplier.
        open_side = where_positive(multiplier, high - unlimited, where_positive(zero - multiplier, zero - unlimited - low, zero))
        wrong = where_positive(turned, one, where_positive(open_side, one, zero))
        allowed = where_positive(wrong * (size_of(multiplier) - rounding), zero, allowed)
        store(moved, line, where_positive(wrong, zero, multiplier))
    return allowed


@plain_kernel
def write_determined(pattern, system, room):
    """Fill ``judged``: the freedom that the active lines leave to x, relative; zero but for rounding if they determine it.

    Tested with a vector that is generic: no row space contains it by accident.
    """
    lanes = pattern.lanes
    n = len(pattern.at_column)
    m = len(pattern.at_row)
    zero = in_all(0.0, lanes)
    for column in range(n):
        probe = in_all(0.5 + (0.6180339887498949 * (column + 1)) % 1.0, lanes)
        store(room.right_columns, column, where_positive(load(room.active, m + column, lanes), zero, probe))
    fill(lanes, room.right_rows, 0.0)
    solve_system(pattern, system, room.right_columns, room.right_rows, room.columns, room.rows, 1e-8, ROUNDS)
    for column in range(n):
        free = where_positive(load(room.active, m + column, lanes), zero, load(room.columns, column, lanes))
        store(room.columns, column, free)
    store(room.judged, 0, largest_in_lanes(lanes, room.columns))
