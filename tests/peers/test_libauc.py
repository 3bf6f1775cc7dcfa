"""LibAUC where it is installed: its margin loss, and its average precision loss as an oracle of SOAP."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch
from torch import nn

from taskloss.metrics import roc_auc_score
from taskloss.peers import LibAUCMarginLoss, SOAPLoss

has_libauc = importlib.util.find_spec("libauc") is not None
needs_libauc = pytest.mark.skipif(not has_libauc, reason="libauc is not installed")


@pytest.mark.skipif(has_libauc, reason="libauc is installed")
def test_the_package_is_asked_for():
    with pytest.raises(ImportError, match="pip install --no-deps libauc"):
        LibAUCMarginLoss()


@needs_libauc
def test_by_hand():
    # h = 3/4 and 1/2, p = 1/2, a = b = 0, alpha = 1: (9/16 + 1/4) / 4 + 2 (1/4 - 1/16) - 1/4 = 21/64
    loss = LibAUCMarginLoss()
    with torch.no_grad():
        loss.wrapped.alpha.fill_(1.0)
    scores = torch.tensor([math.log(3.0), 0.0], requires_grad=True)
    value = loss(scores, torch.tensor([1, 0]))
    assert value.shape == ()
    assert value.item() == pytest.approx(21 / 64)


@needs_libauc
def test_learns_to_rank():
    generator = torch.Generator().manual_seed(0)
    target = (torch.arange(200) % 5 == 0).long()
    features = torch.randn(200, 2, generator=generator) + 2.0 * target[:, None]
    torch.manual_seed(0)
    model, loss = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)), LibAUCMarginLoss()
    optimizer = loss.make_optimizer(model.parameters(), learning_rate=1.0)
    for _ in range(60):
        optimizer.zero_grad()
        loss(model(features), target).backward()
        optimizer.step()
    assert roc_auc_score(model(features).detach(), target) > roc_auc_score(features.sum(1), target) - 0.02


@needs_libauc
def test_the_gradients_of_soap_are_those_of_libauc():
    import libauc.losses

    ours, theirs = SOAPLoss(6, gamma=1.0, margin=0.8), libauc.losses.APLoss(data_len=6, gamma=1.0, margin=0.8)
    scores = torch.randn(6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    target, index = torch.tensor([1, 0, 0, 1, 0, 1]), torch.arange(6)
    (expected,) = torch.autograd.grad(theirs(scores, target, index), scores)
    torch.testing.assert_close(torch.autograd.grad(ours(scores, target, index=index), scores)[0], expected)
