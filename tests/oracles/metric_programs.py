"""The metrics as dense linear programs, straight from their definitions, and HiGHS to solve many at once."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import scipy.optimize
import scipy.sparse

from tests.oracles.linear_programs import Data


def highs_values(programs: list[Data]) -> list[float]:
    """Return the optimal values of programs that all have solutions, by one block-diagonal solve."""
    sizes = [len(data.c) for data in programs]
    constraints = {}
    for name, rhs in (("A_ub", "b_ub"), ("A_eq", "b_eq")):
        matrices = [np.zeros((0, len(p.c))) if getattr(p, name) is None else getattr(p, name) for p in programs]
        right_hand_sides = [np.zeros(0) if getattr(p, rhs) is None else getattr(p, rhs) for p in programs]
        if sum(map(len, right_hand_sides)):
            constraints[name] = scipy.sparse.block_diag(matrices, format="csr")
            constraints[rhs] = np.concatenate(right_hand_sides)
    lower = np.concatenate([np.full(n, -np.inf) if p.lower is None else p.lower for p, n in zip(programs, sizes, strict=True)])
    upper = np.concatenate([np.full(n, np.inf) if p.upper is None else p.upper for p, n in zip(programs, sizes, strict=True)])
    cost = np.concatenate([p.c for p in programs])
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result = scipy.optimize.linprog(cost, bounds=np.column_stack([lower, upper]), method="highs", options=options, **constraints)
    assert result.status == 0, result.message
    return [float(part) for part in np.add.reduceat(cost * result.x, np.cumsum([0, *sizes])[:-1])]


def pairs(positives: np.ndarray, negatives: np.ndarray, margin: float) -> Data:
    """Return ``min sum z`` over pairs, ``s_i - t_j >= margin - z_ij``."""
    rhs = [s - t - margin for s in positives for t in negatives]
    n = len(rhs)
    return Data(np.ones(n), -np.eye(n), np.array(rhs), lower=np.zeros(n))


def class_pairs(scores: np.ndarray, target: np.ndarray, margin: float, kind: str, cost: np.ndarray | None) -> list[Data]:
    """Return one program per pair of classes, or per class, that has samples on both sides."""
    classes = scores.shape[1]
    if kind == "one_vs_all":
        rankings = [(scores[target == k, k], scores[target != k, k]) for k in range(classes)]
    else:
        partition = np.ones((classes, classes)) - np.eye(classes) if cost is None else cost.T
        rankings = []
        for a, b in combinations(range(classes), 2):
            # Kleiman and Page: v = P_a - P_b, and class b must have the larger v.f.
            direction = partition[a] - partition[b]
            rankings.append((-scores[target == a] @ direction, -scores[target == b] @ direction))
    return [pairs(ahead, behind, margin) for ahead, behind in rankings if len(ahead) and len(behind)]


def psi_of(scores: np.ndarray, target: np.ndarray, margin: float) -> np.ndarray:
    return (1 - margin) * np.tanh(scores) - margin * np.where(target == 1, 1.0, -1.0)


def ratio(scores, target, numerator, denominator, margin) -> Data:
    """Return ``min -(n'z + n_0 t)``, ``d'z + d_0 t = 1``, ``psi t <= z <= (1 + psi) t``, ``z <= t``."""
    psi, n = psi_of(scores, target, margin), len(scores)
    positive = target == 1

    def linear(weights):
        tp, fp, fn, tn = weights
        return np.append(np.where(positive, tp - fn, fp - tn), fn * positive.sum() + tn * (~positive).sum())

    eye = np.eye(n)
    rows = np.vstack([np.hstack([-eye, psi[:, None]]), np.hstack([eye, -(1 + psi)[:, None]]), np.hstack([eye, -np.ones((n, 1))])])
    return Data(-linear(numerator), rows, np.zeros(3 * n), linear(denominator)[None], np.ones(1), np.zeros(n + 1))


def _label_rows(psi, positive, two_sided):
    """Return rows ``a y + a_tau tau <= rhs``, their right-hand sides, and upper bounds of the labels."""
    rows, rhs = [], []
    for i, unit in enumerate(np.eye(len(psi))):
        if two_sided or positive[i]:
            rows.append(np.append(unit, 1.0))
            rhs.append(1 + psi[i])
        if two_sided or not positive[i]:
            rows.append(np.append(-unit, -1.0))
            rhs.append(-psi[i])
    return np.array(rows), np.array(rhs), np.where(positive | two_sided, 1.0, np.inf)


def precision_at_recall(scores, target, recall, margin, two_sided=False) -> Data:
    """Return the program after Charnes and Cooper, variables ``(z, theta, t)``: every right-hand side is multiplied by t."""
    positive = target == 1
    psi, n = psi_of(scores, target, margin), len(scores)
    rows, rhs, upper = _label_rows(psi, positive, two_sided)
    bounded = np.flatnonzero(np.isfinite(upper))
    rows = np.vstack([np.hstack([rows, -rhs[:, None]]), np.hstack([np.eye(n + 1)[bounded], -np.ones((len(bounded), 1))])])
    enough = np.concatenate([-positive.astype(float), [0.0, recall * positive.sum()]])
    rows = np.vstack([rows, enough])
    lower = np.zeros(n + 2)
    lower[n] = -np.inf
    total = np.concatenate([np.ones(n), [0.0, 0.0]])[None]
    return Data(np.concatenate([-positive.astype(float), [0.0, 0.0]]), rows, np.zeros(len(rows)), total, np.ones(1), lower)


def recall_at_precision(scores, target, precision, slack, margin, two_sided=False) -> Data:
    """Return the program with variables ``(y, tau, s)``."""
    positive = target == 1
    psi, n = psi_of(scores, target, margin), len(scores)
    rows, rhs, upper = _label_rows(psi, positive, two_sided)
    rows = np.hstack([rows, np.zeros((len(rows), 1))])
    enough = np.concatenate([np.where(positive, precision - 1, precision), [0.0, -positive.sum()]])
    lower = np.zeros(n + 2)
    lower[n] = -np.inf
    cost = np.concatenate([-positive.astype(float) / positive.sum(), [0.0, slack]])
    return Data(
        cost, np.vstack([rows, enough]), np.append(rhs, 0.0), lower=lower, upper=np.concatenate([upper, [np.inf, np.inf]])
    )
