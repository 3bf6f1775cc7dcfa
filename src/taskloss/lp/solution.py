"""The answer of a solve: solution, duals, status, certificates."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import NamedTuple

import numpy as np
import torch

from taskloss.lp.interior_point.data import ProgramData
from taskloss.lp.multipliers import least_norm_multipliers


class Status(enum.IntEnum):
    """How a solve ended: ``str`` and ``print`` give its name, ``advice`` says what to do about it.

    >>> print(Status.INFEASIBLE)
    infeasible
    >>> Status.INFEASIBLE.advice[:22]
    'No point satisfies all'
    """

    OPTIMAL = 0
    INFEASIBLE = 1
    UNBOUNDED = 2
    ITERATION_LIMIT = 3

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def advice(self) -> str:
        """What the status means and what to change."""
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
    Status.ITERATION_LIMIT: (
        "No solution within the tolerance and no proof that there is none; `gap` and `error` say how far x is. Loosen the "
        'tolerance, bring the data to comparable scales, raise max_iterations if it was lowered, or leave method at "auto".'
    ),
}


@dataclasses.dataclass(frozen=True, eq=False)
class ActiveSet:
    """Constraints at a bound, or with a dual, at the solution: bool masks of the inequality rows and of the two bounds."""

    rows: torch.Tensor
    lower: torch.Tensor
    upper: torch.Tensor


class Result(NamedTuple):
    """Arrays of the solver, in the units of the program; B programs, n variables, m rows."""

    x: np.ndarray
    """``(B, n)``."""
    multipliers: np.ndarray
    """Multipliers of the constraints, rows first, ``(B, m + n)``: above zero at an upper bound, below zero at a lower one."""
    at_lower: np.ndarray
    """Constraints at their lower bound, bool ``(B, m + n)``."""
    at_upper: np.ndarray
    """Constraints at their upper bound; equations and fixed variables count as such."""
    objective: np.ndarray
    """``(B,)``."""
    error: np.ndarray
    """``(B,)``."""
    gap: np.ndarray
    """``(B,)``."""
    iterations: np.ndarray
    """``(B,)``."""
    unique: np.ndarray
    """Bool ``(B,)``."""
    statuses: np.ndarray
    """Values of :class:`Status`, ``(B,)``."""
    certificates: list[np.ndarray | None]
    """One per program: row multipliers or a direction, see :class:`Status`, or None."""
    traces: list[np.ndarray]
    """Iterates of each program ``(iterations, n)``; empty unless they were asked for."""


class OutputFormat(NamedTuple):
    """How a program wants its solution: with a batch axis or without, dtype, device, and the numbers of rows."""

    batched: bool
    dtype: torch.dtype
    device: torch.device
    num_inequalities: int
    num_rows: int

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        """Return an array with one row or value per program as a tensor with memory of its own."""
        return self.convert(np.array(array if self.batched else array[0]))

    def convert(self, array: np.ndarray) -> torch.Tensor:
        """Return an array as a tensor."""
        result = torch.from_numpy(np.asarray(array, order="C"))
        return result.to(self.device, self.dtype if result.is_floating_point() else result.dtype)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The answer for one program, or for a batch of them (every tensor then has a leading batch axis).

    ``x (n,)``; ``objective`` is ``c'x``. The other fields are made from the arrays of the solver when they are asked for. When
    printed, it shows the status first, and what to do if that is not optimal.
    """

    x: torch.Tensor
    objective: torch.Tensor
    result: Result
    """Arrays of the solver."""
    output_format: OutputFormat
    programs: ProgramData
    """Arrays of the programs."""

    def __repr__(self) -> str:
        counts = {status: self.statuses.count(status) for status in Status if status in self.statuses}
        if len(self.statuses) == 1:
            status = str(self.status)
        else:
            status = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no programs"
        advice = "".join(f" {status.advice}" for status in counts if status is not Status.OPTIMAL)
        fields = f"x={self.x!r}, objective={self.objective!r}"
        if not advice:
            return f"Solution(status={status}, {fields})"
        return f"Solution(status={status}:{advice}\n  The last iterate, not a solution: {fields})"

    @functools.cached_property
    def multipliers(self) -> np.ndarray:
        """Multipliers of the constraints as in ``Result``, those of least norm where there are several."""
        return least_norm_multipliers(self.programs, self.result)

    @functools.cached_property
    def dual_ub(self) -> torch.Tensor:
        """Duals of the inequalities, ``(m_ub,) >= 0``.

        All duals together satisfy ``c + A_ub' dual_ub + A_eq' dual_eq - dual_lower + dual_upper = 0``.
        """
        return self.output_format.tensor(self.multipliers[:, : self.output_format.num_inequalities].clip(0.0))

    @functools.cached_property
    def dual_eq(self) -> torch.Tensor:
        """Multipliers of the equations, ``(m_eq,)``, of either sign."""
        return self.output_format.tensor(self.multipliers[:, self.output_format.num_inequalities : self.output_format.num_rows])

    @functools.cached_property
    def dual_lower(self) -> torch.Tensor:
        """Duals of the lower bounds, ``(n,) >= 0``."""
        return self.output_format.tensor((-self.multipliers[:, self.output_format.num_rows :]).clip(0.0))

    @functools.cached_property
    def dual_upper(self) -> torch.Tensor:
        """Duals of the upper bounds, ``(n,) >= 0``."""
        return self.output_format.tensor(self.multipliers[:, self.output_format.num_rows :].clip(0.0))

    @functools.cached_property
    def active(self) -> ActiveSet:
        """Constraints that hold with equality."""
        at_lower, at_upper = self.result.at_lower, self.result.at_upper
        rows, bounds = slice(self.output_format.num_inequalities), slice(self.output_format.num_rows, None)
        return ActiveSet(
            *(self.output_format.tensor(part) for part in (at_upper[:, rows], at_lower[:, bounds], at_upper[:, bounds]))
        )

    @functools.cached_property
    def gap(self) -> torch.Tensor:
        """Relative distance of ``objective`` from the dual objective."""
        return self.output_format.tensor(self.result.gap)

    @functools.cached_property
    def error(self) -> torch.Tensor:
        """Worst of infeasibility, stationarity and gap."""
        return self.output_format.tensor(self.result.error)

    @functools.cached_property
    def iterations(self) -> torch.Tensor:
        """Newton steps that were taken."""
        return self.output_format.tensor(self.result.iterations)

    @functools.cached_property
    def unique(self) -> torch.Tensor:
        """Whether x was shown to be the unique optimum: the constraints with a multiplier determine it."""
        return self.output_format.tensor(self.result.unique)

    @functools.cached_property
    def statuses(self) -> tuple[Status, ...]:
        """Status of each program."""
        return tuple(Status(status) for status in self.result.statuses.tolist())

    @functools.cached_property
    def certificates(self) -> tuple[torch.Tensor | None, ...]:
        """One per program: row multipliers (inequalities, then equations) or a direction, see ``Status``, or None."""
        return tuple(None if proof is None else self.output_format.convert(proof) for proof in self.result.certificates)

    @functools.cached_property
    def traces(self) -> tuple[torch.Tensor, ...]:
        """Iterates of each program, if they were asked for."""
        return tuple(self.output_format.convert(steps) for steps in self.result.traces)

    @property
    def status(self) -> Status:
        """Status of the program; of a batch, the first that is not optimal."""
        return next((status for status in self.statuses if status is not Status.OPTIMAL), Status.OPTIMAL)

    @property
    def certificate(self) -> torch.Tensor | None:
        """Certificate of the program that ``status`` speaks of."""
        return self.certificates[self.statuses.index(self.status)]

    def check(self) -> Solution:
        """Return the solution if all of it is optimal; otherwise raise an error that names the item and says what to do."""
        for item, status in enumerate(self.statuses):
            if status is not Status.OPTIMAL:
                raise ValueError(f"linear program {item} of {len(self.statuses)} is {status}. {status.advice}")
        return self
