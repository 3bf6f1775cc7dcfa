r"""Areas of several classes as one linear program: AUC-mu (Kleiman and Page 2019) and one-versus-all.

Deciding for class k costs ``G_k = sum_t f_t cost[t, k]``, so ``G_b - G_a`` says how far class a is preferred to b; with 0/1
costs that is ``f_a - f_b``. For a < b, a sample of class a should have a higher value of it than a sample of class b.

Meng et al. (2021) write the same with a factor ``d_ij`` (2 for 0/1 costs, which halves the margin), count ties as right and add
up all pairs of samples. Here the cost of a pair of samples is its weight in the metric: AUC-mu is the mean over pairs of
classes of the mean over their samples. ``weighted=False`` is the paper's plain sum.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from taskloss import _output_checks
from taskloss._checks import check_choice, check_positive
from taskloss.lp.formulations.auc import pairwise_program
from taskloss.lp.problem import LinearProgram

KINDS = ("binary_costs", "costs", "one_vs_all")


def class_auc_program(
    scores: Tensor, target: Tensor, *, margin: float = 1.0, kind: str = KINDS[0], cost: Any = None, weighted: bool = True
) -> LinearProgram:
    r"""Return the program of all pairs of samples of different classes, each with a variable ``z >= e - gap``, ``z >= 0``.

    ``kind="binary_costs"`` and ``"costs"`` (with ``cost[target, predicted]``) are AUC-mu. ``"one_vs_all"`` compares the samples
    of each class with all the others, by the class's own score. Rankings (of pairs of classes, or of classes) without samples
    on both sides are left out.

    Args:
        scores: ``(n, K)``.
        target: class indices, ``(n,)``.
        margin: by how much the right sample should be ahead.
        kind: which rankings, see above.
        cost: for ``kind="costs"``.
        weighted: whether the value is the mean over rankings of the mean over their pairs of samples, or the sum over all pairs.

    >>> import taskloss as tl
    >>> scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 0.0]])
    >>> program = class_auc_program(scores, torch.tensor([0, 1, 2]))
    >>> round(tl.lp.solve(program).objective.item(), 4)      # (0 + 0 + max(0, 1 - (1 - 0))) / 3
    0.0
    """
    check_positive("margin", margin)
    rankings = _class_gaps(scores, target, kind, cost)
    if not rankings:
        raise ValueError("all samples have one class, so there are no pairs; expected samples of at least two classes")
    weights = [1.0 / (len(rankings) * len(gaps)) if weighted else 1.0 for gaps in rankings]
    costs = torch.cat([torch.full_like(gaps, weight) for gaps, weight in zip(rankings, weights, strict=True)])
    return pairwise_program(torch.cat(rankings), margin, costs)


def _class_gaps(scores: Tensor, target: Tensor, kind: str, cost: Any) -> list[Tensor]:
    """Return the gaps of all pairs of samples of each ranking that has any."""
    check_choice("kind", kind, KINDS)
    classes = scores.shape[1]
    if kind == "one_vs_all":
        rankings = [(scores[target == k, k], scores[target != k, k]) for k in range(classes)]
    else:
        merits = scores if kind == "binary_costs" else -scores @ _cost_tensor(cost, scores)
        preferences = [(merits[:, a] - merits[:, b], a, b) for a, b in combinations(range(classes), 2)]
        rankings = [(values[target == a], values[target == b]) for values, a, b in preferences]
    return [(ahead[:, None] - behind).reshape(-1) for ahead, behind in rankings if len(ahead) and len(behind)]


def _cost_tensor(cost: Any, scores: Tensor) -> Tensor:
    if cost is None:
        raise ValueError("kind='costs' needs cost=, a square matrix cost[target, predicted]")
    matrix = _output_checks.as_cost_matrix(cost)
    _output_checks.check_cost_fits(matrix, scores.shape[1])
    return torch.from_numpy(matrix).to(scores)
