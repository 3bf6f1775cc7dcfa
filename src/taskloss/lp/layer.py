"""A linear program as a layer: its solution and its value, with gradients in c, A, b and the bounds."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from taskloss._checks import check_choice, check_count, check_positive
from taskloss.lp.adjoint import Notice, active_set_adjoint, attach, minimize_smoothed, smoothed_adjoint, value_adjoint
from taskloss.lp.interior_point.driver import Settings, solve_batch
from taskloss.lp.newton import unrolled_newton
from taskloss.lp.problem import LinearProgram, as_program
from taskloss.lp.solution import Solution
from taskloss.lp.solver import EXACT_METHODS, check_ridge, checked_settings, start_from

GRADIENTS = ("active_set", "unrolled", "value", "smoothed")


def differentiable_solve(
    problem: LinearProgram | torch.Tensor,
    A_ub: Any = None,
    b_ub: torch.Tensor | None = None,
    A_eq: Any = None,
    b_eq: torch.Tensor | None = None,
    lower: Any = None,
    upper: Any = None,
    *,
    gradient: str = "active_set",
    method: str = "auto",
    epsilon: float = 1e-2,
    ridge: float = 0.0,
    unrolled_steps: int = 3,
    tolerance: float = 1e-8,
    max_iterations: int = 2000,
    warm_start: Solution | None = None,
) -> Solution:
    """Solve a program or a batch, with ``x`` and ``objective`` attached to the graph.

    ``objective`` always carries the exact gradient of the optimal value (Danskin). The gradient of ``x`` is chosen:

    - ``"active_set"`` (default): exact wherever the solution is a unique, non-degenerate vertex; in c it is zero there, since
      a vertex does not move with the cost. For losses whose constraints depend on the network, as in the metric programs.
    - ``"smoothed"``: x is the minimizer of ``c'x + ridge/2 |x|^2 + |violation|^2 / (2 epsilon)`` instead of a vertex, with
      its implicit gradient, which is not zero in c. For costs that a network predicts; epsilon and ridge set how smooth. With
      ridge 0 a program with several solutions has several such minimizers, and x and its gradient are those of one of them.
    - ``"unrolled"``: that same minimizer (ridge 0 unless given), differentiated through its last ``unrolled_steps`` Newton steps,
      dense. For a check of the others and for the paper's burn-in, while the active set still changes.
    - ``"value"``: x carries no gradient. For losses of the optimal value alone; the cheapest.

    Where a program was not solved, the gradients are finite but mean nothing: look at ``status``, or call ``check()``.

    ``method`` is one of ``solve``, except for ``"penalty"``. The other arguments are those of ``solve``: a ``LinearProgram``, or
    the cost followed by its other arguments.

    >>> import torch
    >>> b = torch.tensor([-1.0], requires_grad=True)
    >>> problem = LinearProgram(torch.tensor([1.0, 2.0]), A_ub=torch.tensor([[-1.0, -1.0]]), b_ub=b, lower=0.0)
    >>> solution = differentiable_solve(problem)
    >>> solution.x.sum().backward()
    >>> b.grad.tolist()
    [-1.0]
    """
    program = as_program(problem, A_ub, b_ub, A_eq, b_eq, lower, upper)
    check_choice("gradient", gradient, GRADIENTS)
    epsilon = check_positive("epsilon", epsilon)
    check_count("unrolled_steps", unrolled_steps)
    check_ridge(ridge)
    check_choice("method", method, EXACT_METHODS)
    settings = checked_settings(Settings(method, tolerance=tolerance, max_iterations=max_iterations))
    arrays = program.to_arrays()
    result = solve_batch(arrays, settings, start_from(warm_start, arrays))
    x, x_adjoint = result.x, None
    if gradient == "active_set":
        x_adjoint = active_set_adjoint(arrays, result)
    elif gradient != "value":
        x, multipliers = minimize_smoothed(arrays, result.x, epsilon, ridge, max_iterations)
        if gradient == "smoothed":
            x_adjoint = smoothed_adjoint(arrays, x, multipliers, epsilon, ridge)
    output = program.output_format
    detached_x, detached_objective = output.tensor(x), output.tensor(result.objective)
    attached_x, objective = attach(program, detached_x, detached_objective, x_adjoint, value_adjoint(arrays, result))
    if gradient == "unrolled":
        attached_x = unrolled_newton(program, detached_x, epsilon, ridge, unrolled_steps)
    return Solution(attached_x, objective, result, output, arrays)


_OPTIONS = {
    name
    for name, parameter in inspect.signature(differentiable_solve).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
} - {"gradient", "warm_start"}
"""Options of ``differentiable_solve`` that a layer keeps; the other two are its own and the call's."""


class LPLayer(torch.nn.Module):
    """``differentiable_solve`` as a module: called with a program or its data, it returns a ``Solution`` with gradients.

    Args:
        gradient: ``"active_set"``, ``"unrolled"``, ``"value"`` or ``"smoothed"``; see ``differentiable_solve``.
        burn_in: number of training calls at the beginning whose gradient is the unrolled one; after that it is ``gradient``. The
            paper's schedule: early on the active set changes from step to step. The count of these calls is a buffer and travels
            with ``state_dict``.
        options: of ``differentiable_solve``.

    A batch of programs is one call. The call takes the data of a program, c first, or in place of c a whole ``LinearProgram``,
    such as one of ``lp.formulations``:

    >>> import torch
    >>> layer = LPLayer(gradient="smoothed", epsilon=0.1)
    >>> c = torch.tensor([[1.0, 2.0], [2.0, 1.0]], requires_grad=True)
    >>> solution = layer(c, A_eq=torch.ones(1, 2), b_eq=torch.ones(1), lower=0.0)
    >>> solution.x.shape
    torch.Size([2, 2])
    """

    calls: torch.Tensor

    def __init__(self, gradient: str = "active_set", *, burn_in: int = 0, **options: Any) -> None:
        super().__init__()
        self.gradient = check_choice("gradient", gradient, GRADIENTS)
        if isinstance(burn_in, bool) or not isinstance(burn_in, int) or burn_in < 0:
            raise ValueError(f"burn_in must be a whole number of at least 0, got {burn_in!r}")
        self.burn_in = burn_in
        if unknown := options.keys() - _OPTIONS:
            raise TypeError(f"unknown option {min(unknown)!r}; expected {', '.join(sorted(_OPTIONS))}")
        self.options = options
        self._notice = Notice()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(
        self,
        c: LinearProgram | torch.Tensor,
        A_ub: Any = None,
        b_ub: torch.Tensor | None = None,
        A_eq: Any = None,
        b_eq: torch.Tensor | None = None,
        lower: Any = None,
        upper: Any = None,
        *,
        warm_start: Solution | None = None,
    ) -> Solution:
        program = as_program(c, A_ub, b_ub, A_eq, b_eq, lower, upper)
        gradient = self.gradient
        if self.burn_in and self.training:
            gradient = "unrolled" if self.calls < self.burn_in else gradient
            self.calls += 1
        solution = differentiable_solve(program, gradient=gradient, warm_start=warm_start, **self.options)
        if gradient == "active_set" and solution.x.grad_fn is not None:
            # The node of a Function is the context of its backward pass: the layer warns once, not once per call.
            solution.x.grad_fn.notice = self._notice  # type: ignore[attr-defined]
        return solution

    def extra_repr(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"gradient={self.gradient!r}, burn_in={self.burn_in}{options}"
