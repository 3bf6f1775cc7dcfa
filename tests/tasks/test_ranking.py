"""Rankings of one class, missing positives, settings of the task."""

from __future__ import annotations

import pytest
import torch

import taskloss as tl
from tests.contract.cases import every_loss, value_and_gradient


@every_loss
@pytest.mark.parametrize("target", [[1, 1, 1], [0, 0, 0], [1], [0]])
def test_one_class_gives_zero_loss_and_a_zero_gradient_that_reaches_the_graph(make_loss, target):
    weight = torch.tensor(2.0, requires_grad=True)
    loss = make_loss("average_precision")(weight * torch.randn(len(target)), torch.tensor(target))
    loss.backward()
    assert loss == 0
    assert weight.grad == 0


@every_loss
def test_means_skip_rankings_of_one_class(make_loss):
    scores = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    target = torch.stack([torch.arange(12) % 3 == 0, torch.ones(12, dtype=torch.bool), torch.arange(12) % 2 == 0], 1)
    value, gradient = value_and_gradient(make_loss("average_precision"), scores, target)
    both, both_gradient = value_and_gradient(make_loss("average_precision"), scores[:, [0, 2]], target[:, [0, 2]])
    torch.testing.assert_close(value, both)
    torch.testing.assert_close(gradient[:, [0, 2]], both_gradient)
    assert (gradient[:, 1] == 0).all()
    each, _ = value_and_gradient(make_loss("average_precision", reduction="none"), scores, target)
    assert each[1] == 0


@every_loss
def test_one_class_can_be_an_error(make_loss):
    task = tl.AveragePrecision(on_one_class="raise")
    with pytest.raises(ValueError, match="ranking 1 has one class only.*1 of 2"):
        make_loss(task)(torch.randn(3, 2), torch.tensor([[1, 1], [0, 1], [1, 1]]))


def test_missing_positives_make_a_list_of_one_class_defined():
    direct = tl.DirectLoss("average_precision", reduction="none")
    scores = torch.randn(2, 3)
    target = torch.tensor([[0, 0, 0], [1, 1, 1]])
    assert direct(scores, target, dim=1, num_relevant=[4, 6]).tolist() == [1.0, 0.5]
    assert direct(scores, target, dim=1, num_relevant=[0, 3]).tolist() == [0.0, 0.0]


def test_the_value_is_one_minus_the_metric():
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.randn(1000, generator=generator), torch.rand(1000, generator=generator) < 0.1
    assert tl.DirectLoss("average_precision")(scores.double(), target).item() == 1 - tl.metrics.average_precision_score(
        scores, target
    )


def test_hinge_bounds_the_task_loss():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        scores = torch.randn(20, generator=generator, dtype=torch.float64)
        target = torch.arange(20) % 4 == 0
        assert tl.StructuredHingeLoss("average_precision")(scores, target) >= tl.DirectLoss("average_precision")(scores, target)


def test_negative_update_where_a_full_table_would_not_fit():
    # Reversed scores: 30,000 x 300,000 cells lie under the staircase.
    target = torch.arange(330_000) < 30_000
    scores = (torch.arange(330_000.0) / 330_000).requires_grad_()
    tl.DirectLoss("average_precision", update="negative")(scores, target).backward()
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad[target] <= 0).all()
    assert (scores.grad[~target] >= 0).all()
    assert scores.grad.abs().sum() > 0


@pytest.mark.parametrize(("update", "score"), [("positive", 0.25), ("negative", -0.25)])
def test_a_tie_of_score_and_loss_takes_the_mean_of_least_and_greatest(update, score):
    # Moving the one pair changes F by 1/2 and the loss by 1/2: with epsilon 1 both answers are best, exactly.
    scores = torch.tensor([score, 0.0], requires_grad=True)
    tl.DirectLoss("average_precision", update=update)(scores, torch.tensor([1, 0])).backward()
    assert scores.grad.tolist() == [-1.0, 1.0]


@every_loss
def test_scores_at_the_edge_of_float64(make_loss):
    scores = torch.tensor([-1.0, 1.0, 0.5], dtype=torch.float64) * 2e307
    value, gradient = value_and_gradient(make_loss("average_precision"), scores, torch.tensor([1, 0, 0]))
    small, small_gradient = value_and_gradient(make_loss("average_precision"), scores / 1e300, torch.tensor([1, 0, 0]))
    assert torch.isfinite(value)
    torch.testing.assert_close(gradient, small_gradient)
    if value > 1:
        torch.testing.assert_close(value / 1e300, small, rtol=1e-6, atol=0)


def test_settings_may_be_changed_and_are_checked_again():
    criterion = tl.DirectLoss("average_precision")
    criterion.update = "hinge"
    with pytest.raises(ValueError, match="update='hinge'"):
        criterion(torch.zeros(2), torch.tensor([0, 1]))
    criterion.update = "negative"
    criterion.task = tl.AveragePrecision(on_one_class="raise")
    with pytest.raises(ValueError, match="one class only"):
        criterion(torch.zeros(2), torch.tensor([1, 1]))


def test_unknown_settings():
    with pytest.raises(ValueError, match="on_one_class='ignore'"):
        tl.AveragePrecision(on_one_class="ignore")
    with pytest.raises(AttributeError):
        tl.AveragePrecision().on_one_class = "raise"
    with pytest.raises(ValueError, match="update='both'"):
        tl.DirectLoss("average_precision", update="both")
    for epsilon in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="epsilon must be finite and above zero"):
            tl.DirectLoss("average_precision", epsilon=epsilon)
    with pytest.raises(TypeError, match="epsilon must be a number"):
        tl.DirectLoss("average_precision", epsilon="1")
