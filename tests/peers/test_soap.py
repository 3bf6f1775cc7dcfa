"""SOAP: the surrogate of average precision, its moving averages, and learning with small batches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from taskloss.metrics import average_precision_score
from taskloss.peers import SOAPLoss


def surrogate(scores: torch.Tensor, target: torch.Tensor, margin: float) -> torch.Tensor:
    """Return one minus the mean ratio of the batch."""
    ratios = []
    for i in range(len(scores)):
        if target[i] == 1:
            terms = [(margin - (scores[i] - s)).clamp_min(0.0) ** 2 for s in scores]
            ratios.append(sum(t for t, y in zip(terms, target, strict=True) if y == 1) / sum(terms))
    return 1.0 - sum(ratios) / len(ratios)


def example() -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.randn(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return scores.requires_grad_(), torch.tensor([1, 0, 0, 1, 0, 1, 0, 0])


@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_the_first_batch_has_the_value_and_the_gradient_of_the_surrogate(gamma):
    scores, target = example()
    expected = surrogate(scores, target, 0.7)
    value = SOAPLoss(8, gamma=gamma, margin=0.7)(scores, target, index=torch.arange(8))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value * 3, scores)[0], 3 * torch.autograd.grad(expected, scores)[0])


def test_two_batches_by_hand():
    loss = SOAPLoss(10, gamma=0.5)
    # The positive 7 with itself: 1; with a negative 1 above it: 4. Means of the batch: 1/2 and 5/2.
    first = loss(torch.tensor([0.0, 1.0], requires_grad=True), torch.tensor([1, 0]), index=torch.tensor([7, 2]))
    assert first.item() == pytest.approx(1 - 1 / 5)
    assert loss.averages[:, 7].tolist() == [0.5, 2.5]
    assert loss.averages[:, 2].tolist() == [0.0, 0.0]
    # Then with itself and a negative at its own score: 1/2 and 1. The averages become 1/2 and 7/4, their ratio 2/7.
    scores = torch.tensor([0.0, 0.0], requires_grad=True)
    second = loss(scores, torch.tensor([1, 0]), index=torch.tensor([7, 3]))
    second.backward()
    assert second.item() == pytest.approx(1 - 2 / 7)
    # u+ / u^2 = (1/2) / (49/16) = 8/49, times the slope of the mean of (1 - (s_i - s_j))^2 over two samples: -+1.
    assert scores.grad.tolist() == pytest.approx([-8 / 49, 8 / 49])


def test_averages_change_in_training_only():
    loss, (scores, target) = SOAPLoss(8), example()
    with torch.no_grad():
        loss(scores, target, index=torch.arange(8))
    loss.eval()(scores, target, index=torch.arange(8))
    assert not loss.averages.any()
    loss.train()(scores, target, index=torch.arange(8))
    assert (loss.averages[1] > 0).tolist() == (target == 1).tolist()


def test_learns_from_small_batches():
    generator = torch.Generator().manual_seed(0)
    target = (torch.arange(200) % 10 == 0).long()
    features = torch.randn(200, 2, generator=generator) + 3.0 * target[:, None]
    torch.manual_seed(0)
    model, loss = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)), SOAPLoss(200)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for number in range(150):
        index = torch.arange(number, number + 20) * 3 % 200
        optimizer.zero_grad()
        loss(model(features[index]), target[index], index=index).backward()
        optimizer.step()
    best = average_precision_score(features.sum(1), target)
    assert average_precision_score(model(features).detach(), target) > best - 0.03 > 0.8


def test_no_positives_and_types():
    scores = torch.zeros(3, dtype=torch.float16, requires_grad=True)
    value = SOAPLoss(3)(scores, torch.zeros(3), index=torch.arange(3))
    value.backward()
    assert (value.item(), value.dtype, scores.grad.dtype) == (0.0, torch.float32, torch.float16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "index must be an integer tensor"),
        ({"index": torch.arange(2)}, "index must be an integer tensor"),
        ({"index": torch.arange(3.0)}, "index must be an integer tensor"),
        ({"index": torch.arange(3) + 1}, "index goes from 1 to 3"),
    ],
)
def test_bad_index(options, message):
    with pytest.raises(ValueError, match=message):
        SOAPLoss(3)(torch.randn(3), torch.tensor([1, 0, 1]), **options)


def test_bad_settings():
    with pytest.raises(ValueError, match="num_samples"):
        SOAPLoss(0)
    with pytest.raises(ValueError, match="gamma must be at most 1"):
        SOAPLoss(3, gamma=1.5)
