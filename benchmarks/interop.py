"""Linear programs in a ``CvxpyLayer``: our solver against those that cvxpylayers has, on the same layer; ratios of one run.

Two programs, in float64; one call computes the solution and the gradient of a random linear function of it:

- the F-score program of ``benchmarks.lp``, with a gradient in the scores (in the matrix of the program);
- a transport of k suppliers to k customers, ``min <C, X>`` with row sums of at most the supply, column sums of at least the
  demand and ``X >= 0``, with a gradient in supply and demand (in the right-hand sides); k^2 variables.

The rivals are Moreau, and diffcp, the default, which solves by SCS: as it comes, and at the tolerance of the others, 1e-8. Each
row also prints how far the two optimal values are from the exact one. ``x >= 0`` is written as ``2 x >= 0``: cvxpylayers 1.2.0
with cvxpy 1.9.3 loses ``x >= 0`` on the way to Moreau. The last rows compare with ``LPLayer`` on the same program, without
cvxpylayers.

``make bench`` installs the rivals.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.optimize
import torch
from benchmarks.lp import SCS, FScore
from benchmarks.lp import ours as fscore_by_lp_layer
from benchmarks.measure import Row, at_least, duration, in_turn, is_installed, one_thread, report

from taskloss.interop.cvxpylayers import TasklossSolver
from taskloss.lp import LPLayer, SparseMatrix

Layer = Callable[..., tuple[torch.Tensor, ...]]
Step = Callable[[], float]
"""Does forward and backward, and returns the objective at the solution."""

RIVALS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "Moreau": ("MOREAU", {}),
    "diffcp as it comes": (None, {}),
    "diffcp at 1e-8": (None, SCS),
}
"""Solver of the layer, and options of its calls."""


class FScoreLayer:
    """The F-score program of n random scores, or of a batch ``(B, n)``."""

    def __init__(self, *shape: int) -> None:
        self.title, self.program = f"F-score, {' x '.join(map(str, shape))}", FScore(*shape)
        self.optimum = self.objective(fscore_by_lp_layer(self.program)(self.program.scores.detach()))

    def objective(self, x: torch.Tensor) -> float:
        """Return ``c'x``, the sum over a batch."""
        return float((self.program.cost * x.detach()).sum())

    def layer(self, solver: Any) -> Layer:
        """Return the layer with a solver."""
        import cvxpy as cp
        from cvxpylayers.torch import CvxpyLayer

        z, t = cp.Variable(self.program.shape[-1]), cp.Variable()
        phi, cost, positives = cp.Parameter(z.size), cp.Parameter(z.size), cp.Parameter(nonneg=True)
        bounds = [cp.multiply(phi, t) <= z, z <= t + cp.multiply(phi, t), z <= t, 2 * z >= 0, z <= 1, 2 * t >= 0]
        problem = cp.Problem(cp.Minimize(cost @ z), [*bounds, cp.sum(z) + positives * t == positives])
        return CvxpyLayer(problem, parameters=[phi, cost, positives], variables=[z, t], solver=solver)

    def step(self, layer: Layer, options: dict[str, Any]) -> Step:
        """Return forward and backward through a layer."""
        given = self.program.cost[..., :-1], self.program.positives[..., 0]

        def solve(scores: torch.Tensor) -> torch.Tensor:
            z, t = layer(torch.tanh(scores), *given, solver_args=options)
            return torch.cat([z, t[..., None]], -1)

        step = self.program.step(solve)
        return lambda: self.objective(step())

    def by_lp_layer(self) -> Step:
        """Return forward and backward through ``LPLayer``."""
        step = self.program.step(fscore_by_lp_layer(self.program))
        return lambda: self.objective(step())


class TransportLayer:
    """A transport of k suppliers to k customers."""

    def __init__(self, n: int) -> None:
        k = round(n**0.5)
        self.title, self.k = f"transport, {n}", k
        generator = torch.Generator().manual_seed(0)
        self.cost, self.weight = (torch.rand(k, k, generator=generator, dtype=torch.float64) for _ in range(2))
        demand, supply = (low + torch.rand(k, generator=generator, dtype=torch.float64) for low in (0.5, 1.0))
        self.sides = supply.requires_grad_(), demand.requires_grad_()
        rows = np.concatenate([np.kron(np.eye(k), np.ones(k)), -np.kron(np.ones(k), np.eye(k))])
        limits = np.concatenate([supply.detach(), -demand.detach()])
        self.optimum = float(scipy.optimize.linprog(self.cost.flatten().numpy(), rows, limits).fun)
        indices = np.nonzero(rows)
        self.rows = SparseMatrix(*indices, torch.as_tensor(rows[indices]), rows.shape)

    def layer(self, solver: Any) -> Layer:
        """Return the layer with a solver."""
        import cvxpy as cp
        from cvxpylayers.torch import CvxpyLayer

        plan, cost = cp.Variable((self.k, self.k)), cp.Parameter((self.k, self.k))
        supply, demand = cp.Parameter(self.k), cp.Parameter(self.k)
        limits = [cp.sum(plan, axis=1) <= supply, cp.sum(plan, axis=0) >= demand, 2 * plan >= 0]
        problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, plan))), limits)
        return CvxpyLayer(problem, parameters=[cost, supply, demand], variables=[plan], solver=solver)

    def step(self, layer: Layer, options: dict[str, Any]) -> Step:
        """Return forward and backward through a layer."""
        return lambda: self._finish(layer(self.cost, *self.sides, solver_args=options)[0])

    def by_lp_layer(self) -> Step:
        """Return forward and backward through ``LPLayer``."""
        layer = LPLayer()

        def step() -> float:
            supply, demand = self.sides
            solution = layer(self.cost.flatten(), self.rows, torch.cat([supply, -demand]), lower=0.0)
            return self._finish(solution.x.reshape(self.k, self.k))

        return step

    def _finish(self, plan: torch.Tensor) -> float:
        for side in self.sides:
            side.grad = None
        (self.weight * plan).sum().backward()
        return float((self.cost * plan.detach()).sum())


def layers() -> Iterator[Row]:
    """Compare solvers of the same layer, by CPU time of one thread."""
    if not is_installed("cvxpylayers"):
        return
    # cvxpylayers warns of tensors that it copies, diffcp of solutions that are not accurate.
    warnings.simplefilter("ignore")
    rivals = {name: rival for name, rival in RIVALS.items() if rival[0] is None or is_installed("moreau")}
    with one_thread():
        for case in (FScoreLayer(64), FScoreLayer(256), FScoreLayer(64, 64), TransportLayer(64), TransportLayer(256)):
            mine = case.step(case.layer(TasklossSolver()), {})
            for name, (solver, options) in rivals.items():
                theirs = case.step(case.layer(solver), options)
                errors = f"off by {abs(mine() - case.optimum):.0e}, {abs(theirs() - case.optimum):.0e}"
                yield at_least(f"{case.title}, {name} ({errors})", in_turn(mine, theirs, clock=time.process_time), None)
            times = in_turn(mine, case.by_lp_layer(), clock=time.process_time)
            yield Row(f"{case.title}, LPLayer itself", duration(times[0]), duration(times[1]), times[1] / times[0], "", True)


if __name__ == "__main__":
    report(__doc__, (layers,))
