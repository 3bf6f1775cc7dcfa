"""The AUC margin loss of LibAUC with its optimizer, called like the losses of this library."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss.peers.inputs import read_binary


class LibAUCMarginLoss(nn.Module):
    r"""LibAUC's ``AUCMLoss``, the successor of PPD's: the alpha of a margin m is kept at least zero.

    .. math::
        F = (1-p)(h-a)^2 [y=1] + p (h-b)^2 [y=0]
        + 2 \alpha \left(p(1-p)\,m + p\,h\,[y=0] - (1-p)\,h\,[y=1]\right) - p(1-p)\,\alpha^2

    in the mean over the samples, with ``h = sigmoid(score)`` and the share p of positives in the batch (Z. Yuan, Y. Yan,
    M. Sonka, T. Yang, Large-scale robust deep AUC maximization, ICCV 2021, arXiv 2012.03173). :meth:`make_optimizer` returns the
    optimizer of its scalars and of the weights.

    LibAUC 2 is an optional package whose requirements are large, but this part of it needs pandas and scikit-learn alone:
    ``pip install --no-deps libauc``.

    Args:
        margin: m.
        settings: other settings of ``libauc.losses.AUCMLoss``.

    Call with scores and target ``(n,)``.
    """

    def __init__(self, margin: float = 1.0, **settings: Any) -> None:
        super().__init__()
        margin = _checks.check_positive("margin", margin)
        self.wrapped: nn.Module = _import("libauc.losses").AUCMLoss(margin=margin, **settings)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        scores, positive = read_binary(scores, target)
        value: Tensor = self.wrapped(torch.sigmoid(scores), positive.to(scores.dtype))
        return value.reshape(())

    def make_optimizer(self, params: Any, *, learning_rate: float = 0.1, **settings: Any) -> torch.optim.Optimizer:
        """Return ``libauc.optimizers.PESG`` for the weights and the scalars of this loss.

        Its ``update_regularizer(decay_factor=10)`` ends a stage: it divides the learning rate and moves the reference point.

        Args:
            params: the weights.
            learning_rate: ``lr`` of PESG.
            settings: its other settings, such as ``epoch_decay`` and ``momentum``.
        """
        settings = {"verbose": False, **settings}
        optimizer: torch.optim.Optimizer = _import("libauc.optimizers").PESG(
            params, loss_fn=self.wrapped, lr=_checks.check_positive("learning_rate", learning_rate), **settings
        )
        return optimizer


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            "LibAUCMarginLoss needs LibAUC 2, pandas and scikit-learn: pip install --no-deps libauc, "
            "and pip install pandas scikit-learn"
        ) from error
