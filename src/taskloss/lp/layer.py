"""A linear program as a layer: its solution and its value, with gradients in c, A, b and the bounds."""

from __future__ import annotations

from typing import Any

import torch

from taskloss._checks import check_choice, check_count, check_positive
from taskloss.lp.engine import Settings
from taskloss.lp.gradients import attached, of_active_set, of_smoothed, of_value
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import Solution
from taskloss.lp.solver import checked, engine_for
from taskloss.lp.unrolled import newton_steps

GRADIENTS = ("active_set", "unrolled", "value", "smoothed")


def differentiable_solve(
    problem: LinearProgram,
    *,
    gradient: str = "active_set",
    epsilon: float = 1e-2,
    ridge: float = 0.0,
    steps: int = 3,
    tolerance: float = 1e-8,
    max_steps: int = 2000,
    warm_start: Solution | None = None,
    engine: str = "compiled",
) -> Solution:
    """Solve, with ``x`` and ``objective`` attached to the graph.

    ``objective`` always carries the exact gradient of the optimal value (Danskin). What gradient ``x`` carries is chosen:

    - ``"active_set"`` (default): exact wherever the solution is a unique, non-degenerate vertex; in c it is zero there, since
      a vertex does not move with the cost. For losses whose constraints depend on the network, as in the metric programs.
    - ``"smoothed"``: x is the minimizer of ``c'x + ridge/2 |x|^2 + |violation|^2 / (2 epsilon)`` instead of a vertex, with
      its implicit gradient, which is not zero in c. For costs that a network predicts; epsilon and ridge set how smooth.
    - ``"unrolled"``: that same minimizer (ridge 0 unless given), differentiated through its last ``steps`` Newton steps,
      dense. For a check of the others and for the paper's burn-in, while the active set still changes.
    - ``"value"``: x carries none. For losses of the optimal value alone; the cheapest.

    The other arguments are those of ``solve``.

    >>> import torch
    >>> b = torch.tensor([-1.0], requires_grad=True)
    >>> problem = LinearProgram(torch.tensor([1.0, 2.0]), A_ub=torch.tensor([[-1.0, -1.0]]), b_ub=b, lower=0.0)
    >>> solution = differentiable_solve(problem)
    >>> solution.x.sum().backward()
    >>> b.grad.tolist()
    [-1.0]
    """
    check_choice("gradient", gradient, GRADIENTS)
    check_positive("epsilon", epsilon)
    check_count("steps", steps)
    if not ridge >= 0.0:
        raise ValueError(f"ridge must be a number of at least zero, got {ridge!r}")
    settings = checked(Settings(tolerance=tolerance, max_steps=max_steps))
    solver = engine_for(problem, engine)
    found = solver.solve(settings, warm_start)
    form = problem.form
    x, of_x = found.x, None
    if gradient == "active_set":
        of_x = of_active_set(solver, found)
    elif gradient != "value":
        x, multipliers = solver.minimize_penalty(found.x, epsilon, ridge, max_steps)
        if gradient == "smoothed":
            of_x = of_smoothed(solver, x, multipliers, epsilon, ridge)
    outputs = form.tensor(x), form.tensor(found.objective)
    attached_x, objective = attached(problem, solver, *outputs, of_x, of_value(solver, found))
    if gradient == "unrolled":
        attached_x = newton_steps(problem, outputs[0], epsilon, ridge, steps)
    return Solution(attached_x, objective, found, form)


class LPLayer(torch.nn.Module):
    """``differentiable_solve`` as a module: called with the data of a program, it returns a ``Solution`` with gradients.

    Args:
        gradient: ``"active_set"``, ``"unrolled"``, ``"value"`` or ``"smoothed"``; see ``differentiable_solve``.
        burn_in: for so many training calls the gradient is the unrolled one, after that ``gradient``. The paper's schedule:
            early on the active set changes from step to step. The count of these calls is a buffer and travels with
            ``state_dict``.
        options: of ``differentiable_solve``.

    A batch of programs is one call.

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
        self.options = options
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(
        self,
        c: torch.Tensor,
        A_ub: Any = None,
        b_ub: torch.Tensor | None = None,
        A_eq: Any = None,
        b_eq: torch.Tensor | None = None,
        lower: Any = None,
        upper: Any = None,
        *,
        warm_start: Solution | None = None,
    ) -> Solution:
        problem = LinearProgram(c, A_ub, b_ub, A_eq, b_eq, lower, upper)
        gradient = self.gradient
        if self.burn_in and self.training:
            gradient = "unrolled" if self.calls < self.burn_in else gradient
            self.calls += 1
        return differentiable_solve(problem, gradient=gradient, warm_start=warm_start, **self.options)

    def extra_repr(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"gradient={self.gradient!r}, burn_in={self.burn_in}{options}"
