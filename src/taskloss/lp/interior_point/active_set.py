r"""Equations of the active set: from an almost optimal pair to an exact one, and the systems of its gradient.

Let J be the active rows, X the variables at a bound, R the other variables and ``B = A_{J,R}``. One factorization of

    [ I   B' ] [ p ]   [ f ]
    [ B   0  ] [ w ] = [ g ]              (in J and R; the diagonal of the other variables is 1, of the other rows -1)

gives all that is needed:

- with ``f = 0`` the least change ``p = B^+ g`` of x that puts the rows J on their bounds;
- with ``g = 0`` the least-squares multipliers ``w = B^{+T} f``, and the part ``p = (I - B^+ B) f`` of f that no active row sees.
  If that part is zero for a generic f, the active constraints determine x.

Rows of J that depend on others make the system singular: a tiny regularization, removed again by refinement, gives the
pseudo-inverse of B (for gradients, of B with its rows scaled to a largest entry of 1).

The active set is taken in two ways. The *polish*, which makes a pair exact, needs constraints that are surely active: those
with a multiplier, and equalities. The gradient and the user are told of all constraints *at* a bound
(``constraints_at_bounds``): these include degenerate ones, at a bound without a multiplier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.kernels._numba import allocating_kernel, inner_kernel, kernel
from taskloss.lp.interior_point.data import (
    ProgramData,
    copy_values,
    largest_magnitude,
    program_of,
    write_activity,
    write_stationarity,
)
from taskloss.lp.interior_point.kkt import FULL_ACCURACY, NO_REFINEMENT, factorize_kkt, make_kkt, solve_kkt
from taskloss.lp.interior_point.termination import largest_violation, optimality

AT_BOUND = 1e-9
"""A constraint of a scaled program is at its bound when it is nearer than this."""
POLISH_REGULARIZATION = 1e-10
"""Of the rows of the system; small, since the polish checks its result."""
GRADIENT_REGULARIZATION = 1e-7
"""Larger than that of the polish: dependent rows get rounding divided by it, and here nothing checks the result."""
POLISH_ROUNDS = 8
"""Corrections of x, and of the multipliers, at most; a correction that does not halve the residual is the last."""
PROBE_REFINEMENTS = np.int64(3)
GRADIENT_REFINEMENTS = np.int64(10)
ACCEPTABLE = 1e-14
"""Residual that a polished pair may have, even if the pair before it had less."""
WRONG_SIGN = 1e-13
"""A multiplier of the wrong sign that is no larger is rounding, and is set to zero."""
NOT_UNIQUE = 1e-6
"""Largest entry of the part of a probe, of entries near 1, that no active row sees; above this x counts as not unique."""


class PolishWorkspace(NamedTuple):
    """Arrays of the polish, made once per batch; ``N = m + n`` constraints."""

    active: np.ndarray
    """Which constraints are active, bool ``(N,)``."""
    bound: np.ndarray
    """The bound of each active constraint, ``(N,)``; 0 for the others."""
    activity: np.ndarray
    """``(N,)``."""
    x: np.ndarray
    """Candidate for x, ``(n,)``."""
    multipliers: np.ndarray
    """Candidate for the multipliers, ``(N,)``."""
    rhs_x: np.ndarray
    """``(n,)``."""
    rhs_y: np.ndarray
    """``(m,)``."""
    dx: np.ndarray
    """``(n,)``."""
    dy: np.ndarray
    """``(m,)``."""


@allocating_kernel
def make_polish_workspace(n, m):
    """Return a workspace for programs with n variables and m rows."""
    return PolishWorkspace(
        active=np.empty(m + n, np.bool_),
        bound=np.empty(m + n, np.float64),
        activity=np.empty(m + n, np.float64),
        x=np.empty(n, np.float64),
        multipliers=np.empty(m + n, np.float64),
        rhs_x=np.empty(n, np.float64),
        rhs_y=np.empty(m, np.float64),
        dx=np.empty(n, np.float64),
        dy=np.empty(m, np.float64),
    )


def constraints_at_bounds(
    programs: ProgramData, activity: np.ndarray, multipliers: np.ndarray, distance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which constraints are at their lower and which at their upper bound, bool ``(B, m + n)`` each.

    They are nearer than ``distance (B, m + n)`` or have a multiplier. An equality counts as at its upper bound.
    """
    at_upper = (np.abs(programs.upper - activity) <= distance) | (multipliers > 0.0) | (programs.lower == programs.upper)
    at_lower = (np.abs(activity - programs.lower) <= distance) | (multipliers < 0.0)
    return at_lower & ~at_upper, at_upper


@kernel
def polish_batch(programs, items, identify, x, multipliers, unique, error):
    """Solve the equations of the active set for some programs of a batch.

    Args:
        programs: a batch; read.
        items: indices of the programs to polish.
        identify: if true, active are the constraints whose multiplier exceeds their distance from the bound, as it does near
            a solution, and the other multipliers become zero. If false, active are those with a multiplier. Equalities are always
            active.
        x: ``(B, n)``; improved in place, unless it would get worse.
        multipliers: ``(B, m + n)``; likewise.
        unique: bool ``(B,)``; written: whether the active constraints determine x.
        error: ``(B,)``; written.
    """
    n = programs.cost.shape[1]
    m = len(programs.sparsity.row_start) - 1
    kkt = make_kkt(programs.sparsity)
    workspace = make_polish_workspace(n, m)
    for item in items:
        program = program_of(programs, item)
        _find_active(program, x[item], multipliers[item], identify, workspace)
        factorize_active_set(program.sparsity, program.entries, workspace.active, POLISH_REGULARIZATION, kkt)
        _polish_primal(program, kkt, x[item], workspace)
        _polish_dual(program, kkt, x[item], multipliers[item], workspace)
        unique[item] = _is_unique(program.sparsity, kkt, workspace)
        error[item], _ = optimality(program, x[item], multipliers[item], workspace.activity, workspace.rhs_x)


@inner_kernel
def factorize_active_set(sparsity, entries, active, regularization, kkt):
    """Assemble and factorize the system above for the constraints that are ``active (m + n,)``."""
    m = len(sparsity.row_position)
    for row in range(m):
        for entry in range(sparsity.row_start[row], sparsity.row_start[row + 1]):
            kept = active[row] and not active[m + sparsity.columns[entry]]
            kkt.off_diagonal[sparsity.kkt_entry[entry]] = entries[entry] if kept else 0.0
        position = sparsity.row_position[row]
        kkt.diagonal[position] = -regularization if active[row] else -1.0
        kkt.regularization[position] = -regularization if active[row] else 0.0
    for column in range(len(sparsity.column_position)):
        position = sparsity.column_position[column]
        kkt.diagonal[position] = 1.0
        kkt.regularization[position] = 0.0
    factorize_kkt(sparsity, kkt)


@inner_kernel
def _find_active(program, x, multipliers, identify, workspace):
    """Fill ``active`` and ``bound``; with ``identify``, multipliers that are smaller than their slack become zero."""
    write_activity(program, x, workspace.activity)
    for i in range(len(multipliers)):
        bound = program.upper[i] if multipliers[i] > 0.0 else program.lower[i]
        if identify and abs(workspace.activity[i] - bound) > abs(multipliers[i]):
            multipliers[i] = 0.0
        workspace.active[i] = multipliers[i] != 0.0 or program.lower[i] == program.upper[i]
        workspace.bound[i] = bound if workspace.active[i] else 0.0


@inner_kernel
def _polish_primal(program, kkt, x, workspace):
    """Put the active constraints exactly on their bounds, unless that violates others."""
    n = len(x)
    m = len(workspace.rhs_y)
    moved = workspace.x
    violation = largest_violation(program, workspace.activity)
    for column in range(n):
        moved[column] = workspace.bound[m + column] if workspace.active[m + column] else x[column]
        workspace.rhs_x[column] = 0.0
    residual_before = np.inf
    for _ in range(POLISH_ROUNDS):
        write_activity(program, moved, workspace.activity)
        for row in range(m):
            workspace.rhs_y[row] = workspace.bound[row] - workspace.activity[row] if workspace.active[row] else 0.0
        residual = largest_magnitude(workspace.rhs_y)
        if residual == 0.0 or not residual <= 0.5 * residual_before:
            break
        residual_before = residual
        solve_kkt(program.sparsity, kkt, workspace.rhs_x, workspace.rhs_y, workspace.dx, workspace.dy, np.inf, NO_REFINEMENT)
        for column in range(n):
            if not workspace.active[m + column]:
                moved[column] += workspace.dx[column]
    write_activity(program, moved, workspace.activity)
    if _no_worse(violation, largest_violation(program, workspace.activity), moved):
        copy_values(moved, x)


@inner_kernel
def _polish_dual(program, kkt, x, multipliers, workspace):
    """Make the multipliers of the active constraints stationary, unless that turns a sign."""
    n = len(x)
    m = len(workspace.rhs_y)
    gradient, moved = workspace.rhs_x, workspace.multipliers
    write_stationarity(program, x, multipliers, gradient)
    residual_given = largest_magnitude(gradient)
    for row in range(m):
        moved[row] = multipliers[row]
        workspace.rhs_y[row] = 0.0
    for column in range(n):
        moved[m + column] = 0.0
    residual_before = np.inf
    for _ in range(POLISH_ROUNDS):
        write_stationarity(program, x, moved, gradient)
        for column in range(n):
            gradient[column] = 0.0 if workspace.active[m + column] else -gradient[column]
        residual = largest_magnitude(gradient)
        if residual == 0.0 or not residual <= 0.5 * residual_before:
            break
        residual_before = residual
        solve_kkt(program.sparsity, kkt, gradient, workspace.rhs_y, workspace.dx, workspace.dy, np.inf, NO_REFINEMENT)
        for row in range(m):
            if workspace.active[row]:
                moved[row] += workspace.dy[row]
    write_stationarity(program, x, moved, gradient)
    for column in range(n):
        if workspace.active[m + column]:
            moved[m + column] = -gradient[column]
            gradient[column] = 0.0
    if _signs_allowed(program, multipliers, moved) and _no_worse(residual_given, largest_magnitude(gradient), moved):
        copy_values(moved, multipliers)


@inner_kernel
def _no_worse(before, after, moved):
    """Whether a candidate is finite and its residual not larger than before, except for rounding."""
    return after <= max(before, ACCEPTABLE) and largest_magnitude(moved) < np.inf


@inner_kernel
def _signs_allowed(program, multipliers, moved):
    """Whether the signs of ``moved`` fit the bounds and the multipliers before; tiny ones that do not are set to zero."""
    allowed = True
    for i in range(len(moved)):
        turned = moved[i] * multipliers[i] < 0.0 and program.lower[i] < program.upper[i]
        no_upper = moved[i] > 0.0 and program.upper[i] == np.inf
        no_lower = moved[i] < 0.0 and program.lower[i] == -np.inf
        if turned or no_upper or no_lower:
            if abs(moved[i]) > WRONG_SIGN:
                allowed = False
            moved[i] = 0.0
    return allowed


@inner_kernel
def _is_unique(sparsity, kkt, workspace):
    """Whether the active constraints determine x, tested with a fixed vector that is unlikely to be in a row space.

    It is not linear in the index, even modulo 1: alternating sums of such a vector vanish along the cycles of transport programs.
    """
    m = len(workspace.rhs_y)
    for column in range(len(workspace.rhs_x)):
        probe = 0.5 + (0.6180339887498949 * (column + 1) * (column + 1)) % 1.0
        workspace.rhs_x[column] = 0.0 if workspace.active[m + column] else probe
    for row in range(m):
        workspace.rhs_y[row] = 0.0
    rhs = workspace.rhs_x, workspace.rhs_y
    solve_kkt(sparsity, kkt, *rhs, workspace.dx, workspace.dy, 1e-8, PROBE_REFINEMENTS)
    for column in range(len(workspace.dx)):
        if workspace.active[m + column]:
            workspace.dx[column] = 0.0
    return largest_magnitude(workspace.dx) < NOT_UNIQUE


@kernel
def solve_active_set_batch(programs, items, active, rhs, unseen, row_duals, transposed):
    """Solve the systems of the active-set gradient for some programs of a batch.

    The rows are first scaled to a largest entry of 1, so that the regularization means the same for all; ``B^+`` does not change
    where the rows of B are independent, and where they are not, it weighs them equally.

    Args:
        programs: a batch; read.
        items: indices of the programs.
        active: bool ``(B, m + n)``; read.
        rhs: f, ``(B, n)``; read.
        unseen: ``(I - B^+ B) f``, ``(B, n)``; written.
        row_duals: ``w = B^{+T} f``, ``(B, m)``; written, zero for rows that are not active.
        transposed: ``A' w``, ``(B, n)``; written.
    """
    sparsity = programs.sparsity
    row_start, columns = sparsity.row_start, sparsity.columns
    m = len(row_start) - 1
    kkt = make_kkt(sparsity)
    scaled = np.empty(programs.entries.shape[1], np.float64)
    scale, zero = np.empty(m, np.float64), np.zeros(m, np.float64)
    for item in items:
        entries = programs.entries[item]
        for row in range(m):
            largest = 0.0
            for entry in range(row_start[row], row_start[row + 1]):
                if not active[item, m + columns[entry]]:
                    largest = max(largest, abs(entries[entry]))
            scale[row] = 1.0 / largest if largest > 0.0 else 1.0
            for entry in range(row_start[row], row_start[row + 1]):
                scaled[entry] = entries[entry] * scale[row]
        factorize_active_set(sparsity, scaled, active[item], GRADIENT_REGULARIZATION, kkt)
        solve_kkt(sparsity, kkt, rhs[item], zero, unseen[item], row_duals[item], FULL_ACCURACY, GRADIENT_REFINEMENTS)
        transposed[item] = 0.0
        for row in range(m):
            row_duals[item, row] = row_duals[item, row] * scale[row] if active[item, row] else 0.0
            if row_duals[item, row] != 0.0:
                for entry in range(row_start[row], row_start[row + 1]):
                    transposed[item, columns[entry]] += entries[entry] * row_duals[item, row]
