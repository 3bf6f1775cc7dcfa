"""The engine that solves by torch alone: dense, a batch at a time, wherever the data are.

The programs are equilibrated, the interior method comes near the solutions, and one factorization puts the lines that seem
active on their limits. A program that is not optimal then, or has more than one solution, goes on in the compiled engine from
there, on the CPU: it finds the least-norm solution, or a proof that there is none.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from taskloss.lp.arrays import Arrays, arrays_of
from taskloss.lp.compiled import solve_arrays
from taskloss.lp.dense import penalty, polish
from taskloss.lp.dense.interior import interior_method
from taskloss.lp.dense.programs import DensePrograms, dense_programs, optimality_error, relative_gap
from taskloss.lp.dense.scaling import equilibrated
from taskloss.lp.either import Array
from taskloss.lp.engine import Engine, Found, Settings
from taskloss.lp.problem import LinearProgram
from taskloss.lp.run import INTERIOR_STEPS, TIGHT
from taskloss.lp.solution import Solution, Status


class DenseEngine(Engine):
    """The programs of a problem as dense tensors on its device."""

    def __init__(self, problem: LinearProgram) -> None:
        # Data may have been changed in place since the problem was made.
        problem.refresh()
        self.problem, self.programs = problem, dense_programs(problem)
        self.num_rows, self.low, self.high = self.programs.num_rows, self.programs.low, self.programs.high

    @torch.no_grad()
    def solve(self, settings: Settings, warm_start: Solution | None = None) -> Found:
        if settings.method != "newton" or settings.trace:
            raise ValueError(
                f'engine="torch" has method="newton" alone and no trace, got method={settings.method!r}, trace={settings.trace}; '
                'use engine="compiled"'
            )
        found = self._found(settings, None if warm_start is None else self.start_of(warm_start))
        left = (found.statuses != Status.OPTIMAL).nonzero()[:, 0]
        return self._continued(found, left, settings) if len(left) else found

    def _found(self, settings: Settings, start: tuple[Tensor, Tensor] | None) -> Found:
        """Where torch alone comes to; what is not solved has the status of a step limit."""
        programs, fine = self.programs, 0.01 * settings.tolerance
        scaled, scales = equilibrated(programs)
        limit = min(INTERIOR_STEPS, settings.max_steps)
        if start is None:
            pair, steps = _from_inside(scaled, fine, limit)
        else:
            pair, steps = _from_start(scaled, (start[0] / scales.x, start[1] / scales.multipliers), fine, limit)
        x, multipliers = pair.x * scales.x, pair.multipliers * scales.multipliers
        scaled_error = optimality_error(scaled, pair.x, pair.multipliers)
        error = torch.maximum(scaled_error, optimality_error(programs, x, multipliers))
        optimal = (scaled_error <= fine) & (error <= settings.tolerance) & pair.determined
        values = scaled.values(pair.x)
        at_high = ((scaled.high - values).abs() <= TIGHT) | (multipliers > 0.0) | (scaled.low == scaled.high)
        at_low = ((values - scaled.low).abs() <= TIGHT) | (multipliers < 0.0)
        return Found(
            x=x,
            multipliers=multipliers,
            at_low=at_low & ~at_high,
            at_high=at_high,
            objective=(programs.cost * x).sum(1),
            error=error,
            gap=relative_gap(programs, x, multipliers),
            steps=steps,
            determined=pair.determined,
            statuses=torch.where(optimal, int(Status.OPTIMAL), int(Status.STEP_LIMIT)),
            certificates=[None] * len(x),
            traces=[],
        )

    def _continued(self, found: Found, left: Tensor, settings: Settings) -> Found:
        """The same with the items that are ``left`` solved by the compiled engine, started where they are."""
        items = left.cpu().numpy()
        arrays = arrays_of(self.problem)
        some = Arrays(arrays.pattern, *(array[items] for array in arrays.program()))
        start = found.x[left].cpu().numpy(), found.multipliers[left].cpu().numpy()
        usable = all(np.isfinite(part).all() for part in start)
        left_steps = max(settings.max_steps - int(found.steps[left].max()), 1)
        others = solve_arrays(some, settings._replace(max_steps=left_steps), start if usable else None)
        joined = {}
        for name, mine, theirs in zip(Found._fields, found, others, strict=True):
            if isinstance(mine, Tensor):
                joined[name] = mine.index_copy(0, left, torch.from_numpy(theirs).to(mine))
        certificates = list(found.certificates)
        for item, certificate in zip(items, others.certificates, strict=True):
            certificates[item] = certificate
        steps = found.steps.index_add(0, left, torch.from_numpy(others.steps).to(found.steps))
        return found._replace(**{**joined, "steps": steps, "certificates": certificates})

    def read(self, tensor: Tensor) -> Tensor:
        return tensor.detach().to(self.low)

    def values(self, x: Array) -> Tensor:
        return self.programs.values(x)

    def solve_active(self, active: Array, right: Array) -> tuple[Tensor, Tensor, Tensor]:
        return polish.solve_active(self.programs.matrix, active, right)

    def minimize_penalty(self, start: Array, epsilon: float, ridge: float, max_steps: int) -> tuple[Tensor, Tensor]:
        return penalty.minimize_penalty(self.programs, start, epsilon, ridge, max_steps)

    def solve_penalty(self, active: Array, epsilon: float, ridge: float, right: Array) -> Tensor:
        return penalty.solve_penalty(self.programs, active, epsilon, ridge, right)


def _from_inside(scaled: DensePrograms, tolerance: float, max_steps: int) -> tuple[polish.Polished, Tensor]:
    """Pairs and steps of the interior method, polished."""
    ended = interior_method(scaled, tolerance, max_steps)
    return polish.polish(scaled, ended.x, ended.multipliers), ended.steps


def _from_start(
    scaled: DensePrograms, start: tuple[Tensor, Tensor], tolerance: float, max_steps: int
) -> tuple[polish.Polished, Tensor]:
    """Pairs and steps: a polish of the start where that is enough, the interior method for the other programs."""
    pair = polish.polish(scaled, *start)
    steps = torch.zeros_like(scaled.cost[:, 0], dtype=torch.int64)
    solved = (optimality_error(scaled, pair.x, pair.multipliers) <= tolerance) & pair.determined
    left = (~solved).nonzero()[:, 0]
    if len(left):
        again, more = _from_inside(scaled.some(left), tolerance, max_steps)
        pair = polish.Polished(*(old.index_copy(0, left, new) for old, new in zip(pair, again, strict=True)))
        steps = steps.index_copy(0, left, more)
    return pair, steps
