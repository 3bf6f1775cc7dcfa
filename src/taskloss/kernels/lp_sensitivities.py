"""The linear systems of the gradients (``lp.gradients``), over the items of a batch: compiled entries.

Arrays have one row an item; ``items`` says which rows are worked on, and what is found is written in place.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._lanes import in_all, larger, load, size_of, store, where_positive
from taskloss.kernels._numba import kernel, plain_kernel
from taskloss.kernels.lp_groups import group_of, load_rows, program_of, store_rows
from taskloss.kernels.lp_multipliers import write_penalty_matrix
from taskloss.kernels.lp_polish import SENSITIVE_SHIFT, factorize_active
from taskloss.kernels.lp_program import factorize_system, make_system, solve_system, solve_system_of_one
from taskloss.kernels.sparse_ldl import ENOUGH

ROUNDS = np.int64(10)
"""Of refinement, at most."""


@kernel
def sensitivities_many(pattern, entries, active, right, items, unseen, duals, held):
    """``(I - B^+ B) right``, ``lam = B^{+T} right`` and ``A' lam`` of each item.

    B: its active rows at the variables that are not at a bound.

    The rows are scaled to a largest entry near 1 first, so that the shift of the factorization means the same for all; ``B^+``
    does not change where the rows of B are independent, and where they are not it weighs them equally.
    """
    width = len(pattern.lanes)
    n = right.shape[1]
    m = len(pattern.at_row)
    system = make_system(pattern)
    scaled = np.empty((entries.shape[1], width))
    scale = np.empty((m, width))
    nothing = np.zeros((m, width))
    lane_active = np.empty((m + n, width))
    lane_right = np.empty((n, width))
    lane_unseen = np.empty((n, width))
    lane_duals = np.empty((m, width))
    for begin in range(0, len(items), width):
        group = group_of(items, begin, pattern.lanes)
        load_rows(entries, group, scaled)
        load_rows(active, group, lane_active)
        load_rows(right, group, lane_right)
        _scale_rows(pattern, lane_active, scaled, scale)
        factorize_active(pattern, scaled, system, lane_active, SENSITIVE_SHIFT)
        solve_system(pattern, system, lane_right, nothing, lane_unseen, lane_duals, ENOUGH, ROUNDS)
        for row in range(m):
            for lane in range(width):
                lane_duals[row, lane] = lane_duals[row, lane] * scale[row, lane] if lane_active[row, lane] > 0.0 else 0.0
        store_rows(lane_unseen, group, unseen)
        store_rows(lane_duals, group, duals)
    for item in items:
        held[item] = 0.0
        for row in range(m):
            if duals[item, row] != 0.0:
                for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
                    held[item, pattern.columns[entry]] += entries[item, entry] * duals[item, row]


@plain_kernel
def _scale_rows(pattern, active, entries, scale):
    """Divide each row by its largest entry at the variables that are not at a bound; ``scale``: one over that."""
    m = len(pattern.at_row)
    lanes = pattern.lanes
    zero = in_all(0.0, lanes)
    one = in_all(1.0, lanes)
    for row in range(m):
        size = zero
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            at_bound = load(active, m + pattern.columns[entry], lanes)
            size = larger(where_positive(at_bound, zero, size_of(load(entries, entry, lanes))), size)
        factor = where_positive(size, one / size, one)
        store(scale, row, factor)
        for entry in range(pattern.row_start[row], pattern.row_start[row + 1]):
            store(entries, entry, load(entries, entry, lanes) * factor)


@kernel
def penalty_solve_many(pattern, entries, cost, quadratic, low, high, active, sigma, right, items, solved):
    """``H^{-1} right`` of each item, H the Hessian of the penalty function with these active lines."""
    system = make_system(pattern)
    nothing = np.zeros(len(pattern.at_row))
    ignored = np.empty(len(pattern.at_row))
    for item in items:
        program = program_of(entries, cost, quadratic, low, high, item)
        write_penalty_matrix(pattern, program, system, active[item], sigma, sigma * 1e-12)
        factorize_system(pattern, system)
        solve_system_of_one(pattern, system, right[item], nothing, solved[item], ignored, ENOUGH, ROUNDS)
