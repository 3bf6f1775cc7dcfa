"""The central update: the mean of the other two, for labelings with a joint score scaled at the prediction."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import taskloss as tl
from tests.contract.cases import TASKS, every_labeling_task, example, value_and_gradient

OTHERS = {name: task for name, task in TASKS.items() if task.target_kind != "labels"}


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("task", [pytest.param(task, id=name) for name, task in OTHERS.items()])
def test_it_is_the_mean_of_the_positive_and_the_negative_update(task, ties):
    scores, target = example(task, (20, 3), ties=ties)
    of = {
        update: value_and_gradient(tl.DirectLoss(task, epsilon=0.5, update=update), scores, target)
        for update in ("positive", "negative", "central")
    }
    assert of["central"][0] == of["positive"][0]
    torch.testing.assert_close(of["central"][1], (of["positive"][1] + of["negative"][1]) / 2)


def loss_of(task: tl.Task, labels: np.ndarray, answer: np.ndarray) -> float:
    return 1 - task.score(np.where(answer, 1.0, -1.0), labels)


def weights_by_hand(task: tl.Task, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The change of the loss when one sample flips, at most the fixed weight, which the perceptron's gradient shows."""
    leaf = torch.tensor(-np.where(labels, 1.0, -1.0), requires_grad=True)
    tl.PerceptronLoss(task)(leaf, torch.tensor(labels)).backward()
    fixed = leaf.grad.abs().numpy()
    answer = scores > 0
    if not answer[labels].any():
        answer = answer | (np.arange(len(labels)) == np.flatnonzero(labels)[0])
    weights = fixed.copy()
    for label in (True, False):
        # One positive more, or else one less; one false positive less, or else one more.
        wrong = np.flatnonzero((labels == label) & (answer != label))
        one = wrong[0] if len(wrong) else np.flatnonzero(labels == label)[0]
        changed = answer.copy()
        changed[one] = ~changed[one]
        change = abs(loss_of(task, labels, changed) - loss_of(task, labels, answer))
        if change > 0:
            weights[labels == label] = np.minimum(change, fixed[labels == label])
    return weights


@every_labeling_task
@pytest.mark.parametrize("shift", [-3.0, -0.3, 0.3, 3.0])
def test_labelings_by_enumeration(task, shift):
    rng = np.random.default_rng(5)
    epsilon = 0.7
    for _ in range(3):
        labels = rng.permutation(np.arange(7) < 3)
        scores = rng.standard_normal(7) + shift
        weights = weights_by_hand(task, scores, labels)
        answers = np.array(list(itertools.product((False, True), repeat=7)))
        losses = np.array([loss_of(task, labels, answer) for answer in answers])
        joint = answers @ (weights * scores)
        worse, better = (answers[np.argmax(joint + sign * epsilon * losses)] for sign in (1, -1))
        _, gradient = value_and_gradient(
            tl.DirectLoss(task, epsilon=epsilon, update="central"), torch.tensor(scores), torch.tensor(labels)
        )
        expected = weights * (worse.astype(float) - better.astype(float)) / (2 * epsilon)
        np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(
    "task", [tl.Jaccard(), tl.FScore(), tl.FScore(beta=2.0), tl.MCC(), tl.GMean(), tl.BalancedError()], ids=str
)
@pytest.mark.parametrize("offset", [-0.5, 0.5])
def test_a_network_that_starts_on_one_side_of_zero_has_a_gradient(task, offset):
    """One positive in twenty, all scores on one side of zero and some way from it: both classes are pulled apart."""
    target = torch.arange(2000) % 20 == 0
    scores = (offset + 0.01 * torch.randn(2000, generator=torch.Generator().manual_seed(0))).requires_grad_()
    tl.DirectLoss(task)(scores, target).backward()
    wrong = target if offset < 0 else ~target
    towards = -1 if offset < 0 else 1
    assert (scores.grad[wrong].sign() == towards).any()
    assert (scores.grad[target] <= 0).all()
    assert (scores.grad[~target] >= 0).all()
