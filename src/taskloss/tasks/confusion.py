"""Tasks on confusion counts: the error rate, F-score, Jaccard index, balanced error, G-mean and Matthews' correlation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from taskloss import _checks
from taskloss.kernels.labeling import confusion, weights
from taskloss.labelings import Labelings
from taskloss.tasks.labeling import ConfusionTask, Weights
from taskloss.tasks.registry import register


def weights_per_sample(labelings: Labelings) -> Weights:
    """Return the weight ``1/n`` for each of n samples."""
    each = weights.per_sample(labelings.tallies.positives, labelings.tallies.negatives)
    return each, each


def weights_per_positive(labelings: Labelings) -> Weights:
    """Return the weight ``1/P`` for every sample; for a labeling without positives, ``1/n``.

    Without positives the loss jumps once, from 0 to 1, however many of the n samples are false positives: ``1/n`` shares it among
    them. (``1`` would let one image without the class outweigh all the images that have it.)
    """
    each = weights.per_positive(labelings.tallies.positives, labelings.tallies.negatives)
    return each, each


def weights_per_class(labelings: Labelings) -> Weights:
    """Return the weights ``1/(2 P)`` for positives and ``1/(2 N)`` for negatives."""
    return weights.per_class(labelings.tallies.positives, labelings.tallies.negatives, 0.5)


@register("zero_one", label="accuracy")
@dataclass(frozen=True)
class ZeroOne(ConfusionTask):
    r"""The error rate, one minus the accuracy: the 0-1 loss of Song et al. 2016.

    .. math:: L = \frac{1}{n} \sum_i [\hat y_i \ne y_i], \qquad v_i = 1/n

    A sum over samples, so a batch is as good as the whole. Both updates in the time of one pass and a sort of the samples within
    epsilon of zero.

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss("zero_one")(torch.tensor([0.3, -0.2, 0.1, -0.4]), torch.tensor([1, 1, 0, 0])).item()
    0.5
    """

    metric: ClassVar[int] = confusion.ACCURACY
    default_update: ClassVar[str] = "negative"  # The central update can stay where all samples have the label of most.
    zero_division: float = field(default=1.0, init=False, repr=False)

    def sample_weights(self, labelings: Labelings) -> Weights:
        return weights_per_sample(labelings)


@register("balanced_error", label="balanced accuracy")
@dataclass(frozen=True)
class BalancedError(ConfusionTask):
    r"""The mean of the error rates of the two classes.

    .. math:: L = \frac12 \Big(\frac{P - a}{P} + \frac{b}{N}\Big), \qquad v_+ = \frac{1}{2P}, \; v_- = \frac{1}{2N}

    with a true and b false positives. One minus scikit-learn's ``balanced_accuracy_score``; with one class only, the error rate
    of that class. Both updates as fast as for :class:`ZeroOne`.

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss("balanced_error")(torch.tensor([0.3, 0.2, -0.1, -0.4]), torch.tensor([1, 0, 0, 0])).item()
    0.1666666716337204
    """

    metric: ClassVar[int] = confusion.BALANCED_ACCURACY
    zero_division: float = field(default=1.0, init=False, repr=False)

    def sample_weights(self, labelings: Labelings) -> Weights:
        return weights.per_class(labelings.tallies.positives, labelings.tallies.negatives, 1.0)


@register("f_score", label="F-score")
@dataclass(frozen=True)
class FScore(ConfusionTask):
    r"""The F-score, ``L = 1 - F_beta``: the harmonic mean of precision and recall, recall weighing beta times as much.

    .. math:: F_\beta = \frac{(1 + \beta^2)\, a}{\beta^2 P + a + b}, \qquad v_i = 1/P

    with a true and b false positives. Equal to scikit-learn's ``fbeta_score``. Both updates in O(n) and a sort of the
    samples near zero.

    Args:
        beta: above 1 for recall, below 1 for precision.
        zero_division: the score of a labeling without positives when nothing is predicted; with a false positive it is 0. The
            weights are then ``1/n``.

    >>> import torch, taskloss as tl
    >>> scores = torch.tensor([0.3, 0.2, -0.1, -0.4], requires_grad=True)
    >>> loss = tl.DirectLoss(FScore())(scores, torch.tensor([1, 0, 1, 0]))
    >>> loss.item()
    0.5
    >>> loss.backward()
    >>> scores.grad
    tensor([-0.1500,  0.0833, -0.1500,  0.0000])
    """

    metric: ClassVar[int] = confusion.F_BETA
    beta: float = 1.0
    zero_division: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_positive("beta", self.beta)

    @property
    def beta2(self) -> float:
        return float(self.beta) ** 2

    def sample_weights(self, labelings: Labelings) -> Weights:
        return weights_per_positive(labelings)


@register("dice", label="Dice")
@dataclass(frozen=True)
class Dice(FScore):
    r"""The Dice coefficient of two sets, the F-score with beta 1: ``2 a / (P + a + b)``.

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss("dice")(torch.tensor([[[0.3, 0.2], [-0.1, -0.4]]]), torch.tensor([[[1, 0], [1, 0]]])).item()
    0.5
    """

    beta: float = field(default=1.0, init=False, repr=False)


@register("jaccard", label="Jaccard")
@dataclass(frozen=True)
class Jaccard(ConfusionTask):
    r"""The Jaccard index (intersection over union), ``L = 1 - IoU``.

    .. math:: J = \frac{a}{P + b}, \qquad v_i = 1/P

    with a true and b false positives. Equal to scikit-learn's ``jaccard_score``. Both updates in O(n) and a sort of the samples
    near zero. ``zero_division`` as for :class:`FScore`.

    >>> import torch, taskloss as tl
    >>> scores, mask = torch.randn(2, 3, 8, 8), torch.arange(128).reshape(2, 8, 8) % 3
    >>> tl.DirectLoss("jaccard", reduction="none")(scores, mask).shape     # one per image and class
    torch.Size([2, 3])
    """

    metric: ClassVar[int] = confusion.JACCARD
    zero_division: float = 1.0

    def sample_weights(self, labelings: Labelings) -> Weights:
        return weights_per_positive(labelings)


@register("g_mean", label="G-mean")
@dataclass(frozen=True)
class GMean(ConfusionTask):
    r"""The geometric mean of sensitivity and specificity, ``L = 1 - G``.

    .. math:: G = \sqrt{\frac{a}{P} \cdot \frac{N - b}{N}}, \qquad v_+ = \frac{1}{2P}, \; v_- = \frac{1}{2N}

    Kubat and Matwin 1997. The rate of a class that is missing is ``zero_division``. Both updates by a sort and divide and
    conquer, O(n log n).

    >>> import torch, taskloss as tl
    >>> round(tl.DirectLoss("g_mean")(torch.tensor([0.3, 0.2, -0.1, -0.4]), torch.tensor([1, 0, 1, 0])).item(), 4)
    0.5
    """

    metric: ClassVar[int] = confusion.G_MEAN
    zero_division: float = 1.0

    def sample_weights(self, labelings: Labelings) -> Weights:
        return weights_per_class(labelings)


@register("mcc", label="MCC (as (1 + MCC) / 2)")
@dataclass(frozen=True)
class MCC(ConfusionTask):
    r"""Matthews' correlation coefficient, ``L = (1 - MCC) / 2``, between 0 and 1.

    .. math:: \mathrm{MCC} = \frac{a N - b P}{\sqrt{P N k (n - k)}}, \quad k = a + b, \qquad v_i = \frac{n}{4 P N}

    Matthews 1975; equal to scikit-learn's ``matthews_corrcoef``, which is 0 where it is 0/0. A labeling of one class is
    0/0 whatever is predicted: without an error it counts ``zero_division`` here, so that errors cost (weights ``1/n``). Both
    updates by a sort and a linear search.

    >>> import torch, taskloss as tl
    >>> tl.DirectLoss("mcc")(torch.tensor([0.3, 0.2, -0.1, -0.4]), torch.tensor([1, 0, 1, 0])).item()
    0.5
    """

    metric: ClassVar[int] = confusion.MCC
    loss_scale: ClassVar[float] = 0.5
    zero_division: float = 1.0

    def sample_weights(self, labelings: Labelings) -> Weights:
        each = weights.per_pair(labelings.tallies.positives, labelings.tallies.negatives)
        return each, each
