"""The gradients that are compared are those of their definitions, and the experiment runs at a tiny size."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from taskloss.datasets import load_page_blocks
from taskloss.experiments import gradient_agreement
from taskloss.experiments.gradient_agreement import (
    METHODS,
    GradientAgreement,
    Probe,
    ProgramCriterion,
    compare_gradients,
    cosine,
    exact_criterion,
    gradient_of,
    split_page_blocks,
    train_network,
)
from taskloss.experiments.runner import Files
from taskloss.lp import LPLayer, PenaltyLayer
from tests.experiments.test_runner import make_runner
from tests.oracles.metric_programs import psi_of


def scores_and_target() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    target = (torch.arange(10) < 4).long()
    return 1.5 * target - 0.7 + torch.randn(10, generator=generator, dtype=torch.float64), target


def unroll_every_step(scores: torch.Tensor, target: torch.Tensor, epsilon: float, margin: float) -> torch.Tensor:
    """Return ``1 + c'x`` after Newton's method on the penalty from zero, every step of it in the graph.

    The program is written densely from its definition: rows ``psi t <= z <= (1 + psi) t``, ``z <= t``, ``z, t >= 0`` and the
    equation ``sum z + b t = b``.
    """
    n, b = len(scores), float(target.sum())
    sign = 2.0 * target - 1.0
    psi = (1 - margin) * torch.tanh(scores) - margin * sign
    np.testing.assert_allclose(psi.detach().numpy(), psi_of(scores.detach().numpy(), target.numpy(), margin))
    eye, one, zero = torch.eye(n).double(), torch.ones(n, 1).double(), torch.zeros(n, 1).double()
    rows = [(-eye, psi[:, None]), (eye, -1 - psi[:, None]), (eye, -one), (-eye, zero), (zero.T, -one[:1])]
    G = torch.cat([torch.cat(pair, 1) for pair in rows])
    equation = torch.cat([torch.ones(n), torch.tensor([b])]).double()
    c = torch.cat([-2.0 * target / b, torch.zeros(1)]).double()

    def penalty(x: torch.Tensor) -> torch.Tensor:
        return c @ x + ((G @ x).clamp(min=0).square().sum() + (equation @ x - b) ** 2) / (2 * epsilon)

    x = torch.zeros(n + 1).double()
    for _ in range(200):
        violated = (G @ x > 0).double()[:, None]
        gradient = c + (G.T @ (G @ x).clamp(min=0) + equation * (equation @ x - b)) / epsilon
        hessian = ((violated * G).T @ G + torch.outer(equation, equation)) / epsilon + 1e-9 * torch.eye(n + 1).double()
        step = -torch.linalg.solve(hessian, gradient)
        length = 1.0
        while length > 1e-6 and penalty(x + length * step) > penalty(x) + 1e-4 * length * (gradient @ step):
            length /= 2
        x = x + length * step
        if gradient.abs().max() < 1e-10:
            break
    assert gradient.abs().max() < 1e-8
    return 1.0 + c @ x


@pytest.mark.parametrize(("epsilon", "margin"), [(0.3, 0.25), (0.01, 0.25), (0.01, 0.0)])
def test_the_last_steps_have_the_gradient_of_all_steps(epsilon, margin):
    """A full Newton step forgets where it came from."""
    scores, target = scores_and_target()
    leaf = scores.clone().requires_grad_()
    loss = unroll_every_step(leaf, target, epsilon, margin)
    criterion = ProgramCriterion(LPLayer("unrolled", epsilon=epsilon), margin)
    assert float(criterion(scores, target)) == pytest.approx(float(loss.detach()), abs=1e-7)
    expected = torch.autograd.grad(loss, leaf)[0]
    np.testing.assert_allclose(gradient_of(criterion, scores, target).numpy(), expected.numpy(), atol=1e-6)


def test_with_a_small_epsilon_all_gradients_are_exact():
    scores, target = scores_and_target()
    exact = gradient_of(exact_criterion(0.25), scores, target)
    for layer in (LPLayer(), LPLayer("unrolled", epsilon=1e-6), PenaltyLayer(1e-6)):
        gradient = gradient_of(ProgramCriterion(layer, 0.25), scores, target)
        np.testing.assert_allclose(gradient.numpy(), exact.numpy(), atol=1e-5)


def test_cosines():
    assert cosine(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0])) == pytest.approx(0.6)
    assert cosine(torch.zeros(2), torch.ones(2)) is None


def test_a_probe_leaves_the_loss_as_it_is():
    scores, target = scores_and_target()
    probe = Probe(ProgramCriterion(PenaltyLayer(0.3), 0.25), exact_criterion(0.25))
    plain = ProgramCriterion(PenaltyLayer(0.3), 0.25)
    assert torch.equal(gradient_of(probe, scores, target), gradient_of(plain, scores, target))
    (found,) = probe.cosines
    assert found == pytest.approx(
        cosine(gradient_of(plain, scores, target), gradient_of(exact_criterion(0.25), scores, target)), abs=1e-5
    )


def test_the_parts_of_the_data():
    parts = split_page_blocks(1)
    sizes = [len(part.target) for part in parts]
    assert sum(sizes) == len(load_page_blocks()[1]) == 5393
    assert [int(part.target.sum()) for part in parts] == [306, 102, 102]
    assert parts.training.features.mean(0).abs().max() < 1e-4
    assert not torch.equal(parts.test.features[:5], split_page_blocks(2).test.features[:5])


def test_small_epsilons_name_the_right_constraints(tmp_path):
    cell = {"seed": 0, "margin": 0.25, "moment": "fresh", "size": 64, "batches": 6, "epsilons": [1.0, 1e-5], "iterations": 4}
    record = compare_gradients(cell, Files(None, tmp_path))
    large, small = record["by epsilon"]
    assert large["right constraints"] == 0.0
    assert small["right constraints"] == 1.0
    assert small["penalty to unrolled"] == small["vertex to unrolled"] == small["unrolled to exact"] == [1.0, 1.0]
    assert large["unrolled to exact"][0] < 0.99
    assert all(epsilon <= 0.1 for epsilon in record["rule"]["verified"])
    json.dumps(record)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method, tmp_path):
    cell = {"seed": 0, "margin": 0.25, "method": method, "rate": 0.01, "iterations": 21}
    record = train_network(cell, Files(None, tmp_path))
    assert record["test F"] > 0.2
    assert len(record["curves"]) == 3
    assert ("epsilon" in record) == (method in ("penalty", "burn-in", "rule"))
    assert record.get("burn-in iterations") == {"penalty": 0, "burn-in": 20, "rule": 0}.get(method)


def test_the_whole_experiment_at_a_tiny_size(tmp_path, monkeypatch):
    monkeypatch.setattr(gradient_agreement, "RATES", (0.01,))
    monkeypatch.setattr(gradient_agreement, "SIZES", (16, 64))
    monkeypatch.setattr(gradient_agreement, "EPSILONS", (1.0, 0.01, 1e-4))
    monkeypatch.setattr(gradient_agreement, "RULE_BATCHES", 1)
    experiment = GradientAgreement(seeds=2, compared_seeds=1, batches=2, iterations=3)
    results = experiment.run(make_runner(tmp_path), 2)
    page = experiment.make_page(json.loads(json.dumps(results)))
    assert "0.9991" in page.verdict
    assert set(page.figures) == {"gradient-agreement"}
    assert "{" not in page.text
