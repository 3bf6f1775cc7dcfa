"""The one calling form of the baselines: scores and a 0/1 target of one shape ``(n,)``."""

from __future__ import annotations

import torch
from torch import Tensor

from taskloss import _checks
from taskloss.layout import to_numpy


def read_binary(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Check scores and target ``(n,)``; return the scores in float32 or float64, and whether each sample is positive."""
    _checks.check_tensors(scores, target)
    if scores.ndim != 1 or scores.numel() == 0:
        raise ValueError(
            f"scores has shape {tuple(scores.shape)}; the baselines take one score per sample, shape (n,) with n >= 1. Drop an "
            "axis of length 1 by scores.squeeze(-1); for several columns, call the loss once per column"
        )
    labels = to_numpy(target)
    _checks.check_shapes(to_numpy(scores), labels)
    _checks.check_finite(to_numpy(scores), None)
    _checks.check_binary(labels, (labels == 0) | (labels == 1))
    return scores.to(torch.promote_types(scores.dtype, torch.float32)), (target == 1).to(scores.device)
