"""The linear-program layer against cvxpylayers and qpth on the F-score program, and its growth; ratios measured in one run.

Forward plus backward on the same data, ours to a relative error of 1e-8, the others at their default accuracy. The peers
(cvxpylayers, qpth) must be installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from benchmarks.speed import Row, at_least, in_turn

import taskloss as tl


def scores_and_target(n: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores that know something of the target."""
    generator = torch.Generator().manual_seed(n)
    target = (torch.rand(batch, n, generator=generator) < 0.4).double()
    target[:, 0] = 1.0
    scores = torch.randn(batch, n, generator=generator, dtype=torch.float64) + target - 0.5
    return scores.requires_grad_(), target


def sparse_program(scores: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """``min -2 y'z / b``, ``phi t <= z <= (1 + phi) t``, ``z <= t``, ``sum z + b t = b``, ``0 <= z <= 1``, ``t >= 0``; sparse."""
    n, phi, b = len(scores), torch.tanh(scores), target.sum()
    each, one, last = torch.arange(n), torch.ones_like(phi), torch.full((n,), n)
    rows = torch.cat([each, each, n + each, n + each, 2 * n + each, 2 * n + each])
    columns = torch.cat([each, last, each, last, each, last])
    values = torch.cat([-one, phi, one, -1.0 - phi, one, -one])
    whole = torch.arange(n + 1)
    return {
        "c": torch.cat([-2.0 * target / b, torch.zeros(1)]).double(),
        "A_ub": torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (3 * n, n + 1), check_invariants=False).coalesce(),
        "b_ub": torch.zeros(3 * n, dtype=torch.float64),
        "A_eq": torch.sparse_coo_tensor(
            torch.stack([torch.zeros_like(whole), whole]), torch.cat([one.detach(), b[None]]), (1, n + 1), check_invariants=False
        ).coalesce(),
        "b_eq": b[None],
        "lower": torch.zeros(n + 1, dtype=torch.float64),
        "upper": torch.cat([one.detach(), torch.full((1,), torch.inf, dtype=torch.float64)]),
    }


def dense_program(scores: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same for a batch, dense."""
    batch, n = scores.shape
    phi, b = torch.tanh(scores), target.sum(1, keepdim=True)
    eye, one = torch.eye(n, dtype=torch.float64).expand(batch, n, n), torch.ones_like(phi)[..., None]
    blocks = [[-eye, phi[..., None]], [eye, -1.0 - phi[..., None]], [eye, -one]]
    return {
        "c": torch.cat([-2.0 * target / b, torch.zeros_like(b)], 1),
        "A_ub": torch.cat([torch.cat(block, 2) for block in blocks], 1),
        "b_ub": torch.zeros(batch, 3 * n, dtype=torch.float64),
        "A_eq": torch.cat([torch.ones_like(target), b], 1)[:, None],
        "b_eq": b,
        "lower": torch.zeros(n + 1, dtype=torch.float64),
        "upper": torch.cat([torch.ones(n, dtype=torch.float64), torch.full((1,), torch.inf, dtype=torch.float64)]),
    }


def our_step(scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Forward and backward of our layer; returns the objective."""
    layer = tl.lp.LPLayer()

    def step() -> torch.Tensor:
        scores.grad = None
        single = len(scores) == 1
        solution = layer(**(sparse_program(scores[0], target[0]) if single else dense_program(scores, target)))
        (solution.x * (weight[0] if single else weight)).sum().backward()
        return solution.objective.detach().reshape(-1)

    return step


def cvxpy_step(scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The same by cvxpylayers, default solver."""
    import cvxpy
    from cvxpylayers.torch import CvxpyLayer

    n = scores.shape[1]
    z, t = cvxpy.Variable(n), cvxpy.Variable(1)
    phi, y, b = cvxpy.Parameter(n), cvxpy.Parameter(n), cvxpy.Parameter(1, nonneg=True)
    rows = [cvxpy.multiply(phi, t) <= z, z <= cvxpy.multiply(1 + phi, t), z <= t, z <= 1, z >= 0, t >= 0]
    layer = CvxpyLayer(
        cvxpy.Problem(cvxpy.Minimize(-2 * (y @ z)), [*rows, cvxpy.sum(z) + b @ t == b]), parameters=[phi, y, b], variables=[z, t]
    )
    size = target.sum(1, keepdim=True)

    def step() -> torch.Tensor:
        scores.grad = None
        found, last = layer(torch.tanh(scores), target / size, size)
        (torch.cat([found, last], 1) * weight).sum().backward()
        return -2.0 * (target / size * found).sum(1).detach()

    return step


def qpth_step(scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The same by qpth, with a ridge of 1e-4 since it needs a strictly convex program."""
    from qpth.qp import QPFunction

    n = scores.shape[1]
    ridge = 1e-4 * torch.eye(n + 1, dtype=torch.float64)
    bounds = torch.cat([-torch.eye(n + 1, dtype=torch.float64), torch.eye(n, n + 1, dtype=torch.float64)])
    limits = torch.cat([torch.zeros(n + 1, dtype=torch.float64), torch.ones(n, dtype=torch.float64)])

    def step() -> torch.Tensor:
        scores.grad = None
        data = dense_program(scores, target)
        batch = len(scores)
        rows = torch.cat([data["A_ub"], bounds.expand(batch, -1, -1)], 1)
        sides = torch.cat([data["b_ub"], limits.expand(batch, -1)], 1)
        x = QPFunction(verbose=-1)(ridge.expand(batch, -1, -1), data["c"], rows, sides, data["A_eq"], data["b_eq"])
        (x * weight).sum().backward()
        return (data["c"] * x).sum(1).detach()

    return step


def rows() -> list[Row]:
    """All the comparisons; values are compared before they are timed."""
    found = []
    for n, batch, limit in ((64, 1, 5.0), (256, 1, 5.0), (1024, 1, 5.0), (64, 64, 20.0)):
        scores, target = scores_and_target(n, batch)
        weight = torch.randn(batch, n + 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        name = f"n = {n:,}" if batch == 1 else f"{batch} of n = {n}"
        ours = our_step(scores, target, weight)
        for peer, make in (("cvxpylayers", cvxpy_step), ("qpth", qpth_step)):
            if peer == "qpth" and n > 256:
                continue
            theirs = make(scores, target, weight)
            apart = (ours() - theirs()).abs().max().item()
            found.append(
                at_least(f"F-score program, {name}, {peer} to ours (values apart {apart:.0e})", in_turn(ours, theirs), limit)
            )
            print(found[-1], flush=True)
    return found


def growth() -> None:
    """First call (which analyses the sparsity) and later calls as n grows."""
    for n in (1024, 4096, 16384):
        scores, target = scores_and_target(n, 1)
        step = our_step(scores, target, torch.ones(1, n + 1, dtype=torch.float64))
        times = []
        for _ in range(4):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        print(f"growth: n = {n:>6,}: first {times[0] * 1e3:8.1f} ms, later {min(times[1:]) * 1e3:8.1f} ms")


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(2)
    growth()
    rows()


if __name__ == "__main__":
    main()
