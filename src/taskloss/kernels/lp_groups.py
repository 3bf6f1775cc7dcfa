"""Items of a batch for the kernels: one alone, or as many side by side as there are lanes."""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inner_kernel, plain_kernel
from taskloss.kernels.lp_program import Program


@inner_kernel
def program_of(entries, cost, quadratic, low, high, item):
    """One item."""
    return Program(entries[item], cost[item], quadratic[item], low[item], high[item])


@inner_kernel
def group_of(items, begin, lanes):
    """The items from ``begin`` on, one a lane; the last one again where there are no more."""
    group = np.empty(len(lanes), np.int64)
    for lane in range(len(lanes)):
        group[lane] = items[min(begin + lane, len(items) - 1)]
    return group


@plain_kernel
def load_rows(rows, group, in_lanes):
    """Rows of a batch side by side."""
    for lane in range(len(group)):
        row = rows[group[lane]]
        for place in range(len(row)):
            in_lanes[place, lane] = row[place]


@plain_kernel
def store_rows(in_lanes, group, rows):
    """The opposite of ``load_rows``."""
    for lane in range(len(group)):
        row = rows[group[lane]]
        for place in range(len(row)):
            row[place] = in_lanes[place, lane]


@inner_kernel
def make_program(pattern, entries, cost, low):
    """Empty room for a group."""
    width = len(pattern.lanes)
    n = cost.shape[1]
    lines = low.shape[1]
    return Program(
        np.empty((entries.shape[1], width)),
        np.empty((n, width)),
        np.empty((n, width)),
        np.empty((lines, width)),
        np.empty((lines, width)),
    )


@plain_kernel
def load_program(entries, cost, quadratic, low, high, group, program):
    """A group into its room."""
    load_rows(entries, group, program.entries)
    load_rows(cost, group, program.cost)
    load_rows(quadratic, group, program.quadratic)
    load_rows(low, group, program.low)
    load_rows(high, group, program.high)
