"""Every task with every loss, and the metrics as linear programs, on another device."""

from __future__ import annotations

import pytest
import torch

import taskloss as tl
from tests.another_device.device import NAME
from tests.contract.cases import every_loss, every_task, example, value_and_gradient


@every_task
@every_loss
def test_the_same_as_on_the_cpu(task, make_loss):
    scores, target = example(task)
    check(make_loss(task), scores, target)


def check(loss, scores, target):
    expected, expected_gradient = value_and_gradient(loss, scores, target)
    value, gradient = value_and_gradient(loss, scores.to(NAME), target.to(NAME))
    assert value.device.type == gradient.device.type == NAME
    torch.testing.assert_close(value.cpu(), expected)
    torch.testing.assert_close(gradient.cpu(), expected_gradient)


@pytest.mark.parametrize("solver", ["exact", "lp"])
@pytest.mark.parametrize(
    "make_loss",
    [
        tl.lp.AUCLoss,
        tl.lp.FScoreLoss,
        tl.lp.JaccardLoss,
        lambda solver: tl.lp.PrecisionAtRecallLoss(0.5, solver=solver),
        lambda solver: tl.lp.RecallAtPrecisionLoss(0.5, solver=solver),
    ],
    ids=["auc", "fscore", "jaccard", "precision at recall", "recall at precision"],
)
def test_metrics_as_linear_programs(make_loss, solver):
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(30, generator=generator) < 0.3
    check(make_loss(solver=solver), torch.randn(30, generator=generator) + target.float(), target)


@pytest.mark.parametrize("solver", ["exact", "lp"])
def test_several_classes(solver):
    scores = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    check(tl.lp.MultiClassAUCLoss(solver=solver), scores, torch.arange(30) % 3)


def test_factorization():
    V = torch.rand(8, 5, generator=torch.Generator().manual_seed(0))
    factors = tl.lp.nmf(V.to(NAME), 2)
    assert factors.W.device.type == NAME
    torch.testing.assert_close(factors.F.cpu(), tl.lp.nmf(V, 2).F)
