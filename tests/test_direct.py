"""Direct gradients are what the theory says they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import taskloss as tl
from tests.oracles.table import textbook_table


def best_value(scores: np.ndarray, labels: np.ndarray, weight: float) -> float:
    """``max_y F(y) + weight * L(y)``, by the textbook table."""
    s, t = np.sort(scores[labels])[::-1].copy(), np.sort(scores[~labels])[::-1].copy()
    value, _ = textbook_table(s, t, weight)
    # The table starts from no pair decided; it leaves out the constant weight * 1 of L = 1 - AP.
    return value + weight


@pytest.mark.parametrize("update", ["positive", "negative"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
def test_direct_gradient_is_the_finite_difference_of_the_best_values(update, epsilon):
    rng = np.random.default_rng(11)
    weight = epsilon if update == "positive" else -epsilon
    for _ in range(5):
        labels = rng.permutation(np.arange(40) < 12)
        scores = rng.standard_normal(40) + 0.5 * labels
        tensor = torch.tensor(scores, requires_grad=True)
        tl.functional.direct_loss(tensor, torch.tensor(labels), "average_precision", epsilon=epsilon, update=update).backward()

        def surrogate(x, labels=labels):
            return (best_value(x, labels, weight) - best_value(x, labels, 0.0)) / weight

        step = 1e-6
        numeric = [(surrogate(scores + step * e) - surrogate(scores - step * e)) / (2 * step) for e in np.eye(40)]
        np.testing.assert_allclose(tensor.grad.numpy(), numeric, atol=1e-8 / min(epsilon, 1.0))


class SmoothModel(torch.nn.Module):
    """Scores that depend smoothly, not linearly, on three parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor([0.6, -0.4, 0.3], dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.theta[0] * x[..., 0] + self.theta[1] * x[..., 1]) + self.theta[2] * x[..., 1]


@pytest.mark.parametrize("update", ["positive", "negative", "central"])
def test_the_general_loss_gradient_theorem(update):
    """As epsilon falls, the mean direct gradient approaches the gradient of the expected task loss (Song et al. 2016)."""
    batches, samples, step = 2**19, 3, 0.02
    target = (torch.arange(samples) < 1).expand(batches, samples)
    # Scrambled Sobol points: the sampling error of discontinuous losses falls fast enough for a sharp test.
    uniform = torch.quasirandom.SobolEngine(2 * samples, scramble=True, seed=0).draw(batches, dtype=torch.float64)
    x = torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12)).reshape(batches, samples, 2)
    x[:, 0] += 0.5
    model = SmoothModel()
    criterion = tl.DirectLoss("average_precision", update=update, dim=1, reduction="none")

    numeric = np.empty(3)
    with torch.no_grad():
        for k in range(3):
            losses = []
            for sign in (1, -1):
                model.theta[k] += sign * step
                losses.append(criterion(model(x), target).mean())
                model.theta[k] -= sign * step
            numeric[k] = (losses[0] - losses[1]) / (2 * step)

    worst = []
    for criterion.epsilon in (0.4, 0.1, 0.025):
        model.zero_grad()
        criterion(model(x), target).mean().backward()
        worst.append(np.abs(model.theta.grad.numpy() - numeric).max())
    if update == "central":
        # Its error is of second order in epsilon: the largest epsilon is as good as the smallest of the others.
        assert max(worst) < 0.03 * np.abs(numeric).max()
    else:
        assert worst[0] > 2 * worst[1] > 4 * worst[2]
        assert worst[2] < 0.03 * np.abs(numeric).max()


def test_constant_scores_give_a_useful_gradient_whatever_the_order():
    target = torch.tensor([0, 1, 0, 0, 1])
    scores = torch.full((5,), 0.7, requires_grad=True)
    loss = tl.DirectLoss("average_precision", epsilon=2.0)(scores, target)
    loss.backward()
    assert loss.item() == pytest.approx(1 - 2 / 5)
    expected = torch.where(target == 1, -1 / (2 * 2.0), 1 / (3 * 2.0))
    torch.testing.assert_close(scores.grad, expected)


def test_settings_can_be_overridden_in_the_call():
    scores, target = torch.randn(4, 6), torch.arange(24).reshape(4, 6) % 3 == 0
    by_row = tl.DirectLoss("average_precision", dim=1, reduction="none")
    assert by_row(scores, target).shape == (4,)
    assert by_row(scores, target, dim=0).shape == (6,)
    assert by_row(scores, target, reduction="mean").shape == ()


def test_epsilon_may_follow_a_schedule():
    scores, target = torch.randn(50), torch.arange(50) % 4 == 0
    criterion = tl.DirectLoss("average_precision", epsilon=1.0)
    criterion.epsilon = 0.1
    fresh = tl.DirectLoss("average_precision", epsilon=0.1)
    gradients = [torch.func.grad(lambda x, c=c: c(x, target))(scores) for c in (criterion, fresh)]
    assert torch.equal(*gradients)
    criterion.epsilon = 0.0
    with pytest.raises(ValueError, match="epsilon must be finite and above zero, got 0.0"):
        criterion(scores, target)


def test_half_precision_gradient_survives_a_million_scores():
    """Multiplied by grad_output before the cast: a scaled float16 gradient keeps entries that a cast would flush to zero."""
    n = 1_000_000
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(n, generator=generator) < 0.2
    scores = (torch.randn(n, generator=generator) + target).half().requires_grad_()
    loss = tl.DirectLoss("average_precision")(scores, target)
    assert loss.dtype == torch.float32
    (loss * 2.0**16).backward()
    exact = scores.detach().float().requires_grad_()
    tl.DirectLoss("average_precision")(exact, target).backward()
    lost = ((scores.grad == 0) & (exact.grad != 0)).float().mean().item()
    flushed_early = ((exact.grad.half() == 0) & (exact.grad != 0)).float().mean().item()
    assert lost < 0.001 < 0.05 < flushed_early
