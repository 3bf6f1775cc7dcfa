"""The rest of a training step: accumulation, mixed precision, compiled models, memory, progress."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import taskloss as tl
from tests.full_batch.cases import (
    AP,
    assert_buffers_same,
    assert_same,
    build,
    gradients,
    plain,
    reference,
    samples,
    split,
    stateful,
)


def test_gradients_accumulate():
    batches = split(4, *samples())
    ours, expected = build(plain), build(plain)
    reference(expected, batches)
    reference(expected, batches, tl.DirectLoss("roc_auc"))
    tl.full_batch_backward(ours, batches, AP)
    tl.full_batch_backward(ours, batches, tl.DirectLoss("roc_auc"))
    assert_same(ours, expected)


def test_scaler_scales_before_the_network():
    """Scores in float16: their gradients would be zero without the scale."""
    features, target = samples(dtype=torch.float16)
    model = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)).half()
    expected = copy.deepcopy(model)

    def small(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return 1e-7 * AP(scores, target)

    tl.full_batch_backward(model, split(4, features, target), small)
    assert not gradients(model).any()
    model.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    loss = tl.full_batch_backward(model, split(4, features, target), small, scaler=scaler)
    scaler.scale(small(expected(features), target)).backward()
    assert loss < 1e-6
    assert_same(model, expected, 1e-2)


def test_autocast():
    features, target = samples()
    batches = split(4, features, target)
    expected = build(stateful)
    ours = copy.deepcopy(expected)
    # Without the cache of autocast, which would add up the gradients of all batches in bfloat16.
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        torch.manual_seed(0)
        parts = [expected(x) for x, _ in batches]
        assert parts[0].dtype == torch.bfloat16
        loss = AP(torch.cat(parts), target)
    loss.backward()
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(0)
        assert torch.equal(tl.full_batch_backward(ours, batches, AP), loss.detach())
        assert torch.is_autocast_enabled("cpu")
    assert_same(ours, expected)
    assert_buffers_same(ours, expected)


def test_autocast_of_the_model_is_not_that_of_the_backward_pass():
    """A layer that a model keeps in float32 has a gradient computed in float32, and weights change between two calls."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.first(x).float()
            with torch.autocast("cpu", enabled=False):
                return self.last(hidden).flatten()

    batches = split(4, *samples())
    ours, expected = build(Mixed), build(Mixed)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            ours.zero_grad()
            tl.full_batch_backward(ours, batches, AP)
            torch.optim.SGD(ours.parameters(), lr=1.0).step()
    for _ in range(2):
        expected.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            loss = AP(torch.cat([expected(x) for x, _ in batches]), torch.cat([y for _, y in batches]))
        loss.backward()
        torch.optim.SGD(expected.parameters(), lr=1.0).step()
    assert_same(ours, expected)


def test_memory_that_is_reused():
    """Loaders with one pinned buffer and models with a workspace overwrite in the next batch what they gave for the last."""

    class Reusing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.workspace = plain(), torch.empty(20)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x) if torch.is_grad_enabled() else self.workspace.copy_(self.net(x))

    class OneBuffer:
        def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
            buffer = tuple(torch.empty_like(tensor) for tensor in samples(20))
            for batch in split(5, *samples(100)):
                yield tuple(place.copy_(tensor) for place, tensor in zip(buffer, batch, strict=True))

    ours, expected = build(Reusing), build(plain)
    reference(expected, split(5, *samples(100)))
    tl.full_batch_backward(ours, OneBuffer(), AP)
    assert_same(ours, expected)


def test_compiled_model():
    batches = split(4, *samples())
    expected = build(stateful)
    ours = copy.deepcopy(expected)
    torch.manual_seed(0)
    reference(expected, batches)
    torch.manual_seed(0)
    tl.full_batch_backward(torch.compile(ours, backend="aot_eager"), batches, AP)
    assert_same(ours, expected)
    assert_buffers_same(ours, expected)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_activation_checkpointing(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.net = nn.Linear(6, 6), stateful()[2:4]
            self.last = nn.Linear(6, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(checkpoint(self.net, self.first(x), use_reentrant=reentrant)).flatten()

    batches = split(4, *samples())
    expected = build(Checkpointed)
    ours = copy.deepcopy(expected)
    torch.manual_seed(0)
    reference(expected, batches)
    torch.manual_seed(0)
    tl.full_batch_backward(ours, batches, AP)
    assert_same(ours, expected)


def test_only_one_graph_is_alive():
    """The activations of a batch are freed before the next batch runs."""
    alive, most = 0, 0

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            nonlocal alive, most
            if x.requires_grad:
                alive += 1
                most = max(most, alive)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            nonlocal alive
            alive -= 1
            return gradient

    class Counting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Counted.apply(x) if torch.is_grad_enabled() else x

    tl.full_batch_backward(nn.Sequential(plain(), Counting()), split(10, *samples()), AP)
    assert (alive, most) == (0, 1)


def test_progress(capsys):
    batches = split(3, *samples())
    seen: list[tuple[int, int | None]] = []
    tl.full_batch_backward(build(plain), batches, AP, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 6) for done in range(1, 7)]
    seen.clear()

    class WithoutLength:
        def __iter__(self) -> Iterator[Any]:
            return iter(batches)

    tl.full_batch_backward(build(plain), WithoutLength(), AP, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, None), (2, None), (3, None), (4, 6), (5, 6), (6, 6)]
    tl.full_batch_backward(build(plain), batches, AP, progress=True)
    assert capsys.readouterr().err == "", "away from a terminal, a short run prints no line"


def test_progress_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    tl.full_batch_backward(build(plain), split(2, *samples()), AP, progress=True)
    assert capsys.readouterr().err.endswith("\rfull batch: 4 of 4 batches\n")


def test_buffers_that_share_memory_and_graphs_of_the_caller():
    """Buffers that did not change are not written: an expanded one cannot be, and a graph that was built before may need one."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1), nn.Flatten(0)).eval()
    model.register_buffer("expanded", torch.ones(1).expand(4))
    batches = [(torch.randn(8, 3), torch.arange(8) % 2) for _ in range(2)]
    before = model(batches[0][0]).mean()
    tl.full_batch_backward(model, batches, tl.DirectLoss("average_precision"))
    before.backward()
