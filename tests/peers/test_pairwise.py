"""The pairwise squared hinge against the quadratic formula."""

from __future__ import annotations

import pytest
import torch

from taskloss.metrics import roc_auc_score
from taskloss.peers import PairwiseSquaredHingeLoss


def all_pairs(scores: torch.Tensor, target: torch.Tensor, margin: float) -> torch.Tensor:
    gaps = scores[target == 1][:, None] - scores[target == 0]
    return (margin - gaps).clamp_min(0.0).square().mean()


def example(n: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    target = (torch.rand(n, generator=generator) < 0.3).long()
    target[:2] = torch.tensor([0, 1])
    scores = torch.randn(n, generator=generator, dtype=torch.float64) + target
    if kind == "ties":
        scores = (scores * 2).round() / 2
    if kind == "offset":
        # Multiples of a power of two: the offset changes no gap, so the formula itself loses nothing.
        scores = (scores * 2**10).round() / 2**10 + 2.0**30
    if kind == "wide":
        scores = scores * 10.0 ** torch.randint(-6, 7, (n,), generator=generator)
    return scores, target


@pytest.mark.parametrize("kind", ["plain", "ties", "offset", "wide"])
@pytest.mark.parametrize("n", [2, 3, 17, 200])
@pytest.mark.parametrize("margin", [0.5, 3.0])
def test_value_and_gradient_are_those_of_all_pairs(n, kind, margin):
    scores, target = example(n, kind)
    scores.requires_grad_()
    expected = all_pairs(scores, target, margin)
    (gradient,) = torch.autograd.grad(expected, scores)
    value = PairwiseSquaredHingeLoss(margin)(scores, target)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    (ours,) = torch.autograd.grad(value, scores)
    torch.testing.assert_close(ours, gradient, rtol=1e-11, atol=1e-13 * gradient.abs().max().item())


def test_by_hand():
    # Gaps 0.5 and -1.5 of the only positive: (0.5^2 + 2.5^2) / 2 = 3.25; slopes -(0.5 + 2.5), 0.5, 2.5.
    scores = torch.tensor([0.5, 0.0, 2.0], requires_grad=True)
    value = PairwiseSquaredHingeLoss()(scores, torch.tensor([1, 0, 0]))
    (2.0 * value).backward()
    assert value.item() == 3.25
    assert scores.grad.tolist() == [-6.0, 1.0, 5.0]


def test_an_upper_bound_of_one_minus_auc():
    scores, target = example(60, "plain")
    loss = PairwiseSquaredHingeLoss(0.2)(scores, target).item() / 0.04
    assert loss >= 1.0 - float(roc_auc_score(scores, target))


def test_one_class_only():
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    value = PairwiseSquaredHingeLoss()(scores, torch.tensor([1, 1]))
    value.backward()
    assert value.item() == 0.0
    assert scores.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types(dtype):
    scores, target = example(40, "ties")
    low = scores.to(dtype).requires_grad_()
    value = PairwiseSquaredHingeLoss()(low, target)
    assert value.dtype == torch.float32
    value.backward()
    assert low.grad.dtype == dtype
    torch.testing.assert_close(value.item(), all_pairs(scores, target, 1.0).item(), rtol=1e-6, atol=0)


def test_bad_input():
    with pytest.raises(ValueError, match="margin"):
        PairwiseSquaredHingeLoss(0.0)
    with pytest.raises(ValueError, match="one score per sample"):
        PairwiseSquaredHingeLoss()(torch.randn(3, 2), torch.zeros(3, 2))
    scores = torch.randn(4, requires_grad=True)
    value = PairwiseSquaredHingeLoss()(scores, torch.tensor([1, 0, 1, 0]))
    (gradient,) = torch.autograd.grad(value, scores, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.sum().backward()
