r"""The area under the ROC curve as a linear program, one variable per pair (Ataman et al. 2006; Meng et al. 2021, eq. 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from taskloss._checks import check_positive
from taskloss.lp.formulations.assembly import as_program_scores, refuse_one_class, sparse_matrix
from taskloss.lp.problem import LinearProgram


def auc_program(scores: Tensor, target: Tensor, *, margin: float = 1.0) -> LinearProgram:
    r"""Return the program of the sum of the violations of all pairs.

    .. math:: \min \sum_{ij} z_{ij} \quad\text{s.t.}\quad f_i - f_j \ge e - z_{ij}, \; z \ge 0

    over positives i and negatives j, ``margin`` e. In the paper's general form (table 5) E is minus the identity and
    ``p_ij = f_i - f_j - e``. The solution is ``z_ij = (e - f_i + f_j)_+``. Variables: z row by row, one row per positive.

    Args:
        scores: ``(n,)``.
        target: 0/1, ``(n,)``, both classes present.
        margin: by how much a positive should be above a negative.

    >>> import taskloss as tl
    >>> program = auc_program(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([1, 0, 0]))
    >>> tl.lp.solve(program).x.tolist()
    [0.5, 2.5]
    """
    check_positive("margin", margin)
    scores, positive = as_program_scores(scores, target)
    refuse_one_class(positive, "the area under the ROC curve")
    gaps = (scores[positive][:, None] - scores[~positive]).reshape(-1)
    return pairwise_program(gaps, margin, torch.ones_like(gaps))


def pairwise_program(gaps: Tensor, margin: float, cost: Tensor) -> LinearProgram:
    """Return the program ``min cost'z`` subject to ``gaps >= margin - z``, ``z >= 0``."""
    each = torch.arange(len(gaps), device=gaps.device)
    matrix = sparse_matrix([(each, each, -torch.ones_like(gaps))], (len(gaps), len(gaps)))
    return LinearProgram(cost.detach(), A_ub=matrix, b_ub=gaps - margin, lower=torch.zeros_like(gaps))
