r"""Linear programs in conic form, as modelling languages write them, as our ``LinearProgram``.

With m rows, of which the first ``num_equations`` are equations, the conic form is

.. math:: \min_x\; q'x \quad\text{s.t.}\quad F x + g \in \{0\}^{m_{eq}} \times \mathbb{R}_{\ge 0}^{m - m_{eq}} ,

and that of its dual :math:`\min_y\; g'y` subject to :math:`F'y = q` and :math:`y_i \ge 0` for the inequalities. A row is an
equation, an inequality or, if its only entry is a known number, a bound of a variable: ``F_ij x_j + g_i >= 0`` is ``x_j >= -g_i /
F_ij`` or, with ``F_ij < 0``, ``x_j <= -g_i / F_ij``. Bounds cost the solver far less than rows.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import Solution
from taskloss.lp.sparse import SparseMatrix


class ConicLayout:
    """The sparsity pattern of ``[F | g]``, and which of its rows are equations, inequalities and bounds.

    Args:
        rows: of the E entries of ``[F | g]``, integers ``(E,)``.
        columns: of the entries, ``(E,)``; column n is g.
        known: values of the entries that never change, ``(E,)``; NaN for the others.
        size: m rows and n variables.
        num_equations: the first rows, which are equations.
        bounds: whether rows with a single known entry become bounds.

    ``x >= 1`` and ``2 x <= 6`` for one variable: two bounds, no rows.

    >>> layout = ConicLayout([0, 1, 0, 1], [0, 0, 1, 1], [1.0, -2.0, -1.0, 6.0], (2, 1), 0)
    >>> program = layout.program(torch.ones(1, 1), torch.tensor([[1.0, -2.0, -1.0, 6.0]]))
    >>> program.lower.tolist(), program.upper.tolist(), program.A_ub
    ([[1.0]], [[3.0]], None)
    """

    def __init__(
        self, rows: Any, columns: Any, known: Any, size: tuple[int, int], num_equations: int, *, bounds: bool = True
    ) -> None:
        self._rows, self._columns, self._known = np.asarray(rows), np.asarray(columns), np.asarray(known, np.float64)
        self.size, self.num_equations = size, num_equations
        self._in_g = np.flatnonzero(self._columns == size[1])
        self._in_f = np.flatnonzero(self._columns < size[1])
        self.lower: np.ndarray
        self.upper: np.ndarray
        self.lower, self.upper = self._bounds() if bounds else (np.zeros(0, np.int64), np.zeros(0, np.int64))
        taken = np.zeros(size[0], bool)
        taken[self._rows[self.lower]] = taken[self._rows[self.upper]] = True
        self._inequalities = _Block(self, np.flatnonzero(~taken & (np.arange(size[0]) >= num_equations)))
        self._equations = _Block(self, np.arange(num_equations))

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the entries of F that are lower and upper bounds, at most one of each per variable."""
        alone = np.bincount(self._rows[self._in_f], minlength=self.size[0]) == 1
        # A comparison with NaN is false: entries that are not known are no bounds.
        candidates = self._in_f[alone[self._rows[self._in_f]] & (self._rows[self._in_f] >= self.num_equations)]
        sides = (candidates[self._known[candidates] > 0.0], candidates[self._known[candidates] < 0.0])
        lower, upper = (side[np.unique(self._columns[side], return_index=True)[1]] for side in sides)
        return lower, upper

    @functools.cached_property
    def without_bounds(self) -> ConicLayout:
        """The same rows, none of them a bound."""
        return ConicLayout(self._rows, self._columns, self._known, self.size, self.num_equations, bounds=False)

    def program(self, cost: torch.Tensor, entries: torch.Tensor) -> LinearProgram:
        """Return the programs with costs ``(B, n)`` and entries of ``[F | g]``, ``(B, E)``, attached to the graph."""
        g = self._constants(entries)
        return LinearProgram(
            cost,
            A_ub=self._inequalities.matrix(entries),
            b_ub=self._inequalities.rhs(g),
            A_eq=self._equations.matrix(entries),
            b_eq=self._equations.rhs(g),
            lower=self._bound(self.lower, -torch.inf, g),
            upper=self._bound(self.upper, torch.inf, g),
        )

    def has_empty_interval(self, entries: torch.Tensor) -> bool:
        """Whether the lower bound of a variable is above its upper bound; ``without_bounds`` then proves the infeasibility."""
        g = self._constants(entries.detach())
        lower, upper = self._bound(self.lower, -torch.inf, g), self._bound(self.upper, torch.inf, g)
        return lower is not None and upper is not None and bool((lower > upper).any())

    def duals(self, solution: Solution) -> torch.Tensor:
        """Return y ``(B, m)`` of the solution of a ``program``."""
        y = solution.x.new_zeros(len(solution.x), self.size[0])
        if self.num_equations:
            y[:, : self.num_equations] = solution.dual_eq
        if len(self._inequalities.rows):
            y[:, self._inequalities.rows] = solution.dual_ub
        for side, duals in ((self.lower, solution.dual_lower), (self.upper, solution.dual_upper)):
            if len(side):
                y[:, self._rows[side]] = duals[:, self._columns[side]] / torch.as_tensor(abs(self._known[side])).to(duals)
        return y

    def dual_program(self, cost: torch.Tensor, entries: torch.Tensor) -> LinearProgram:
        """Return the duals of the programs, whose solution is y ``(B, m)``, attached to the graph."""
        lower = torch.full((self.size[0],), -torch.inf, dtype=cost.dtype, device=cost.device)
        lower[self.num_equations :] = 0.0
        indices = self._columns[self._in_f], self._rows[self._in_f]
        transposed = SparseMatrix(*indices, entries[:, self._in_f], (self.size[1], self.size[0]))
        return LinearProgram(self._constants(entries), A_eq=transposed, b_eq=cost, lower=lower)

    def _constants(self, entries: torch.Tensor) -> torch.Tensor:
        """Return g, ``(B, m)``."""
        rows = torch.as_tensor(self._rows[self._in_g], device=entries.device)
        return entries.new_zeros(len(entries), self.size[0]).index_add(1, rows, entries[:, self._in_g])

    def _bound(self, side: np.ndarray, none: float, g: torch.Tensor) -> torch.Tensor | None:
        """Return the lower or the upper bounds, ``(B, n)``."""
        if not len(side):
            return None
        values = -g[:, self._rows[side]] / torch.as_tensor(self._known[side]).to(g)
        return g.new_full((len(g), self.size[1]), none).index_copy(1, torch.as_tensor(self._columns[side]).to(g.device), values)


class _Block:
    """Some rows of a layout as ``A x <= b`` or ``A x = b``: ``A = -F``, ``b = g``."""

    def __init__(self, layout: ConicLayout, rows: np.ndarray) -> None:
        self.rows = rows
        place = np.full(layout.size[0], -1)
        place[rows] = np.arange(len(rows))
        row_of_entry = place[layout._rows[layout._in_f]]
        self._entries = layout._in_f[row_of_entry >= 0]
        known = torch.as_tensor(-layout._known[self._entries])
        # Values that never change are shared by the batch.
        self._is_known = not bool(known.isnan().any())
        self._matrix = SparseMatrix(
            row_of_entry[row_of_entry >= 0], layout._columns[self._entries], known, (len(rows), layout.size[1])
        )

    def matrix(self, entries: torch.Tensor) -> SparseMatrix | None:
        """Return A; None without rows."""
        if not len(self.rows):
            return None
        return self._matrix.with_values(self._matrix.values.to(entries) if self._is_known else -entries[:, self._entries])

    def rhs(self, g: torch.Tensor) -> torch.Tensor | None:
        """Return b ``(B, rows)``; None without rows."""
        return g[:, self.rows] if len(self.rows) else None
