"""Adversarial prediction of the F-score: the game over all labelings by HiGHS, cases by hand, and the published package."""

from __future__ import annotations

import importlib.util
import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from taskloss.peers import AdversarialFScoreLoss
from taskloss.peers.adversarial_game import solve_game

has_published = importlib.util.find_spec("ap_perf") is not None


def game_of_all_labelings(scores: np.ndarray, beta: float) -> float:
    """Return ``min_Q max_P E[F] - E[s'y]`` over distributions of the 2^n labelings."""
    labelings = np.array(list(itertools.product([0.0, 1.0], repeat=len(scores))))
    sizes, number = labelings.sum(1), len(labelings)
    denominator = beta**2 * sizes[None, :] + sizes[:, None]
    common = (1.0 + beta**2) * labelings @ labelings.T
    metric = np.divide(common, denominator, out=np.ones_like(common), where=denominator > 0.0)
    result = linprog(
        np.concatenate([[1.0], -labelings @ scores]),
        A_ub=np.hstack([-np.ones((number, 1)), metric]),
        b_ub=np.zeros(number),
        A_eq=np.concatenate([[0.0], np.ones(number)])[None],
        b_eq=[1.0],
        bounds=[(None, None)] + [(0.0, None)] * number,
        method="highs",
    )
    return float(result.fun)


def cases() -> list[tuple[np.ndarray, float]]:
    rng = np.random.default_rng(0)
    made = []
    for n, scale, beta in itertools.product([1, 2, 3, 4], [0.02, 0.2, 1.0], [0.5, 1.0, 2.0]):
        made.append((rng.normal(rng.normal() * scale, scale, n), beta))
    ties = [(np.zeros(4), 1.0), (np.array([0.3, 0.3, -0.1, -0.1]), 1.0), (np.array([100.0, -50.0, 0.05, 0.0]), 1.0)]
    # With this one the adversary's best strategy is not sorted by the scores.
    return [*made, *ties, (np.array([0.0914649, 0.08650332, 0.017204, -0.08263159]), 5.0)]


def test_the_value_is_that_of_the_game_over_all_labelings():
    for scores, beta in cases():
        game = solve_game(scores, beta, 1e-8)
        assert game.value == pytest.approx(game_of_all_labelings(scores, beta), abs=2e-8)
        assert game.gap <= 1e-6
        assert ((game.labels >= 0.0) & (game.labels <= 1.0)).all()


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_the_gradient_by_finite_differences_of_the_game_over_all_labelings(beta):
    scores = np.array([0.21, -0.13, 0.37, -0.02])
    target = np.array([1.0, 0.0, 0.0, 1.0])
    leaf = torch.from_numpy(scores).requires_grad_()
    value = AdversarialFScoreLoss(beta, tolerance=1e-9)(leaf, torch.from_numpy(target))
    (2.5 * value).backward()

    def exact(s: np.ndarray) -> float:
        return 1.0 - game_of_all_labelings(s, beta) - s @ target

    assert value.item() == pytest.approx(exact(scores), abs=1e-7)
    step = 1e-5 * np.eye(4)
    expected = [(exact(scores + d) - exact(scores - d)) / 2e-5 for d in step]
    np.testing.assert_allclose(leaf.grad.numpy(), 2.5 * np.array(expected), atol=1e-4)


@pytest.mark.parametrize("n", [2, 5, 24])
def test_zero_scores_by_hand(n):
    # The predictor chooses no label or all of them, the adversary none, with probability 2 / (n + 3), or a single one.
    game = solve_game(np.zeros(n), 1.0, 1e-9)
    assert game.value == pytest.approx(2.0 / (n + 3), abs=1e-7)
    np.testing.assert_allclose(game.labels, (n + 1) / (n + 3) / n, atol=1e-3)


def test_one_sample_by_hand():
    # The labels agree or not. The adversary sets his with probability 1/2 as long as |s| < 1, so the game is worth 1/2 - s/2.
    loss, target = AdversarialFScoreLoss(tolerance=1e-9), torch.tensor([1])
    for score in (-0.4, 0.0, 0.7):
        assert loss(torch.tensor([score]), target).item() == pytest.approx((1.0 - score) / 2, abs=1e-6)
    assert loss(torch.tensor([1.2]), target).item() == pytest.approx(0.0, abs=1e-6)
    assert loss(torch.tensor([-3.0]), target).item() == pytest.approx(3.0, abs=1e-6)


def test_large_batches_have_a_small_gap():
    rng = np.random.default_rng(1)
    for n, scale in ((24, 0.03), (48, 0.01)):
        game = solve_game(rng.normal(0.0, scale, n), 1.0, 1e-6)
        # Rounding errors can end the iterations somewhat above the tolerance.
        assert game.gap <= 1e-5


def test_learns_labels():
    generator = torch.Generator().manual_seed(0)
    target = (torch.arange(24) % 4 == 0).long()
    features = torch.randn(24, 2, generator=generator) + 3.0 * target[:, None]
    weights = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.02)
    loss = AdversarialFScoreLoss(tolerance=1e-4)
    for _ in range(15):
        optimizer.zero_grad()
        loss(features @ weights[:2] + weights[2], target).backward()
        optimizer.step()
    predicted = features @ weights[:2] + weights[2] > 0.0
    assert 2.0 * (predicted & (target == 1)).sum() / (predicted.sum() + target.sum()) > 0.9


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_types(dtype):
    scores = torch.tensor([0.25, -0.5, 0.125], dtype=dtype, requires_grad=True)
    value = AdversarialFScoreLoss()(scores, torch.tensor([1, 0, 1]))
    value.backward()
    assert (value.dtype, scores.grad.dtype) == (torch.float32, dtype)


def test_bad_input():
    with pytest.raises(ValueError, match="solver='admm' is not known"):
        AdversarialFScoreLoss(solver="admm")
    with pytest.raises(ValueError, match="one score per sample"):
        AdversarialFScoreLoss()(torch.randn(3, 2), torch.zeros(3, 2))


@pytest.mark.skipif(has_published, reason="ap_perf is installed")
def test_the_published_package_is_asked_for():
    with pytest.raises(ImportError, match="pip install ap_perf"):
        AdversarialFScoreLoss(solver="ap_perf")


@pytest.mark.skipif(not has_published, reason="ap_perf is not installed")
def test_the_published_package_comes_near_after_many_iterations():
    scores = torch.tensor(np.random.default_rng(0).normal(0.0, 0.05, 10), requires_grad=True)
    target = (torch.arange(10) % 3 == 0).long()
    gradients = []
    for loss in (AdversarialFScoreLoss(), AdversarialFScoreLoss(solver="ap_perf", admm_iterations=1000)):
        scores.grad = None
        (2.0 * loss(scores, target)).backward()
        gradients.append(scores.grad)
    torch.testing.assert_close(*gradients, atol=0.02, rtol=0)
