"""Forms of batches and of what a model returns."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import taskloss as tl
from tests.full_batch.cases import AP, Pair, Sample, assert_same, build, gradients, plain, reference, samples, split


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = plain()

    def forward(self, image: torch.Tensor, shift: torch.Tensor | float = 0.0) -> torch.Tensor:
        return self.net(image + shift)


FORMS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "tuple": (lambda x, s, y: (x + s, y), {}),
    "list of inputs": (lambda x, s, y: [[x, s], y], {}),
    "dict of inputs": (lambda x, s, y: ({"image": x, "shift": s}, y), {}),
    "named tuple": (lambda x, s, y: Pair(x + s, y), {}),
    "named tuple by name": (lambda x, s, y: Pair(y, x + s), {"inputs": "label", "target": "image"}),
    "dict": (lambda x, s, y: {"image": x + s, "label": y, "name": "n"}, {"inputs": "image", "target": "label"}),
    "several keys": (lambda x, s, y: {"image": x, "shift": s, "label": y}, {"inputs": ["image", "shift"], "target": "label"}),
    "several indices": (lambda x, s, y: (x, s, y), {"inputs": (0, 1), "target": 2}),
    "dataclass": (lambda x, s, y: Sample(x + s, y), {"inputs": "image", "target": "label"}),
    "functions": (lambda x, s, y: Sample(x, y), {"inputs": lambda b: (b.image, 0.5), "target": lambda b: b.label}),
    "arrays as targets": (lambda x, s, y: (x + s, y.numpy()), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_batches(form):
    make, fields = FORMS[form]
    features, target = samples()
    expected = build(TwoInputs)
    ours = copy.deepcopy(expected)
    AP(expected(features, 0.5), target).backward()
    batches = [make(x, torch.full((len(x), 1), 0.5), y) for x, y in split(4, features, target)]
    tl.full_batch_backward(ours, batches, AP, **fields)
    assert_same(ours, expected)


def test_packed_sequence_is_one_argument():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.GRU(3, 1, batch_first=True)

        def forward(self, sequence: nn.utils.rnn.PackedSequence) -> torch.Tensor:
            return self.net(sequence)[1].flatten()

    x = torch.randn(8, 4, 3)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 3, 2, 1, 4, 3, 2, 1]), batch_first=True, enforce_sorted=False)
    model = Recurrent()
    tl.full_batch_backward(model, [(packed, torch.arange(8) % 2)] * 3, AP)
    assert gradients(model).norm() > 0


@pytest.mark.parametrize(
    ("wrap", "scores"),
    [
        (lambda out: {"logits": out, "hidden": out}, "logits"),
        (lambda out: Sample(out, out), "label"),
        (lambda out: (out, None), 0),
        (lambda out: out[:, None], lambda output: output[:, 0]),
    ],
)
def test_models_that_return_more_than_scores(wrap, scores):
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: torch.Tensor) -> Any:
            return wrap(self.net(x))

    batches = split(4, *samples())
    ours, expected = build(Wrapped), build(plain)
    reference(expected, batches)
    tl.full_batch_backward(ours, batches, AP, scores=scores)
    assert_same(ours, expected)
