"""What solving a linear program gives."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from taskloss.lp.either import Array, tensor_of

if TYPE_CHECKING:
    from taskloss.lp.engine import Found


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


class Form(NamedTuple):
    """How a problem wants its answers: one or a batch, precision, device; inequality rows, all rows."""

    batched: bool
    dtype: torch.dtype
    device: torch.device
    inequalities: int
    rows: int

    def tensor(self, array: Array) -> torch.Tensor:
        """An array with a row or a number an item as a tensor with memory of its own."""
        own = array if self.batched else array[0]
        return self.converted(own.clone() if isinstance(own, torch.Tensor) else np.array(own))

    def converted(self, array: Array) -> torch.Tensor:
        """An array as a tensor."""
        result = tensor_of(array)
        return result.to(self.device, self.dtype if result.is_floating_point() else result.dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """The answer for one program, or for a batch of them (every tensor then has a leading batch axis).

    ``x (n,)``; ``objective`` is ``c'x``. What else there is to know is worked out when it is asked for.
    """

    x: torch.Tensor
    objective: torch.Tensor
    found: Found = dataclasses.field(repr=False)
    """The arrays of the solver."""
    form: Form = dataclasses.field(repr=False)

    @functools.cached_property
    def dual_ub(self) -> torch.Tensor:
        """``(m,) >= 0``. The duals satisfy ``c + A_ub' dual_ub + A_eq' dual_eq - dual_lower + dual_upper = 0``."""
        return self.form.tensor(self.found.multipliers[:, : self.form.inequalities].clip(0.0))

    @functools.cached_property
    def dual_eq(self) -> torch.Tensor:
        """``(e,)``."""
        return self.form.tensor(self.found.multipliers[:, self.form.inequalities : self.form.rows])

    @functools.cached_property
    def dual_lower(self) -> torch.Tensor:
        """``(n,) >= 0``."""
        return self.form.tensor((-self.found.multipliers[:, self.form.rows :]).clip(0.0))

    @functools.cached_property
    def dual_upper(self) -> torch.Tensor:
        """``(n,) >= 0``."""
        return self.form.tensor(self.found.multipliers[:, self.form.rows :].clip(0.0))

    @functools.cached_property
    def active(self) -> ActiveSet:
        """Which constraints hold with equality."""
        at_low, at_high = self.found.at_low, self.found.at_high
        rows, bounds = slice(self.form.inequalities), slice(self.form.rows, None)
        return ActiveSet(*(self.form.tensor(part) for part in (at_high[:, rows], at_low[:, bounds], at_high[:, bounds])))

    @functools.cached_property
    def gap(self) -> torch.Tensor:
        """The distance of ``objective`` from the dual objective, relative."""
        return self.form.tensor(self.found.gap)

    @functools.cached_property
    def error(self) -> torch.Tensor:
        """The worst of infeasibility, stationarity and gap."""
        return self.form.tensor(self.found.error)

    @functools.cached_property
    def iterations(self) -> torch.Tensor:
        """Newton steps."""
        return self.form.tensor(self.found.steps)

    @functools.cached_property
    def unique(self) -> torch.Tensor:
        """Do the constraints with a dual determine x?"""
        return self.form.tensor(self.found.determined)

    @functools.cached_property
    def statuses(self) -> tuple[Status, ...]:
        """How the solve of each program ended."""
        return tuple(Status(status) for status in self.found.statuses.tolist())

    @functools.cached_property
    def certificates(self) -> tuple[torch.Tensor | None, ...]:
        """Of each program row multipliers (inequalities, then equations) or a direction, see ``Status``, or None."""
        return tuple(None if proof is None else self.form.converted(proof) for proof in self.found.certificates)

    @functools.cached_property
    def traces(self) -> tuple[torch.Tensor, ...]:
        """The iterates of each program, if they were asked for."""
        return tuple(self.form.converted(steps) for steps in self.found.traces)

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
