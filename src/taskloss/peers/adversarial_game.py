r"""The zero-sum game behind adversarial prediction of the F-score, solved by an interior-point method.

A predictor chooses labels y', an adversary labels y, both of n samples and at random. The adversary minimizes
``E[F(y', y)] - E[s'y]``, the predictor maximizes it; s are the scores. The F-score
``F = (1 + beta^2) y'y / (beta^2 |y| + |y'|)``, with F = 1 if both are empty, depends on the numbers of labels and of common
labels alone. So a mixed strategy matters only by the probabilities ``x_il = P(y_i = 1, |y| = l)`` and ``rho_l = P(|y| = l)``:

.. math:: E[F] = \sum_{k,l=1}^{n} C_{kl} \sum_i x'_{ik} x_{il} + \rho'_0 \rho_0, \qquad C_{kl} = \frac{1 + \beta^2}{\beta^2 l + k}

with ``0 <= x_il <= rho_l``, ``sum_i x_il = l rho_l`` and ``sum_l rho_l = 1``: about n^2 variables in place of 2^n labelings
(Fathony and Kolter 2020, section 3). For l = n all x_in equal rho_n; this and rho_0 are the two ``ends``.

The game is a linear program, whose duals are the predictor's probabilities. A general solver needs seconds for n = 64. The Newton
equations of this one fall apart into samples, and C has a small numerical rank
(:mod:`taskloss.peers.adversarial_newton`), so that an iteration takes O(r n^3) operations with r about 10.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.peers.adversarial_newton import Array, Costs, NewtonSystem, Payoff, Player, payoff_matrix

MAX_ITERATIONS = 100
PATIENCE = 15
"""Stop after this many iterations without a smaller gap."""
STEP = 0.98
"""Share of the way to the boundary."""
DECIDED = 1.5
"""No label changes an F-score by more than 1, so the adversary sets labels of scores beyond +-1 by their sign."""


class Equilibrium(NamedTuple):
    """An approximate solution of the game."""

    value: float
    """What the best predictor reaches against this adversary: ``max E[F] - E[s'y]``."""
    labels: Array
    """Probability that the adversary sets each label, ``(n,)``."""
    gap: float
    """Distance of the value to what the best adversary reaches against the predictor found: a bound of the error."""


def solve_game(scores: Array, beta: float, tolerance: float) -> Equilibrium:
    """Return an equilibrium with a gap of at most ``tolerance``, or the best one found where rounding errors forbid that.

    Args:
        scores: finite, float64 ``(n,)``.
        beta: weight of recall against precision.
        tolerance: of the value, which lies between 0 and 1 for zero scores.

    >>> game = solve_game(np.zeros(1), 1.0, 1e-9)      # both players choose 0 or 1 at random
    >>> round(game.value, 6), game.labels.round(6)
    (0.5, array([0.5]))
    """
    payoff, clipped = payoff_matrix(len(scores), beta), np.clip(scores, -DECIDED, DECIDED)
    players = _uniform(len(scores)), _uniform(len(scores))
    best, since_best = _evaluate(payoff, clipped, *players), 0
    for _ in range(MAX_ITERATIONS):
        if best.gap <= tolerance or since_best > PATIENCE:
            break
        try:
            with np.errstate(all="ignore"):
                _iterate(payoff, _costs(payoff, clipped, *players), players)
                now = _evaluate(payoff, clipped, *players)
        except np.linalg.LinAlgError:
            break
        best, since_best = (now, 0) if now.gap < best.gap else (best, since_best + 1)
    labels = np.where(np.abs(scores) > DECIDED, scores > 0.0, np.clip(best.labels, 0.0, 1.0))
    return Equilibrium(best.value - float((scores - clipped) @ labels), labels, best.gap)


def _uniform(n: int) -> Player:
    """Return a player to whom all sizes and all labels are equally likely, with unit multipliers."""
    sizes = np.full(n - 1, 1.0 / (n + 1))
    labels = np.tile(sizes * np.arange(1, n) / n, (n, 1))
    one = np.ones_like(labels)
    return Player(labels, sizes, np.full(2, 1.0 / (n + 1)), one, one, np.zeros(n - 1), 0.0, np.ones(2))


def _costs(payoff: Payoff, scores: Array, adversary: Player, predictor: Player) -> Costs:
    """Return the derivatives of the players' costs."""
    of_labels = predictor.labels @ payoff.left @ payoff.right + predictor.ends[1] * payoff.last_row - scores[:, None]
    of_all = (predictor.labels @ payoff.last_column).sum() + predictor.ends[1] - scores.sum()
    of_predictor = adversary.labels @ payoff.right.T @ payoff.left.T + adversary.ends[1] * payoff.last_column
    of_all_predicted = (adversary.labels @ payoff.last_row).sum() + adversary.ends[1]
    return [
        (of_labels, np.array([predictor.ends[0], of_all])),
        (-of_predictor, -np.array([adversary.ends[0], of_all_predicted])),
    ]


def _evaluate(payoff: Payoff, scores: Array, adversary: Player, predictor: Player) -> Equilibrium:
    """Return what the players reach against each other's best responses, which sorting finds for every number of labels."""
    n, each = len(scores), np.arange(len(scores))
    x, x_predicted = (np.column_stack([p.labels, np.full(n, p.ends[1])]) for p in (adversary, predictor))
    best_predictor = np.cumsum(-np.sort(-x @ payoff.full.T, axis=0), axis=0)[each, each].max()
    best_adversary = np.cumsum(np.sort(x_predicted @ payoff.full - scores[:, None], axis=0), axis=0)[each, each].min()
    labels = x.sum(1)
    value = float(max(best_predictor, adversary.ends[0]) - scores @ labels)
    gap = abs(value - min(best_adversary, predictor.ends[0])) + _infeasibility(adversary) + _infeasibility(predictor)
    return Equilibrium(value, labels, float(gap) if np.isfinite(gap) else np.inf)


def _infeasibility(player: Player) -> float:
    """Return by how much rounding errors have moved the sums of the probabilities."""
    sums = player.labels.sum(0) - np.arange(1, len(player.sizes) + 1) * player.sizes
    return float(np.abs(sums).sum() + abs(player.sizes.sum() + player.ends.sum() - 1.0))


def _iterate(payoff: Payoff, costs: Costs, players: tuple[Player, Player]) -> None:
    """Take one predictor-corrector step (Mehrotra 1992)."""
    system = NewtonSystem(payoff, players)
    products = [slack * multiplier for player in players for slack, multiplier in player.pairs()]
    number = sum(product.size for product in products)
    mu = float(sum(product.sum() for product in products)) / number
    affine = system.solve(costs, 0.0, None)
    lengths = _step_lengths(players, affine)
    after = 0.0
    for player, step, (primal, dual) in zip(players, affine, (lengths, lengths[::-1]), strict=True):
        for (slack, multiplier), (d_slack, d_multiplier) in zip(player.pairs(), step.pairs(), strict=True):
            after += float(((slack + primal * d_slack) * (multiplier + dual * d_multiplier)).sum()) / number
    steps = system.solve(costs, mu * (after / mu) ** 3, affine)
    lengths = _step_lengths(players, steps)
    players[0].move(steps[0], *lengths)
    players[1].move(steps[1], *lengths[::-1])


def _step_lengths(players: tuple[Player, Player], steps: tuple[Player, Player]) -> tuple[float, float]:
    """Return the step lengths of the linear program's variables and of its duals, each at most 1.

    The program of the adversary has the predictor's multipliers among its variables, and his probabilities among its duals.
    """
    lengths = [1.0, 1.0]
    for side, (player, step) in enumerate(zip(players, steps, strict=True)):
        for pair, d_pair in zip(player.pairs(), step.pairs(), strict=True):
            for kind in (0, 1):
                falls = d_pair[kind] < 0.0
                reach = float((-pair[kind][falls] / d_pair[kind][falls]).min(initial=np.inf))
                lengths[side ^ kind] = min(lengths[side ^ kind], STEP * reach)
    return lengths[0], lengths[1]
