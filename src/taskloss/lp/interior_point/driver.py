"""The driver: runs the stages of a solve in order, from equilibration to the solution or a proof that there is none.

The stages are compiled, each over the items of a batch, and called here from Python: one compiled function that held them all
would take minutes to compile. ``lp.solver`` describes the methods.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from taskloss.lp.highs import highs_pair
from taskloss.lp.interior_point.active_set import AT_BOUND, constraints_at_bounds, polish_batch
from taskloss.lp.interior_point.augmented_lagrangian import augmented_lagrangian_batch
from taskloss.lp.interior_point.certificates import proves_unbounded
from taskloss.lp.interior_point.data import ProgramData
from taskloss.lp.interior_point.equilibration import equilibrate_batch, identity_equilibration
from taskloss.lp.interior_point.farkas import find_farkas_vector
from taskloss.lp.interior_point.predictor_corrector import interior_point_batch
from taskloss.lp.interior_point.termination import optimality_batch
from taskloss.lp.interior_point.threads import in_threads
from taskloss.lp.solution import Result, Status

INTERIOR_POINT_ITERATIONS = 200
"""Limit of one attempt of the interior-point method; most programs need less than fifty."""
FINISHING_ITERATIONS = 150
"""Limit of the augmented Lagrangian method after it."""
WARM_START_ITERATIONS = 60
"""Limit of the augmented Lagrangian method from a warm start, before the interior-point method starts afresh."""
MAX_UPDATES = 500
"""Updates of the multipliers in the augmented Lagrangian method."""
FINER = 0.01
"""The stages aim at this fraction of the tolerance, since undoing the equilibration may cost digits."""
COARSER = 10.0
"""A pair within this multiple of the tolerance is polished before it is judged."""
ATTEMPTS = ((1e-11, 1e-8), (1e-13, 1e-13), (1e-9, 1e-13))
"""Regularization and residual tolerance of the interior-point method: the usual, and what helps where that fails."""
IDENTIFIABLE = 1e-6
"""Error below which it is worth identifying the active set."""
FEASIBLE = 1e-9
"""Violation up to which a point of a scaled program counts as feasible, as an unbounded ray must start from one."""
NEAR_SOLUTION = 1e-3
"""Error below which the augmented Lagrangian method, or another attempt, is worth starting: others seem to have no solution."""
FACE_ITERATIONS = 50
"""Limit of the augmented Lagrangian method that makes the least-norm solution exact."""
FACE_TOLERANCE = 1e-13
"""Of the least-norm solution."""
SLIGHTLY = 0.1
"""Fraction of the tolerance up to which the least-norm solution may have a larger error than the one before it."""
NO_MULTIPLIER = 1e-10
"""A multiplier of a scaled program that is no larger is rounding."""
LARGE, FILL = 60_000, 5.0
"""HiGHS is asked first where the KKT matrix and its factor have so many nonzeros, and so many for each nonzero of A."""
WARM_SIGMA = 1e3
"""Penalty of the augmented Lagrangian method from a start near the solution; 1 from elsewhere."""


class Settings(NamedTuple):
    """Settings of ``lp.solve``."""

    method: str = "auto"
    epsilon: float = 1e-3
    tolerance: float = 1e-8
    max_iterations: int = 2000
    trace: bool = False


def solve_batch(programs: ProgramData, settings: Settings, start: tuple[np.ndarray, np.ndarray] | None = None) -> Result:
    """Solve a batch, parts of it in threads; ``start`` holds x ``(B, n)`` and multipliers ``(B, m + n)`` to start from."""

    def solve_part(items: np.ndarray) -> Result:
        part = slice(items[0], items[-1] + 1)
        solve = _Solve(programs.slice(part), settings)
        if start is not None:
            solve.start_at(*(array[part] for array in start))
        return solve.result()

    parts = in_threads(programs.num_items, solve_part, 20 * programs.work)
    if len(parts) == 1:
        return parts[0]
    joined: Any = [
        np.concatenate(fields) if isinstance(fields[0], np.ndarray) else list(itertools.chain(*fields))
        for fields in zip(*parts, strict=True)
    ]
    return Result(*joined)


class _Solve:
    """State of one solve on one thread: the scaled programs, and for each a pair, its error and its status.

    ``error`` is that of ``iterate_error`` after the interior-point method and that of ``optimality`` after the other stages;
    the first is the stricter one but for programs with large bounds.
    """

    def __init__(self, given: ProgramData, settings: Settings, equilibrate: bool = True) -> None:
        items, n, m = given.num_items, given.cost.shape[1], given.num_rows
        self.given, self.settings = given, settings
        self.programs = given.copy()
        self.equilibration = identity_equilibration(items, m, n)
        # The paper's epsilon is in the units of the problem.
        if equilibrate and settings.method != "penalty":
            equilibrate_batch(self.programs, self.equilibration)
        self.all_items = np.arange(items)
        self.x, self.multipliers = np.zeros((items, n)), np.zeros((items, m + n))
        self.error, self.iterations = np.full(items, np.inf), np.zeros(items, np.int64)
        self.status = np.full(items, Status.ITERATION_LIMIT, np.int64)
        self.unique, self.polished = np.zeros(items, np.bool_), np.zeros(items, np.bool_)
        self.trace = np.empty((items, settings.max_iterations if settings.trace else 0, n))
        self.certificates: list[np.ndarray | None] = [None] * items
        self.warm = False

    def start_at(self, x: np.ndarray, multipliers: np.ndarray) -> None:
        """Start from a pair in the units of the programs as given."""
        self.warm = True
        self.x, self.multipliers = self.equilibration.scaled(x, multipliers)

    def result(self) -> Result:
        """Solve, and report in the units of the programs as given."""
        if self.settings.method == "penalty":
            self._run_penalty_method()
        else:
            self._find_optimal_pairs()
        _, gap, activity, x, multipliers = self.report
        # Distances may overflow where the data are near the smallest numbers.
        with np.errstate(over="ignore", invalid="ignore"):
            distance = AT_BOUND / (self.equilibration.constraint_scale() * self.equilibration.bound_scale[:, None])
            at_lower, at_upper = constraints_at_bounds(self.given, activity, multipliers, distance)
        return Result(
            x=x,
            multipliers=multipliers,
            at_lower=at_lower,
            at_upper=at_upper,
            objective=(self.given.cost * x).sum(axis=1),
            error=self.error,
            gap=gap,
            iterations=self.iterations,
            unique=self.unique & (self.status == Status.OPTIMAL),
            statuses=self.status,
            certificates=self.certificates,
            traces=self._unscaled_traces() if self.settings.trace else [],
        )

    def _unscaled_traces(self) -> list[np.ndarray]:
        unscale = self.equilibration.column_scale / self.equilibration.bound_scale[:, None]
        return [
            iterates[: int(count)] * factor for iterates, count, factor in zip(self.trace, self.iterations, unscale, strict=True)
        ]

    # --- the methods ---------------------------------------------------------------------------------------------------

    def _find_optimal_pairs(self) -> None:
        """Find an optimal pair for every item, or a proof that there is none."""
        _, _, tolerance, max_iterations, _ = self.settings
        fine = FINER * tolerance
        left = self.all_items
        if self.warm and self.settings.method != "augmented_lagrangian":
            self._run_augmented_lagrangian(left, WARM_SIGMA, fine, min(WARM_START_ITERATIONS, max_iterations))
        for attempt, engine in enumerate(self._engines()):
            if len(unsolved := left[~(self.error[left] <= tolerance)]):
                engine(unsolved, fine, max_iterations)
            solved = self.error[left] <= COARSER * tolerance
            self._finish(left[solved])
            if attempt == 0:
                for item in left[~solved]:
                    self._prove_no_solution(int(item))
            self._judge(left[~solved])
            self._check_as_given()
            left = left[self.status[left] == Status.ITERATION_LIMIT]
            if not len(left):
                break

    def _engines(self) -> list[Callable[[np.ndarray, float, int], None]]:
        """Return the engines of the method; each gets what those before it have left."""
        engines: dict[str, Callable[[np.ndarray, float, int], None]] = {
            "interior_point": self._run_interior_point,
            "highs": self._run_highs,
            "augmented_lagrangian": self._run_augmented_lagrangian_alone,
        }
        method = self.settings.method
        if method != "auto":
            return [engines[method]]
        order = ("highs", "interior_point") if self._is_large() else ("interior_point", "highs")
        return [engines[name] for name in order]

    def _is_large(self) -> bool:
        """Whether HiGHS is likely to be faster: one program with a large factor. It leaves no trace."""
        work, nonzeros = self.given.work, self.given.entries.shape[1]
        return self.given.num_items == 1 and work >= LARGE and work >= FILL * nonzeros and not self.settings.trace

    def _finish(self, items: np.ndarray) -> None:
        """Make pairs that are almost optimal exact, and choose one where there are several."""
        self._polish(items[~self.polished[items]])
        # A multiplier that is rounding would count as a reason why x is unique.
        rounding = (np.abs(self.multipliers) <= NO_MULTIPLIER) & (self.multipliers != 0.0)
        self.multipliers[rounding] = 0.0
        self._polish(items[rounding[items].any(axis=1)])
        self._move_to_least_norm(items[~self.unique[items]])
        self.status[items] = Status.OPTIMAL

    def _run_penalty_method(self) -> None:
        """Run the paper's method: one minimization, duals by thresholding, the primal from the active rows."""
        _, epsilon, tolerance, max_iterations, _ = self.settings
        self.multipliers[:] = 0.0
        self._run_augmented_lagrangian(self.all_items, 1.0 / epsilon, 1e-3 * tolerance, max_iterations, max_updates=1)
        self._polish(self.all_items)
        self.status[self.error <= tolerance] = Status.OPTIMAL
        self._check_as_given()

    def _run_interior_point(self, items: np.ndarray, tolerance: float, max_iterations: int) -> None:
        """Run the interior-point method, then solve the equations of the active set or go on with the augmented Lagrangian.

        Where that was not enough, run it again with other settings and keep the better pair.
        """
        for regularization, residual_tolerance in ATTEMPTS:
            before = self._snapshot()
            interior_point_batch(
                self.programs,
                items,
                0.0,
                regularization,
                residual_tolerance,
                tolerance,
                min(INTERIOR_POINT_ITERATIONS, max_iterations),
                self.x,
                self.multipliers,
                self.error,
                self.iterations,
                self.trace,
            )
            self._identify_active_set(items[self.error[items] <= IDENTIFIABLE], tolerance)
            left = items[~self.polished[items]]
            budget = min(FINISHING_ITERATIONS, max_iterations)
            self._run_augmented_lagrangian(left[self.error[left] <= NEAR_SOLUTION], WARM_SIGMA, tolerance, budget)
            self._restore(items[self.error[items] > before[2][items]], before)
            items = items[(self.error[items] > 100.0 * tolerance) & (self.error[items] <= NEAR_SOLUTION)]
            if not len(items):
                return

    def _run_highs(self, items: np.ndarray, tolerance: float, max_iterations: int) -> None:
        """Take the vertices that HiGHS finds, and solve the equations of their active sets or go on from there."""
        before = self._snapshot()
        found = []
        for item in items:
            pair = highs_pair(self.programs.item(item))
            if pair is not None:
                self.x[item], self.multipliers[item] = pair
                found.append(item)
        items = np.array(found, np.int64)
        self._judge(items)
        vertices = self._snapshot()
        self._polish(items, identify=True)
        self._restore(items[self.error[items] > vertices[2][items]], vertices)
        self.polished[items] = self.error[items] <= tolerance
        budget = min(FINISHING_ITERATIONS, max_iterations)
        self._run_augmented_lagrangian(items[~self.polished[items]], WARM_SIGMA, tolerance, budget)
        self._restore(items[self.error[items] > before[2][items]], before)

    def _run_augmented_lagrangian_alone(self, items: np.ndarray, tolerance: float, max_iterations: int) -> None:
        self._run_augmented_lagrangian(items, WARM_SIGMA if self.warm else 1.0, tolerance, max_iterations)

    # --- the stages ----------------------------------------------------------------------------------------------------

    def _identify_active_set(self, items: np.ndarray, tolerance: float) -> None:
        """Solve the equations of the constraints that seem active; a pair that is not optimal then stays as it was."""
        if not len(items):
            return
        before = self._snapshot()
        self._polish(items, identify=True)
        optimal = self.error[items] <= tolerance
        self.polished[items] = optimal
        if not optimal.all():
            self.unique[items[~optimal]] = False
            self._restore(items[~optimal], before)

    def _polish(self, items: np.ndarray, identify: bool = False) -> None:
        if len(items):
            polish_batch(self.programs, items, identify, self.x, self.multipliers, self.unique, self.error)

    def _judge(self, items: np.ndarray) -> None:
        if len(items):
            activity, gap = np.empty_like(self.multipliers), np.empty_like(self.error)
            optimality_batch(self.programs, items, self.x, self.multipliers, activity, self.error, gap)

    def _judge_as_given(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return error, gap, activity, x and multipliers in the units of the programs as given."""
        x, multipliers = self.equilibration.unscaled(self.x, self.multipliers)
        error, gap, activity = np.empty(len(x)), np.empty(len(x)), np.empty_like(multipliers)
        optimality_batch(self.given, self.all_items, x, multipliers, activity, error, gap)
        return error, gap, activity, x, multipliers

    def _check_as_given(self) -> None:
        """Withdraw solutions of the scaled programs that are none of the programs as given; ``error`` becomes the larger one."""
        self.report = self._judge_as_given()
        self.error = np.maximum(self.error, self.report[0])
        self.status[(self.status == Status.OPTIMAL) & ~(self.error <= self.settings.tolerance)] = Status.ITERATION_LIMIT

    def _run_augmented_lagrangian(
        self, items: np.ndarray, sigma: float, tolerance: float, max_iterations: int, max_updates: int = MAX_UPDATES
    ) -> None:
        if len(items):
            settings = sigma, max_updates, tolerance, max_iterations
            state = self.x, self.multipliers, self.error, self.iterations, self.trace
            augmented_lagrangian_batch(self.programs, items, *settings, *state)

    def _move_to_least_norm(self, items: np.ndarray) -> None:
        """Move to the solution of least norm on the face where every constraint with a multiplier stays on its bound.

        Any solution is complementary to any dual solution, so that face holds all the solutions.
        """
        if not len(items):
            return
        programs, duals = self.programs, self.multipliers
        weights = self.equilibration.column_scale**2
        face = programs._replace(
            cost=np.zeros_like(programs.cost),
            quadratic=weights / np.exp(np.log(weights).mean(axis=1, keepdims=True)),
            lower=np.where(duals > 0.0, programs.upper, programs.lower),
            upper=np.where(duals < 0.0, programs.lower, programs.upper),
        )
        x, multipliers, error = self.x.copy(), np.zeros_like(duals), np.full_like(self.error, np.inf)
        state = x, multipliers, error, self.iterations, self.trace
        interior_point_batch(face, items, 0.0, *ATTEMPTS[1], FACE_TOLERANCE, INTERIOR_POINT_ITERATIONS, *state)
        error[:] = np.inf
        augmented_lagrangian_batch(face, items, WARM_SIGMA, MAX_UPDATES, FACE_TOLERANCE, FACE_ITERATIONS, *state)
        before, unique = self._snapshot(), self.unique.copy()
        self.x[items] = x[items]
        self._polish(items)
        self.unique = unique
        # A move that spoils the program as given, whose units differ, is not taken.
        error = np.maximum(self.error, self._judge_as_given()[0])
        self._restore(items[error[items] > np.maximum(before[2][items], SLIGHTLY * self.settings.tolerance)], before)

    def _snapshot(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.x.copy(), self.multipliers.copy(), self.error.copy()

    def _restore(self, items: np.ndarray, before: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        x, multipliers, error = before
        self.x[items], self.multipliers[items], self.error[items] = x[items], multipliers[items], error[items]

    # --- proofs --------------------------------------------------------------------------------------------------------

    def _prove_no_solution(self, item: int) -> None:
        """Look for a proof that one program is infeasible or unbounded."""
        program = self.programs.slice(slice(item, item + 1))
        point, farkas, violation = find_farkas_vector(program, INTERIOR_POINT_ITERATIONS)
        if farkas is not None:
            self.status[item] = Status.INFEASIBLE
            self.certificates[item] = farkas * self.equilibration.row_scale[item]
            return
        ray = _find_ray(program) if violation <= FEASIBLE else None
        if ray is not None:
            self.status[item] = Status.UNBOUNDED
            self.certificates[item] = ray * self.equilibration.column_scale[item]
            self.x[item], self.multipliers[item] = point, 0.0


def _find_ray(program: ProgramData) -> np.ndarray | None:
    """Return the steepest direction within the unit box that no bound stops, if it proves one scaled program unbounded."""
    m = program.num_rows
    lower = np.where(program.lower > -np.inf, 0.0, -np.inf)
    upper = np.where(program.upper < np.inf, 0.0, np.inf)
    lower[:, m:], upper[:, m:] = np.maximum(lower[:, m:], -1.0), np.minimum(upper[:, m:], 1.0)
    solve = _Solve(program._replace(lower=lower, upper=upper), Settings(), equilibrate=False)
    solve._run_interior_point(np.zeros(1, np.int64), 1e-10, INTERIOR_POINT_ITERATIONS)
    direction = solve.x[0].copy()
    return direction if proves_unbounded(program.item(0), direction) else None
