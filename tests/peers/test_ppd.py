"""PPD-SG and PPD-AdaGrad: the saddle point, single steps by hand, stages, learning and resuming."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from taskloss.metrics import roc_auc_score
from taskloss.peers import PPDLoss, ProximalPrimalDual


class Scores(nn.Module):
    """A model whose weights are the scores themselves."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(values, dtype=torch.float64))

    def forward(self) -> torch.Tensor:
        return self.weight


def step(model, loss, optimizer, target) -> float:
    optimizer.zero_grad()
    value = loss(model(), target)
    value.backward()
    optimizer.step()
    return value.item()


def blobs(n: int = 400, positives: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = (torch.arange(n) < positives).long()[torch.randperm(n, generator=generator)]
    return torch.randn(n, 2, generator=generator) + target[:, None] * torch.tensor([2.0, -1.0]), target


def test_the_saddle_value_is_the_pairwise_square_loss():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(30, generator=generator, dtype=torch.float64) * 3
    target = (torch.rand(30, generator=generator) < 0.3).long()
    h, positive, p = torch.sigmoid(scores), target == 1, (target == 1).double().mean().item()
    loss = PPDLoss().eval()
    for scalar in loss.parameters():
        # F is a quadratic function of each scalar, and they do not interact: one Newton step each is exact.
        (slope,) = torch.autograd.grad(loss(scores, target), scalar, create_graph=True)
        (curvature,) = torch.autograd.grad(slope, scalar)
        assert (curvature < 0) == (scalar is loss.alpha)
        with torch.no_grad():
            scalar -= slope / curvature
    pairs = (1.0 - (h[positive][:, None] - h[~positive][None])).square()
    torch.testing.assert_close(loss(scores, target).item(), (p * (1 - p) * (pairs.mean() - 1.0)).item(), atol=1e-14, rtol=0)
    torch.testing.assert_close(loss.a.item(), h[positive].mean().item(), atol=1e-14, rtol=0)
    torch.testing.assert_close(loss.b.item(), h[~positive].mean().item(), atol=1e-14, rtol=0)
    torch.testing.assert_close(loss.alpha.item(), loss.b.item() - loss.a.item(), atol=1e-14, rtol=0)


def test_the_loss_by_hand():
    # h = 3/4 of the positive, 1/2 of the negative; p = 1/2, a = 1/4, b = 1/2, alpha = -1/2:
    # 1/2 [(1/2)(1/4 - 3/4) + (1/2)(0 + 1/2)] - 1/16 = -1/16
    loss = PPDLoss()
    with torch.no_grad():
        loss.a.fill_(0.25), loss.b.fill_(0.5), loss.alpha.fill_(-0.5)
    assert loss(torch.tensor([math.log(3.0), 0.0]), torch.tensor([1, 0])).item() == pytest.approx(-1 / 16)
    # With p = 1/5: 1/2 [(4/5)(1/4 - 3/4) + (1/5)(0 + 1/2)] - 1/25 = -0.19
    loss.positive_share = 0.2
    assert loss(torch.tensor([math.log(3.0), 0.0]), torch.tensor([1, 0])).item() == pytest.approx(-0.19)


def test_one_step_by_hand():
    # dF/dscore = 1/2 * 1/2 * (2 h - 2) h (1 - h) = -0.0234375 and 1/2 * 1/2 * (2 h + 2) h (1 - h) = 0.1875,
    # dF/da = -0.375, dF/db = -0.25, dF/dalpha = (0.5 - 0.75) / 2 = -0.125; the factor is 0.1 / (1 + 0.1 / 1) = 1 / 11.
    model, loss, target = Scores(math.log(3.0), 0.0), PPDLoss(), torch.tensor([1, 0])
    step(model, loss, ProximalPrimalDual(model.parameters(), loss, learning_rate=0.1, gamma=1.0), target)
    expected = [math.log(3.0) + 0.0234375 / 11, -0.1875 / 11, 0.375 / 11, 0.25 / 11, -0.0125]
    assert [*model().tolist(), loss.a.item(), loss.b.item(), loss.alpha.item()] == pytest.approx(expected)


def test_one_step_of_adagrad_by_hand():
    # The same gradients g: each coordinate moves by 0.1 g / (0.5 + |g|).
    model, loss, target = Scores(math.log(3.0), 0.0), PPDLoss(), torch.tensor([1, 0])
    step(model, loss, ProximalPrimalDual(model.parameters(), loss, learning_rate=0.1, adagrad=True), target)
    expected = [math.log(3.0) + 0.00234375 / 0.5234375, -0.01875 / 0.6875, 0.0375 / 0.875, 0.025 / 0.75, -0.0125 / 0.625]
    assert [*model().tolist(), loss.a.item(), loss.b.item(), loss.alpha.item()] == pytest.approx(expected)


@pytest.mark.parametrize("adagrad", [False, True])
def test_steps_solve_their_proximal_problems(adagrad):
    eta, gamma = 0.3, 2.0
    model, loss, target = Scores(1.0, -0.5, 0.2, 0.0), PPDLoss(), torch.tensor([1, 0, 0, 1])
    optimizer = ProximalPrimalDual(model.parameters(), loss, learning_rate=eta, gamma=gamma, adagrad=adagrad)
    reference, gradients = model().detach().clone(), []
    for _ in range(4):
        before = model().detach().clone()
        gradient = torch.autograd.grad(loss(model(), target), model.weight)[0]
        gradients.append(gradient + (before - reference) / gamma)
        step(model, loss, optimizer, target)
        if adagrad:
            # The minimizer of eta <sum u, v> + 1/2 (v - v_0)' H (v - v_0).
            metric = 0.5 + torch.stack(gradients).square().sum(0).sqrt()
            slope = eta * torch.stack(gradients).sum(0) + metric * (model() - reference)
        else:
            slope = gradient + (model() - reference) / gamma + (model() - before) / eta
        torch.testing.assert_close(slope.detach(), torch.zeros(4, dtype=torch.float64), atol=1e-14, rtol=0)


def test_stages():
    model, loss, target = Scores(0.3, -0.2, 0.1), PPDLoss(), torch.tensor([1, 0, 1])
    optimizer = ProximalPrimalDual(model.parameters(), loss, learning_rate=0.8, stage_length=2, growth=2.0, alpha_batches=1)
    stages = []
    for _ in range(12):
        step(model, loss, optimizer, target)
        stages.append((optimizer.stage, optimizer.is_sampling, optimizer.step_size))
    first, second, third = [(0, False, 0.8), (0, True, 0.8)], [(1, False, 0.4)] * 4 + [(1, True, 0.4)] * 2, [(2, False, 0.2)]
    # Steps: two of the first stage, a batch of samples, four steps of the second, two batches, and then the third.
    assert stages == first + second + third * 4


@pytest.mark.parametrize("adagrad", [False, True])
def test_a_stage_ends_at_the_mean_iterate_and_with_the_best_alpha(adagrad):
    target = torch.tensor([1, 0, 0])
    iterates = []
    for length in (1000, 3):
        model, loss = Scores(0.3, -0.2, 0.5), PPDLoss()
        optimizer = ProximalPrimalDual(model.parameters(), loss, adagrad=adagrad, stage_length=length, alpha_batches=2)
        iterates.append([])
        for _ in range(3):
            step(model, loss, optimizer, target)
            iterates[-1].append(torch.cat([model().detach(), loss.a.detach()[None], loss.b.detach()[None]]))
    mean = torch.stack(iterates[0]).mean(0)
    torch.testing.assert_close(iterates[1][-1], mean)
    for _ in range(2):
        assert optimizer.is_sampling
        step(model, loss, optimizer, target)
        torch.testing.assert_close(model().detach(), mean[:3])
    assert optimizer.stage == 1
    h = torch.sigmoid(mean[:3])
    assert loss.alpha.item() == pytest.approx((h[1:].mean() - h[0]).item())
    # The next stage steps from there, with a third of the step size.
    gradient = torch.autograd.grad(loss(model(), target), model.weight)[0]
    step(model, loss, optimizer, target)
    eta = 0.1 / 3
    move = eta * gradient / (0.5 + gradient.abs()) if adagrad else eta / (1 + eta / 2000) * gradient
    torch.testing.assert_close(model().detach(), mean[:3] - move)


def test_sampling_waits_for_both_classes():
    model, loss = Scores(0.3, -0.2), PPDLoss(positive_share=0.5)
    optimizer = ProximalPrimalDual(model.parameters(), loss, stage_length=1, alpha_batches=1)
    step(model, loss, optimizer, torch.tensor([1, 0]))
    step(model, loss, optimizer, torch.tensor([1, 1]))
    assert optimizer.is_sampling
    step(model, loss, optimizer, torch.tensor([0, 0]))
    assert (optimizer.stage, optimizer.is_sampling) == (1, False)


@pytest.mark.parametrize("adagrad", [False, True])
def test_both_learn_to_rank(adagrad):
    features, target = blobs()
    torch.manual_seed(0)
    model, loss = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)), PPDLoss()
    options = {"learning_rate": 1.0, "stage_length": 40, "adagrad": adagrad}
    optimizer = ProximalPrimalDual(model.parameters(), loss, **options)
    for number in range(200):
        rows = torch.arange(number, number + 64) * 7 % len(target)
        optimizer.zero_grad()
        loss(model(features[rows]), target[rows]).backward()
        optimizer.step()
    best = roc_auc_score(features @ torch.tensor([2.0, -1.0]), target)
    assert optimizer.stage >= 1
    assert roc_auc_score(model(features).detach(), target) > best - 0.01 > 0.9


def run(adagrad: bool, steps: int, resume_at: int | None) -> tuple[torch.Tensor, ...]:
    """Train for some steps; after ``resume_at`` of them, go on with new objects that know the tensors of the states only."""
    features, target = blobs(64, 20)

    def make():
        torch.manual_seed(3)
        model, loss = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1), nn.Flatten(0)), PPDLoss()
        options = {"stage_length": 4, "alpha_batches": 2, "growth": 2.0, "adagrad": adagrad}
        return model, loss, ProximalPrimalDual(model.parameters(), loss, **options)

    model, loss, optimizer = make()
    for number in range(steps):
        if number == resume_at:
            weights, state = model.state_dict(), optimizer.state_dict()["state"]
            assert all(isinstance(value, torch.Tensor) for entry in state.values() for value in entry.values())
            model, loss, optimizer = make()
            model.load_state_dict(weights)
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        rows = torch.arange(number, number + 16) * 5 % 64
        optimizer.zero_grad()
        loss(model(features[rows]), target[rows]).backward()
        optimizer.step()
    return (*(p.detach() for p in model.parameters()), *(p.detach() for p in loss.parameters()), loss.seen, loss.sampled)


@pytest.mark.parametrize("adagrad", [False, True])
def test_a_resumed_run_is_the_same_bit_by_bit(adagrad):
    whole = run(adagrad, 22, None)
    # Steps 4 and 5 are samples of the first stage, 14 to 17 of the second.
    for resume_at in (0, 1, 4, 5, 6, 15, 21):
        for ours, expected in zip(run(adagrad, 22, resume_at), whole, strict=True):
            assert torch.equal(ours, expected)


def test_the_share_of_positives_is_that_of_all_training_batches():
    loss = PPDLoss()
    scores = torch.tensor([0.5, -0.5, 1.0], requires_grad=True)
    loss(scores, torch.tensor([1, 0, 0]))
    loss(scores, torch.tensor([1, 1, 1]))
    assert loss.seen.tolist() == [2, 4]
    with torch.no_grad():
        value = loss(scores, torch.tensor([0, 0, 0]))
    loss.eval()(scores, torch.tensor([0, 0, 0]))
    assert loss.seen.tolist() == [2, 4]
    torch.testing.assert_close(value, PPDLoss(positive_share=4 / 6)(scores, torch.tensor([0, 0, 0])).detach())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_and_the_incoming_gradient(dtype):
    scores = torch.tensor([0.5, -1.0, 2.0], dtype=dtype, requires_grad=True)
    target = torch.tensor([1, 0, 0])
    value = PPDLoss()(scores, target)
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    (gradient,) = torch.autograd.grad(value, scores)
    assert gradient.dtype == dtype
    (tripled,) = torch.autograd.grad(3.0 * PPDLoss()(scores, target), scores)
    torch.testing.assert_close(tripled, 3.0 * gradient)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PPDLoss(positive_share=1.0), "positive_share must be between 0 and 1"),
        (lambda: PPDLoss()(torch.randn(3, 2), torch.zeros(3, 2)), "one score per sample"),
        (lambda: PPDLoss()(torch.randn(0), torch.zeros(0)), "n >= 1"),
        (lambda: PPDLoss()(torch.randn(3), torch.zeros(2)), "expected the same shape"),
        (lambda: PPDLoss()(torch.randn(2), torch.tensor([0, 2])), "expected only 0 and 1"),
        (lambda: PPDLoss()(torch.tensor([math.nan, 0.0]), torch.tensor([0, 1])), "scores must be finite"),
        (lambda: ProximalPrimalDual([nn.Parameter(torch.ones(1))], PPDLoss(), learning_rate=0.0), "learning_rate"),
        (lambda: ProximalPrimalDual([nn.Parameter(torch.ones(1))], PPDLoss(), growth=0.5), "growth must be at least 1"),
        (lambda: ProximalPrimalDual([nn.Parameter(torch.ones(1))], PPDLoss(), stage_length=0), "stage_length"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_types():
    with pytest.raises(TypeError, match="loss must be a PPDLoss"):
        ProximalPrimalDual([nn.Parameter(torch.ones(1))], nn.MSELoss())
    with pytest.raises(TypeError, match="float32 or float64"):
        ProximalPrimalDual([nn.Parameter(torch.ones(1, dtype=torch.bfloat16))], PPDLoss())
