"""The default update of a task trains a fresh network, and every way to a direct loss takes it."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

import taskloss as tl
from taskloss.boosting import lightgbm_objective, xgboost_objective
from taskloss.training import build_mlp

EXPECTED = {"binary": "positive", "graded": "positive", "labels": "central", "class": "central"}
POINTS = ("precision_at_k", "recall_at_k", "recall_at_fpr", "precision_at_recall", "recall_at_precision")
OTHERS = {"zero_one": "negative", **dict.fromkeys(POINTS, "central")}


@pytest.mark.parametrize("name", tl.tasks.registered())
def test_modules_functions_and_repr_show_the_same_default(name):
    task = tl.tasks.registered()[name]()
    assert task.default_update == OTHERS.get(name, EXPECTED[task.target_kind])
    criterion = tl.DirectLoss(name)
    assert criterion.update == task.default_update
    assert f"update={task.default_update!r}" in repr(criterion)
    for function in (tl.DirectLoss, tl.functional.direct_loss, lightgbm_objective, xgboost_objective):
        assert inspect.signature(function).parameters["update"].default is None
    if task.target_kind != "class":
        assert lightgbm_objective(name).update == xgboost_objective(name).update == task.default_update


def test_the_function_computes_what_the_module_does():
    target = torch.arange(60) % 4 == 0
    for task in ("f_score", "average_precision"):
        gradients = []
        for loss in (tl.DirectLoss(task), lambda x, y, task=task: tl.functional.direct_loss(x, y, task)):
            scores = torch.linspace(-1, 1, 60).requires_grad_()
            loss(scores, target).backward()
            gradients.append(scores.grad)
        assert torch.equal(*gradients)


def make_images(count, generator):
    """Noise with a bright square, and its mask."""
    corner = torch.randint(4, 20, (2, count, 1, 1), generator=generator)
    grid = torch.arange(28)
    mask = ((grid[:, None] - corner[0]).clamp(0, 6) == grid[:, None] - corner[0]) & (
        (grid - corner[1]).clamp(0, 6) == grid - corner[1]
    )
    return mask + torch.randn(mask.shape, generator=generator), mask


@pytest.mark.parametrize("task", ["jaccard", "dice"])
def test_a_segmentation_network_learns_from_scratch(task):
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 1)]
    net = nn.Sequential(nn.Unflatten(1, (1, 28)), *layers, nn.Flatten(1, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    criterion = tl.DirectLoss(task)
    without_gradient = 0
    for _ in range(60):
        images, mask = make_images(8, generator)
        optimizer.zero_grad()
        criterion(net(images), mask).backward()
        without_gradient += not any(parameter.grad.any() for parameter in net.parameters())
        optimizer.step()
    assert without_gradient == 0
    images, mask = make_images(50, generator)
    with torch.no_grad():
        assert tl.tasks.registered()[task]().score(net(images), mask) > 0.5


LABELS = [name for name, task in tl.tasks.registered().items() if task.target_kind == "labels"]


# With 20% of noise, the error rate is hardly lower than that of calling everything negative.
@pytest.mark.parametrize(
    ("name", "noise"), [(name, noise) for name in LABELS for noise in (0.0, 0.2) if (name, noise) != ("zero_one", 0.2)]
)
def test_a_table_of_rare_positives_is_learned_from_scratch(name, noise):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3000, 5, generator=generator)
    target = (x[:, 0] + x[:, 1] > 1.8).long()  # 10%
    swapped = target.clone()
    for label in (0, 1):  # as many of either class
        rows = torch.nonzero(target == label).flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)[: int(noise * target.sum())]]
        swapped[rows] = 1 - label
    net, criterion = build_mlp(5, hidden=(32,), seed=0), tl.DirectLoss(name)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(300):
        rows = torch.randint(2000, (256,), generator=generator)
        optimizer.zero_grad()
        criterion(net(x[rows]), swapped[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        predicted = net(x[2000:]) > 0
    truth = target[2000:] == 1
    assert (predicted & truth).sum() > 0.5 * truth.sum()
    assert (predicted & ~truth).sum() < 0.15 * (~truth).sum()
