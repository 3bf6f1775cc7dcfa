"""The experiments of Meng et al. (2021) at a tiny size, from images to pages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

import taskloss as tl
from taskloss.experiments import auc, fscore, image_training, lp_paper
from taskloss.experiments.auc import AUC, RampOfProbabilities
from taskloss.experiments.auc_epsilon import AUCEpsilon, PenaltyRamp
from taskloss.experiments.fscore import FScore
from taskloss.experiments.image_training import SETS
from taskloss.experiments.multiclass_auc import MultiClassAUC, log_likelihood
from tests.experiments.image_cache import SIDE, make_runner, write_images

SIZE = {"side": SIDE, "iterations": 2, "rates": (0.1,)}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(image_training, "WIDENED", 0)
    monkeypatch.setattr(auc, "SAME_STEPS", 4)
    monkeypatch.setattr(fscore, "SPEED_ROUNDS", 1)


def one_pair(probabilities: tuple[float, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and target of a positive and a negative with these probabilities."""
    return torch.tensor(probabilities, dtype=torch.float64).logit().requires_grad_(), torch.tensor([1, 0])


@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.01])
@pytest.mark.parametrize("gap", [-0.8, -0.25, -0.05, 0.0, 0.02, 0.15, 0.3, 0.9])
def test_the_penalty_solution_is_that_of_the_definition(gap, epsilon):
    margin = 0.1
    d = margin - gap
    least = minimize_scalar(
        lambda z: 0.5 * max(d - z, 0.0) ** 2 + 0.5 * max(-z, 0.0) ** 2 + epsilon * z, bracket=(-1.0, 1.0), tol=1e-12
    ).x
    active = [value for value, violated in ((d, d - least > 1e-6), (0.0, -least > 1e-6)) if violated]
    solution = PenaltyRamp(margin, epsilon).solution(torch.tensor(gap, dtype=torch.float64))
    assert solution.item() == pytest.approx(np.mean(active), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.01])
def test_the_penalty_solution_is_that_of_the_layer(epsilon):
    generator = torch.Generator().manual_seed(0)
    probabilities, target = torch.rand(9, generator=generator, dtype=torch.float64), torch.arange(9) % 2
    program = tl.lp.formulations.auc_program(probabilities, target, margin=0.1)
    gap = probabilities[target == 1, None] - probabilities[None, target == 0]
    solution = PenaltyRamp(0.1, epsilon).solution(gap).reshape(-1)
    assert torch.allclose(tl.lp.PenaltyLayer(epsilon)(program).x, solution, atol=1e-9)


def test_the_penalty_ramp_by_hand():
    # The gap is 0.25 and the margin 0.5: d = 0.25, below epsilon = 0.3, so z = 0.125 and the loss is 1 - 0.375 / 0.5.
    scores, target = one_pair((0.75, 0.5))
    loss = PenaltyRamp(0.5, 0.3)(scores, target)
    assert loss.item() == pytest.approx(0.25)
    # With a smaller epsilon z is d, and the loss is that of the exact program.
    assert PenaltyRamp(0.5, 0.2)(scores, target).item() == pytest.approx(0.5)
    assert RampOfProbabilities(0.5)(scores, target).item() == pytest.approx(0.5)


def test_a_small_penalty_is_the_exact_program():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(30, generator=generator, dtype=torch.float64).requires_grad_()
    target = torch.randint(2, (30,), generator=generator)
    losses = [loss(scores, target) for loss in (PenaltyRamp(0.1, 1e-9), RampOfProbabilities(0.1))]
    assert losses[0].item() == pytest.approx(losses[1].item())
    assert torch.allclose(*(torch.autograd.grad(loss, scores)[0] for loss in losses), atol=1e-12)


def test_the_likelihood_of_probabilities_is_cross_entropy():
    scores, target = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = torch.nn.functional.cross_entropy(scores, target)
    assert torch.allclose(log_likelihood(scores.softmax(1), target), expected)


def test_the_tables_of_the_paper_are_complete():
    for table in lp_paper.AUC.values():
        assert all(len(row) == len(lp_paper.RATIOS) for row in table.values())
    for metric in lp_paper.MULTI_CLASS.values():
        assert all(len(row) == len(lp_paper.DROP_RATES) for table in metric.values() for row in table.values())
    assert lp_paper.EPSILON[0.01] == lp_paper.AUC["cat_dog"]["LP ramp"]


def test_auc(tmp_path):
    experiment = AUC(**SIZE)
    results = experiment.run(make_runner(write_images(tmp_path, SETS)), 2)
    assert len(results["records"]) == 6 * 2 * (4 + 3 * 2)
    assert all(0.0 <= record["test AUC"] <= 1.0 for record in results["records"])
    exact, program = results["solvers"]
    assert exact["losses"] == pytest.approx(program["losses"], abs=1e-3)
    page = experiment.make_page(results)
    assert "78.6" in page.text  # The paper's value.
    assert "LP ramp is above x-ent (paper +5.9)" in page.verdict


def test_auc_epsilon(tmp_path):
    experiment = AUCEpsilon(**SIZE)
    results = experiment.run(make_runner(write_images(tmp_path, ["cat_dog"])), 2)
    assert len(results["records"]) == 2 * 3 * 2 * 2
    assert "65.9" in experiment.make_page(results).text


def test_multiclass_auc(tmp_path):
    experiment = MultiClassAUC(**SIZE)
    results = experiment.run(make_runner(write_images(tmp_path, ["stl10", "tiny_imagenet100"])), 2)
    assert len(results["records"]) == 4 * 2 * 4 * 2
    curves = [record for record in results["records"] if "roc" in record]
    assert {(record["set"], record["drop rate"]) for record in curves} == {("stl10", 0.9)}
    page = experiment.make_page(results)
    assert "76.1" in page.text
    assert set(page.figures) == {"multiclass-auc", "multiclass-auc-roc"}


def test_fscore(tmp_path, monkeypatch):
    for table in (fscore.CRITERIA, fscore.TIMED):
        # cvxpylayers is not among the requirements of the tests; it solves the program of LP.
        for name in [name for name in table if name.startswith("CVXPY")]:
            monkeypatch.setitem(table, name, lambda: tl.lp.FScoreLoss(margin=0.0))
    experiment = FScore(**SIZE)
    results = experiment.run(make_runner(write_images(tmp_path, SETS)), 2)
    assert len(results["records"]) == 6 * 4 * 2
    records = {(record["method"], record["set"], record["seed"]): record for record in results["records"]}
    assert records["CVXPY-SCS", "stl10", 1]["test F"] == records["LP", "stl10", 1]["test F"]
    assert len(results["all positive"]) == 4 * 2
    assert set(results["speed"]) == {"network", *fscore.TIMED}
    page = experiment.make_page(results)
    assert "77.8" in page.text
    assert "LP is above x-ent (paper +2.0 on average)" in page.verdict


def test_the_unrolled_loss_is_near_the_exact_one():
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.randn(16, generator=generator, dtype=torch.float64).requires_grad_(), torch.arange(16) % 2
    losses = [loss(scores, target) for loss in (fscore.UnrolledNewtonLoss(), tl.lp.FScoreLoss(margin=0.0))]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-2)
    unrolled, exact = (torch.autograd.grad(loss, scores)[0] for loss in losses)
    assert torch.cosine_similarity(unrolled, exact, dim=0) > 0.99
