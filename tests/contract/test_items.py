"""Tasks with several scores a sample: every sample is an item of its own, with a value and a weight."""

from __future__ import annotations

import pytest
import torch

from tests.contract.cases import every_item_task, every_loss, example, value_and_gradient

pytestmark = [every_item_task, every_loss]


def test_samples_are_separate_items(task, make_loss):
    scores, target = example(task, (12,), seed=7)
    pairs = [value_and_gradient(make_loss(task), scores[i : i + 1], target[i : i + 1]) for i in range(12)]
    values, gradients = torch.stack([value for value, _ in pairs]), torch.cat([gradient for _, gradient in pairs])
    together, gradient = value_and_gradient(make_loss(task, reduction="none"), scores, target)
    assert together.shape == (12,)
    torch.testing.assert_close(together, values)
    torch.testing.assert_close(gradient, gradients)
    mean, mean_gradient = value_and_gradient(make_loss(task), scores, target)
    torch.testing.assert_close(mean, values.mean())
    torch.testing.assert_close(mean_gradient, gradients / 12)
    total, total_gradient = value_and_gradient(make_loss(task, reduction="sum"), scores, target)
    torch.testing.assert_close(total, values.sum())
    torch.testing.assert_close(total_gradient, gradients)


def test_weights_make_a_weighted_mean(task, make_loss):
    scores, target = example(task, (4,), seed=8)
    weight = torch.tensor([2.0, 0.0, 1.0, 0.5])
    each = weight.double().reshape(-1, *[1] * (scores.ndim - 1))
    values, gradient = value_and_gradient(make_loss(task, reduction="none"), scores, target)
    mean, mean_gradient = value_and_gradient(make_loss(task), scores, target, weight=weight)
    torch.testing.assert_close(mean, (values * weight).sum() / 3.5)
    torch.testing.assert_close(mean_gradient, gradient * each / 3.5)
    weighted, weighted_gradient = value_and_gradient(make_loss(task, reduction="none"), scores, target, weight=weight)
    torch.testing.assert_close(weighted, values * weight)
    torch.testing.assert_close(weighted_gradient, gradient * each)
    nothing, no_gradient = value_and_gradient(make_loss(task), scores, target, weight=torch.zeros(4))
    assert nothing == 0
    assert (no_gradient == 0).all()
    for wrong in (torch.ones(3), torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"weight has shape .*; expected one weight per \w+, shape \(4,\)"):
            make_loss(task)(scores, target, weight=wrong)
    with pytest.raises(ValueError, match="not negative"):
        make_loss(task)(scores, target, weight=-weight)
    with pytest.raises(ValueError, match="detach"):
        make_loss(task)(scores, target, weight=weight.clone().requires_grad_())


def test_options_of_rankings_are_refused(task, make_loss):
    scores, target = example(task)
    with pytest.raises(ValueError, match="has no use for dim="):
        make_loss(task, dim=1)(scores, target)
