"""SOAP (Qi et al. 2021): average precision from small batches, by moving averages for every positive sample."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss.peers.inputs import read_binary


class SOAPLoss(nn.Module):
    r"""One minus a surrogate of average precision whose ratios are tracked over the batches.

    With the squared hinge :math:`\ell_{is} = \max(0, m - (s_i - s_s))^2` in place of the comparison :math:`s_s \ge s_i`, a
    positive i contributes the ratio of :math:`g^+_i = \mathrm{mean}_s\, [y_s = 1]\, \ell_{is}` to
    :math:`g_i = \mathrm{mean}_s\, \ell_{is}`, over the samples s of the batch, i itself included. A batch estimates such a ratio
    badly, so numerator and denominator are replaced by moving averages over the batches that i was in,

    .. math::
        u^+_i \leftarrow (1 - \gamma) u^+_i + \gamma g^+_i, \qquad u_i \leftarrow (1 - \gamma) u_i + \gamma g_i ,

    and the loss is ``1 - mean u+_i / u_i``. Its gradient is the estimator of the paper: the derivatives of the ratio at the
    averages, times those of the batch,

    .. math:: \mathrm{mean}_i \left( \frac{u^+_i}{u_i^2} \nabla g_i - \frac{1}{u_i} \nabla g^+_i \right) .

    Reference: Q. Qi, Y. Luo, Z. Xu, S. Ji, T. Yang, Stochastic optimization of areas under precision-recall curves with provable
    convergence, NeurIPS 2021 (arXiv 2104.08736), whose optimizers (SGD, Adam) are those of torch. The averages of a sample begin
    with its first batch; those of LibAUC begin at zero, which makes its first gradients 1/gamma times as long.

    Args:
        num_samples: number of training samples.
        gamma: weight of the present batch, above 0 and at most 1; 1 uses the batch alone.
        margin: m, in units of the scores.

    Call with scores and target ``(n,)`` and ``index=``, the numbers of the samples in the training set, ``(n,)``. If a sample
    comes twice in a batch, one of its two estimates is kept. The averages are buffers of the module (save its ``state_dict``);
    they change in training mode only, and not without gradients. A batch without positives gives zero loss and gradient.

    >>> loss = SOAPLoss(num_samples=1000)
    >>> scores, target = torch.tensor([2.0, 0.0, 1.0]), torch.tensor([1, 0, 0])
    >>> loss(scores, target, index=torch.tensor([17, 4, 803])).item()      # l = 1, 0, 0 of the positive with each sample
    0.0
    """

    averages: Tensor
    """Moving averages of numerator and denominator of each sample, ``(2, num_samples)``; zero before its first batch."""

    def __init__(self, num_samples: int, *, gamma: float = 0.9, margin: float = 1.0) -> None:
        super().__init__()
        self.num_samples = _checks.check_count("num_samples", num_samples)
        _checks.check_fraction("gamma", gamma)
        self.gamma, self.margin = float(gamma), _checks.check_positive("margin", margin)
        self.register_buffer("averages", torch.zeros(2, self.num_samples, dtype=torch.float64))

    def forward(self, scores: Tensor, target: Tensor, *, index: Tensor | None = None) -> Tensor:
        scores, positive = read_binary(scores, target)
        rows = self._read_index(index, len(scores)).to(positive.device)[positive].to(self.averages.device)
        if not len(rows):
            return (scores * 0.0).sum()
        hinges = (self.margin - (scores[positive][:, None] - scores)).clamp_min(0.0).square()
        of_batch = torch.stack([(hinges * positive).mean(1), hinges.mean(1)])
        numerator, denominator = self._update(of_batch.detach(), rows)
        estimate = numerator / denominator.square() * of_batch[1] - of_batch[0] / denominator
        # The value is that of the averages, the gradient that of the estimate.
        return (1.0 - numerator / denominator + estimate - estimate.detach()).mean()

    def extra_repr(self) -> str:
        return f"num_samples={self.num_samples}, gamma={self.gamma!r}, margin={self.margin!r}"

    def _update(self, of_batch: Tensor, rows: Tensor) -> Tensor:
        """Return the averages ``(2, P)`` with the batch in them, and keep them in training."""
        known, now = self.averages[:, rows], of_batch.to(self.averages)
        # The denominator of a sample that has been seen is above zero: its own term is the squared margin.
        averages = torch.where(known[1] > 0.0, (1.0 - self.gamma) * known + self.gamma * now, now)
        if self.training and torch.is_grad_enabled():
            self.averages[:, rows] = averages
        return averages.to(of_batch)

    def _read_index(self, index: Tensor | None, samples: int) -> Tensor:
        if not isinstance(index, Tensor) or index.dtype.is_floating_point or index.shape != (samples,):
            given = "nothing" if index is None else f"{type(index).__name__} {tuple(getattr(index, 'shape', ()))}"
            raise ValueError(f"index must be an integer tensor ({samples},), the numbers of the samples in training; got {given}")
        if bool((index < 0).any()) or bool((index >= self.num_samples).any()):
            raise ValueError(
                f"index goes from {int(index.min())} to {int(index.max())}; expected numbers from 0 to {self.num_samples - 1}"
            )
        return index.long()
