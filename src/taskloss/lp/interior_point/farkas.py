"""The search for a Farkas vector, which proves that a linear program is infeasible; ``certificates`` checks the proof."""

from __future__ import annotations

import numpy as np

from taskloss.lp.interior_point.augmented_lagrangian import augmented_lagrangian_batch
from taskloss.lp.interior_point.certificates import proves_infeasible
from taskloss.lp.interior_point.data import ProgramData, activity_batch
from taskloss.lp.interior_point.predictor_corrector import interior_point_batch


def find_farkas_vector(program: ProgramData, max_iterations: int) -> tuple[np.ndarray, np.ndarray | None, float]:
    """Return a point near all bounds of one scaled program, a Farkas vector if one is found, and the point's violation.

    The interior-point method with relaxation 1 solves ``min 1/2 |e|^2`` with ``A x - e`` within the row bounds; e then equals the
    multipliers. Newton's method on the distance from all bounds sharpens the answer where it converges.
    """
    m = program.num_rows
    feasibility = program._replace(cost=np.zeros_like(program.cost))
    x, multipliers = np.zeros_like(program.cost), np.zeros_like(program.lower)
    error, iterations, no_trace = np.empty(1), np.zeros(1, np.int64), np.empty((1, 0, x.shape[1]))
    item = np.zeros(1, np.int64)
    settings = 1.0, 1e-11, 1e-13, 1e-15, max_iterations
    interior_point_batch(feasibility, item, *settings, x, multipliers, error, iterations, no_trace)
    size_of_x = 10.0 * min(max(float(np.abs(x).max()), 1.0), 1e3)
    for sharpen in (False, True):
        if sharpen:
            multipliers[:] = 0.0
            error[:] = np.inf
            state = x, multipliers, error, iterations, no_trace
            augmented_lagrangian_batch(feasibility, item, 1.0, 1, 1e-17, 100, *state)
        farkas = multipliers[0, :m].copy()
        if proves_infeasible(program.item(0), farkas, size_of_x):
            return x[0], farkas, np.inf
    activity = np.empty_like(program.lower)
    activity_batch(program, x, activity)
    return x[0], None, float(np.maximum(program.lower - activity, activity - program.upper).max())
