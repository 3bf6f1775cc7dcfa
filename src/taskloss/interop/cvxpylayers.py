"""Our solver of linear programs behind the solver interface of cvxpylayers: ``CvxpyLayer(..., solver=TasklossSolver())``.

cvxpy writes the problem in conic form once; ``conic`` turns that into our ``LinearProgram``, whose data are affine in the
parameters of the layer. From there on it is ``taskloss.lp.differentiable_solve``: the same gradients, duals and certificates.

Duals that a layer returns have gradients too. They are the solution of the dual program, so a gradient in them is the active-set
gradient of that program, which is solved only if such a gradient arrives.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from taskloss._checks import check_choice
from taskloss._warn import warn_caller
from taskloss.interop._optional import optional_class
from taskloss.interop.conic import ConicLayout
from taskloss.interop.program_error import LinearProgramError, constraints_with, variables_with
from taskloss.lp.adjoint import Notice
from taskloss.lp.layer import differentiable_solve
from taskloss.lp.solution import Solution, Status
from taskloss.lp.solver import solve

CANONICAL_SOLVER = "SCS"
"""The solver of cvxpy whose conic form is taken: equations first, then inequalities. It is never called."""
GRADIENTS = ("active_set", "smoothed", "unrolled")
SOLVE_OPTIONS = ("method", "tolerance", "max_iterations")
OPTIONS = ("gradient", "epsilon", "ridge", "unrolled_steps", *SOLVE_OPTIONS)
CONES = {
    "soc": "second-order cones (norms, squares)",
    "exp": "exponential cones (exp, log, entropy, geometric programs)",
    "psd": "semidefinite cones",
    "p3d": "power cones",
    "pnd": "power cones",
}
"""The cones of cvxpy that are not linear, by their names in ``ConeDims``."""

_SolverInterface: Any = optional_class("cvxpylayers.interfaces.base", "SolverInterface", object)


class TasklossSolver(_SolverInterface):  # type: ignore[misc]
    """A solver for the ``CvxpyLayer`` of ``cvxpylayers.torch``, for problems that are linear programs.

    Problems with absolute values, maxima, 1-norms and other piecewise linear functions are linear programs too. One solver serves
    one layer. A program without a solution raises a ``LinearProgramError``.

    Args:
        gradient: ``"active_set"``, ``"smoothed"`` (for costs that a network predicts) or ``"unrolled"``; see
            ``taskloss.lp.differentiable_solve``.
        options: ``method``, ``epsilon``, ``ridge``, ``unrolled_steps``, ``tolerance`` and ``max_iterations`` of
            ``differentiable_solve``. Each call of the layer may change them, and ``gradient``, by its ``solver_args``.

    Usage::

        layer = CvxpyLayer(problem, parameters=[A, b], variables=[x], solver=TasklossSolver())
        (solution,) = layer(A_values, b_values)
    """

    canon_solver = CANONICAL_SOLVER
    # It has none, but so a quadratic problem reaches the message of ``setup``.
    supports_quad_obj = True

    def __init__(self, gradient: str = "active_set", **options: Any) -> None:
        if _SolverInterface is object:
            raise ImportError("TasklossSolver needs cvxpylayers 1.2 or later: pip install 'taskloss[peers]'")
        self._options = _checked_options({"gradient": gradient, **options})
        self._layout: ConicLayout | None = None
        self._warned = False

    def setup(self, ctx: Any) -> None:
        """Take the conic form of the problem from the layer, which calls this once."""
        if self._layout is not None:
            raise ValueError("this TasklossSolver already serves a layer; give each CvxpyLayer a TasklossSolver() of its own")
        _check_linear(ctx)
        rows, column_start, (num_rows, num_columns) = ctx.reduced_A.problem_data_index
        affine = ctx.reduced_A.reduced_mat.tocsc()
        known = affine[:, [-1]].toarray()[:, 0]
        known[affine[:, :-1].tocoo().row] = np.nan
        columns = np.repeat(np.arange(num_columns), np.diff(column_start))
        self._layout = ConicLayout(rows, columns, known, (int(num_rows), int(num_columns) - 1), int(ctx.cone_dims.zero))
        self._problem = ctx.problem
        self._constraints_vary = bool(np.isnan(known).any())
        self._wants_duals = any(variable.source == "dual" for variable in ctx.var_recover)

    def solve_torch_batch(
        self, quadratic: None, cost: torch.Tensor, entries: torch.Tensor, dims: Any, solver_args: dict[str, Any], needs_grad: bool
    ) -> tuple[torch.Tensor, torch.Tensor, _Solved | None]:
        """Solve a batch of programs.

        Args:
            quadratic: None; ``setup`` has refused anything else.
            cost: ``(B, n + 1)``, the last one a constant term of the objective.
            entries: of ``[F | g]`` in the conic form, ``(B, E)``.
            dims: the sizes of the cones, known since ``setup``.
            solver_args: options of this call.
            needs_grad: whether ``derivative_torch_batch`` may follow.

        Returns:
            x ``(B, n)``, the duals ``(B, m)``, and what the derivative needs. The duals are zero unless the layer returns some of
            them: at a degenerate vertex they cost a second solve.
        """
        layout = self._layout_of_layer()
        options = _checked_options({**self._options, **solver_args})
        with torch.enable_grad():
            cost = cost.detach().requires_grad_(needs_grad)
            entries = entries.detach().requires_grad_(needs_grad and self._constraints_vary)
            if layout.has_empty_interval(entries):
                layout = layout.without_bounds
            solution = differentiable_solve(layout.program(cost[:, :-1], entries), **options)
        if solution.status is not Status.OPTIMAL:
            raise self._error(solution, cost.detach(), entries.detach(), options)
        duals = layout.duals(solution) if self._wants_duals else cost.new_zeros(len(cost), layout.size[0])
        solved = None
        if needs_grad:
            self._look_at_gradient(solution.x, options["gradient"])
            solved = _Solved(cost, entries, solution.x, options)
        return solution.x.detach(), duals, solved

    def derivative_torch_batch(
        self, dprimal: torch.Tensor, ddual: torch.Tensor, saved_state: _Solved
    ) -> tuple[None, torch.Tensor, torch.Tensor]:
        """Return the gradients in the quadratic term (None), the costs ``(B, n + 1)`` and the entries ``(B, E)``."""
        cost, entries = saved_state.cost, saved_state.entries
        outputs, bars = [saved_state.x], [dprimal]
        if ddual.any():
            with torch.enable_grad():
                outputs.append(self._dual_solution(saved_state))
            bars.append(ddual)
        inputs = [cost, entries] if self._constraints_vary else [cost]
        gradients = torch.autograd.grad(outputs, inputs, bars, retain_graph=True, materialize_grads=True)
        return None, gradients[0], gradients[1] if self._constraints_vary else torch.zeros_like(entries)

    def _dual_solution(self, solved: _Solved) -> torch.Tensor:
        """Return the duals as the solution of the dual program, attached to the graph."""
        program = self._layout_of_layer().dual_program(solved.cost[:, :-1], solved.entries)
        return differentiable_solve(program, **_solve_options(solved.options)).check().x

    def _layout_of_layer(self) -> ConicLayout:
        if self._layout is None:
            raise ValueError("this TasklossSolver serves no layer yet; give it to CvxpyLayer(..., solver=TasklossSolver())")
        return self._layout

    def _look_at_gradient(self, x: torch.Tensor, gradient: str) -> None:
        """Warn once if no parameter of the layer can get a gradient, and keep the warning of ``LPLayer`` from repeating it."""
        if gradient != "active_set":
            return
        # The node of a Function is the context of its backward pass.
        x.grad_fn.notice = Notice()  # type: ignore[union-attr]
        x.grad_fn.notice.given = True  # type: ignore[union-attr]
        if not self._constraints_vary and not self._wants_duals and not self._warned:
            self._warned = True
            warn_caller(
                "the parameters of this layer are costs alone, and their gradient is zero: x is a vertex, which does not move "
                "with the costs. To learn them, use TasklossSolver(gradient='smoothed', epsilon=1e-4, ridge=...), or a regret "
                "loss: taskloss.DirectLoss(taskloss.Structured(solver, loss='regret'))"
            )

    def _error(
        self, solution: Solution, cost: torch.Tensor, entries: torch.Tensor, options: dict[str, Any]
    ) -> LinearProgramError:
        """Return the error of the first program without a solution; its certificate covers all rows of the conic form."""
        item = next(i for i, status in enumerate(solution.statuses) if status is not Status.OPTIMAL)
        status, layout = solution.statuses[item], self._layout_of_layer().without_bounds
        alone = solve(layout.program(cost[[item], :-1], entries[[item]]), **_solve_options(options))
        certificate, names = None, []
        if alone.status is status and alone.certificate is not None:
            certificate = alone.certificate
            if status is Status.INFEASIBLE:
                # The conic form has the equations first.
                certificate = certificate.roll(layout.num_equations)
            find = constraints_with if status is Status.INFEASIBLE else variables_with
            names = find(certificate.numpy(force=True), self._problem, CANONICAL_SOLVER)
        return LinearProgramError(item, len(cost), status, certificate, names)


@dataclasses.dataclass(frozen=True, eq=False)
class _Solved:
    """A forward pass: its data, which are leaves of a graph of their own, x in that graph, and the options of the call."""

    cost: torch.Tensor
    entries: torch.Tensor
    x: torch.Tensor
    options: dict[str, Any]


def _solve_options(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in SOLVE_OPTIONS if name in options}


def _checked_options(options: dict[str, Any]) -> dict[str, Any]:
    if unknown := options.keys() - set(OPTIONS):
        raise TypeError(
            f"unknown option {min(unknown)!r} of TasklossSolver; expected {', '.join(OPTIONS)}. Leave out the settings of other "
            "solvers (eps, max_iters ...): x is exact, to a tolerance of 1e-8"
        )
    check_choice("gradient", options["gradient"], GRADIENTS)
    return options


def _check_linear(ctx: Any) -> None:
    """Raise unless the problem of a layer is a linear program."""
    advice = "give this problem another solver (without solver= cvxpylayers takes diffcp), or write it with linear functions"
    if ctx.reduced_P.reduced_mat is not None:
        raise ValueError(f"the objective is quadratic; TasklossSolver solves linear programs: {advice}")
    for name, description in CONES.items():
        if getattr(ctx.cone_dims, name, None):
            raise ValueError(f"the problem has {description}; TasklossSolver solves linear programs: {advice}")
