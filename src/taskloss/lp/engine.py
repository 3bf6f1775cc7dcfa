"""What every engine can do: solve the programs of a problem, and the linear systems that their gradients need.

``lp.compiled`` solves sparsely, by compiled code on the CPU; ``lp.dense`` by torch alone, wherever the data are.
"""

from __future__ import annotations

import abc
from typing import NamedTuple

import torch

from taskloss.lp.either import Array, module_of
from taskloss.lp.solution import Solution


class Settings(NamedTuple):
    """Of ``solve``."""

    method: str = "newton"
    epsilon: float = 1e-3
    tolerance: float = 1e-8
    max_steps: int = 2000
    trace: bool = False


class Found(NamedTuple):
    """Where the runs ended, in the units of the problem, a row an item.

    ``x (B, n)``; of the lines, ``(B, m + n)``: ``multipliers`` (above zero at an upper limit, below zero at a lower one), and
    which stand at a limit (an equation or a fixed variable at the upper). Of each item: ``determined``, is there no other
    solution? The others as in ``Solution``.
    """

    x: Array
    multipliers: Array
    at_low: Array
    at_high: Array
    objective: Array
    error: Array
    gap: Array
    steps: Array
    determined: Array
    statuses: Array
    certificates: list[Array | None]
    traces: list[Array]


class Engine(abc.ABC):
    """The programs of one problem in the form in which they are solved. ``low``, ``high``: the limits of the lines."""

    num_rows: int
    low: Array
    high: Array

    @abc.abstractmethod
    def solve(self, settings: Settings, warm_start: Solution | None = None) -> Found:
        """Solve all the programs."""

    def start_of(self, solution: Solution) -> tuple[Array, Array]:
        """The x and multipliers of an earlier solution of a problem of the same shape."""
        parts = (solution.x, solution.dual_ub, solution.dual_eq, solution.dual_lower, solution.dual_upper)
        x, ub, eq, lower, upper = (self.read(part if part.ndim == 2 else part[None]) for part in parts)
        multipliers = module_of(x).concatenate([ub, eq, upper - lower], 1)
        items, lines = self.low.shape
        expected = (items, lines - self.num_rows)
        if tuple(x.shape) != expected or tuple(multipliers.shape) != (items, lines):
            raise ValueError(
                f"warm_start has x of shape {tuple(x.shape)} and {multipliers.shape[1]} duals, and the problem needs {expected} "
                f"and {lines}; expected the solution of a problem of the same shape"
            )
        return x, multipliers

    @abc.abstractmethod
    def read(self, tensor: torch.Tensor) -> Array:
        """The numbers of a tensor as the engine takes them."""

    @abc.abstractmethod
    def values(self, x: Array) -> Array:
        """Of all lines at ``x``."""

    @abc.abstractmethod
    def solve_active(self, active: Array, right: Array) -> tuple[Array, Array, Array]:
        """``(I - B^+ B) right``, ``lam = B^{+T} right`` and ``A' lam``; B: the active rows at the variables not at a bound."""

    @abc.abstractmethod
    def minimize_penalty(self, start: Array, epsilon: float, ridge: float, max_steps: int) -> tuple[Array, Array]:
        """The minimizer of ``c'x + ridge/2 |x|^2 + |violation|^2 / (2 epsilon)`` and the multipliers ``violation / epsilon``."""

    @abc.abstractmethod
    def solve_penalty(self, active: Array, epsilon: float, ridge: float, right: Array) -> Array:
        """``H^{-1} right``; H: the Hessian of that function where these lines are overstepped."""
