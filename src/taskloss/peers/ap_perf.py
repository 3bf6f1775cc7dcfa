"""AP-Perf (Fathony and Kolter 2020): adversarial prediction for the F-score."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss.known_gradient import WithGradient
from taskloss.layout import to_numpy
from taskloss.peers.adversarial_game import solve_game
from taskloss.peers.inputs import read_binary

SOLVERS = ("exact", "ap_perf")
ACCEPTED_GAP = 1e-4
"""Largest error of the value that is accepted from the exact solver where it does not reach the tolerance."""


class AdversarialFScoreLoss(nn.Module):
    r"""Loss of a game for the F-score: a predictor against an adversary who is bound to the scores.

    .. math:: 1 + \max_Q \left( E_{y \sim Q}[s'y] - \max_P E_{y' \sim P,\, y \sim Q}[F_\beta(y', y)] \right) - s't

    with the target t and distributions P, Q over the 2^n labelings; F is 1 if both labelings are empty. The loss is convex in
    the scores and at least zero (Q may choose the target). Its gradient is ``q - t``, where q_i is the adversary's probability
    of label i. Predict label i where ``s_i > 0``. The scores compete with an F-score between 0 and 1, so those of n samples
    matter at a scale of 1/n: a score beyond 1 decides its label alone.

    Reference: R. Fathony, J. Z. Kolter, AP-Perf: incorporating generic performance metrics in differentiable learning, AISTATS
    2020 (arXiv 1912.00965).

    Args:
        beta: weight of recall against precision.
        solver: ``"exact"``, an interior-point method of our own for the paper's game
            (:mod:`taskloss.peers.adversarial_game`), or ``"ap_perf"``, the published package (``pip install ap_perf``).
        tolerance: of the value, for the exact solver. Rounding errors may end it a little before; an error above 1e-4 raises.
        admm_iterations: number of iterations of the published package; 100 is its default. After these, its gradient can be far
            from that of the game, and its value is that of another function (it leaves a term out of its sums); only here is its
            gradient multiplied by that of the output, which the package ignores.

    Call with scores and target ``(n,)``, n up to about 100: the time grows with n^3.

    >>> scores = torch.tensor([0.0, 0.0, -2.0], requires_grad=True)
    >>> loss = AdversarialFScoreLoss()(scores, torch.tensor([1, 0, 0]))
    >>> loss.backward()
    >>> round(loss.item(), 4), [round(value, 3) for value in scores.grad.tolist()]
    (0.6, [-0.7, 0.3, 0.0])
    """

    def __init__(
        self, beta: float = 1.0, *, solver: str = SOLVERS[0], tolerance: float = 1e-6, admm_iterations: int = 100
    ) -> None:
        super().__init__()
        self.beta = _checks.check_positive("beta", beta)
        self.solver = _checks.check_choice("solver", solver, SOLVERS)
        self.tolerance = _checks.check_positive("tolerance", tolerance)
        self.admm_iterations = _checks.check_count("admm_iterations", admm_iterations)
        self._metric = _published_metric(self.beta) if solver == "ap_perf" else None

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        promoted, positive = read_binary(scores, target)
        values, labels = to_numpy(promoted).astype(np.float64), to_numpy(positive).astype(np.float64)
        game, probability = self._solve(values, labels)
        value = torch.tensor(1.0 - game - values @ labels, dtype=promoted.dtype, device=scores.device)
        gradient = torch.from_numpy(probability - labels).to(scores.device)
        # There is one value, so no sample needs to know its own.
        return WithGradient.apply(scores, (value,), gradient, positive)

    def extra_repr(self) -> str:
        accuracy = f"tolerance={self.tolerance!r}" if self._metric is None else f"admm_iterations={self.admm_iterations}"
        return f"beta={self.beta!r}, solver={self.solver!r}, {accuracy}"

    def _solve(self, scores: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value of the game and the adversary's probability of each label."""
        if self._metric is not None:
            value, probability = self._metric.objective(scores, labels, max_iter=self.admm_iterations)
            return float(value), np.asarray(probability)
        game = solve_game(scores, self.beta, self.tolerance)
        if game.gap > max(ACCEPTED_GAP, self.tolerance):
            raise RuntimeError(f"the game of {len(scores)} samples was solved to {game.gap:.1e} only; report the scores")
        return game.value, game.labels


def _published_metric(beta: float) -> Any:
    """Return the F-score as a metric of the published package."""
    try:
        package = importlib.import_module("ap_perf")
    except ImportError as error:
        raise ImportError("solver='ap_perf' needs the published package: pip install ap_perf") from error

    class FBeta(package.PerformanceMetric):  # type: ignore[misc, name-defined]
        def define(self, C: Any) -> Any:  # noqa: N803 (the package's name)
            return (1.0 + beta**2) * C.tp / (beta**2 * C.ap + C.pp)

    metric = FBeta()
    metric.initialize()
    metric.enforce_special_case_positive()
    return metric
