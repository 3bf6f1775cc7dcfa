"""The metrics as linear programs, dense and straight from their definitions, and HiGHS to solve many at once."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import scipy.optimize
import scipy.sparse

from tests.oracles.linear_programs import Data


def highs_values(programs: list[Data]) -> list[float]:
    """The optimal values of programs that all have solutions, by one block-diagonal solve."""

    def stack(matrices):
        return scipy.sparse.block_diag(matrices, format="csr")

    sizes = [len(data.c) for data in programs]
    blocks = {}
    for name, side in (("A_ub", "b_ub"), ("A_eq", "b_eq")):
        given = [np.zeros((0, n)) if getattr(p, name) is None else getattr(p, name) for p, n in zip(programs, sizes, strict=True)]
        sides = [np.zeros(0) if getattr(p, side) is None else getattr(p, side) for p in programs]
        if sum(map(len, sides)):
            blocks[name], blocks[side] = stack(given), np.concatenate(sides)
    lower = np.concatenate([np.full(n, -np.inf) if p.lower is None else p.lower for p, n in zip(programs, sizes, strict=True)])
    upper = np.concatenate([np.full(n, np.inf) if p.upper is None else p.upper for p, n in zip(programs, sizes, strict=True)])
    cost = np.concatenate([p.c for p in programs])
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result = scipy.optimize.linprog(cost, bounds=np.column_stack([lower, upper]), method="highs", options=options, **blocks)
    assert result.status == 0, result.message
    return [float(part) for part in np.add.reduceat(cost * result.x, np.cumsum([0, *sizes])[:-1])]


def pairs(positives: np.ndarray, negatives: np.ndarray, margin: float) -> Data:
    """``min sum z`` over pairs, ``s_i - t_j >= margin - z_ij``."""
    limits = [s - t - margin for s in positives for t in negatives]
    n = len(limits)
    return Data(np.ones(n), -np.eye(n), np.array(limits), lower=np.zeros(n))


def class_pairs(scores: np.ndarray, target: np.ndarray, margin: float, kind: str, cost: np.ndarray | None) -> list[Data]:
    """One program for each pair of classes, or for each class, that has samples on both sides."""
    classes = scores.shape[1]
    if kind == "one_vs_all":
        sides = [(scores[target == k, k], scores[target != k, k]) for k in range(classes)]
    else:
        partition = np.ones((classes, classes)) - np.eye(classes) if cost is None else cost.T
        sides = []
        for a, b in combinations(range(classes), 2):
            # Kleiman and Page: v = P_a - P_b, and class b must have the larger v.f.
            direction = partition[a] - partition[b]
            sides.append((-scores[target == a] @ direction, -scores[target == b] @ direction))
    return [pairs(*side, margin) for side in sides if len(side[0]) and len(side[1])]


def positions(scores: np.ndarray, target: np.ndarray, margin: float) -> np.ndarray:
    return (1 - margin) * np.tanh(scores) - margin * np.where(target == 1, 1.0, -1.0)


def ratio(scores, target, numerator, denominator, margin) -> Data:
    """``min -(n'z + n_0 t)``, ``d'z + d_0 t = 1``, ``psi t <= z <= (1 + psi) t``, ``z <= t``."""
    psi, n = positions(scores, target, margin), len(scores)
    positive = target == 1

    def linear(weights):
        tp, fp, fn, tn = weights
        return np.append(np.where(positive, tp - fn, fp - tn), fn * positive.sum() + tn * (~positive).sum())

    eye = np.eye(n)
    rows = np.vstack([np.hstack([-eye, psi[:, None]]), np.hstack([eye, -(1 + psi)[:, None]]), np.hstack([eye, -np.ones((n, 1))])])
    return Data(-linear(numerator), rows, np.zeros(3 * n), linear(denominator)[None], np.ones(1), np.zeros(n + 1))


def _limits(psi, positive, two_sided):
    """Rows ``a y + a_tau tau <= limit`` and upper bounds of the labels."""
    rows, limits = [], []
    for i, unit in enumerate(np.eye(len(psi))):
        if two_sided or positive[i]:
            rows.append(np.append(unit, 1.0))
            limits.append(1 + psi[i])
        if two_sided or not positive[i]:
            rows.append(np.append(-unit, -1.0))
            limits.append(-psi[i])
    return np.array(rows), np.array(limits), np.where(positive | two_sided, 1.0, np.inf)


def precision_at_recall(scores, target, recall, margin, two_sided=False) -> Data:
    """After Charnes and Cooper, variables ``(z, theta, t)``: every limit is multiplied by t."""
    positive = target == 1
    psi, n = positions(scores, target, margin), len(scores)
    rows, limits, upper = _limits(psi, positive, two_sided)
    bounded = np.flatnonzero(np.isfinite(upper))
    rows = np.vstack([np.hstack([rows, -limits[:, None]]), np.hstack([np.eye(n + 1)[bounded], -np.ones((len(bounded), 1))])])
    enough = np.concatenate([-positive.astype(float), [0.0, recall * positive.sum()]])
    rows = np.vstack([rows, enough])
    lower = np.zeros(n + 2)
    lower[n] = -np.inf
    total = np.concatenate([np.ones(n), [0.0, 0.0]])[None]
    return Data(np.concatenate([-positive.astype(float), [0.0, 0.0]]), rows, np.zeros(len(rows)), total, np.ones(1), lower)


def recall_at_precision(scores, target, precision, slack, margin, two_sided=False) -> Data:
    """Variables ``(y, tau, s)``."""
    positive = target == 1
    psi, n = positions(scores, target, margin), len(scores)
    rows, limits, upper = _limits(psi, positive, two_sided)
    rows = np.hstack([rows, np.zeros((len(rows), 1))])
    enough = np.concatenate([np.where(positive, precision - 1, precision), [0.0, -positive.sum()]])
    lower = np.zeros(n + 2)
    lower[n] = -np.inf
    cost = np.concatenate([-positive.astype(float) / positive.sum(), [0.0, slack]])
    return Data(
        cost, np.vstack([rows, enough]), np.append(limits, 0.0), lower=lower, upper=np.concatenate([upper, [np.inf, np.inf]])
    )
