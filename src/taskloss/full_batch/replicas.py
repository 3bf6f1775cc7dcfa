"""Models in DistributedDataParallel: no communication while the batches run, one averaging of the gradients at the end.

DDP reduces gradients within the backward pass, and broadcasts buffers before the forward pass. Both wait for all processes, so
processes with different numbers of batches, or none, would wait for each other forever. Here both are switched off, and the
same is done once per call: every process takes part, however many batches it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from taskloss.full_batch.fields import Part, map_tree

BUCKET = 2**24
"""Number of gradients that are reduced at once: enough to use the network well, and little memory beside the model."""


class Replicas:
    """The DistributedDataParallel modules in a model, usually the model itself or none."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = [module for module in model.modules() if isinstance(module, DistributedDataParallel)]

    @torch.no_grad()
    def broadcast_buffers(self) -> None:
        """Copy the buffers of the first process to the others, as DDP does before a forward pass."""
        for module in self._modules:
            for name, buffer in module.module.named_buffers():
                if module.broadcast_buffers and name not in module.parameters_to_ignore:
                    dist.broadcast(buffer, group=module.process_group, group_src=0)

    @contextmanager
    def without_ddp_sync(self) -> Iterator[None]:
        """Run forward and backward passes without communication by DDP."""
        with ExitStack() as stack:
            for module in self._modules:
                stack.enter_context(module.no_sync())
                stack.callback(setattr, module, "require_forward_param_sync", module.require_forward_param_sync)
                module.require_forward_param_sync = False
            yield

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Run a block in every process; if it raises in one, it raises in all, and none waits for the one that failed."""
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
            if not self._modules:
                raise
        try:
            flags = [_in_any_process(torch.tensor([failure is not None]), module) for module in self._modules]
        except Exception as lost:
            if failure is None:
                raise
            raise failure from lost
        if failure is not None:
            raise failure
        if any(bool(flag.any()) for flag in flags):
            raise RuntimeError(
                "full_batch_backward failed in another process; see its message. Gradients are as they were before"
            )

    def share_empty_part(self, part: Part | None) -> Part | None:
        """Return a part without samples, with the shapes and types of the first process that has a part."""
        empty = None if part is None else map_tree(lambda tensor: tensor[:0].cpu().clone(), part)
        for module in self._modules:
            parts: list[Part | None] = [None] * dist.get_world_size(module.process_group)
            dist.all_gather_object(parts, empty, group=module.process_group)
            empty = next((other for other in parts if other is not None), None)
        return empty

    @torch.no_grad()
    def average_gradients(self) -> None:
        """Average the gradients over the processes, as DDP does, unless the caller is within ``no_sync``."""
        for module in self._modules:
            if module.require_backward_grad_sync:
                _average(module)


def _average(module: DistributedDataParallel) -> None:
    parameters = [
        parameter
        for name, parameter in module.module.named_parameters()
        if parameter.requires_grad and name not in module.parameters_to_ignore
    ]
    # A parameter without a gradient in all processes keeps none; a process without batches contributes zeros.
    used = _in_any_process(torch.tensor([parameter.grad is not None for parameter in parameters]), module).tolist()
    gradients = []
    for parameter, is_used in zip(parameters, used, strict=True):
        if is_used and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad is not None:
            gradients.append(parameter.grad)
    for bucket in _buckets(gradients):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        flat /= dist.get_world_size(module.process_group)
        dist.all_reduce(flat, group=module.process_group)
        for gradient, part in zip(bucket, flat.split([gradient.numel() for gradient in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield tensors of one type and device that have at most BUCKET numbers together, or a single larger one."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        fits = sum(other.numel() for other in bucket) + tensor.numel() <= BUCKET
        if bucket and not (fits and (tensor.dtype, tensor.device) == (bucket[0].dtype, bucket[0].device)):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def _in_any_process(flags: Tensor, module: DistributedDataParallel) -> Tensor:
    """Return, for every flag, whether it is set in any process."""
    device = next(module.parameters()).device
    numbers = flags.to(device, torch.int32)
    dist.all_reduce(numbers, dist.ReduceOp.MAX, group=module.process_group)
    return numbers.cpu() > 0
