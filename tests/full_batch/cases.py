"""Models, batches and the gradient of one graph over all of them, for the tests of ``full_batch_backward``."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

import taskloss as tl

AP = tl.DirectLoss("average_precision")
bce = nn.functional.binary_cross_entropy_with_logits

Pair = namedtuple("Pair", ["image", "label"])


@dataclass
class Sample:
    image: torch.Tensor
    label: torch.Tensor


def samples(n: int = 100, classes: int | None = None, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, 6, generator=generator, dtype=dtype)
    noise = torch.randn((n,) if classes is None else (n, classes), generator=generator, dtype=dtype)
    return features, (features[:, :1].expand(n, classes or 1).reshape(noise.shape) + noise > 0.8).long()


def split(count: int, *tensors: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    return list(zip(*(tensor.tensor_split(count) for tensor in tensors), strict=True))


class Wandering(nn.Module):
    """A buffer that moves in every run and takes part in the scores; it is replaced, not changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return x - self.mean


def plain(outputs: int | None = None) -> nn.Module:
    last = [nn.Linear(8, 1), nn.Flatten(0)] if outputs is None else [nn.Linear(8, outputs)]
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), *last)


def stateful() -> nn.Module:
    return nn.Sequential(
        *(parametrizations.spectral_norm(nn.Linear(6, 8)), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), Wandering()),
        *(nn.Linear(8, 1), nn.Flatten(0)),
    )


def build(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(1)
    return make().to(dtype)


def gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def reference(model: nn.Module, batches: Any, criterion: Callable[..., torch.Tensor] = AP, **options: Any) -> torch.Tensor:
    """Hold the graphs of all batches."""
    parts = [(model(batch[0]), batch[1]) for batch in batches]
    loss = criterion(torch.cat([scores for scores, _ in parts]), torch.cat([target for _, target in parts]), **options)
    loss.backward()
    return loss.detach()


def assert_same(ours: nn.Module, expected: nn.Module, tolerance: float = 1e-6) -> None:
    error = (gradients(ours) - gradients(expected)).norm() / gradients(expected).norm()
    assert gradients(expected).norm() > 0
    assert error <= tolerance, f"relative error {error:.1e}"


def assert_buffers_same(ours: nn.Module, expected: nn.Module) -> None:
    buffers = dict(expected.named_buffers())
    assert buffers
    for name, buffer in ours.named_buffers():
        assert torch.equal(buffer, buffers[name]), name
