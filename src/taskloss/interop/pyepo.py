"""Our solvers as an ``optModel`` of PyEPO: its losses, data sets and metrics then run on them.

PyEPO (Tang and Khalil, *PyEPO: a PyTorch-based end-to-end predict-then-optimize library*, 2024) solves one instance at a time,
so a batch costs more than in ``taskloss.DirectLoss(taskloss.Structured(solver, batched=True))``, which solves it in one call.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from taskloss._checks import check_callable, check_choice
from taskloss._output_checks import as_features
from taskloss.interop._optional import optional_class
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solver import solve
from taskloss.lp.sparse import dense

_OptModel: Any = optional_class("pyepo.model.opt", "optModel", object)
_ModelSense: Any = optional_class("pyepo.EPO", "ModelSense", int)


class TasklossModel(_OptModel):  # type: ignore[misc]
    """A linear program or one of ``taskloss.solvers`` wherever PyEPO takes an ``optModel``.

    Args:
        problem: a ``LinearProgram``, whose constraints count and whose own cost does not; or a solver, which maximizes
            ``<scores, psi>`` over psi, as for ``taskloss.Structured``.
        shape: of the scores of one instance of a solver, a number or a tuple. PyEPO sees the costs as a vector.
        sense: ``"minimize"`` or ``"maximize"`` the predicted costs.

    Usage::

        model = TasklossModel(taskloss.solvers.Knapsack(weights, capacity), shape=20, sense="maximize")
        loss = pyepo.func.SPOPlus(model)
    """

    def __init__(
        self,
        problem: LinearProgram | Callable[[np.ndarray], Any],
        *,
        shape: int | tuple[int, ...] | None = None,
        sense: str = "minimize",
    ) -> None:
        if _OptModel is object:
            raise ImportError("TasklossModel needs PyEPO: pip install 'taskloss[peers]'")
        self._shape = _checked_shape(problem, shape)
        check_choice("sense", sense, ("minimize", "maximize"))
        self.modelSense = _ModelSense(1 if sense == "minimize" else -1)
        self._problem, self._sense = problem, sense
        self._costs: np.ndarray | None = None
        super().__init__()

    def _getModel(self) -> tuple[Any, range]:  # noqa: N802
        return self._problem, range(math.prod(self._shape))

    def setObj(self, c: Any) -> None:  # noqa: N802
        """Take the costs of one instance, ``(num_cost,)``."""
        costs = c.detach().cpu().numpy() if isinstance(c, torch.Tensor) else np.asarray(c)
        if costs.shape != (self.num_cost,):
            raise ValueError(f"costs of shape {costs.shape} were given; expected one cost per variable, ({self.num_cost},)")
        self._costs = costs.astype(np.float64)

    def solve(self) -> tuple[np.ndarray, float]:
        """Return the best decision ``(num_cost,)`` for the costs of ``setObj``, and its objective value."""
        if self._costs is None:
            raise ValueError("no costs were given; call setObj(costs) before solve()")
        if isinstance(self._problem, LinearProgram):
            cost = torch.from_numpy(int(self.modelSense) * self._costs).to(self._problem.c)
            decision = solve(dataclasses.replace(self._problem, c=cost)).check().x.numpy(force=True).astype(np.float64)
        else:
            answer = self._problem(-int(self.modelSense) * self._costs.reshape(self._shape))
            decision = as_features(answer, self._shape, unit_interval=False).reshape(-1)
        return decision, float(self._costs @ decision)

    def addConstr(self, coefs: Any, rhs: float) -> TasklossModel:  # noqa: N802
        """Return the model with one more constraint, ``coefs' x <= rhs``; linear programs only."""
        if not isinstance(self._problem, LinearProgram):
            raise NotImplementedError("a solver takes no further constraints; give the problem as a LinearProgram")
        program = self._problem
        if np.shape(coefs) != (self.num_cost,):
            raise ValueError(f"coefs has shape {np.shape(coefs)}; expected one coefficient per variable, ({self.num_cost},)")
        row = torch.as_tensor(np.asarray(coefs, np.float64)).to(program.c)[None]
        bound = torch.as_tensor([float(rhs)]).to(program.c)
        if program.b_ub is not None and program.matrices[0] is not None:
            row, bound = torch.cat([dense(program.matrices[0]), row]), torch.cat([program.b_ub, bound])
        return TasklossModel(dataclasses.replace(program, A_ub=row, b_ub=bound), sense=self._sense)

    def relax(self) -> TasklossModel:
        """Return the model itself if it is a linear program, which has nothing to relax."""
        if not isinstance(self._problem, LinearProgram):
            raise NotImplementedError(
                "a solver does not know its relaxation; give that to TasklossModel, as in Knapsack(relaxed=True)"
            )
        return self


def _checked_shape(problem: Any, shape: Any) -> tuple[int, ...]:
    if isinstance(problem, LinearProgram):
        if problem.batch_size is not None:
            raise ValueError(f"a batch of {problem.batch_size} programs was given; expected one program, without a batch axis")
        if shape is not None:
            raise ValueError(f"shape={shape!r} was given with a LinearProgram, which has a shape; leave it out")
        return (problem.num_variables,)
    check_callable("problem", problem, "the scores")
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if not sizes or not all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sizes):
        raise ValueError(f"shape={shape!r}; expected the shape of the scores of one instance, such as 40 or (5, 5)")
    return sizes
