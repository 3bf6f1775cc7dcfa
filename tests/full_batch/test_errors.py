"""Errors of wrong calls and of runs that differ leave no trace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import taskloss as tl
from tests.full_batch.cases import (
    AP,
    Pair,
    Sample,
    build,
    plain,
    samples,
    split,
    stateful,
)


def state_of(model: nn.Module) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in (*model.buffers(), *(p.grad for p in model.parameters()), torch.get_rng_state())]


def assert_raises_and_leaves_no_trace(
    error: type[BaseException], match: str | None, model: nn.Module, *args: Any, **options: Any
) -> None:
    """Gradients from before the call are there too, since a caller may be accumulating."""
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = state_of(model)
    with pytest.raises(error, match=match):
        tl.full_batch_backward(model, *args, **options)
    assert all(map(torch.equal, state_of(model), before))


@pytest.mark.parametrize("make", [iter, lambda batches: (batch for batch in batches), lambda batches: zip(batches)])
def test_iterator_is_refused_before_the_first_batch(make):
    batches = make(split(3, *samples()))
    with pytest.raises(TypeError, match="is an iterator, which can be walked only once; pass a DataLoader, a list"):
        tl.full_batch_backward(build(plain), batches, AP)
    assert len(list(batches)) == 3


class Walks:
    """What each walk over the loader gives."""

    def __init__(self, *walks: list[Any]) -> None:
        self.walks = iter(walks)

    def __iter__(self) -> Iterator[Any]:
        return iter(next(self.walks, []))


def test_loader_that_changes():
    batches = split(3, *samples())
    other_inputs = [(x.flip(0), y) for x, y in batches]
    raises = partial(assert_raises_and_leaves_no_trace, ValueError)
    raises("gave 3 batches, the second 0", build(stateful), Walks(batches), AP)
    raises("gave 3 batches, the second 2", build(stateful), Walks(batches, batches[:2]), AP)
    raises("gave 3 batches, the second more", build(stateful), Walks(batches, batches * 2), AP)
    raises("batch 0 has another target", build(stateful), Walks(batches, batches[::-1]), AP)
    raises("batch 0 has another target", build(stateful), Walks(batches, split(2, *samples())), AP)
    raises("batch 0 has other scores.*persistent_workers=False", build(stateful), Walks(batches, other_inputs), AP)
    groups = [(*batch, torch.arange(len(batch[1])) % 4) for batch in batches]
    other_groups = [(x, y, g.flip(0)) for x, y, g in groups]
    raises("batch 0 has another target or other groups", build(stateful), Walks(groups, other_groups), AP, groups=2)


def test_augmentation_that_draws_elsewhere():
    rng = np.random.default_rng(0)
    dataset = [(x * rng.random(), y) for x, y in zip(*samples(60), strict=True)]

    class Hidden(Dataset):
        def __len__(self) -> int:
            return len(dataset)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            return dataset[index][0] * rng.random(), dataset[index][1]

    with pytest.raises(ValueError, match="other scores in the second run than in the first: the largest difference is"):
        tl.full_batch_backward(build(plain), DataLoader(Hidden(), batch_size=16), AP)


def test_model_with_hidden_state():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.calls = plain(), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.net(x) + 0.01 * self.calls * x[:, 0]

    batches = split(3, *samples())
    match = "batch 0 has other scores.*Register other state of the model as a buffer"
    assert_raises_and_leaves_no_trace(ValueError, match, build(Counter), batches, AP)
    tl.full_batch_backward(build(Counter), batches, AP, tolerance=1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_no_difference(dtype):
    """Scores that differ by a few units in the last place, as with kernels that add in no fixed order."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.net(x)
            return scores * (1 + 4 * torch.finfo(dtype).eps * torch.is_grad_enabled())

    batches = split(3, *samples(dtype=dtype))
    tl.full_batch_backward(build(Noisy, dtype), batches, AP)
    if dtype == torch.float32:
        with pytest.raises(ValueError, match="other scores"):
            tl.full_batch_backward(build(Noisy), batches, AP, tolerance=1e-8)


def test_infinite_scores_of_padding_are_the_same_in_both_runs():
    x, target = samples(12)
    target[::3] = -1

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.net(x) * (1 + 1e-6 * torch.is_grad_enabled())
            return scores.masked_fill(torch.arange(len(x)) % 3 == 0, -torch.inf)

    tl.full_batch_backward(build(Masked), [(x, target)], AP, options={"ignore_index": -1})


def test_errors_within_the_passes_leave_no_trace():
    batches = split(3, *samples())
    model = build(stateful)
    broken = [*batches[:2], (torch.randn(5, 3), torch.zeros(5))]
    assert_raises_and_leaves_no_trace(RuntimeError, "shapes cannot be multiplied", model, broken, AP)
    infinite = [*batches[:2], (torch.full((5, 6), torch.inf), torch.zeros(5, dtype=torch.long))]
    assert_raises_and_leaves_no_trace(ValueError, "scores.*(inf|nan|finite)", model, infinite, AP)

    def stop(done: int, total: int | None) -> None:
        if done == 5:
            raise KeyboardInterrupt

    assert_raises_and_leaves_no_trace(KeyboardInterrupt, None, model, batches, AP, progress=stop)
    model.zero_grad()
    with pytest.raises(KeyboardInterrupt):
        tl.full_batch_backward(model, batches, AP, progress=stop)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_wrong_calls():
    batches, model = split(3, *samples()), build(plain)
    run = tl.full_batch_backward
    with pytest.raises(TypeError, match="model must be an nn.Module.*got function"):
        run(lambda x: x, batches, AP)
    with pytest.raises(TypeError, match="batches must be an iterable.*got int"):
        run(model, 3, AP)
    with pytest.raises(TypeError, match="criterion must be a function.*got str"):
        run(model, batches, "average_precision")
    with pytest.raises(ValueError, match="there are no batches"):
        run(model, [], AP)
    with torch.no_grad(), pytest.raises(RuntimeError, match="gradients are switched off"):
        run(model, batches, AP)
    with pytest.raises(ValueError, match="has no parameters that require a gradient"):
        run(nn.Flatten(0), batches, AP)
    with pytest.raises(ValueError, match="lazy layers that are not initialized"):
        run(nn.Sequential(nn.LazyLinear(1), nn.Flatten(0)), batches, AP)
    with pytest.raises(ValueError, match="tolerance must be finite and above zero"):
        run(model, batches, AP, tolerance=0.0)
    with pytest.raises(ValueError, match=r"must return one number as a tensor .*got a tensor of shape \(3,\)"):
        run(build(partial(plain, 3)), split(3, *samples(classes=3)), tl.DirectLoss("average_precision", reduction="none"))
    with pytest.raises(ValueError, match="the loss does not depend on the scores"):
        run(model, batches, lambda scores, target: scores.detach().mean())
    with pytest.raises(ValueError, match="scores do not depend on a parameter that requires a gradient"):
        run(model, batches, AP, scores=torch.Tensor.detach)


def test_wrong_forms_of_batches():
    x, y = samples(10)
    model = build(plain)

    def raises(match: str, batch: Any, **fields: Any) -> None:
        with pytest.raises(ValueError, match=match):
            tl.full_batch_backward(model, [batch], AP, **fields)

    raises(r"expected batches \(inputs, target\), got a tensor of shape \(10, 6\); name its parts", x)
    raises(r"got a dict with the keys 'x', 'y'; name its parts: inputs=", {"x": x, "y": y})
    raises(r"got a Sample with the fields image, label; name its parts", Sample(x, y))
    raises(r"got a tuple of 3: .*groups=2 for query ids", (x, y, y))
    raises(r"got a tuple of 1", (x,))
    raises(r"target='z' is not a part of a dict with the keys 'x', 'y'", {"x": x, "y": y}, inputs="x", target="z")
    raises(r"inputs='z' is not a part of a Pair with the fields image, label", Pair(x, y), inputs="z", target=1)
    raises(r"groups=5 is not a part of a tuple of 2", (x, y), groups=5)
    raises(r"target must be a tensor or an array .*got an object of type str", (x, "label"))
    raises(r"with the samples along its first axis .*got a tensor of shape \(\)", (x, torch.tensor(1)))
    raises(r"the scores of a batch must be floats with the samples along the first axis", (x, y), scores=torch.sum)
    raises(r"scores='logits' is not a part of a tensor", (x, y), scores="logits")

    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.net(x), "hidden": x}

    model = Several()
    raises("the model returned a dict with the keys 'logits', 'hidden'; say which part .* as in scores='logits'", (x, y))


def test_padding_does_not_hide_a_mismatch():
    """A score of -1e9 is no measure of a small difference."""

    class NotReplayed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.generator = nn.Linear(16, 8), torch.Generator().manual_seed(0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            keep = torch.rand(x.shape, generator=self.generator) > 0.5
            return self.layer(x * keep).masked_fill(x[:, :8] > 1.5, -1e9)

    batches = [(torch.randn(16, 16), (torch.rand(16, 8) < 0.3).long()) for _ in range(3)]
    with pytest.raises(ValueError, match="other scores in the second run"):
        tl.full_batch_backward(NotReplayed(), batches, tl.DirectLoss("average_precision"), options={"dim": 1})
