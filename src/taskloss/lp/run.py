"""One run of the solver over some of a batch, on one thread: the stages of the compiled methods, joined.

See ``lp.solver`` for what the methods are.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels import lp_batch
from taskloss.lp.arrays import Arrays
from taskloss.lp.engine import Found, Settings
from taskloss.lp.solution import Status

INTERIOR_STEPS = 200
FINISHING_STEPS = 150
WARM_STEPS = 60
UPDATES = 500
ATTEMPTS = ((1e-11, 1e-8), (1e-13, 1e-13), (1e-9, 1e-13))
"""Regularization of the interior method, and how exactly its steps are solved: the usual, and what helps where that fails."""
GUESS = 1e-6
"""So near a solution it is worth guessing which lines are active."""
TIGHT = 1e-9
"""A line of a scaled program is at its limit when it is nearer than this."""


class Run:
    """The state of one solve: scaled arrays, iterates, what each item has come to. ``scaled``: leave the arrays as they are."""

    def __init__(self, given: Arrays, settings: Settings, scaled: bool = False) -> None:
        items, n, m = given.num_items, given.cost.shape[1], given.num_rows
        self.given, self.settings = given, settings
        self.everything = np.arange(items)
        self.scaled = Arrays(given.pattern, *(array.copy() for array in given.program()))
        self.row_scale, self.column_scale = np.ones((items, m)), np.ones((items, n))
        self.limit_scale, self.cost_scale = np.ones(items), np.ones(items)
        # The paper's epsilon is in the units of the problem.
        if not scaled and settings.method != "penalty":
            part = self.scaled
            scales = self.row_scale, self.column_scale, self.limit_scale, self.cost_scale
            lp_batch.scale_many(part.pattern_for(self.everything), *part.program(), self.everything, *scales)
        self.x, self.multipliers = np.zeros((items, n)), np.zeros((items, m + n))
        self.warm = False
        self.error, self.steps = np.full(items, np.inf), np.zeros(items, np.int64)
        self.status = np.full(items, Status.STEP_LIMIT, np.int64)
        self.determined, self.polished = np.zeros(items, np.bool_), np.zeros(items, np.bool_)
        self.trace = np.empty((items, settings.max_steps if settings.trace else 0, n))
        self.certificates: list[np.ndarray | None] = [None] * items

    def begin_at(self, x: np.ndarray, multipliers: np.ndarray) -> None:
        """Start from a pair in the units of the problem."""
        self.warm = True
        self.x[:] = x * self.limit_scale[:, None] / self.column_scale
        self.multipliers[:] = multipliers * self.cost_scale[:, None] / self._dual_scale()

    def found(self) -> Found:
        """Solve, and say where that ended."""
        if self.settings.method == "penalty":
            self._minimize_penalty()
        else:
            self._search()
        given = self.given
        x, multipliers = np.empty_like(self.x), np.empty_like(self.multipliers)
        at_low, at_high = np.empty(given.low.shape, np.bool_), np.empty(given.low.shape, np.bool_)
        gap = np.empty(len(x))
        lp_batch.finish_many(
            given.pattern_for(self.everything),
            *given.program(),
            self.x,
            self.multipliers,
            self.row_scale,
            self.column_scale,
            self.limit_scale,
            self.cost_scale,
            self.everything,
            x,
            multipliers,
            TIGHT,
            at_low,
            at_high,
            self.error,
            gap,
        )
        self.status[(self.status == Status.OPTIMAL) & ~(self.error <= self.settings.tolerance)] = Status.STEP_LIMIT
        objective = (given.cost * x).sum(axis=1)
        return Found(
            x=x,
            multipliers=multipliers,
            at_low=at_low,
            at_high=at_high,
            objective=objective,
            error=self.error,
            gap=gap,
            steps=self.steps,
            determined=self.determined,
            statuses=self.status,
            certificates=self.certificates,
            traces=self._traces() if self.settings.trace else [],
        )

    def _traces(self) -> list[np.ndarray]:
        unscale = self.column_scale / self.limit_scale[:, None]
        return [steps[: int(count)] * scale for steps, count, scale in zip(self.trace, self.steps, unscale, strict=True)]

    def _search(self) -> None:
        """Find an optimal pair for every item, or a proof that there is none."""
        method, _, tolerance, max_steps, _ = self.settings
        fine = 0.01 * tolerance
        left = self.everything
        if self.warm or method == "multipliers":
            budget = max_steps if method == "multipliers" else min(WARM_STEPS, max_steps)
            self._improve(left, 1e3 if self.warm else 1.0, fine, budget)
            left = left[self.error > tolerance]
        if method == "newton" and len(left):
            self._from_inside(left, fine, max_steps)
        solved = self.error <= 10.0 * tolerance
        if not self.polished.all():
            left = self.everything[solved & ~self.polished]
            self._polish(left)
        if not self.determined.all():
            self._least_norm(self.everything[solved & ~self.determined])
        self.status[solved] = Status.OPTIMAL
        for item in self.everything[~solved]:
            self._disprove(int(item))
        self._judge(self.everything[~solved])

    def _minimize_penalty(self) -> None:
        """The paper's method: one minimization, duals by thresholding, the primal from the active rows."""
        _, epsilon, tolerance, max_steps, _ = self.settings
        items = self.everything
        self.multipliers[:] = 0.0
        pair = self.x, self.multipliers
        self._multipliers(self.scaled, *pair, items, 1.0 / epsilon, 1, 1e-3 * tolerance, max_steps, self.error)
        self._polish(items)
        self.status[self.error <= tolerance] = Status.OPTIMAL

    def _from_inside(self, items: np.ndarray, tolerance: float, max_steps: int) -> None:
        """The interior method, then a guess of the active lines, or else the multiplier method.

        Again with other settings where that was not enough.
        """
        for attempt, (shift, enough) in enumerate(ATTEMPTS):
            before = self._state() if attempt or self.warm else None
            self._step_inside(items, shift, enough, tolerance, max_steps)
            if before is not None:
                self._restore(items[self.error[items] > before[2][items]], before)
            items = items[(self.error[items] > 100.0 * tolerance) & (self.error[items] <= 1e-3)]
            if not len(items):
                return

    def _step_inside(self, items: np.ndarray, shift: float, enough: float, tolerance: float, max_steps: int) -> None:
        lp_batch.interior_many(
            self.scaled.pattern_for(items),
            *self.scaled.program(),
            self.x,
            self.multipliers,
            items,
            0.0,
            shift,
            enough,
            tolerance,
            min(INTERIOR_STEPS, max_steps),
            self.trace,
            self.error,
            self.steps,
        )
        self._guess(items[self.error[items] <= GUESS], tolerance)
        left = items[~self.polished[items]]
        self._improve(left[self.error[left] <= 1e-3], 1e3, tolerance, min(FINISHING_STEPS, max_steps))

    def _guess(self, items: np.ndarray, tolerance: float) -> None:
        """Take the lines that seem active for active; what is not optimal then stays as it was."""
        if not len(items):
            return
        before = self._state()
        self._polish(items, guess=True)
        optimal = self.error[items] <= tolerance
        self.polished[items] = optimal
        if not optimal.all():
            self.determined[items[~optimal]] = False
            self._restore(items[~optimal], before)

    def _state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.x.copy(), self.multipliers.copy(), self.error.copy()

    def _restore(self, items: np.ndarray, before: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """Go back to where the items were."""
        x, multipliers, error = before
        self.x[items], self.multipliers[items], self.error[items] = x[items], multipliers[items], error[items]

    def _improve(self, items: np.ndarray, sigma: float, tolerance: float, max_steps: int) -> None:
        """The multiplier method, where it helps."""
        self._multipliers(self.scaled, self.x, self.multipliers, items, sigma, UPDATES, tolerance, max_steps, self.error)

    def _multipliers(
        self,
        part: Arrays,
        x: np.ndarray,
        multipliers: np.ndarray,
        items: np.ndarray,
        sigma: float,
        updates: int,
        tolerance: float,
        max_steps: int,
        error: np.ndarray,
    ) -> None:
        if len(items):
            settings = sigma, updates, tolerance, max_steps
            lp_batch.multipliers_many(
                part.pattern, *part.program(), x, multipliers, items, *settings, self.trace, self.steps, error
            )

    def _judge(self, items: np.ndarray) -> None:
        part = self.scaled
        if len(items):
            lp_batch.errors_many(part.pattern, *part.program(), self.x, self.multipliers, items, self.error)

    def _polish(self, items: np.ndarray, guess: bool = False) -> None:
        """Solve the equations of the active lines; ``error`` and ``determined`` are those of the outcome."""
        part = self.scaled
        if len(items):
            pattern = part.pattern_for(items)
            pair = self.x, self.multipliers
            lp_batch.polish_many(pattern, *part.program(), *pair, items, guess, self.determined, self.error)

    def _least_norm(self, items: np.ndarray) -> None:
        """Move to the solution of least norm on the face where every line with a multiplier stays on its limit.

        Any solution is complementary to any dual solution, so that face holds all the solutions.
        """
        if not len(items):
            return
        part, duals = self.scaled, self.multipliers
        low, high = np.where(duals > 0.0, part.high, part.low), np.where(duals < 0.0, part.low, part.high)
        weights = self.column_scale**2
        face = Arrays(
            part.pattern, part.entries, np.zeros_like(part.cost), weights / weights.max(axis=1, keepdims=True), low, high
        )
        x, multipliers = self.x.copy(), np.zeros_like(duals)
        unknown = np.full_like(self.error, np.inf)
        self._multipliers(face, x, multipliers, items, 1e3, UPDATES, 1e-12, FINISHING_STEPS, unknown)
        before, error = self.x[items].copy(), self.error[items].copy()
        self.x[items] = x[items]
        self._judge(items)
        worse = self.error[items] > np.maximum(error, 1e-10)
        self.x[items[worse]], self.error[items[worse]] = before[worse], error[worse]

    def _disprove(self, item: int) -> None:
        """Look for a proof that one program has no solution."""
        part = self.scaled.part(slice(item, item + 1))
        point, proof, missed = _find_infeasibility(part)
        if proof is not None:
            self.status[item] = Status.INFEASIBLE
            self.certificates[item] = proof * self.row_scale[item]
            return
        ray = _find_ray(part) if missed <= TIGHT else None
        if ray is not None:
            self.status[item] = Status.UNBOUNDED
            self.certificates[item] = ray * self.column_scale[item]
            self.x[item], self.multipliers[item] = point, 0.0

    def _dual_scale(self) -> np.ndarray:
        return np.concatenate([self.row_scale, 1.0 / self.column_scale], axis=1)


def _find_infeasibility(part: Arrays) -> tuple[np.ndarray, np.ndarray | None, float]:
    """A point near the limits of one scaled program, a Farkas vector if one is found, and by how much the point misses.

    The interior method with softness 1 solves ``min 1/2 |e|^2`` with ``A x - e`` within the row limits; ``e`` then equals the
    multipliers. Newton's method on the distance from all the limits sharpens the answer where it converges.
    """
    m = part.num_rows
    apart = Arrays(part.pattern, part.entries, np.zeros_like(part.cost), part.quadratic, part.low, part.high)
    x, multipliers, error, steps = np.zeros_like(part.cost), np.zeros_like(part.low), np.empty(1), np.zeros(1, np.int64)
    one, nothing = np.zeros(1, np.int64), np.empty((1, 0, x.shape[1]))
    lp_batch.interior_many(
        part.pattern, *apart.program(), x, multipliers, one, 1.0, 1e-11, 1e-13, 1e-15, INTERIOR_STEPS, nothing, error, steps
    )
    size_of_x = 10.0 * min(max(float(np.abs(x).max()), 1.0), 1e3)
    for sharpen in (False, True):
        if sharpen:
            multipliers[:] = 0.0
            error[:] = np.inf
            lp_batch.multipliers_many(
                part.pattern, *apart.program(), x, multipliers, one, 1.0, 1, 1e-17, 100, nothing, steps, error
            )
        proof = multipliers[0, :m].copy()
        if lp_batch.check_proof(part.pattern, part.entries[0], part.cost[0], part.low[0], part.high[0], proof, size_of_x):
            return x[0], proof, np.inf
    values = np.empty_like(part.low)
    lp_batch.values_many(part.pattern, part.entries, x, values)
    return x[0], None, float(np.maximum(part.low - values, values - part.high).max())


def _find_ray(part: Arrays) -> np.ndarray | None:
    """The steepest direction within the unit box that no limit stops, if it proves one scaled program unbounded."""
    m = part.num_rows
    low, high = np.where(part.low > -np.inf, 0.0, -np.inf), np.where(part.high < np.inf, 0.0, np.inf)
    low[:, m:], high[:, m:] = np.maximum(low[:, m:], -1.0), np.minimum(high[:, m:], 1.0)
    # The part is scaled already.
    run = Run(Arrays(part.pattern, part.entries, part.cost, part.quadratic, low, high), Settings(), scaled=True)
    run._from_inside(np.zeros(1, np.int64), 1e-10, INTERIOR_STEPS)
    direction = run.x[0].copy()
    found = lp_batch.check_ray(part.pattern, part.entries[0], part.cost[0], part.low[0], part.high[0], direction)
    return direction if found else None
