"""The gradient over all batches of a model on another device, whose batches come from the CPU."""

from __future__ import annotations

import torch
from torch import nn

import taskloss as tl
from tests.another_device.device import NAME


class Affine(nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1.0, 1.0, 3).to(device))
        self.register_buffer("total", torch.zeros(1).to(device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += 1
        return (x * self.weight).sum(1)


def test_the_same_as_on_the_cpu():
    torch.manual_seed(0)
    batches = [(torch.randn(8, 3), torch.arange(8) % 3 == 0, torch.arange(8) % 2) for _ in range(4)]
    here, there = Affine("cpu"), Affine(NAME)
    criterion = tl.DirectLoss("average_precision")
    expected, loss = (tl.full_batch_backward(model, batches, criterion, groups=2) for model in (here, there))
    assert loss.device.type == there.weight.grad.device.type == NAME
    torch.testing.assert_close(loss.cpu(), expected)
    torch.testing.assert_close(there.weight.grad.cpu(), here.weight.grad)
    assert there.total.cpu() == 4
