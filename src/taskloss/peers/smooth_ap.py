"""Smooth-AP (Brown et al. 2020): average precision with sigmoids in place of comparisons."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss.peers.inputs import read_binary


class SmoothAPLoss(nn.Module):
    r"""One minus the average precision with sigmoids in place of comparisons.

    With :math:`\sigma_{ij} = \mathrm{sigmoid}((s_j - s_i) / \tau)`, the positives :math:`\mathcal P` and the negatives
    :math:`\mathcal N` it is

    .. math::
        1 - \frac1{|\mathcal P|} \sum_{i \in \mathcal P}
        \frac{1 + \sum_{j \in \mathcal P, j \neq i} \sigma_{ij}}
             {1 + \sum_{j \in \mathcal P, j \neq i} \sigma_{ij} + \sum_{j \in \mathcal N} \sigma_{ij}} .

    The gradient is that of autograd. It takes memory for one number per positive and sample.

    Reference: A. Brown, W. Xie, V. Kalogeiton, A. Zisserman, Smooth-AP: smoothing the path towards large-scale image retrieval,
    ECCV 2020 (arXiv 2007.12163).

    Args:
        temperature: tau, in units of the scores. The paper has 0.01 for cosine similarities; scores of a wider range need more,
            because a sigmoid has no gradient many temperatures away from a tie.

    Call with scores and target ``(n,)``. A batch without positives gives zero loss and gradient.

    >>> loss = SmoothAPLoss()(torch.tensor([0.9, 0.5, 0.2, 0.3]), torch.tensor([1, 0, 0, 1]))
    >>> round(loss.item(), 4)      # precisions 1 and 2/3
    0.1667
    """

    def __init__(self, temperature: float = 0.01) -> None:
        super().__init__()
        self.temperature = _checks.check_positive("temperature", temperature)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        scores, positive = read_binary(scores, target)
        if not bool(positive.any()):
            return (scores * 0.0).sum()
        above = torch.sigmoid((scores - scores[positive][:, None]) / self.temperature)
        # A sample is not above itself.
        others = 1.0 - torch.eye(len(scores), dtype=above.dtype, device=above.device)[positive]
        above = above * others
        rank_among_positives = 1.0 + above[:, positive].sum(1)
        return 1.0 - (rank_among_positives / (rank_among_positives + above[:, ~positive].sum(1))).mean()

    def extra_repr(self) -> str:
        return f"temperature={self.temperature!r}"
