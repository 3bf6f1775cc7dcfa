"""Linear programs that stress a solver, and HiGHS as the judge of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse


class Data(NamedTuple):
    c: np.ndarray
    A_ub: np.ndarray | None = None
    b_ub: np.ndarray | None = None
    A_eq: np.ndarray | None = None
    b_eq: np.ndarray | None = None
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None


def highs(data: Data) -> tuple[str, float | None]:
    """Status and optimal value by HiGHS. Its word for "infeasible or unbounded" is settled by a solve without cost."""

    def run(c):
        n = len(c)
        lower = np.full(n, -np.inf) if data.lower is None else data.lower
        upper = np.full(n, np.inf) if data.upper is None else data.upper
        return scipy.optimize.linprog(
            c, data.A_ub, data.b_ub, data.A_eq, data.b_eq, np.column_stack([lower, upper]), method="highs"
        )

    result = run(data.c)
    if result.status == 0:
        return "OPTIMAL", float(result.fun)
    return ("UNBOUNDED", None) if run(np.zeros_like(data.c)).status == 0 else ("INFEASIBLE", None)


def _bounded(rng, n, m, e=0, integer=False):
    """Feasible by a known point, bounded by a box."""
    draw = (lambda *shape: rng.integers(-3, 4, shape).astype(float)) if integer else (lambda *shape: rng.standard_normal(shape))
    inside = rng.integers(0, 3, n).astype(float) if integer else rng.uniform(0, 2, n)
    slack = rng.integers(0, 3, m).astype(float) if integer else rng.exponential(1, m)
    a_ub, a_eq = draw(m, n), draw(e, n)
    return Data(draw(n), a_ub, a_ub @ inside + slack, a_eq, a_eq @ inside, np.zeros(n), np.full(n, 5.0))


def plain(rng):
    return _bounded(rng, *rng.integers(1, 12, 2))


def degenerate_vertex(rng):
    """Many more rows than variables through one point, which is often the solution."""
    n = int(rng.integers(2, 7))
    rows = rng.standard_normal((4 * n, n))
    point = rng.standard_normal(n)
    return Data(-rng.uniform(0, 1, 4 * n) @ rows, rows, rows @ point)


def redundant_rows(rng):
    data = _bounded(rng, int(rng.integers(2, 8)), 6, 2)
    twice = rng.integers(0, 6, 6)
    return data._replace(
        A_ub=np.vstack([data.A_ub, 2 * data.A_ub[twice]]),
        b_ub=np.concatenate([data.b_ub, 2 * data.b_ub[twice]]),
        A_eq=np.vstack([data.A_eq, data.A_eq.sum(0)]),
        b_eq=np.append(data.b_eq, data.b_eq.sum()),
    )


def mostly_equations(rng):
    n = int(rng.integers(4, 12))
    return _bounded(rng, n, 1, int(rng.integers(n // 2, n)))


def free_and_fixed(rng):
    data = _bounded(rng, int(rng.integers(3, 9)), 8, 1)
    kind = rng.integers(0, 3, len(data.c))
    middle = rng.uniform(0, 1, len(data.c))
    lower = np.where(kind == 0, -np.inf, np.where(kind == 1, middle, data.lower))
    upper = np.where(kind == 0, np.inf, np.where(kind == 1, middle, data.upper))
    box = np.vstack([np.eye(len(data.c)), -np.eye(len(data.c))])
    return data._replace(
        A_ub=np.vstack([data.A_ub, box]), b_ub=np.append(data.b_ub, np.full(len(box), 50.0)), lower=lower, upper=upper
    )


def two_sided(rng):
    n = int(rng.integers(2, 9))
    lower = rng.uniform(-3, 0, n)
    return Data(rng.standard_normal(n), lower=lower, upper=lower + rng.exponential(1, n))


def integers(rng):
    """Small integers: ties, degenerate vertices, several solutions."""
    return _bounded(rng, *rng.integers(2, 9, 2), int(rng.integers(0, 3)), integer=True)


def rescaled(data: Data, rng) -> tuple[Data, float]:
    """The same program with rows, columns and cost multiplied or divided by up to a million, and the factor of its value."""
    row, equation, column, cost = (10.0 ** rng.uniform(-6, 6, size) for size in (len(data.b_ub), len(data.b_eq), len(data.c), 1))
    changed = Data(
        data.c * column * cost,
        data.A_ub * row[:, None] * column,
        data.b_ub * row,
        data.A_eq * equation[:, None] * column,
        data.b_eq * equation,
        data.lower / column,
        data.upper / column,
    )
    return changed, float(cost[0])


def transport(rng):
    sources, sinks = rng.integers(2, 6, 2)
    demand = rng.integers(1, 9, sinks).astype(float)
    supply = rng.multinomial(int(demand.sum()), np.full(sources, 1 / sources)).astype(float)
    rows = np.kron(np.eye(sources), np.ones((1, sinks)))
    columns = np.kron(np.ones((1, sources)), np.eye(sinks))
    cost = rng.integers(1, 10, sources * sinks).astype(float)
    return Data(cost, A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([supply, demand]), lower=np.zeros(sources * sinks))


def assignment(rng):
    n = int(rng.integers(2, 6))
    data = transport(rng)
    rows, columns = np.kron(np.eye(n), np.ones((1, n))), np.kron(np.ones((1, n)), np.eye(n))
    return data._replace(
        c=rng.standard_normal(n * n), A_eq=np.vstack([rows, columns]), b_eq=np.ones(2 * n), lower=np.zeros(n * n)
    )


def shortest_path(rng):
    """Unit flow from the first to the last node of a random directed graph that has a path through all its nodes."""
    nodes = int(rng.integers(3, 8))
    edges = [(i, i + 1) for i in range(nodes - 1)]
    edges += [(i, j) for i in range(nodes) for j in range(nodes) if i != j and rng.random() < 0.3]
    incidence = np.zeros((nodes, len(edges)))
    for edge, (tail, head) in enumerate(edges):
        incidence[tail, edge] += 1.0
        incidence[head, edge] -= 1.0
    flow = np.zeros(nodes)
    flow[0], flow[-1] = 1.0, -1.0
    return Data(rng.uniform(0, 1, len(edges)), A_eq=incidence, b_eq=flow, lower=np.zeros(len(edges)))


def staircase(rng):
    """Stages that are linked to their neighbours only."""
    stages, size = int(rng.integers(2, 5)), 3
    n = stages * size
    blocks = np.zeros((stages * 2, n))
    for stage in range(stages):
        blocks[2 * stage : 2 * stage + 2, stage * size : (stage + 2) * size] = rng.uniform(
            0.1, 1, (2, min(2, stages - stage) * size)
        )
    return Data(-rng.uniform(0, 1, n), blocks, rng.uniform(1, 3, 2 * stages), lower=np.zeros(n))


def infeasible(rng):
    data = _bounded(rng, int(rng.integers(1, 8)), 4, 1)
    weights = rng.uniform(0.1, 1, 4)
    gap = float(10.0 ** rng.uniform(-3, 1))
    return data._replace(A_ub=np.vstack([data.A_ub, -weights @ data.A_ub]), b_ub=np.append(data.b_ub, -weights @ data.b_ub - gap))


def unbounded(rng):
    n = int(rng.integers(2, 8))
    ray = rng.uniform(0.1, 1, n)
    rows = rng.standard_normal((5, n))
    rows -= np.outer(np.maximum(rows @ ray, 0) / (ray @ ray), ray)
    cost = rng.standard_normal(n)
    cost -= (cost @ ray + rng.uniform(0.1, 1)) / (ray @ ray) * ray
    return Data(cost, rows, rows @ rng.uniform(0, 1, n) + rng.exponential(1, 5), lower=np.zeros(n))


def one_variable(rng):
    return Data(
        rng.standard_normal(1),
        rng.choice([-1.0, 1.0], (2, 1)),
        rng.standard_normal(2),
        lower=np.array([-1.0]),
        upper=np.array([1.0]),
    )


GENERATORS: dict[str, Callable[[np.random.Generator], Data]] = {
    generator.__name__: generator
    for generator in (
        plain,
        degenerate_vertex,
        redundant_rows,
        mostly_equations,
        free_and_fixed,
        two_sided,
        integers,
        transport,
        assignment,
        shortest_path,
        staircase,
        infeasible,
        unbounded,
        one_variable,
    )
}


def instances(name: str, count: int) -> Iterator[Data]:
    rng = np.random.default_rng([ord(letter) for letter in name])
    for _ in range(count):
        yield GENERATORS[name](rng)


def violations(data: Data, x: np.ndarray) -> float:
    """The worst violated constraint, against 1 plus the largest right-hand side and the terms of the row."""
    worst = 0.0
    for matrix, side, equation in ((data.A_ub, data.b_ub, False), (data.A_eq, data.b_eq, True)):
        if matrix is not None and len(side):
            missed = matrix @ x - side
            missed = np.abs(missed) if equation else np.maximum(missed, 0)
            worst = max(worst, float((missed / (1 + np.abs(side).max() + np.abs(matrix) @ np.abs(x))).max()))
    for bound, sign in ((data.lower, 1.0), (data.upper, -1.0)):
        if bound is not None:
            worst = max(worst, float(np.maximum(sign * (bound - x), 0).max() / (1 + np.abs(x).max())))
    return worst
