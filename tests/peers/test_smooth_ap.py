"""Smooth-AP: its definition in loops, a case by hand, and its limit, average precision."""

from __future__ import annotations

import math

import pytest
import torch

from taskloss.metrics import average_precision_score
from taskloss.peers import SmoothAPLoss


def by_definition(scores: list[float], target: list[int], temperature: float) -> float:
    def above(j: int, i: int) -> float:
        return 1.0 / (1.0 + math.exp(-(scores[j] - scores[i]) / temperature))

    positives = [i for i, label in enumerate(target) if label]
    total = 0.0
    for i in positives:
        rank_among_positives = 1.0 + sum(above(j, i) for j in positives if j != i)
        rank = 1.0 + sum(above(j, i) for j in range(len(scores)) if j != i)
        total += rank_among_positives / rank
    return 1.0 - total / len(positives)


def example(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(9, generator=generator, dtype=torch.float64), torch.tensor([1, 0, 0, 1, 0, 1, 0, 0, 0])


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_definition_and_finite_differences(temperature):
    scores, target = example(0)
    loss = SmoothAPLoss(temperature)
    assert loss(scores, target).item() == pytest.approx(by_definition(scores.tolist(), target.tolist(), temperature), abs=1e-14)
    assert torch.autograd.gradcheck(lambda s: 5.0 * loss(s, target), scores.requires_grad_())


def test_by_hand():
    # One positive and one negative, ln 3 above it: the sigmoid is 3/4, so the precision is 1 / (1 + 3/4) = 4/7.
    value = SmoothAPLoss(1.0)(torch.tensor([0.0, math.log(3.0)]), torch.tensor([1, 0]))
    assert value.item() == pytest.approx(3 / 7)


@pytest.mark.parametrize("seed", range(3))
def test_the_limit_is_average_precision(seed):
    scores, target = example(seed)
    assert SmoothAPLoss(1e-4)(scores, target).item() == pytest.approx(1.0 - float(average_precision_score(scores, target)))


def test_no_positives_and_types():
    scores = torch.zeros(3, dtype=torch.bfloat16, requires_grad=True)
    value = SmoothAPLoss()(scores, torch.zeros(3))
    value.backward()
    assert (value.item(), value.dtype, scores.grad.dtype) == (0.0, torch.float32, torch.bfloat16)
    assert scores.grad.tolist() == [0.0] * 3
    with pytest.raises(ValueError, match="temperature"):
        SmoothAPLoss(0.0)
