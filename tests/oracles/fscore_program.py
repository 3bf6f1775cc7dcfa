"""The F-score of soft predictions as a linear program (Meng et al. 2021, section 2.4), from its definition."""

from __future__ import annotations

import torch


def fscore_program(scores: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the data of ``max 2 y'z / b`` with ``sum z + b t = b``, ``phi t <= z <= (1 + phi) t``, ``z <= t``.

    Variables: ``(z, t)``. Scores and target may have a batch axis before the axis of the samples.
    """
    n = scores.shape[-1]
    phi, b = torch.tanh(scores), target.sum(-1, keepdim=True)
    identity, one = torch.eye(n, dtype=scores.dtype).expand(*scores.shape, n), torch.ones_like(scores)[..., None]
    a_ub = torch.cat(
        [
            torch.cat([-identity, phi[..., None]], -1),
            torch.cat([identity, -(1 + phi)[..., None]], -1),
            torch.cat([identity, -one], -1),
        ],
        -2,
    )
    return {
        "c": torch.cat([-2 * target / b, torch.zeros_like(b)], -1),
        "A_ub": a_ub,
        "b_ub": torch.zeros_like(a_ub[..., 0]),
        "A_eq": torch.cat([torch.ones_like(scores), b], -1)[..., None, :],
        "b_eq": b,
        "lower": torch.zeros_like(torch.cat([scores, b], -1)),
        "upper": torch.cat([torch.ones_like(scores), torch.full_like(b, torch.inf)], -1),
    }
