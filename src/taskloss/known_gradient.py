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
        # Gradients are enabled here only when the caller wants to differentiate the result again.
        scale = ScaledGradient.apply if torch.is_grad_enabled() else ScaledGradient.forward
        scores, gradient, owner = ctx.saved_tensors
        return scale(scores, grad_outputs[0], gradient, owner), None, None, None


class ScaledGradient(torch.autograd.Function):
    """The backward pass, as a function of the scores too: a second derivative then raises instead of being zero silently."""

    @staticmethod
    def forward(scores: Tensor, grad_values: Tensor, gradient: Tensor, owner: Tensor) -> Tensor:
        factor = grad_values
        if grad_values.ndim:
            factor = grad_values.reshape(-1)[owner].reshape(gradient.shape)
        # Multiply first, cast last: a float16 gradient of a large batch would flush to zero before a GradScaler could lift it.
        product = gradient * factor
        return product if product.dtype == scores.dtype else product.to(scores.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        raise RuntimeError(
            "this loss gives no second derivative: the forward pass computes its gradient. Leave out create_graph=True, "
            "or keep gradient penalties and Hessian-vector products away from this loss term"
        )
