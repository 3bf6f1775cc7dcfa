"""Labelings of one class, settings, and what the losses do there."""

from __future__ import annotations

import pytest
import torch

import taskloss as tl

WITHOUT_POSITIVES = [tl.FScore(), tl.Dice(), tl.Jaccard(), tl.MCC(), tl.GMean(), tl.BalancedError(), tl.ZeroOne()]
LOSSES = {
    "direct negative": lambda task: tl.DirectLoss(task, update="negative"),
    "hinge": tl.StructuredHingeLoss,
    "perceptron": tl.PerceptronLoss,
}


@pytest.mark.parametrize("task", WITHOUT_POSITIVES, ids=str)
@pytest.mark.parametrize("make_loss", LOSSES.values(), ids=LOSSES)
def test_false_positives_on_an_image_without_the_class_are_pushed_down(task, make_loss):
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn((1, 32, 32), generator=generator) / 5).requires_grad_()  # all within epsilon
    make_loss(task)(scores, torch.zeros(1, 32, 32, dtype=torch.long)).backward()
    assert (scores.grad[scores > 0] > 0).all()
    assert (scores.grad >= 0).all()


@pytest.mark.parametrize("task", WITHOUT_POSITIVES[:3], ids=str)
def test_a_missing_class_weighs_no_more_than_one_that_is_there(task):
    """The gradient of an image sums to the same order of size, whether it has the class or not."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn((2, 64, 64), generator=generator, requires_grad=True)
    target = torch.zeros(2, 64, 64, dtype=torch.long)
    target[0, :32] = 1
    tl.StructuredHingeLoss(task)(scores, target).backward()
    there, missing = scores.grad.abs().flatten(1).sum(1).tolist()
    assert 0.1 < missing / there < 10


@pytest.mark.parametrize("task", WITHOUT_POSITIVES[:3], ids=str)
def test_values_without_positives(task):
    target = torch.zeros(4)
    assert tl.DirectLoss(task)(-torch.ones(4), target) == 0
    assert tl.DirectLoss(task)(torch.zeros(4), target) == 0
    assert tl.DirectLoss(task)(torch.tensor([-1.0, 1.0, -1.0, -1.0]), target) == 1
    harsh = type(task)(zero_division=0.0)
    assert tl.DirectLoss(harsh)(-torch.ones(4), target) == 1


@pytest.mark.parametrize("update", ["positive", "negative", "central"])
@pytest.mark.parametrize("task", WITHOUT_POSITIVES, ids=str)
def test_scores_of_zero_give_a_useful_gradient(task, update):
    """A fresh network with constant scores: positives are pushed up, negatives not up."""
    target = torch.tensor([0, 1, 0, 0, 1])
    scores = torch.zeros(5, requires_grad=True)
    tl.DirectLoss(task, update=update)(scores, target).backward()
    assert (scores.grad[target == 1] < 0).all()
    assert (scores.grad[target == 0] >= 0).all()


def test_a_positive_update_has_nothing_to_step_away_from_at_the_worst_answer():
    scores = torch.tensor([-0.8, -0.5, 0.3, -2.0], requires_grad=True)
    target = torch.tensor([1, 1, 0, 0])
    tl.DirectLoss(tl.Jaccard(), update="positive")(scores, target).backward()
    assert (scores.grad == 0).all()
    tl.DirectLoss(tl.Jaccard(), update="negative")(scores, target).backward()
    assert (scores.grad[:2] < 0).all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tl.FScore(beta=0.0), ValueError, "beta must be finite and above zero"),
        (lambda: tl.FScore(beta="1"), TypeError, "beta must be a number"),
        (lambda: tl.Jaccard(zero_division=-0.1), ValueError, "zero_division must be between 0 and 1"),
        (lambda: tl.MCC(zero_division=float("nan")), ValueError, "zero_division must be between 0 and 1"),
        (lambda: tl.GMean(zero_division=None), TypeError, "zero_division must be a number"),
        (lambda: tl.ConfusionMetric("f1"), TypeError, r"fn must be a function of \(tp, fp, fn, tn\), got str"),
        (lambda: tl.ConfusionMetric(max, weighting="P"), ValueError, "weighting='P' is not known"),
        (lambda: tl.Dice(beta=2.0), TypeError, "beta"),
    ],
)
def test_settings_that_make_no_sense(make, error, message):
    with pytest.raises(error, match=message):
        make()
