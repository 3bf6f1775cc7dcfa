"""A batch of programs as the compiled solvers take it: the pattern that all share, and numbers, one row an item."""

from __future__ import annotations

import dataclasses

import numpy as np

from taskloss.kernels.lp_program import Pattern
from taskloss.lp.problem import LinearProgram
from taskloss.lp.structure import pattern_of

LANES = (0,) * 8
"""Programs that some kernels work on side by side: what fits a vector register of a large processor."""
FEW = 3
"""So many programs are faster one after the other."""


@dataclasses.dataclass
class Arrays:
    """A batch for the kernels. Lines are the inequality rows, the equations, then the variables; see ``kernels.lp_program``."""

    pattern: Pattern
    entries: np.ndarray
    cost: np.ndarray
    quadratic: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def num_items(self) -> int:
        """The batch size."""
        return len(self.cost)

    @property
    def num_rows(self) -> int:
        """Inequalities and equations."""
        return len(self.pattern.at_row)

    @property
    def work(self) -> int:
        """How long an item takes, roughly: the numbers of a factorization."""
        return len(self.pattern.structure.factor_index) + len(self.pattern.structure.row_numbers)

    def program(self) -> tuple[np.ndarray, ...]:
        """The arrays that every kernel takes, in its order."""
        return self.entries, self.cost, self.quadratic, self.low, self.high

    def pattern_for(self, items: np.ndarray) -> Pattern:
        """The pattern for kernels that work in lanes."""
        return self.pattern if len(items) <= FEW else self.pattern._replace(lanes=LANES)

    def part(self, items: slice) -> Arrays:
        """Some of the items; they share their memory with these."""
        return Arrays(self.pattern, *(array[items] for array in self.program()))


def arrays_of(problem: LinearProgram) -> Arrays:
    """A problem with the pattern of its nonzeros."""
    row_start, columns, entries, cost, low, high = problem.numbers()
    return Arrays(pattern_of(row_start, columns, problem.num_variables), entries, cost, np.zeros_like(cost), low, high)
