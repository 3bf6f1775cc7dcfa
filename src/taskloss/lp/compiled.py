"""The engine that solves sparsely, by compiled code on the CPU, parts of a batch in threads. Its methods: ``lp.solver``."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import torch

from taskloss.kernels import lp_batch, lp_sensitivities
from taskloss.lp.arrays import Arrays, arrays_of
from taskloss.lp.either import array_of
from taskloss.lp.engine import Engine, Found, Settings
from taskloss.lp.problem import LinearProgram
from taskloss.lp.run import Run
from taskloss.lp.solution import Solution
from taskloss.lp.threads import in_threads


class CompiledEngine(Engine):
    """The programs of a problem as arrays."""

    def __init__(self, problem: LinearProgram) -> None:
        self.arrays = arrays_of(problem)
        self.num_rows, self.low, self.high = self.arrays.num_rows, self.arrays.low, self.arrays.high

    def solve(self, settings: Settings, warm_start: Solution | None = None) -> Found:
        start = None if warm_start is None else self.start_of(warm_start)
        return solve_arrays(self.arrays, settings, start)

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        # Compiled for this order alone; the gradient of a transposed x has the other.
        return np.ascontiguousarray(array_of(tensor))

    def values(self, x: np.ndarray) -> np.ndarray:
        values = np.empty_like(self.low)
        lp_batch.values_many(self.arrays.pattern, self.arrays.entries, x, values)
        return values

    def solve_active(self, active: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        arrays = self.arrays
        unseen, duals = np.empty_like(right), np.zeros((len(right), self.num_rows))
        held = np.empty_like(right)
        in_threads(
            len(right),
            lambda some: lp_sensitivities.sensitivities_many(
                arrays.pattern_for(some), arrays.entries, active, right, some, unseen, duals, held
            ),
            arrays.work,
        )
        return unseen, duals, held

    def minimize_penalty(self, start: np.ndarray, epsilon: float, ridge: float, max_steps: int) -> tuple[np.ndarray, np.ndarray]:
        arrays = self._with_ridge(ridge)
        x = np.where(np.isfinite(start), start, 0.0)
        multipliers = np.zeros_like(self.low)
        items = len(x)
        steps, no_trace, unknown = np.zeros(items, np.int64), np.empty((items, 0, x.shape[1])), np.full(items, np.inf)
        settings = 1.0 / epsilon, 1, 1e-12, max_steps
        in_threads(
            items,
            lambda some: lp_batch.multipliers_many(
                arrays.pattern, *arrays.program(), x, multipliers, some, *settings, no_trace, steps, unknown
            ),
            arrays.work,
        )
        return x, multipliers

    def solve_penalty(self, active: np.ndarray, epsilon: float, ridge: float, right: np.ndarray) -> np.ndarray:
        arrays = self._with_ridge(ridge)
        solved = np.empty_like(right)
        in_threads(
            len(right),
            lambda some: lp_sensitivities.penalty_solve_many(
                arrays.pattern, *arrays.program(), active, 1.0 / epsilon, right, some, solved
            ),
            arrays.work,
        )
        return solved

    def _with_ridge(self, ridge: float) -> Arrays:
        return dataclasses.replace(self.arrays, quadratic=np.full_like(self.arrays.cost, ridge))


def solve_arrays(given: Arrays, settings: Settings, start: tuple[np.ndarray, np.ndarray] | None = None) -> Found:
    """Solve a batch, parts of it in threads; ``start``: x and multipliers to start from."""

    def solve_some(items: np.ndarray) -> Found:
        some = slice(items[0], items[-1] + 1)
        run = Run(given.part(some), settings)
        if start is not None:
            run.begin_at(*(array[some] for array in start))
        return run.found()

    parts = in_threads(given.num_items, solve_some, 20 * given.work)
    if len(parts) == 1:
        return parts[0]
    joined: Any = [
        np.concatenate(fields) if isinstance(fields[0], np.ndarray) else list(itertools.chain(*fields))
        for fields in zip(*parts, strict=True)
    ]
    return Found(*joined)
