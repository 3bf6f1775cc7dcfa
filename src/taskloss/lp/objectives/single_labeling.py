"""The short way of a single labeling to the losses of ratios: one kernel on the memory of two plain tensors.

In a small batch, reading the calling forms would take most of the time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from taskloss.direct import ScaledGradient
from taskloss.kernels.addresses import BYTE, FLOAT32, FLOAT64, INT64
from taskloss.kernels.ratios import ratio_of_one
from taskloss.lp.objectives.ratios import Ratio


class _WithGradient(torch.autograd.Function):
    """A number whose gradient is known."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: float, gradient: Tensor) -> Tensor:
        ctx.scores, ctx.gradient = scores, gradient
        return torch.scalar_tensor(value, dtype=scores.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            # Fails when it is differentiated again. (torch has no types for apply.)
            whole = torch.empty(0, dtype=torch.int64)
            return ScaledGradient.apply(ctx.scores, grad_outputs[0], ctx.gradient, whole), None, None  # type: ignore[no-untyped-call]
        return ctx.gradient * grad_outputs[0], None, None


# What ``_WithGradient.apply`` comes to when no transform of torch.func is active, which is looked at before.
_attach: Any = super(torch.autograd.Function, _WithGradient).apply


_KINDS = {torch.float32: FLOAT32, torch.float64: FLOAT64, torch.int64: INT64, torch.bool: BYTE, torch.uint8: BYTE}


def ratio_of_one_labeling(task: Ratio, scores: Any, target: Any) -> Tensor | None:
    """The loss of scores ``(n,)`` and a target ``(n,)`` on the CPU; None if they are not plain tensors, or not good ones."""
    if torch.compiler.is_compiling() or _in_an_unusual_mode():
        return None
    scores_memory, target_memory = _plain_memory(scores), _plain_memory(target)
    if (
        scores_memory is None
        or target_memory is None
        or scores.ndim != 1
        or scores.shape != target.shape
        or not scores.is_floating_point()
        or target.requires_grad
    ):
        return None
    gradient = torch.empty_like(scores)
    value = ratio_of_one(*scores_memory, *target_memory, scores.numel(), task.settings, gradient.data_ptr())
    return None if value != value else _attach(scores, value, gradient)


def _in_an_unusual_mode() -> bool:
    """Whether tensors may have no memory of their own, or operations return something unusual: transforms, tracers, modes."""
    state = torch._C
    return bool(
        state._are_functorch_transforms_active()
        or state._len_torch_dispatch_stack()
        or state._len_torch_function_stack()
        or state._get_tracing_state()
    )


def _plain_memory(tensor: Any) -> tuple[int, int] | None:
    """Address and kind of the numbers of a tensor if they stand there one after the other, as they are, on the CPU."""
    if type(tensor) is not Tensor or not tensor.is_cpu or tensor.layout is not torch.strided:
        return None
    if not tensor.is_contiguous() or tensor.is_neg() or tensor._is_zerotensor():
        return None
    address, kind = tensor.data_ptr(), _KINDS.get(tensor.dtype)
    # An empty tensor has no address.
    return None if kind is None or not address else (address, kind)
