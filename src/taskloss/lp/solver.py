"""Solving: the stages of the compiled solvers, joined.

``"newton"`` (default). The program is equilibrated. From a cold start the interior method comes near the solution in ten to
fifty Newton steps, then Newton's method with multiplier updates, which ends finitely, makes the pair exact; from a warm start
the latter begins at once. A last factorization puts the active rows on their limits, and where the solution is not unique the
least-norm one is taken. If no optimal pair is found, a proof of infeasibility or unboundedness is looked for.

``"multipliers"``. Newton on the exterior penalty with multiplier updates alone, from zero: the method of the paper made exact. It
solves most programs, but stalls on badly scaled and degenerate ones, which is why it is not the default.

``"penalty"``. The paper's (Meng et al. 2021, after Mangasarian 2004): one minimization of the penalty at a given epsilon,
duals by thresholding, the primal from the active rows. Exact when epsilon is small enough, and nothing tells when it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from taskloss._checks import check_choice, check_count, check_positive
from taskloss.kernels import lp_batch
from taskloss.lp.arrays import Arrays, arrays_of
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import ActiveSet, Solution, Status
from taskloss.lp.threads import in_threads

METHODS = ("newton", "multipliers", "penalty")
INTERIOR_STEPS = 200
FINISHING_STEPS = 150
WARM_STEPS = 60
UPDATES = 500
ATTEMPTS = ((1e-11, 1e-8), (1e-13, 1e-13), (1e-9, 1e-13))
"""Regularization of the interior method, and how exactly its steps are solved: the usual, and what helps where that fails."""
TIGHT = 1e-9
"""A line of a scaled program is at its limit when it is nearer than this."""


def solve(
    problem: LinearProgram,
    *,
    method: str = "newton",
    epsilon: float = 1e-3,
    tolerance: float = 1e-8,
    max_steps: int = 2000,
    warm_start: Solution | None = None,
    trace: bool = False,
) -> Solution:
    """Solve a linear program, or a batch of them in one call. No gradient: see ``LPLayer``.

    ``tolerance``: relative, of feasibility, stationarity and the duality gap. ``epsilon``: of ``method="penalty"`` alone.
    ``warm_start``: the solution of a similar problem of the same shape. ``trace``: keep the iterates (before the last polish).

    >>> import torch
    >>> problem = LinearProgram(torch.tensor([1.0, 2.0]), A_ub=torch.tensor([[-1.0, -1.0]]), b_ub=torch.tensor([-1.0]), lower=0.0)
    >>> solution = solve(problem)
    >>> solution.x.tolist(), solution.status.name
    ([1.0, 0.0], 'OPTIMAL')
    """
    if not isinstance(problem, LinearProgram):
        raise TypeError(f"expected a LinearProgram, got {type(problem).__name__}")
    check_choice("method", method, METHODS)
    check_positive("epsilon", epsilon)
    check_positive("tolerance", tolerance)
    check_count("max_steps", max_steps)
    run = Run(arrays_of(problem), max_steps if trace else 0, scaled=method != "penalty")
    if warm_start is not None:
        run.begin_at(warm_start)
    if method == "penalty":
        run.minimize_penalty(epsilon, tolerance, max_steps)
    else:
        run.search(method, tolerance, max_steps, warm_start is not None)
    return run.solution(problem, run.found(), tolerance)


class Run:
    """The state of one solve: scaled arrays, iterates, what each item has come to."""

    def __init__(self, given: Arrays, traced: int = 0, scaled: bool = True) -> None:
        items, n, m = given.num_items, given.cost.shape[1], given.num_rows
        self.given = given
        self.scaled = Arrays(given.pattern, *(array.copy() for array in given.program()))
        self.row_scale, self.column_scale = np.ones((items, m)), np.ones((items, n))
        self.limit_scale, self.cost_scale = np.ones(items), np.ones(items)
        if scaled:
            part = self.scaled
            scales = self.row_scale, self.column_scale, self.limit_scale, self.cost_scale
            in_threads(
                np.arange(items),
                lambda some: lp_batch.scale_many(part.pattern, part.entries, part.cost, part.low, part.high, *scales, some),
                part.work,
            )
        self.x, self.multipliers = np.zeros((items, n)), np.zeros((items, m + n))
        self.error, self.steps = np.full(items, np.inf), np.zeros(items, np.int64)
        self.status = np.full(items, Status.STEP_LIMIT, np.int64)
        self.determined = np.zeros(items, np.bool_)
        self.trace = np.empty((items, traced, n))
        self.certificates: list[np.ndarray | None] = [None] * items

    def begin_at(self, start: Solution) -> None:
        """Take x and the duals of an earlier solution."""
        x = _rows_of(start.x)
        duals = [_rows_of(part) for part in (start.dual_ub, start.dual_eq)]
        multipliers = np.concatenate([*duals, _rows_of(start.dual_upper) - _rows_of(start.dual_lower)], axis=1)
        if x.shape != self.x.shape or multipliers.shape != self.multipliers.shape:
            raise ValueError(
                f"warm_start has x of shape {x.shape} and {multipliers.shape[1]} duals, and the problem needs {self.x.shape} and "
                f"{self.multipliers.shape[1]}; expected the solution of a problem of the same shape"
            )
        self.x[:] = x * self.limit_scale[:, None] / self.column_scale
        self.multipliers[:] = multipliers * self.cost_scale[:, None] / self._dual_scale()

    def search(self, method: str, tolerance: float, max_steps: int, warm: bool) -> None:
        """Find an optimal pair for every item, or a proof that there is none."""
        everything = np.arange(self.given.num_items)
        fine = 0.01 * tolerance
        left = everything
        if warm or method == "multipliers":
            budget = max_steps if method == "multipliers" else min(WARM_STEPS, max_steps)
            self._update_multipliers(everything, 1e3 if warm else 1.0, fine, budget)
            left = everything[self.error > tolerance]
        if method == "newton" and len(left):
            self._from_inside(left, fine, max_steps)
        found = everything[self.error <= 10.0 * tolerance]
        self._polish(found)
        self.status[found] = Status.OPTIMAL
        for item in everything[self.error > 10.0 * tolerance]:
            self._disprove(int(item))

    def minimize_penalty(self, epsilon: float, tolerance: float, max_steps: int) -> None:
        """The paper's method: one minimization, duals by thresholding, the primal from the active rows."""
        everything = np.arange(self.given.num_items)
        self.multipliers[:] = 0.0
        self._multipliers(self.scaled, self.x, self.multipliers, everything, 1.0 / epsilon, 1, 1e-3 * tolerance, max_steps)
        self._polish(everything, least_norm=False)
        self._judge(everything)
        self.status[self.error <= tolerance] = Status.OPTIMAL

    def _from_inside(self, items: np.ndarray, tolerance: float, max_steps: int) -> None:
        """The interior method and the multiplier method after it; again with other settings where that was not enough."""
        for shift, enough in ATTEMPTS:
            before = self.x.copy(), self.multipliers.copy(), self.error.copy()
            self._step_inside(items, shift, enough, tolerance, max_steps)
            self._restore(items, before, 0.0)
            items = items[(self.error[items] > 100.0 * tolerance) & (self.error[items] <= 1e-3)]
            if not len(items):
                return

    def _step_inside(self, items: np.ndarray, shift: float, enough: float, tolerance: float, max_steps: int) -> None:
        part = self.scaled
        in_threads(
            items,
            lambda some: lp_batch.interior_many(
                part.pattern,
                *part.program(),
                self.x,
                self.multipliers,
                some,
                0.0,
                shift,
                enough,
                tolerance,
                min(INTERIOR_STEPS, max_steps),
                self.trace,
                self.error,
                self.steps,
            ),
            part.work,
        )
        near = items[self.error[items] <= 1e-3]
        before = self.x.copy(), self.multipliers.copy(), self.error.copy()
        self._update_multipliers(near, 1e3, tolerance, min(FINISHING_STEPS, max_steps))
        self._restore(near, before, tolerance)

    def _restore(self, items: np.ndarray, before: tuple[np.ndarray, np.ndarray, np.ndarray], enough: float) -> None:
        """Go back where a stage made an item worse and the error is now above ``enough``."""
        x, multipliers, error = before
        worse = items[self.error[items] > np.maximum(error[items], enough)]
        self.x[worse], self.multipliers[worse], self.error[worse] = x[worse], multipliers[worse], error[worse]

    def _update_multipliers(self, items: np.ndarray, sigma: float, tolerance: float, max_steps: int) -> None:
        self._multipliers(self.scaled, self.x, self.multipliers, items, sigma, UPDATES, tolerance, max_steps)
        self._judge(items)

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
    ) -> np.ndarray:
        converged, falls = np.zeros(len(x), np.bool_), np.zeros(len(x), np.bool_)
        ray = np.zeros_like(x)
        in_threads(
            items,
            lambda some: lp_batch.multipliers_many(
                part.pattern,
                *part.program(),
                x,
                multipliers,
                some,
                sigma,
                updates,
                tolerance,
                max_steps,
                self.trace,
                self.steps,
                converged,
                falls,
                ray,
            ),
            part.work,
        )
        return converged

    def _judge(self, items: np.ndarray) -> None:
        _write_errors(self.scaled, self.x, self.multipliers, items, self.error)

    def _polish(self, items: np.ndarray, least_norm: bool = True) -> None:
        part = self.scaled
        in_threads(
            items,
            lambda some: lp_batch.polish_many(part.pattern, *part.program(), self.x, self.multipliers, some, self.determined),
            part.work,
        )
        several = items[~self.determined[items]]
        if least_norm and len(several):
            self._least_norm(several)

    def _least_norm(self, items: np.ndarray) -> None:
        """Move to the solution of least norm on the face where every line with a multiplier stays on its limit.

        Any solution is complementary to any dual solution, so that face holds all the solutions.
        """
        part, duals = self.scaled, self.multipliers
        low, high = np.where(duals > 0.0, part.high, part.low), np.where(duals < 0.0, part.low, part.high)
        weights = self.column_scale**2
        face = Arrays(
            part.pattern, part.entries, np.zeros_like(part.cost), weights / weights.max(axis=1, keepdims=True), low, high
        )
        x, multipliers = self.x.copy(), np.zeros_like(duals)
        self._multipliers(face, x, multipliers, items, 1e3, UPDATES, 1e-12, FINISHING_STEPS)
        before, error = self.x[items].copy(), self.error[items].copy()
        self.x[items] = x[items]
        self._judge(items)
        worse = self.error[items] > np.maximum(error, 1e-10)
        self.x[items[worse]], self.error[items[worse]] = before[worse], error[worse]

    def _disprove(self, item: int) -> None:
        """Look for a proof that one program has no solution."""
        part = self.scaled.take(np.array([item]))
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

    def found(self) -> Found:
        """Where the run ended, in the units of the problem."""
        part, m = self.scaled, self.given.num_rows
        values = np.empty_like(part.low)
        lp_batch.values_many(part.pattern, part.entries, self.x, values)
        with np.errstate(invalid="ignore"):
            at_high = (np.abs(part.high - values) <= TIGHT) | (self.multipliers > 0.0)
            at_low = ((np.abs(values - part.low) <= TIGHT) | (self.multipliers < 0.0)) & ~at_high
        at_high[:, :m] |= part.low[:, :m] == part.high[:, :m]
        multipliers = self.multipliers * self._dual_scale() / self.cost_scale[:, None]
        return Found(self.x * self.column_scale / self.limit_scale[:, None], multipliers, at_low, at_high, self.determined)

    def solution(self, problem: LinearProgram, found: Found, tolerance: float) -> Solution:
        """The answer in the types of the problem."""
        given, everything = self.given, np.arange(len(found.x))
        error, gap = np.empty(len(everything)), np.empty(len(everything))
        _write_errors(given, found.x, found.multipliers, everything, error)
        lp_batch.gaps_many(given.pattern, *given.program(), found.x, found.multipliers, everything, gap)
        self._judge(everything)
        error = np.maximum(error, self.error)
        self.status[(self.status == Status.OPTIMAL) & ~(error <= tolerance)] = Status.STEP_LIMIT
        ub, m = problem.num_inequalities, given.num_rows
        bounds = found.multipliers[:, m:]
        unscale = self.column_scale / self.limit_scale[:, None]

        def tensor(array: np.ndarray) -> torch.Tensor:
            return shaped_as(problem, array)

        return Solution(
            x=tensor(found.x),
            dual_ub=tensor(np.maximum(found.multipliers[:, :ub], 0.0)),
            dual_eq=tensor(found.multipliers[:, ub:m]),
            dual_lower=tensor(np.maximum(-bounds, 0.0)),
            dual_upper=tensor(np.maximum(bounds, 0.0)),
            active=ActiveSet(tensor(found.at_high[:, :ub]), tensor(found.at_low[:, m:]), tensor(found.at_high[:, m:])),
            objective=tensor(np.einsum("bn,bn->b", given.cost, found.x)),
            gap=tensor(gap),
            error=tensor(error),
            iterations=tensor(self.steps),
            unique=tensor(self.determined),
            statuses=tuple(Status(status) for status in self.status.tolist()),
            certificates=tuple(None if proof is None else torch.from_numpy(proof).to(problem.c) for proof in self.certificates),
            traces=tuple(
                torch.from_numpy(steps[: int(count)] * scale).to(problem.c)
                for steps, count, scale in zip(self.trace, self.steps, unscale, strict=True)
                if steps.shape[0]
            ),
        )


class Found(NamedTuple):
    """A pair in the units of the problem, a row an item.

    ``x (B, n)``; of the lines, ``(B, m + n)``: ``multipliers`` (above zero at an upper limit, below zero at a lower one), and
    which stand at a limit (an equation or a fixed variable at the upper). ``determined``: is there no other solution?
    """

    x: np.ndarray
    multipliers: np.ndarray
    at_low: np.ndarray
    at_high: np.ndarray
    determined: np.ndarray


def shaped_as(problem: LinearProgram, array: np.ndarray) -> torch.Tensor:
    """A tensor on the device of the problem, in its precision, with a batch axis if the problem has one."""
    result = torch.from_numpy(np.ascontiguousarray(array if problem.batch_size is not None else array[0]))
    return result.to(problem.c.device, problem.c.dtype if result.is_floating_point() else result.dtype)


def _write_errors(part: Arrays, x: np.ndarray, multipliers: np.ndarray, items: np.ndarray, error: np.ndarray) -> None:
    in_threads(items, lambda some: lp_batch.errors_many(part.pattern, *part.program(), x, multipliers, some, error), part.work)


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
            flags = np.zeros(1, np.bool_)
            lp_batch.multipliers_many(
                part.pattern,
                *apart.program(),
                x,
                multipliers,
                one,
                1.0,
                1,
                1e-17,
                100,
                nothing,
                steps,
                flags,
                flags,
                np.zeros_like(x),
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
    run = Run(Arrays(part.pattern, part.entries, part.cost, part.quadratic, low, high), 0, scaled=False)
    run._from_inside(np.zeros(1, np.int64), 1e-10, INTERIOR_STEPS)
    direction = run.x[0].copy()
    found = lp_batch.check_ray(part.pattern, part.entries[0], part.cost[0], part.low[0], part.high[0], direction)
    return direction if found else None


def _rows_of(tensor: torch.Tensor) -> np.ndarray:
    return np.atleast_2d(tensor.detach().to("cpu", torch.float64).numpy())
