"""Speed of the losses of the metric programs, as ratios measured side by side in one run.

The areas and operating points are compared with ``torch.sort`` of the same scores, the F-score loss with cvxpylayers on the same
program (skipped if it is not installed). A call does forward and backward of the whole module; the times are wall times.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch
from benchmarks.lp import SCS, FScore, Solve, cvxpylayers
from benchmarks.measure import Row, at_least, at_most, in_turn, is_installed, report
from benchmarks.speed import example

import taskloss as tl

CLASSES = 10


def step_of(criterion: torch.nn.Module, scores: torch.Tensor, target: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return a call that does forward and backward, and returns the loss."""

    def step() -> torch.Tensor:
        scores.grad = None
        loss: torch.Tensor = criterion(scores, target)
        loss.backward()
        return loss.detach()

    return step


def areas() -> Iterator[Row]:
    """Compare AUC of a million scores, and areas of a million class scores, with torch.sort."""
    scores, target = example((10**6,))
    values = scores.detach()
    for name, criterion in (("AUC, hinge", tl.lp.AUCLoss()), ("AUC, ramp", tl.lp.AUCLoss(0.5, "ramp"))):
        times = in_turn(step_of(criterion, scores, target), lambda: torch.sort(values))
        yield at_most(f"{name}, n = 1,000,000, against torch.sort", times, 2.0)
    for classes in (3, CLASSES):
        generator = torch.Generator().manual_seed(0)
        n = 10**6 // classes
        labels = torch.randint(classes, (n,), generator=generator)
        rows = torch.randn(n, classes, generator=generator) + torch.nn.functional.one_hot(labels, classes)
        flat = rows.reshape(-1).clone()
        rows.requires_grad_()
        cost = [[abs(i - j) for j in range(classes)] for i in range(classes)]
        for name, criterion in (
            ("AUC-mu", tl.lp.MultiClassAUCLoss()),
            ("AUC-mu, costs", tl.lp.MultiClassAUCLoss("costs", cost)),
            ("one-vs-all AUC", tl.lp.MultiClassAUCLoss("one_vs_all")),
        ):
            times = in_turn(step_of(criterion, rows, labels), lambda flat=flat: torch.sort(flat))
            yield at_most(f"{name}, {n:,} x {classes}, against torch.sort of all scores", times, 2.0)


def operating_points() -> Iterator[Row]:
    """Compare losses that choose a threshold with torch.sort."""
    scores, target = example((10**6,))
    values = scores.detach()
    for name, criterion in (
        ("precision at recall", tl.lp.PrecisionAtRecallLoss()),
        ("recall at precision", tl.lp.RecallAtPrecisionLoss()),
    ):
        times = in_turn(step_of(criterion, scores, target), lambda: torch.sort(values))
        yield at_most(f"{name}, n = 1,000,000, against torch.sort", times, 2.0)


def against_cvxpylayers() -> Iterator[Row]:
    """Compare the F-score loss on one batch with the same program in cvxpylayers, at a tolerance of 1e-8 and as it comes.

    Ours is exact to rounding.
    """
    if not is_installed("cvxpylayers"):
        return
    warnings.simplefilter("ignore", UserWarning)  # It warns of tensors that it copies.
    # The loss takes the same plain way at every size, so at n = 64 the fixed cost of a call counts most: 40 is for orientation.
    for n, bound in ((64, 40.0), (1024, 300.0)):
        program = FScore(n)
        ours = step_of(tl.lp.FScoreLoss(margin=0.0), program.scores, program.target)
        for name, options in (("cvxpylayers at 1e-8", SCS), ("cvxpylayers", {})):
            theirs = value_step(program, cvxpylayers(program, **options))
            apart = abs(1.0 - ours().item() + theirs().item())
            yield at_least(f"F-score loss, n = {n:,}, against {name} (apart {apart:.0e})", in_turn(ours, theirs), bound)


def value_step(program: FScore, solve: Solve) -> Callable[[], torch.Tensor]:
    """Return a call that computes the optimal value and its gradient by a layer."""

    def step() -> torch.Tensor:
        program.scores.grad = None
        value = (program.cost * solve(program.scores)).sum()
        value.backward()
        return value.detach()

    return step


if __name__ == "__main__":
    report(__doc__, (areas, operating_points, against_cvxpylayers))
