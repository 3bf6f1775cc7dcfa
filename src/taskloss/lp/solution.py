"""What solving a linear program gives."""

from __future__ import annotations

import dataclasses
import enum

import torch


class Status(enum.IntEnum):
    """How a solve ended. ``advice`` says what to do about it.

    >>> Status.INFEASIBLE.advice[:22]
    'No point satisfies all'
    """

    OPTIMAL = 0
    INFEASIBLE = 1
    UNBOUNDED = 2
    STEP_LIMIT = 3

    @property
    def advice(self) -> str:
        """What it means and what to change."""
        return _ADVICE[self]


_ADVICE = {
    Status.OPTIMAL: "The solution is optimal within the tolerance.",
    Status.INFEASIBLE: (
        "No point satisfies all the constraints; `certificate` holds row multipliers that prove it. Look at the rows "
        "with the largest multipliers, or give them slack variables with a cost."
    ),
    Status.UNBOUNDED: (
        "The cost falls forever; `certificate` holds a direction along which it does, and x a feasible point. Bound the "
        "variables of that direction, or check the sign of c."
    ),
    Status.STEP_LIMIT: (
        "No solution within the tolerance and no proof that there is none; `gap` and `error` say how far x is. Raise max_steps, "
        "loosen the tolerance, or bring the data to comparable scales."
    ),
}


@dataclasses.dataclass(frozen=True, eq=False)
class ActiveSet:
    """Which constraints hold with equality at the solution: masks of the inequality rows and of the two bounds."""

    rows: torch.Tensor
    lower: torch.Tensor
    upper: torch.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """The answer for one program, or for a batch of them (every tensor then has a leading batch axis).

    ``x (n,)``. Duals ``dual_ub (m,) >= 0``, ``dual_eq (e,)``, ``dual_lower``, ``dual_upper`` ``(n,) >= 0`` satisfy
    ``c + A_ub' dual_ub + A_eq' dual_eq - dual_lower + dual_upper = 0``. ``objective`` is ``c'x``; ``gap`` its distance from the
    dual objective, relative; ``error`` the worst of infeasibility, stationarity and gap. ``iterations`` counts Newton steps;
    ``unique`` tells whether the constraints with a dual determine x. ``certificates`` holds a tensor or None a program: row
    multipliers (inequalities, then equations) or a direction, see ``Status``. ``traces``: the iterates, if asked for.
    """

    x: torch.Tensor
    dual_ub: torch.Tensor
    dual_eq: torch.Tensor
    dual_lower: torch.Tensor
    dual_upper: torch.Tensor
    active: ActiveSet
    objective: torch.Tensor
    gap: torch.Tensor
    error: torch.Tensor
    iterations: torch.Tensor
    unique: torch.Tensor
    statuses: tuple[Status, ...]
    certificates: tuple[torch.Tensor | None, ...]
    traces: tuple[torch.Tensor, ...] = ()

    @property
    def status(self) -> Status:
        """The status; of a batch, the first that is not optimal."""
        return next((status for status in self.statuses if status is not Status.OPTIMAL), Status.OPTIMAL)

    @property
    def certificate(self) -> torch.Tensor | None:
        """The certificate of the program that ``status`` speaks of."""
        return self.certificates[self.statuses.index(self.status)]

    def check(self) -> Solution:
        """The solution itself, if all of it is optimal; otherwise an error that names the item and says what to do."""
        for item, status in enumerate(self.statuses):
            if status is not Status.OPTIMAL:
                raise ValueError(f"linear program {item} of {len(self.statuses)} is {status.name.lower()}. {status.advice}")
        return self
