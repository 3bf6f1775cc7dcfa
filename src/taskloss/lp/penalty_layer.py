"""The layer of the paper: the exterior penalty at one epsilon, and a burn-in that finds this epsilon during training.

Meng et al. (2021), section 3.2. One minimization of the penalty function tells which constraints are active: those with a
multiplier. The solution is that of their equations (in the sense of least squares, where these contradict each other), and so is
its gradient. This is exact if epsilon is small enough
(:mod:`taskloss.lp.epsilon`). In the burn-in of the paper epsilon grows a little in each training iteration, the solution is
the minimizer of the penalty function, and its gradient that of the unrolled Newton steps; "once the convergence profile has
stabilized" epsilon stays and the equations of the active constraints take over. The paper does not say what stabilized means.
Here it means: in ``window`` successive iterations, all constraints with a multiplier were active at the exact solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from taskloss._checks import check_count, check_positive
from taskloss.lp.adjoint import Adjoint, Notice, attach, minimize_smoothed, smoothed_adjoint, value_adjoint
from taskloss.lp.epsilon import MAX_NEWTON_STEPS, is_complementary, is_stationary, minimize_densely, transposed_product
from taskloss.lp.interior_point.augmented_lagrangian import solve_hessian_batch
from taskloss.lp.interior_point.data import ProgramData, activity_batch
from taskloss.lp.interior_point.driver import Settings, solve_batch
from taskloss.lp.layer import differentiable_solve
from taskloss.lp.problem import LinearProgram, as_program
from taskloss.lp.solution import Solution


@dataclass(frozen=True)
class BurnIn:
    """When the burn-in of a :class:`PenaltyLayer` ends, and how epsilon grows until then.

    >>> BurnIn(growth=0.9)
    Traceback (most recent call last):
        ...
    ValueError: growth must be at least 1, since epsilon grows in the burn-in, got 0.9
    """

    growth: float = 1.01
    """Factor of epsilon in each iteration."""
    window: int = 20
    """Number of successive iterations in which the penalty function must name the right constraints."""
    max_iterations: int = 500
    """Iterations after which the burn-in ends in any case."""

    def __post_init__(self) -> None:
        if check_positive("growth", self.growth) < 1.0:
            raise ValueError(f"growth must be at least 1, since epsilon grows in the burn-in, got {self.growth!r}")
        check_count("window", self.window)
        check_count("max_iterations", self.max_iterations)


class PenaltyLayer(torch.nn.Module):
    """A linear program solved as in the paper, by one minimization of its exterior penalty.

    It is called as :class:`taskloss.lp.LPLayer`, with a program or its data, and returns a ``Solution``. The loss should be a
    function of ``x``. If epsilon is small enough, ``x`` is the exact solution and ``status`` is optimal; otherwise ``x`` is
    finite, but may violate constraints. ``LPLayer`` is always exact and needs no epsilon; this layer is there to compare with
    the paper.

    Args:
        epsilon: of the penalty; with a burn-in, the one that it starts with.
        burn_in: its schedule; None to take the equations of the active constraints from the first call on. It counts training
            calls only. In evaluation mode the current epsilon is used as after the burn-in.
        unrolled_steps: number of Newton steps that are differentiated in the burn-in.
        tolerance: of the status, as in :func:`taskloss.lp.solve`.

    The current epsilon and the progress of the burn-in are buffers and travel with ``state_dict``.

    >>> layer = PenaltyLayer(epsilon=1e-3, burn_in=BurnIn(growth=1.5, window=2))
    >>> upper = torch.tensor([1.0, 2.0]).double().requires_grad_()
    >>> for _ in range(3):           # max x, x <= 1, x <= 2; the first two calls are the burn-in
    ...     x = layer(-torch.ones(1).double(), A_ub=torch.ones(2, 1).double(), b_ub=upper).x
    ...     print(layer.burning_in, round(layer.epsilon.item(), 5), round(x.item(), 5))
    True 0.0015 1.001
    False 0.0015 1.0015
    False 0.0015 1.0
    """

    epsilon: torch.Tensor
    """Current epsilon, float64."""
    iterations: torch.Tensor
    """Number of training calls in the burn-in so far, int64."""
    agreements: torch.Tensor
    """Number of successive calls up to now in which the penalty function named the right constraints, int64."""
    finished: torch.Tensor
    """Whether the burn-in is over, bool."""

    def __init__(
        self, epsilon: float = 1e-2, *, burn_in: BurnIn | None = None, unrolled_steps: int = 3, tolerance: float = 1e-8
    ) -> None:
        super().__init__()
        if burn_in is not None and not isinstance(burn_in, BurnIn):
            raise TypeError(f"burn_in must be a BurnIn or None, got {type(burn_in).__name__}")
        self.burn_in = burn_in
        self.unrolled_steps = check_count("unrolled_steps", unrolled_steps)
        self.tolerance = check_positive("tolerance", tolerance)
        self._notice = Notice()
        self.register_buffer("epsilon", torch.tensor(check_positive("epsilon", epsilon), dtype=torch.float64))
        self.register_buffer("iterations", torch.zeros((), dtype=torch.int64))
        self.register_buffer("agreements", torch.zeros((), dtype=torch.int64))
        self.register_buffer("finished", torch.tensor(burn_in is None))

    @property
    def burning_in(self) -> bool:
        """Whether the next training call belongs to the burn-in."""
        return not bool(self.finished)

    def forward(
        self,
        c: LinearProgram | torch.Tensor,
        A_ub: Any = None,
        b_ub: torch.Tensor | None = None,
        A_eq: Any = None,
        b_eq: torch.Tensor | None = None,
        lower: Any = None,
        upper: Any = None,
    ) -> Solution:
        program = as_program(c, A_ub, b_ub, A_eq, b_eq, lower, upper)
        if self.training and self.burn_in is not None and self.burning_in:
            return self._unroll(program, self.burn_in)
        return self._solve_active_set(program)

    def _unroll(self, program: LinearProgram, burn_in: BurnIn) -> Solution:
        """Return the minimizer of the penalty function, and go one iteration further in the burn-in."""
        epsilon = float(self.epsilon)
        options = {"unrolled_steps": self.unrolled_steps, "tolerance": self.tolerance}
        solution = differentiable_solve(program, gradient="unrolled", epsilon=epsilon, **options)  # type: ignore[arg-type]
        start = np.atleast_2d(solution.x.to("cpu", torch.float64).numpy(force=True))
        _, multipliers = minimize_smoothed(solution.programs, start, epsilon, 0.0, MAX_NEWTON_STEPS)
        agrees = bool(is_complementary(solution.programs, solution.result, multipliers).all())
        self.iterations += 1
        self.agreements.copy_(self.agreements + 1 if agrees else torch.zeros_like(self.agreements))
        self.finished.fill_(bool(self.agreements >= burn_in.window or self.iterations >= burn_in.max_iterations))
        if self.burning_in:
            self.epsilon *= burn_in.growth
        return solution

    def _solve_active_set(self, program: LinearProgram) -> Solution:
        """Return the solution of the equations of the constraints that have a multiplier."""
        arrays, output, epsilon = program.to_arrays(), program.output_format, float(self.epsilon)
        settings = Settings("penalty", epsilon, self.tolerance)
        result = solve_batch(arrays, settings)
        if not is_stationary(arrays, result.multipliers).all():
            result = solve_batch(arrays, settings, start=minimize_densely(program, epsilon))
        equality = arrays.lower == arrays.upper
        at_upper = (result.multipliers > 0.0) | equality
        at_lower = (result.multipliers < 0.0) & ~equality
        x = _least_squares_solution(arrays, result.x, at_lower, at_upper)
        objective = (arrays.cost * x).sum(axis=1)
        result = result._replace(x=x, objective=objective, at_lower=at_lower, at_upper=at_upper)
        implicit = smoothed_adjoint(arrays, x, result.multipliers, epsilon, 0.0)

        def differentiate(bar: np.ndarray) -> Adjoint:
            # The least-squares solution satisfies the equations of the smoothed minimizer for a cost of zero.
            return implicit(bar)._replace(cost=np.zeros_like(x))

        attached = attach(program, output.tensor(x), output.tensor(objective), differentiate, value_adjoint(arrays, result))
        if attached[0].grad_fn is not None:
            # The node of a Function is the context of its backward pass: the layer warns once, not once per call.
            attached[0].grad_fn.notice = self._notice  # type: ignore[attr-defined]
        return Solution(*attached, result, output, arrays)

    def extra_repr(self) -> str:
        return f"epsilon={float(self.epsilon):g}, burn_in={self.burn_in}, burning_in={self.burning_in}"


def _least_squares_solution(programs: ProgramData, x: np.ndarray, at_lower: np.ndarray, at_upper: np.ndarray) -> np.ndarray:
    """Return the x that misses the bounds of the active constraints by the least sum of squares, ``(B, n)``, near the given one.

    If the active constraints are right, nothing is missed. If there are too many, their equations contradict each other, and all
    count alike, rows and bounds of variables.
    """
    active = at_lower | at_upper
    activity = np.empty_like(programs.lower)
    activity_batch(programs, x, activity)
    missed = np.where(active, activity - np.where(at_upper, programs.upper, np.where(at_lower, programs.lower, 0.0)), 0.0)
    step = np.empty_like(x)
    solve_hessian_batch(programs, np.arange(len(x)), active, 1.0, transposed_product(programs, missed), step)
    solution: np.ndarray = x - step
    return solution
