"""The feasible set of a linear program as a solver of ``max <scores, psi>``, for structured losses."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from taskloss._solver_checks import as_score_rows
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solver import EXACT_METHODS, solve
from taskloss.lp.sparse import SparseMatrix, as_matrix
from taskloss.solvers.by_value import ByValue


@dataclasses.dataclass(frozen=True, eq=False)
class FeasibleSet(ByValue):
    """The best point of the feasible set of a :class:`LinearProgram`; its own cost is not used. psi is x.

    Scores of any sign, in one batch. Where several points are best, psi is that of least norm, which need not be a vertex.
    (It belongs to ``taskloss.lp`` and not to ``taskloss.solvers``, which knows no linear programs.)

    Args:
        program: without a batch axis; its feasible set is not empty and, in the direction of the scores, bounded. Neither
            gradient nor device of its tensors matter.
        method: of :func:`solve`.

    >>> simplex = LinearProgram(torch.zeros(3), A_eq=torch.ones(1, 3), b_eq=torch.ones(1), lower=0.0)
    >>> FeasibleSet(simplex)(np.array([[1.0, 2.0, 3.0], [1.0, 0.0, -1.0]])).round(6).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """

    program: LinearProgram
    method: str = "auto"
    constraints: dict[str, Any] = dataclasses.field(init=False, repr=False)
    """The data of the program without its cost, float64, on the CPU."""

    def __post_init__(self) -> None:
        if not isinstance(self.program, LinearProgram):
            raise TypeError(f"program must be a LinearProgram, got {type(self.program).__name__}")
        if self.program.batch_size is not None:
            raise ValueError(
                f"the program is a batch of {self.program.batch_size}; expected one feasible set, which all instances share"
            )
        if self.method not in EXACT_METHODS:
            raise ValueError(f"method={self.method!r} is not known; expected one of {', '.join(map(repr, EXACT_METHODS))}")
        given = {name: getattr(self.program, name) for name in ("A_ub", "b_ub", "A_eq", "b_eq", "lower", "upper")}
        constraints = {name: _detached(value) for name, value in given.items() if value is not None}
        no_cost = torch.zeros(self.program.num_variables, dtype=torch.float64)
        object.__setattr__(self, "program", LinearProgram(no_cost, **constraints))
        object.__setattr__(self, "constraints", constraints)

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return ``psi`` of the shape of ``scores``, ``(..., n)``."""
        rows = as_score_rows(scores, self.program.num_variables, "variable")
        if not len(rows):
            return np.zeros(np.shape(scores))
        # Scores of any size: a factor changes no maximizer, and a power of two no digit.
        rows = np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1])
        solution = solve(torch.from_numpy(-rows), **self.constraints, method=self.method).check()
        return solution.x.numpy().reshape(np.shape(scores))

    def _key(self) -> tuple[Any, ...]:
        return self.method, self.program.num_variables, *((name, _digest(value)) for name, value in self.constraints.items())


def _detached(value: Any) -> Any:
    """Return a copy of a part of a program, float64 and on the CPU."""
    matrix = as_matrix(value)
    if isinstance(matrix, SparseMatrix):
        return matrix.with_values(_detached(matrix.values))
    return matrix.detach().to("cpu", torch.float64, copy=True)


def _digest(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.numpy().tobytes()
    return value.shape, value.rows.tobytes(), value.columns.tobytes(), value.values.numpy().tobytes()
