"""Values whose gradient is computed together with them, as operations of autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class WithGradient(torch.autograd.Function):
    """A value that depends on the scores by a gradient that is known already; the backward pass multiplies it.

    The value is given in a tuple, which autograd does not look into: a tensor among the inputs would have to be copied.
    """

    @classmethod
    def apply(cls, *inputs: Any) -> Tensor:
        """Call the C function below ``Function.apply`` unless a transform of torch.func is active.

        ``Function.apply`` binds the signature of ``forward`` in every call, which takes a fifth of the time of a small batch.
        """
        # torch has no types for either of them.
        if torch._C._are_functorch_transforms_active():
            return super().apply(*inputs)  # type: ignore[no-untyped-call]
        return super(torch.autograd.Function, cls).apply(*inputs)  # type: ignore[misc]

    @staticmethod
    def forward(scores: Tensor, value: tuple[Tensor], gradient: Tensor, owner: Tensor) -> Tensor:
        return value[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        scores, _, gradient, owner = inputs
        ctx.save_for_backward(scores, gradient, owner)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        scores, gradient, owner = ctx.saved_tensors
        factor = grad_outputs[0]
        if factor.ndim:
            factor = factor.reshape(-1)[owner].reshape(gradient.shape)
        return refuse_second_derivative(scaled(gradient, factor, scores.dtype), _NOT_TWICE, scores), None, None, None


_NOT_TWICE = (
    "this loss gives no second derivative: the forward pass computes its gradient. Leave out create_graph=True, or keep gradient "
    "penalties and Hessian-vector products away from this loss term"
)


def scaled(gradient: Tensor, factor: Tensor | float, dtype: torch.dtype) -> Tensor:
    """Return ``gradient * factor`` in a type.

    Multiply first, cast last: a float16 gradient of a large batch would flush to zero before a GradScaler could lift it.
    """
    product = gradient * factor
    return product if product.dtype == dtype else product.to(dtype)


def refuse_second_derivative(gradient: Tensor, message: str, *data: Tensor | None) -> Tensor:
    """Return a gradient that raises a RuntimeError if it is differentiated in the data, instead of being constant silently."""
    # Gradients are enabled in a backward pass only when the caller wants to differentiate its result again. (torch has no types
    # for apply.)
    return _NotTwice.apply(gradient, message, *data) if torch.is_grad_enabled() else gradient  # type: ignore[no-untyped-call]


class _NotTwice(torch.autograd.Function):
    """A gradient as a function of the data too."""

    @staticmethod
    def forward(gradient: Tensor, message: str, *data: Tensor | None) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.message = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        raise RuntimeError(ctx.message)
