"""The identity in place of the derivative of the solver."""

from __future__ import annotations

import numpy as np

from taskloss.decisions.loss import DecisionLoss
from taskloss.tasks.structured_inference import StructuredInference

# Differences of losses below this are rounding.
_ROUNDING = 1e-9


class IdentityLoss(DecisionLoss):
    r"""Negative identity backpropagation: the derivative of the solver is taken to be the identity (in the costs, minus it).

    Sahoo, Paulus, Vlastelica, Musil, Kuleshov, Martius, *Backpropagation through combinatorial algorithms: identity with
    projection works*, ICLR 2023. The value is the task loss, and its gradient in the scores is its derivative in psi: v, for a
    loss :math:`b + \langle v, \psi \rangle`, where the answer is not one of least loss, and zero where it is (as of the
    absolute value of the regret). It costs no call of the solver, and says no more than that all that is expensive should score
    lower: a baseline.

    With ``loss="cost"`` the least loss is not known, so no gradient is zero. The *projection* of the title takes the invariances
    of the solver out of the scores; write it before the loss, such as ``scores - scores.mean(-1, keepdim=True)`` and a division
    by the norm.

    Args:
        task: a :class:`taskloss.Structured` task with a loss that is linear in psi.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Called with ``(scores, target)``. In PyEPO it is ``negativeIdentity`` (NID), followed by the loss.

    >>> import torch, taskloss as tl
    >>> criterion = IdentityLoss(tl.Structured(tl.solvers.Assignment(), loss="regret", batched=True))
    >>> scores = torch.tensor([[[0.0, 2.0], [2.0, 0.0]]], requires_grad=True)
    >>> loss = criterion(scores, torch.tensor([[[1.0, 5.0], [5.0, 1.0]]]))
    >>> loss.item()
    8.0
    >>> loss.backward()
    >>> scores.grad.tolist()
    [[[1.0, 5.0], [5.0, 1.0]]]
    """

    def _evaluate(self, inference: StructuredInference, with_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        values = inference.loss(inference.predict())
        if not with_gradient:
            return values, None
        direction = inference.loss_direction() / inference.entries
        if self.task.loss == "cost":
            return values, direction
        return values, direction * (values > _ROUNDING).reshape(-1, *[1] * (direction.ndim - 1))
