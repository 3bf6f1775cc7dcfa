r"""Least-norm multipliers: the choice where a program has several dual solutions.

At an optimal x the dual solutions are the multipliers that are stationary, ``c + A'y + z = 0``, and of the right sign at the
bounds where x stands, zero elsewhere. At a degenerate vertex, or with dependent equations, there are many, the optimal value has
a kink, and which of them a method finds is chance. The gradient of the optimal value should not be, so the y of least norm (of
the equilibrated program) is taken. By duality it belongs to

    min_d  c'd + 1/2 |e|^2    with  A d - e  and  d  in the cone of directions that keep the bounds where x stands,

the *relaxed* program of ``predictor_corrector``, at whose solution ``y = e``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from taskloss.lp.interior_point.data import ProgramData
from taskloss.lp.interior_point.equilibration import equilibrate_batch, identity_equilibration
from taskloss.lp.interior_point.predictor_corrector import interior_point_batch
from taskloss.lp.interior_point.termination import optimality_batch

if TYPE_CHECKING:
    from taskloss.lp.solution import Result

MAX_ITERATIONS = 200
TOLERANCE = 1e-14
ACCEPTABLE = 1e-9
"""Error that a solution with the least-norm multipliers may have, if its error was less before."""


def least_norm_multipliers(programs: ProgramData, result: Result) -> np.ndarray:
    """Return the multipliers of the solutions, ``(B, m + n)``, those of least norm where there may be several.

    If x is unique and has no more constraints at a bound than variables, these are independent, and there is only one choice.
    """
    n, m = programs.cost.shape[1], programs.num_rows
    active = result.at_lower | result.at_upper
    items = np.flatnonzero((result.statuses == 0) & ~(result.unique & (active.sum(axis=1) <= n)))
    if not len(items):
        return result.multipliers
    equal = programs.lower == programs.upper
    cone = programs._replace(
        entries=programs.entries.copy(),
        cost=programs.cost.copy(),
        lower=np.where(result.at_lower | equal, 0.0, -np.inf),
        upper=np.where(result.at_upper, 0.0, np.inf),
    )
    equilibration = identity_equilibration(programs.num_items, m, n)
    equilibrate_batch(cone, equilibration)
    direction, multipliers = np.zeros_like(cone.cost), np.zeros_like(cone.lower)
    error, gap, iterations = np.full(len(direction), np.inf), np.empty(len(direction)), np.zeros(len(direction), np.int64)
    settings = 1.0, 1e-11, 1e-13, TOLERANCE, MAX_ITERATIONS
    no_trace = np.empty((len(direction), 0, n))
    interior_point_batch(cone, items, *settings, direction, multipliers, error, iterations, no_trace)
    _, multipliers = equilibration.unscaled(direction, multipliers)
    optimality_batch(programs, items, result.x, multipliers, np.empty_like(multipliers), error, gap)
    taken = items[error[items] <= np.maximum(result.error[items], ACCEPTABLE)]
    chosen = result.multipliers.copy()
    chosen[taken] = multipliers[taken]
    return chosen
