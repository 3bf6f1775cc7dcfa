r"""The Newton equations of the game in :mod:`taskloss.peers.adversarial_game`, solved sample by sample.

Both players minimize a cost: the adversary ``E[F] - E[s'y]``, the predictor ``-E[F]``. Let Z = lower / x and
B = upper / (rho - x), quotients of multipliers and slacks, and D = Z + B. The equations of sample i for the steps x of the
adversary and x' of the predictor are

.. math:: D_i x_i + C^T x'_i = g_i + W_i u, \qquad - C x_i + D'_i x'_i = g'_i + W'_i u' .

Here u are the steps that all samples share and W_i their coefficients: 1 for the multipliers of the sums, B for the sizes, and
minus the last row of C for the last end of the predictor (W': plus the last column of C, for that of the adversary). The shared
equations contain ``sum_i W_i' x_i``, so that eliminating the samples leaves a matrix with ``sum_i W' M_i^{-1} W`` in it.

C has a small numerical rank r: its middle part is ``left @ right``. With ``G = right D^{-1} right'``, ``H = left' D'^{-1} left``,
a sample needs ``y = right x`` and ``a = left' x'`` only, from 2 r equations: ``y + G a = right D^{-1} g``,
``a - H y = left' D'^{-1} g'``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields

import numpy as np
from scipy import linalg

Array = np.ndarray

RANK_TOLERANCE = 1e-8
"""Singular values of C below this share of the largest are left out of the steps; they would not change a payoff by more."""
REFINEMENTS = 2
"""Rounds of iterative refinement: the equations become ill-conditioned near the solution."""


@dataclass(frozen=True)
class Payoff:
    """The matrix C of n samples: all of it, and the factors of its middle part, without the last row and column."""

    full: Array
    """``(n, n)``."""
    left: Array
    """``(n - 1, r)``."""
    right: Array
    """``(r, n - 1)``."""

    @property
    def last_row(self) -> Array:
        return self.full[-1, :-1]

    @property
    def last_column(self) -> Array:
        return self.full[:-1, -1]


@functools.lru_cache(maxsize=16)
def payoff_matrix(n: int, beta: float) -> Payoff:
    """Return ``C_kl = (1 + beta^2) / (beta^2 l + k)`` for k, l = 1 ... n."""
    sizes = np.arange(1, n + 1)
    full = (1.0 + beta**2) / (beta**2 * sizes[None, :] + sizes[:, None])
    u, singular, v = np.linalg.svd(full[:-1, :-1])
    rank = int((singular > RANK_TOLERANCE * singular.max(initial=0.0)).sum())
    root = np.sqrt(singular[:rank])
    return Payoff(full, u[:, :rank] * root, root[:, None] * v[:rank])


@dataclass
class Player:
    """The variables of a player and the multipliers of his constraints; or a step of all of them."""

    labels: Array
    """x_il for l = 1 ... n - 1, ``(n, n - 1)``."""
    sizes: Array
    """rho_l, ``(n - 1,)``."""
    ends: Array
    """rho_0 and rho_n, ``(2,)``."""
    lower: Array
    """Multipliers of ``x_il >= 0``, ``(n, n - 1)``."""
    upper: Array
    """Multipliers of ``x_il <= rho_l``, ``(n, n - 1)``."""
    sums: Array
    """Multipliers of ``sum_i x_il = l rho_l``, ``(n - 1,)``."""
    total: float
    """Multiplier of ``sum_l rho_l = 1``."""
    ends_lower: Array
    """Multipliers of the signs of the ends, ``(2,)``."""

    def pairs(self) -> list[tuple[Array, Array]]:
        """Return slacks and multipliers, whose products go to zero."""
        return [(self.labels, self.lower), (self.sizes - self.labels, self.upper), (self.ends, self.ends_lower)]

    def move(self, step: Player, primal: float, dual: float) -> None:
        """Add shares of a step to the variables and to the multipliers."""
        for field in fields(self):
            share = primal if field.name in ("labels", "sizes", "ends") else dual
            setattr(self, field.name, getattr(self, field.name) + share * getattr(step, field.name))


Costs = list[tuple[Array, Array]]
"""For each player, the derivatives of his cost with respect to his labels and to his ends."""


class NewtonSystem:
    """The Newton equations at a point, factorized.

    The shared unknowns of a player are the steps of ``sums``, ``sizes``, ``ends`` and ``total``, in this order. His shared
    equations are those of the sums, of the derivatives by sizes and by ends, and of the total.
    """

    def __init__(self, payoff: Payoff, players: tuple[Player, Player]) -> None:
        self._players = players
        self._bases, self._ends = (payoff.right, payoff.left.T), (-payoff.last_row, payoff.last_column)
        self._lower = [p.lower / p.labels for p in players]
        self._bounds = [p.upper / (p.sizes - p.labels) for p in players]
        self._diagonals = [lower + bound for lower, bound in zip(self._lower, self._bounds, strict=True)]
        n, middle = players[0].labels.shape
        rank, self._sizes = len(payoff.right), np.arange(1, n)
        grams = [
            np.einsum("al,il,bl->iab", base, 1.0 / diagonal, base, optimize=True)
            for base, diagonal in zip(self._bases, self._diagonals, strict=True)
        ]
        reduced = np.zeros((n, 2 * rank, 2 * rank))
        reduced[:, :rank, :rank] = reduced[:, rank:, rank:] = np.eye(rank)
        reduced[:, :rank, rank:], reduced[:, rank:, :rank] = grams[0], -grams[1]
        self._inverse = np.linalg.inv(reduced)
        width = 2 * middle + 3
        # Where sums over the samples stand among the shared equations, in the order of the columns of W and W', and their signs.
        first = np.arange(2 * middle)
        self._positions = np.concatenate([first, [width + 2 * middle + 1], width + first, [2 * middle + 1]])
        self._signs = np.tile(np.repeat([1.0, -1.0, 1.0], [middle, middle, 1]), 2)
        self._shared = self._shared_matrix(middle)
        matrix = self._shared.copy()
        matrix[np.ix_(self._positions, self._positions)] += self._signs[:, None] * self._eliminated(n, middle, rank)
        self._factors = linalg.lu_factor(matrix, check_finite=False)

    def solve(self, costs: Costs, mu: float, affine: tuple[Player, Player] | None) -> tuple[Player, Player]:
        """Return the steps of both players toward complementary products ``mu``, corrected by those of the ``affine`` steps."""
        targets = [self._targets(side, mu, affine) for side in (0, 1)]
        rows, shared = [], []
        for player, (of_labels, of_ends), target in zip(self._players, costs, targets, strict=True):
            rows.append(player.sums - of_labels + target[0] - target[1])
            shared += [
                self._sizes * player.sizes - player.labels.sum(0),
                target[1].sum(0) - self._sizes * player.sums + player.total,
                player.total - of_ends + target[2],
                [1.0 - player.sizes.sum() - player.ends.sum()],
            ]
        rhs = np.concatenate(shared)
        labels, unknown = self._solve_once(rows, rhs)
        for _ in range(REFINEMENTS):
            d_labels, d_unknown = self._solve_once(*self._residual(rows, rhs, labels, unknown))
            labels, unknown = [x + d for x, d in zip(labels, d_labels, strict=True)], unknown + d_unknown
        first, second = (self._step(k, labels[k], part, targets[k]) for k, part in enumerate(unknown.reshape(2, -1)))
        return first, second

    def _targets(self, side: int, mu: float, affine: tuple[Player, Player] | None) -> list[Array]:
        """Return ``(mu - second-order term) / slack`` for each kind of pair."""
        pairs = self._players[side].pairs()
        if affine is None:
            return [mu / slack for slack, _ in pairs]
        return [(mu - d[0] * d[1]) / pair[0] for pair, d in zip(pairs, affine[side].pairs(), strict=True)]

    def _step(self, side: int, labels: Array, shared: Array, targets: list[Array]) -> Player:
        """Return the whole step of a player from that of his labels and his shared unknowns."""
        player, middle = self._players[side], len(self._sizes)
        sums, sizes, ends, total = np.split(shared, [middle, 2 * middle, 2 * middle + 2])
        return Player(
            labels=labels,
            sizes=sizes,
            ends=ends,
            lower=targets[0] - player.lower - self._lower[side] * labels,
            upper=targets[1] - player.upper - self._bounds[side] * (sizes - labels),
            sums=sums,
            total=float(total[0]),
            ends_lower=targets[2] - player.ends_lower - player.ends_lower / player.ends * ends,
        )

    def _solve_once(self, rows: list[Array], shared: Array) -> tuple[list[Array], Array]:
        """Solve the equations of the samples and the shared ones; return the labels of both players and the shared unknowns."""
        rhs = shared.copy()
        rhs[self._positions] -= self._signs * self._sums(self._solve_rows(rows))
        unknown = linalg.lu_solve(self._factors, rhs, check_finite=False)
        parts = zip(rows, self._bounds, self._parts(unknown), strict=True)
        full_rows = [row + of_sums + bound * of_sizes + of_end for row, bound, (of_sums, of_sizes, of_end) in parts]
        return self._solve_rows(full_rows), unknown

    def _parts(self, unknown: Array) -> list[tuple[Array, Array, Array]]:
        """Return, for each player, the factors of 1 and of B, and the contribution of the end, in ``W_i u``."""
        middle = len(self._sizes)
        weights = unknown[self._positions].reshape(2, -1)
        return [(w[:middle], w[middle:-1], w[-1] * end) for w, end in zip(weights, self._ends, strict=True)]

    def _residual(self, rows: list[Array], shared: Array, labels: list[Array], unknown: Array) -> tuple[list[Array], Array]:
        """Return what a solution leaves of the right-hand sides."""
        right, left = self._bases
        products = labels[1] @ left.T @ right, -labels[0] @ right.T @ left
        left_rows, sums = [], []
        for k, (of_sums, of_sizes, of_end) in enumerate(self._parts(unknown)):
            # upper * (sizes - labels) as a whole: its two parts cancel where a label is at its upper bound.
            moved = self._bounds[k] * (of_sizes - labels[k])
            left_rows.append(rows[k] - self._lower[k] * labels[k] - products[k] + of_sums + moved + of_end)
            sums += [labels[k].sum(0), moved.sum(0), [(labels[k] @ self._ends[k]).sum()]]
        left_shared = shared - self._shared @ unknown
        left_shared[self._positions] -= np.concatenate(sums)
        return left_rows, left_shared

    def _solve_rows(self, rows: list[Array]) -> list[Array]:
        """Solve the equations of all samples, given their right-hand sides ``(n, n - 1)``."""
        scaled = [row / diagonal for row, diagonal in zip(rows, self._diagonals, strict=True)]
        rhs = np.hstack([part @ base.T for part, base in zip(scaled, self._bases, strict=True)])
        y, a = np.split(np.einsum("iab,ib->ia", self._inverse, rhs), 2, axis=1)
        return [scaled[0] - a @ self._bases[0] / self._diagonals[0], scaled[1] + y @ self._bases[1] / self._diagonals[1]]

    def _sums(self, labels: list[Array]) -> Array:
        """Return ``sum_i W_i' x_i`` of both players."""
        parts = []
        for x, bound, end in zip(labels, self._bounds, self._ends, strict=True):
            parts += [x.sum(0), (bound * x).sum(0), [(x @ end).sum()]]
        return np.concatenate(parts)

    def _shared_matrix(self, middle: int) -> Array:
        """Return the matrix of the shared equations, without the sums over the samples."""
        width, each, two = 2 * middle + 3, np.arange(middle), np.arange(2)
        matrix = np.zeros((2 * width, 2 * width))
        for side, player in enumerate(self._players):
            start, other = side * width, (1 - side) * width
            sums, sizes, ends, total = start + each, start + middle + each, start + 2 * middle + two, start + width - 1
            matrix[sums, sizes], matrix[sizes, sums] = -self._sizes, self._sizes
            matrix[sizes, total] = matrix[ends, total] = -1.0
            matrix[total, sizes] = matrix[total, ends] = 1.0
            matrix[ends, ends] = player.ends_lower / player.ends
            # The ends meet each other alone: rho_0 rho'_0 + rho_n rho'_n.
            matrix[ends, other + 2 * middle + two] = 1.0 - 2.0 * side
        return matrix

    def _eliminated(self, n: int, middle: int, rank: int) -> Array:
        """Return ``sum_i W_i' M_i^{-1} W_i``, ``(4 n - 2, 4 n - 2)``, less ``sum_i B_i`` in the diagonal of the sizes."""
        width, each = 2 * middle + 1, np.arange(middle)
        result, reduced = np.zeros((2 * width, 2 * width)), []
        for k, (base, diagonal, bound, end) in enumerate(
            zip(self._bases, self._diagonals, self._bounds, self._ends, strict=True)
        ):
            columns = [1.0 / diagonal, bound / diagonal, end / diagonal]
            block = result[k * width : (k + 1) * width, k * width : (k + 1) * width]
            block[each, each] = columns[0].sum(0)
            block[each, middle + each] = block[middle + each, each] = columns[1].sum(0)
            # B^2 / D - B without cancellation.
            block[middle + each, middle + each] = -(columns[1] * self._lower[k]).sum(0)
            block[:middle, -1] = block[-1, :middle] = columns[2].sum(0)
            block[middle:-1, -1] = block[-1, middle:-1] = (columns[2] * bound).sum(0)
            block[-1, -1] = (columns[2] * end).sum()
            parts = [base * columns[0][:, None], base * columns[1][:, None], (columns[2] @ base.T)[..., None]]
            reduced.append(np.concatenate(parts, axis=2))

        def product(side: int, rows: slice, columns: slice, other: int) -> Array:
            solved = self._inverse[:, rows, columns] @ reduced[other]
            return reduced[side].reshape(n * rank, width).T @ solved.reshape(n * rank, width)

        upper, lower = slice(0, rank), slice(rank, None)
        mixed = product(1, upper, upper, 0)
        result[:width, :width] -= product(0, lower, upper, 0)
        result[:width, width:] -= mixed.T
        result[width:, :width] += mixed
        result[width:, width:] += product(1, upper, lower, 1)
        return result
