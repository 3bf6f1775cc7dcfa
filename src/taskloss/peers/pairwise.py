"""The pairwise squared hinge loss of the area under the ROC curve, exact and in O(n log n)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss.known_gradient import WithGradient
from taskloss.peers.inputs import read_binary


class PairwiseSquaredHingeLoss(nn.Module):
    r"""Mean squared hinge of the gaps between positives i and negatives j.

    .. math:: \frac{1}{P N} \sum_{i,j} \left(\max(0,\; m - (s_i - s_j))\right)^2 .

    It is the usual convex surrogate of AUC. Divided by the squared margin it is an upper bound of one minus the AUC.

    Value and gradient cost one sort. Let ``t_i = s_i - m``, and go through all t_i and s_j from the highest to the lowest. With
    the c negatives passed so far, ``M1 = sum_j (s_j - t)`` and ``M2 = sum_j (s_j - t)^2`` at the present value t change by

    .. math:: M_2 \mathrel{+}= 2 d M_1 + c d^2, \qquad M_1 \mathrel{+}= c d

    when t falls by d. At t_i, M2 is the sum over the pairs of i, and -2 M1 its gradient. All terms are at least zero, so nothing
    cancels, whatever the offset of the scores. The gradient of the negatives is found in the same way from below.

    Args:
        margin: m, in units of the scores.

    Call with scores and target ``(n,)``. A batch with one class only gives zero loss and gradient.

    >>> scores = torch.tensor([0.5, 0.0, 2.0], requires_grad=True)
    >>> loss = PairwiseSquaredHingeLoss()(scores, torch.tensor([1, 0, 0]))
    >>> loss.backward()
    >>> loss.item(), scores.grad.tolist()
    (3.25, [-3.0, 0.5, 2.5])
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = _checks.check_positive("margin", margin)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        promoted, positive = read_binary(scores, target)
        value, gradient = _value_and_gradient(promoted.detach().double(), positive, self.margin)
        # There is one value, so no sample needs to know its own.
        return WithGradient.apply(scores, (value.to(promoted.dtype),), gradient, positive)

    def extra_repr(self) -> str:
        return f"margin={self.margin!r}"


def _value_and_gradient(scores: Tensor, positive: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient ``(n,)``, in float64."""
    pairs = float(positive.sum() * (~positive).sum())
    if pairs == 0.0:
        return scores.new_zeros(()), torch.zeros_like(scores)
    shifted = torch.where(positive, scores - margin, scores)
    order = shifted.argsort(descending=True)
    ordered, is_positive = shifted[order], positive[order]
    falls = -ordered.diff(prepend=ordered[:1])
    # Numbers of negatives before each value; a fall of zero makes the order of equal values irrelevant.
    above = (~is_positive).cumsum(0) - (~is_positive).long()
    first = (above * falls).cumsum(0)
    second = (2.0 * falls * first.roll(1) + above * falls.square()).cumsum(0)
    # The same from the lowest value up, with the positives that have been passed.
    rises = falls.roll(-1).flip(0)
    rises[0] = 0.0
    below = is_positive.flip(0).cumsum(0) - is_positive.flip(0).long()
    first_from_below = (below * rises).cumsum(0).flip(0)
    gradient = torch.empty_like(scores)
    gradient[order] = torch.where(is_positive, -first, first_from_below) * (2.0 / pairs)
    return second[is_positive].sum() / pairs, gradient
