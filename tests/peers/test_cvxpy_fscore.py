"""The F-score program through cvxpylayers against the closed form."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import taskloss as tl
from taskloss.peers import CvxpyFScoreLoss

NEEDED = {"SCS": ("cvxpylayers",), "MOREAU": ("cvxpylayers", "moreau")}


def make(solver: str, **options) -> CvxpyFScoreLoss:
    for package in NEEDED[solver]:
        pytest.importorskip(package, exc_type=ImportError)
    return CvxpyFScoreLoss(solver=solver, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("solver", ["SCS", "MOREAU"])
def test_value_and_gradient_are_those_of_the_closed_form(solver):
    loss = make(solver, beta=2.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        scores = torch.randn(12, generator=generator, requires_grad=True)
        target = (torch.rand(12, generator=generator) < 0.4).long()
        expected = tl.lp.FScoreLoss(2.0, margin=0.0)(scores, target)
        value = loss(scores, target)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected, atol=1e-4, rtol=0)
        (gradient,) = torch.autograd.grad(3.0 * value, scores)
        (exact,) = torch.autograd.grad(3.0 * expected, scores)
        torch.testing.assert_close(gradient, exact, atol=1e-3, rtol=1e-3)
    assert list(loss._layers) == [12]


@pytest.mark.filterwarnings("ignore")
def test_by_hand_and_without_positives():
    # phi = (0.6, -0.6, 0.6): the positives get 1 and 0.4, the negative 0.6, so F = 2.8 / (2 + 2).
    loss = make("SCS")
    scores = torch.tensor([0.6, -0.6, 0.6]).atanh().requires_grad_()
    assert loss(scores, torch.tensor([1, 1, 0])).item() == pytest.approx(0.3, abs=1e-4)
    value = loss(scores, torch.zeros(3))
    value.backward()
    assert value.item() == 0.0
    assert scores.grad.tolist() == [0.0] * 3


def test_bad_input():
    with pytest.raises(ValueError, match="solver='ECOS' is not known"):
        CvxpyFScoreLoss(solver="ECOS")
    with pytest.raises(ValueError, match="one score per sample"):
        make("SCS")(torch.randn(3, 2), torch.zeros(3, 2))


@pytest.mark.skipif(importlib.util.find_spec("cvxpylayers") is not None, reason="cvxpylayers is installed")
def test_the_packages_are_asked_for():
    with pytest.raises(ImportError, match=r"pip install 'taskloss\[peers\]'"):
        CvxpyFScoreLoss()
