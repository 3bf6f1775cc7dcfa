"""Perturbed losses: against enumeration under the same noise, and against expectations in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss import decisions
from tests.oracles import decisions as papers
from tests.oracles import structures

SHAPE = (3, 4)
ANSWERS = structures.all_monotone_paths(SHAPE, True)
SOLVER = tl.solvers.MonotoneGridPath()
INSTANCES = 30


def random_batch(loss: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = ANSWERS[rng.integers(len(ANSWERS), size=INSTANCES)].reshape(INSTANCES, *SHAPE)
    return rng.standard_normal((INSTANCES, *SHAPE)), truth if loss == "hamming" else rng.random((INSTANCES, *SHAPE))


def evaluate(criterion: torch.nn.Module, scores: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    leaf = torch.tensor(scores, requires_grad=True)
    values = criterion(leaf, torch.tensor(target), reduction="none")
    values.sum().backward()
    return values.detach().numpy(), leaf.grad.numpy().reshape(len(scores), -1)


def gaussian(seed: int, draw: int, samples: int) -> np.ndarray:
    """The noise that a loss of this seed draws in call number ``draw``."""
    return np.random.default_rng((seed, draw)).standard_normal((samples, INSTANCES, *SHAPE)).reshape(samples, INSTANCES, -1)


@pytest.mark.parametrize("loss", ["hamming", "cost", "regret"])
def test_fenchel_young_equals_enumeration(loss):
    scores, target = random_batch(loss, 0)
    flat, entries = target.reshape(INSTANCES, -1), 12 if loss == "hamming" else 1
    truth = flat if loss == "hamming" else papers.cheapest(ANSWERS, flat)
    criterion = decisions.PerturbedFenchelYoungLoss(tl.Structured(SOLVER, loss=loss, batched=True), sigma=0.5, samples=4, seed=7)
    for draw in range(2):
        _, wanted, gradient = papers.fenchel_young(ANSWERS, scores.reshape(INSTANCES, -1), truth, 0.5 * gaussian(7, draw, 4))
        ours = evaluate(criterion, scores, target)
        np.testing.assert_allclose(ours[0], wanted / entries, rtol=0, atol=1e-12)
        np.testing.assert_allclose(ours[1], gradient / entries, rtol=0, atol=1e-12)
        assert (ours[0] >= 0).all()


def test_fenchel_young_estimates_the_loss_of_the_paper_and_becomes_the_perceptron():
    scores, target = random_batch("hamming", 1)
    task = tl.Structured(SOLVER, batched=True)
    values, _ = evaluate(decisions.PerturbedFenchelYoungLoss(task, samples=400), scores, target)
    with_noise, _, _ = papers.fenchel_young(ANSWERS, scores.reshape(30, -1), target.reshape(30, -1), gaussian(0, 0, 400))
    np.testing.assert_allclose(values, with_noise / 12, atol=0.05)
    assert np.abs(values - with_noise / 12).max() > 1e-4  # The noise at the truth has been left out.
    small = evaluate(decisions.PerturbedFenchelYoungLoss(task, sigma=1e-9), scores, target)
    limit = evaluate(tl.PerceptronLoss(task), scores, target)
    np.testing.assert_allclose(small[0], limit[0], rtol=0, atol=1e-7)
    np.testing.assert_array_equal(small[1], limit[1])


def test_the_gradient_of_fenchel_young_is_that_of_its_value():
    scores, target = random_batch("regret", 2)

    def value(at: np.ndarray) -> float:
        criterion = decisions.PerturbedFenchelYoungLoss(tl.Structured(SOLVER, loss="regret", batched=True), samples=3)
        return criterion(torch.tensor(at), torch.tensor(target)).item()

    leaf = torch.tensor(scores, requires_grad=True)
    decisions.PerturbedFenchelYoungLoss(tl.Structured(SOLVER, loss="regret", batched=True), samples=3)(
        leaf, torch.tensor(target)
    ).backward()
    direction = np.random.default_rng(0).standard_normal(scores.shape)
    slope = (value(scores + 1e-6 * direction) - value(scores - 1e-6 * direction)) / 2e-6
    assert (leaf.grad.numpy() * direction).sum() == pytest.approx(slope, rel=1e-6)


# --- two answers, in closed form ----------------------------------------------------------------------------------------------


def larger(scores: np.ndarray) -> np.ndarray:
    """The better one of two answers, for a batch."""
    return np.eye(2)[scores.argmax(axis=1)]


SCORES, COSTS, SIGMA = np.array([[0.3, -0.2]]), np.array([[2.0, 5.0]]), 0.8
WIDTH = SIGMA * math.sqrt(2)
PROBABILITY = 0.5 * (1 + math.erf(0.5 / WIDTH / math.sqrt(2)))
"""Of the first answer, whose score is 0.5 higher, under noise of the standard deviation SIGMA on either score."""
SLOPE = -3.0 * math.exp(-0.5 * (0.5 / WIDTH) ** 2) / (WIDTH * math.sqrt(2 * math.pi))
"""Derivative of the expected cost in the first score."""


def two_answers(loss: str = "cost") -> tl.Structured:
    return tl.Structured(larger, loss=loss, batched=True)


@pytest.mark.parametrize(
    ("make", "tolerance"),
    [
        (lambda: decisions.PerturbedOptimizerLoss(two_answers(), sigma=SIGMA, samples=100_000), 0.02),
        (lambda: decisions.PerturbedDirectLoss(two_answers(), sigma=SIGMA, samples=100_000, epsilon=0.02), 0.03),
        (
            lambda: decisions.PerturbedDirectLoss(two_answers(), sigma=SIGMA, samples=100_000, epsilon=0.02, update="negative"),
            0.05,
        ),
    ],
    ids=["optimizer", "direct, central", "direct, negative"],
)
def test_gradients_are_those_of_the_expected_cost(make, tolerance):
    values, gradient = evaluate(make(), SCORES, COSTS)
    assert values.item() == pytest.approx(2 * PROBABILITY + 5 * (1 - PROBABILITY), abs=0.02)
    np.testing.assert_allclose(gradient, [[SLOPE, -SLOPE]], rtol=tolerance)


def test_the_expected_answer_is_that_of_fenchel_young():
    _, gradient = evaluate(decisions.PerturbedFenchelYoungLoss(two_answers(), sigma=SIGMA, samples=100_000), SCORES, COSTS)
    np.testing.assert_allclose(gradient, [[PROBABILITY - 1, 1 - PROBABILITY]], atol=0.005)


def test_the_squared_error_of_the_mean_answer():
    criterion = decisions.PerturbedOptimizerLoss(two_answers(), sigma=SIGMA, samples=100_000, objective="solution")
    values, gradient = evaluate(criterion, SCORES, COSTS)
    assert values.item() == pytest.approx((1 - PROBABILITY) ** 2, abs=0.01)
    # d/ds (1 - p)^2 = -2 (1 - p) dp/ds, and the expected cost is 5 - 3 p.
    slope = -2 * (1 - PROBABILITY) * SLOPE / -3.0
    np.testing.assert_allclose(gradient, [[slope, -slope]], rtol=0.03)


def test_the_score_function_estimate_of_a_constant_loss_is_zero():
    values, gradient = evaluate(decisions.PerturbedOptimizerLoss(two_answers(), samples=4), SCORES, np.array([[3.0, 3.0]]))
    assert values.item() == 3.0
    assert not gradient.any()


def test_the_score_function_estimate_by_hand():
    noise = np.random.default_rng((5, 0)).standard_normal((2, 1, 2))
    cost = np.array([COSTS[0, (SCORES + SIGMA * sample).argmax()] for sample in noise])
    # With two samples, each is compared with the other.
    wanted = ((cost[0] - cost[1]) * noise[0] + (cost[1] - cost[0]) * noise[1]) / (2 * SIGMA)
    values, gradient = evaluate(decisions.PerturbedOptimizerLoss(two_answers(), sigma=SIGMA, samples=2, seed=5), SCORES, COSTS)
    assert values.item() == cost.mean()
    np.testing.assert_allclose(gradient, wanted, rtol=1e-12)
    assert cost[0] != cost[1]


# --- implicit maximum likelihood ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("loss", ["hamming", "cost", "regret"])
def test_implicit_mle_equals_its_algorithm(loss, symmetric):
    scores, target = random_batch(loss, 3)
    task = tl.Structured(SOLVER, loss=loss, batched=True)
    criterion = decisions.ImplicitMLELoss(task, epsilon=1.5, sigma=0.4, samples=3, symmetric=symmetric)
    noise = criterion._draw(task.read(scores, target, tl.tasks.Call()))
    criterion.draws.zero_()
    values, gradient = evaluate(criterion, scores, target)
    # A mean over the entries divides the incoming gradient, and multiplies lambda.
    entries = 12 if loss == "hamming" else 1
    incoming = ((1 - 2 * target) / entries if loss == "hamming" else target).reshape(INSTANCES, -1)
    flat, noise = scores.reshape(INSTANCES, -1), 0.4 * noise.reshape(3, INSTANCES, -1)
    wanted = papers.implicit_mle_gradient(ANSWERS, flat, incoming, 1.5 * entries, noise, symmetric)
    np.testing.assert_allclose(gradient, wanted, rtol=0, atol=1e-12)
    assert gradient.any()
    answers = [papers.cheapest(ANSWERS, -(flat + sample)) for sample in noise]
    losses = np.mean([(answer * incoming).sum(1) for answer in answers], axis=0)
    offset = {"hamming": target.reshape(30, -1).mean(1), "cost": 0.0, "regret": -papers.least_cost(ANSWERS, incoming)}[loss]
    np.testing.assert_allclose(values, losses + offset, rtol=0, atol=1e-12)


def test_sums_of_gamma_noise_are_nearly_gumbel():
    criterion = decisions.ImplicitMLELoss(two_answers(), samples=100_000)
    noise = criterion._draw(two_answers().read(np.zeros((1, 5)), np.zeros((1, 5)), tl.tasks.Call()))
    total = noise.reshape(-1, 5).sum(axis=1)  # of k = 5 entries
    assert total.std() == pytest.approx(math.pi / math.sqrt(6), rel=0.05)
    assert total.mean() == pytest.approx(0.5772, abs=0.1)


def test_the_adaptive_step_by_hand():
    """Scores (3, 4) and costs (0, 5): epsilon = alpha. A difference of answers has two entries, above the target of one."""
    criterion = decisions.AdaptiveImplicitMLELoss(two_answers(), sigma=1e-9, rate=0.25)
    scores, costs = np.array([[3.0, 4.0]]), np.array([[0.0, 5.0]])
    _, gradient = evaluate(criterion, scores, costs)  # 4 - 1 * 5 < 3: the answer changes.
    np.testing.assert_allclose(gradient, [[-1.0, 1.0]])
    assert (criterion.alpha.item(), criterion.nonzero.item()) == (0.75, pytest.approx(0.9 + 0.1 * 2))
    _, gradient = evaluate(criterion, scores, costs)
    np.testing.assert_allclose(gradient, [[-1 / 0.75, 1 / 0.75]])
    _, gradient = evaluate(criterion, np.array([[4.0, 3.0]]), costs)  # The best answer stays, and the mean falls.
    assert not gradient.any()
    assert criterion.alpha.item() == 0.25
    assert criterion.nonzero.item() == pytest.approx(((0.9 + 0.2) * 0.9 + 0.2) * 0.9)
    evaluate(criterion, np.array([[4.0, 3.0]]), costs)
    assert criterion.alpha.item() == 0.5  # The mean is 0.9639.
    fast = decisions.AdaptiveImplicitMLELoss(two_answers(), sigma=1e-9, rate=0.75)
    for _ in range(2):
        evaluate(fast, scores, costs)
    assert fast.alpha.item() == 0.0
    assert evaluate(fast, scores, costs)[1].tolist() == [[-1 / 0.75, 1 / 0.75]]  # The step is at least the rate.
    always = decisions.AdaptiveImplicitMLELoss(two_answers(), sigma=1e-9, target=math.inf)
    evaluate(always, scores, costs)
    assert always.alpha.item() == 1.001


def test_the_adaptive_step_does_not_depend_on_the_scale_of_the_scores():
    scores, costs = random_batch("regret", 4)
    task = tl.Structured(SOLVER, loss="regret", batched=True)
    gradients = [
        evaluate(decisions.AdaptiveImplicitMLELoss(task, sigma=0.1 * scale), scale * scores, costs)[1] * scale
        for scale in (1.0, 64.0)
    ]
    np.testing.assert_allclose(*gradients, rtol=0, atol=1e-12)
    assert gradients[0].any()
    zero = decisions.AdaptiveImplicitMLELoss(task, sigma=0.1)
    assert evaluate(zero, 0 * scores, costs)[1].any()  # Without a scale, epsilon is alpha.


def test_the_identity_by_hand():
    for loss, wanted in (("cost", [[2.0, 5.0], [2.0, 5.0]]), ("regret", [[0.0, 0.0], [2.0, 5.0]])):
        values, gradient = evaluate(
            decisions.IdentityLoss(two_answers(loss)), np.array([[1.0, 0.0], [0.0, 1.0]]), np.repeat(COSTS, 2, 0)
        )
        assert values.tolist() == {"cost": [2.0, 5.0], "regret": [0.0, 3.0]}[loss]
        assert gradient.tolist() == wanted
    values, gradient = evaluate(
        decisions.IdentityLoss(two_answers("hamming")), np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1, 0], [1, 0]])
    )
    assert values.tolist() == [0.0, 1.0]
    assert gradient.tolist() == [[0.0, 0.0], [-0.5, 0.5]]
