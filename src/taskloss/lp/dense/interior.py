"""The interior method of ``kernels.lp_interior`` for a batch of dense programs, in torch alone.

Equations, names and rules are those of ``kernels.lp_interior`` and ``kernels.lp_slacks``. A line has two sides, its lower and its
upper limit; tensors of sides are ``(B, 2, lines)``. All programs of a batch take their steps together, and one that has ended
waits for the others.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from taskloss.kernels.lp_interior import PATIENCE
from taskloss.lp.dense.programs import DensePrograms, System, smallest_gap_unit, times


class Sides(NamedTuple):
    """Slack and dual of every side, or a change of them."""

    slack: Tensor
    dual: Tensor


class Limits(NamedTuple):
    """Of sides: is there such a limit, and the limit (0 if there is none). ``equation``: of lines; it has no sides."""

    present: Tensor
    limit: Tensor
    equation: Tensor
    sign: Tensor

    @property
    def number(self) -> Tensor:
        """Of the sides of each program, at least 1."""
        return self.present.sum((1, 2)).clamp_min(1)


class Ended(NamedTuple):
    """The best point that was met, its error, and the steps taken."""

    x: Tensor
    multipliers: Tensor
    error: Tensor
    steps: Tensor


def interior_method(programs: DensePrograms, tolerance: float, max_steps: int) -> Ended:
    """Follow the central paths of all the programs."""
    limits = _limits(programs)
    point = _Point(programs, limits)
    best = Ended(point.x, torch.zeros_like(programs.low), _of_items(programs, torch.inf), _of_items(programs, 0).long())
    least_mu, progress = _of_items(programs, torch.inf), _of_items(programs, 0)
    running = _of_items(programs, 1) > 0
    for step in range(max_steps + 1):
        point.look()
        advance = point.mu < 0.9 * least_mu
        better = running & (point.error < best.error)
        least_mu = torch.where(advance, point.mu, least_mu)
        progress = torch.where(advance | better, float(step), progress)
        best = Ended(
            torch.where(better[:, None], point.x, best.x),
            torch.where(better[:, None], point.multipliers, best.multipliers),
            torch.where(better, point.error, best.error),
            torch.where(running, step, best.steps),
        )
        lost = (point.error > 1e3 * best.error) & (best.error < 1e-4) | ~point.error.isfinite() | (step - progress > PATIENCE)
        running = running & ~(lost | (best.error <= tolerance))
        if step == max_steps or not bool(running.any()):
            break
        point.move(running)
    return best


def _of_items(programs: DensePrograms, value: float) -> Tensor:
    return programs.cost.new_full((len(programs.cost),), value)


def _limits(programs: DensePrograms) -> Limits:
    both = torch.stack([programs.low, programs.high], 1)
    equation = programs.low == programs.high
    finite = both.isfinite()
    sign = both.new_tensor([[1.0], [-1.0]])
    return Limits(finite & ~equation[:, None], torch.where(finite, both, 0.0), equation, sign)


class _Point:
    """Where the paths are: x, slacks and duals of the sides, duals of the equations; after ``look``, how good that is."""

    def __init__(self, programs: DensePrograms, limits: Limits) -> None:
        self.programs, self.limits = programs, limits
        self.m = programs.num_rows
        self.fixed, self.equation = limits.equation[:, self.m :], limits.equation[:, : self.m]
        # A fixed column is taken out of the systems.
        self.matrix = torch.where(self.fixed[:, None, :], 0.0, programs.matrix)
        self.gap_unit = smallest_gap_unit(programs)
        self._start()

    def _start(self) -> None:
        """Near the middle of the limits: two least-squares problems, then slacks and duals pushed inside (Mehrotra 1992)."""
        present, limit, equation, sign = self.limits
        programs, m = self.programs, self.m
        count = present.sum(1)
        middle = torch.where(equation, limit[:, 0], (present * limit).sum(1) / count.clamp_min(1))
        theta = (count > 0).to(limit) + 1e-6 * (~equation & (count == 0)).to(limit)
        system = self._system(theta)
        held = torch.where(self.fixed, middle[:, m:], 0.0)
        x, _ = system.solve(middle[:, m:], middle[:, :m] - times(programs.matrix, held))
        self.x = torch.where(self.fixed, held, x)
        values = programs.values(self.x)
        dual_columns, dual_rows = system.solve(-programs.cost, torch.zeros_like(middle[:, :m]))
        dual = torch.cat([dual_rows, dual_columns], 1)
        distance, leaning = sign * (values[:, None] - limit), -sign * dual[:, None]
        one_sided = present & ~present.flip(1)
        outside = torch.where(present, -distance, 0.0).amax((1, 2), keepdim=True)
        wrong = torch.where(one_sided, -leaning, 0.0).amax((1, 2), keepdim=True)
        slack = distance.clamp_min(0.0) + (1.5 * outside).clamp_min(1e-2)
        width = (limit[:, 1] - limit[:, 0])[:, None]
        slack = torch.where(present & ~one_sided, torch.minimum(slack, width), slack)
        duals = leaning.clamp_min(0.0) + (1.5 * wrong).clamp_min(1e-2)
        self.sides = Sides(torch.where(present, slack, 1.0), torch.where(present, duals, 1.0))
        self.equation_dual = torch.where(self.equation, dual[:, :m], 0.0)

    def _system(self, theta: Tensor) -> System:
        m = self.m
        columns = torch.where(self.fixed, 1.0, theta[:, m:])
        limited = theta[:, :m] > 0.0
        unlimited = 1e20 * (~self.equation).to(theta)
        rows = torch.where(limited, 1.0 / theta[:, :m].clamp_min(1e-300), unlimited)
        return System(self.matrix, columns, rows, self.programs.num_inequalities)

    def look(self) -> None:
        """Values, multipliers, complementarity and error of the point."""
        programs, m = self.programs, self.m
        present, limit, _, sign = self.limits
        slack, dual = self.sides
        self.values = programs.values(self.x)
        duals = torch.where(present, dual, 0.0)
        multipliers = duals[:, 1] - duals[:, 0]
        multipliers = torch.cat([multipliers[:, :m] + self.equation_dual, multipliers[:, m:]], 1)
        gradient = programs.stationarity(multipliers)
        # A fixed column takes whatever multiplier makes it stationary.
        taken = torch.where(self.fixed, gradient, 0.0)
        self.gradient = gradient - taken
        self.multipliers = torch.cat([multipliers[:, :m], multipliers[:, m:] - taken], 1)
        self.missing = torch.where(present, sign * (self.values[:, None] - limit) - slack, 0.0)
        self.mu = torch.where(present, slack * dual, 0.0).sum((1, 2)) / self.limits.number
        self.error = self._error()

    def _error(self) -> Tensor:
        programs, limit = self.programs, self.limits.limit
        unequal = torch.where(self.limits.equation, (self.values - limit[:, 0]).abs(), 0.0).amax(1)
        steep = self.gradient.abs().amax(1) / (1.0 + programs.cost.abs().amax(1))
        terms = programs.cost * self.x
        dual = -(self.multipliers * torch.where(self.multipliers > 0.0, limit[:, 1], limit[:, 0])).sum(1)
        gap = (terms.sum(1) - dual).abs() / torch.stack([terms.abs().sum(1), dual.abs(), self.gap_unit]).amax(0)
        return torch.stack([self.missing.abs().amax((1, 2)), unequal, steep, gap]).amax(0)

    def move(self, running: Tensor) -> None:
        """One step of predictor and corrector for the programs that are running."""
        slack, dual = self.sides
        self.theta = torch.where(self.limits.present, dual / slack, 0.0).sum(1)
        system = self._system(self.theta)
        nothing = torch.zeros_like(slack)
        first, _, _ = self._direction(system, torch.zeros_like(self.mu), Sides(nothing, nothing), 0)
        target = self._target(first, _longest(first.slack, slack), _longest(first.dual, dual))
        step, change, dual_change = self._direction(system, target, first)
        inside = (1.0 - self.mu).clamp(0.9, 0.9995)
        primal, dually = (
            torch.where(running, (inside * _longest(part, of)).clamp_max(1.0), 0.0)
            for part, of in zip(step, self.sides, strict=True)
        )
        self.sides = Sides(_moved(slack, primal, step.slack), _moved(dual, dually, step.dual))
        self.x = _moved(self.x, primal, change)
        self.equation_dual = _moved(self.equation_dual, dually, torch.where(self.equation, dual_change, 0.0))

    def _direction(self, system: System, target: Tensor, before: Sides, refinements: int = 3) -> tuple[Sides, Tensor, Tensor]:
        """Changes of the sides, of x and of the row duals toward complementarity ``target``."""
        present, limit, _, sign = self.limits
        slack, dual = self.sides
        m, theta = self.m, self.theta
        wanted = torch.where(present, target[:, None, None] - slack * dual - before.slack * before.dual, 0.0)
        pull = (wanted - dual * self.missing) / slack
        collected = pull[:, 1] - pull[:, 0]
        limited = theta[:, :m] > 0.0
        inverse_theta = torch.where(limited, 1.0 / theta[:, :m].clamp_min(1e-300), 0.0)
        right_columns = torch.where(self.fixed, 0.0, -self.gradient - collected[:, m:])
        right_rows = torch.where(self.equation, limit[:, 0, :m] - self.values[:, :m], -collected[:, :m] * inverse_theta)
        columns, rows = system.solve(right_columns, right_rows, refinements)
        by_dual = (rows - collected[:, :m]) * inverse_theta
        # Each is the accurate one where it is taken.
        by_rows = torch.where(theta[:, :m] < 1.0, times(self.matrix, columns), by_dual)
        change = torch.cat([by_rows, columns], 1)
        slack_change = self.missing + torch.where(present, sign * change[:, None], 0.0)
        return Sides(slack_change, (wanted - dual * slack_change) / slack), columns, rows

    def _target(self, step: Sides, primal: Tensor, dual: Tensor) -> Tensor:
        """The complementarity to aim at: far below mu if the first direction gets there."""
        present = self.limits.present
        reached = _moved(self.sides.slack, primal, step.slack) * _moved(self.sides.dual, dual, step.dual)
        share = torch.where(present, reached, 0.0).sum((1, 2)) / self.limits.number / self.mu.clamp_min(1e-300)
        return self.mu * (share**3).clamp(1e-8, 1.0)


def _longest(change: Tensor, of: Tensor) -> Tensor:
    """The longest step, at most 1, at which no number passes zero."""
    return 1.0 / (-change / of).amax((1, 2)).clamp_min(1.0)


def _moved(numbers: Tensor, length: Tensor, change: Tensor) -> Tensor:
    shape = (-1,) + (1,) * (numbers.ndim - 1)
    return numbers + length.reshape(shape) * change
