"""The error of a layer whose linear program has no solution: the certificate, and what it says in the words of the problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from taskloss.interop._optional import optional_class
from taskloss.lp.solution import Status

NAMED = 4
"""Constraints or variables that a message lists, at most."""
NEGLIGIBLE = 1e-6
"""Entries of a certificate below this share of its largest entry are rounding."""

_SolverError: Any = optional_class("diffcp", "SolverError", Exception)


class LinearProgramError(ValueError, _SolverError):  # type: ignore[misc]
    """A program of a batch has no solution, or none was found. Code that catches ``diffcp.SolverError`` catches it too.

    Args:
        item: number of the program in the batch.
        batch_size: number of programs.
        status: how the solver ended.
        certificate: a proof in the conic form of cvxpy, ``F x + g`` in a cone: y ``(m,)`` with ``F'y = 0`` and ``g'y < 0`` for an
            infeasible program, a direction d ``(n,)`` in which the cost falls for an unbounded one; None without a proof.
        names: of the constraints (infeasible) or the variables (unbounded) on which the certificate is not zero, the largest
            entry first.
    """

    def __init__(self, item: int, batch_size: int, status: Status, certificate: torch.Tensor | None, names: list[str]) -> None:
        self.item, self.status, self.certificate, self.names = item, status, certificate, names
        message = f"linear program {item} of {batch_size} is {status}. {status.advice}"
        if names:
            what = "constraints that contradict each other" if status is Status.INFEASIBLE else "variables of the direction"
            listed = "; ".join(names[:NAMED]) + ("; ..." if len(names) > NAMED else "")
            message += f" Here these are the {what}: {listed}"
        super().__init__(message)


def constraints_with(multipliers: np.ndarray, problem: Any, canonical_solver: str) -> list[str]:
    """Return the constraints of a cvxpy problem on which the multipliers ``(m,)`` of its conic form are not zero."""
    data, chain, _ = problem.get_problem_data(solver=canonical_solver)
    given = {constraint.id: str(constraint) for constraint in problem.constraints}
    original = {new: old for old, new in chain.compose_constr_id_map().items()}
    groups = data["param_prob"].constr_map
    conic = [constraint for kind in ("Zero", "NonNeg") for cls in groups if cls.__name__ == kind for constraint in groups[cls]]
    # A constraint that cvxpy has added, as for an absolute value, goes by its own name.
    names = [given.get(original.get(constraint.id, constraint.id), str(constraint)) for constraint in conic]
    return _largest_first(multipliers, names, [constraint.size for constraint in conic])


def variables_with(direction: np.ndarray, problem: Any, canonical_solver: str) -> list[str]:
    """Return the variables of a cvxpy problem on which a direction ``(n,)`` of its conic form is not zero."""
    data, chain, _ = problem.get_problem_data(solver=canonical_solver)
    given = {variable.id: variable.name() for variable in problem.variables()}
    original = {new: old for old, news in chain.compose_var_id_map().items() for new in news}
    conic = sorted(data["param_prob"].variables, key=lambda variable: data["param_prob"].var_id_to_col[variable.id])
    names = [given.get(original.get(variable.id, variable.id), variable.name()) for variable in conic]
    return _largest_first(direction, names, [variable.size for variable in conic])


def _largest_first(values: np.ndarray, names: list[str], sizes: list[int]) -> list[str]:
    """Return the names of the blocks of ``values`` that are not negligible, by their largest entry."""
    largest = np.array([np.abs(block).max(initial=0.0) for block in np.split(values, np.cumsum(sizes)[:-1])])
    order = np.argsort(-largest, kind="stable")
    return [names[block] for block in order if largest[block] > NEGLIGIBLE * largest.max(initial=0.0)]
