"""The F-score as a linear program through cvxpylayers, as Meng et al. (2021) compare with it."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss.peers.inputs import read_binary

SOLVERS = ("SCS", "MOREAU")


class CvxpyFScoreLoss(nn.Module):
    r"""One minus the F-score of soft labels by a differentiable convex solver: the value of ``tl.lp.FScoreLoss(beta, margin=0)``.

    The program is :func:`taskloss.lp.formulations.fscore_program`. With ``phi = tanh(scores)``, P positives and
    ``k = beta^2 P`` it is, in the variables z and t,

    .. math::
        \max \tfrac{1 + \beta^2}{k} \sum_{i: y_i = 1} z_i \;\text{s.t.}\; \sum_i z_i + k t = k,\;
        \phi_i t \le z_i \le (1 + \phi_i) t,\; z_i \le t,\; z, t \ge 0 .

    cvxpylayers (A. Agrawal et al., Differentiable convex optimization layers, NeurIPS 2019) solves it and differentiates the
    solution; the accuracy of value and gradient is that of the solver.

    Args:
        beta: weight of recall against precision.
        solver: ``"SCS"``, which the paper had, or ``"MOREAU"``, an interior-point method. Both need
            ``pip install 'taskloss[peers]'``.
        solver_options: passed on to the solver in every call, such as ``{"eps_abs": 1e-8, "eps_rel": 1e-8}`` for SCS.

    Call with scores and target ``(n,)``. The first call with a number of samples n compiles the program of this size, which
    takes much longer than later calls. A batch without positives gives zero loss and gradient.
    """

    def __init__(self, beta: float = 1.0, *, solver: str = SOLVERS[0], solver_options: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.beta = _checks.check_positive("beta", beta)
        self.solver = _checks.check_choice("solver", solver, SOLVERS)
        method = {"solve_method": "SCS"} if solver == "SCS" else {}
        self.solver_options = {**method, **(solver_options or {})}
        for name in ("cvxpy", "cvxpylayers.torch", *(["moreau"] if solver == "MOREAU" else [])):
            _import(name)
        # Layers by their number of samples. They are no part of the state of this module.
        self._layers: dict[int, Any] = {}

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        scores, positive = read_binary(scores, target)
        if not bool(positive.any()):
            return (scores * 0.0).sum()
        layer = self._layers.get(len(scores)) or self._make_layer(len(scores))
        k = self.beta**2 * positive.sum().double()
        weight = (1.0 + self.beta**2) / k * positive.double()
        (z,) = layer(torch.tanh(scores.double()), weight, k, solver_args=self.solver_options)
        return (1.0 - weight @ z).to(scores.dtype)

    def extra_repr(self) -> str:
        return f"beta={self.beta!r}, solver={self.solver!r}, solver_options={self.solver_options!r}"

    def _make_layer(self, n: int) -> Any:
        """Return the layer of n samples, made once: phi, the weights of the objective and k to z."""
        cp = _import("cvxpy")
        z, t = cp.Variable(n), cp.Variable()
        phi, weight, k = cp.Parameter(n), cp.Parameter(n), cp.Parameter(nonneg=True)
        # `k z >= 0` is `z >= 0`, and t >= z implies the sign of t. Written as signs of variables, both would be lost on the way
        # from cvxpylayers 1.2 to Moreau, which then solves another program.
        bounds = [cp.multiply(phi, t) <= z, z <= t + cp.multiply(phi, t), z <= t, k * z >= 0]
        problem = cp.Problem(cp.Maximize(weight @ z), [*bounds, cp.sum(z) + k * t == k])
        make = _import("cvxpylayers.torch").CvxpyLayer
        # Without a name, cvxpylayers takes diffcp, which solves by SCS.
        backend = None if self.solver == "SCS" else self.solver
        self._layers[n] = make(problem, parameters=[phi, weight, k], variables=[z], solver=backend)
        return self._layers[n]


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"CvxpyFScoreLoss needs {name.split('.')[0]}: pip install 'taskloss[peers]'") from error
