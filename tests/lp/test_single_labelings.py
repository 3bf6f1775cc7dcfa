"""The entrance that a single labeling in plain memory has to the losses of ratios."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import taskloss as tl
from taskloss.lp.objectives.single_labeling import ratio_of_one_labeling
from tests.lp.test_losses import example, value_and_gradient


def test_a_single_labeling_takes_the_same_way_as_many():
    """Small plain batches have an entrance of their own."""
    for seed in range(20):
        scores, target = example("f1", seed)
        for criterion in (tl.lp.FScoreLoss(), tl.lp.FScoreLoss(0.5, margin=0.0), tl.lp.JaccardLoss(margin=0.5)):
            for labels in (target, target.long(), target.byte(), target.int(), target.float(), target.double()):
                value, gradient = value_and_gradient(criterion, scores, labels)
                column, column_gradient = value_and_gradient(criterion, scores[:, None], labels[:, None])
                assert value.item() == column.item()
                assert torch.equal(gradient, column_gradient[:, 0])


def test_float32_in_the_entrance_of_a_single_labeling():
    scores, target = example("f1", 0)
    value, gradient = value_and_gradient(tl.lp.FScoreLoss(), scores.float(), target)
    column, column_gradient = value_and_gradient(tl.lp.FScoreLoss(), scores.float()[:, None], target[:, None])
    assert value.dtype == gradient.dtype == torch.float32
    assert (value.item(), gradient.tolist()) == (column.item(), column_gradient[:, 0].tolist())


def as_given(scores: torch.Tensor, target: torch.Tensor) -> tuple[float, torch.Tensor]:
    leaf = scores.detach().requires_grad_()
    value = tl.lp.fscore_loss(leaf, target)
    return value.item(), torch.autograd.grad(value, leaf)[0]


@pytest.mark.parametrize(
    "unusual",
    [
        pytest.param(lambda tensor: (-tensor)._neg_view(), id="negated when it is read"),
        pytest.param(lambda tensor: torch.stack([tensor, tensor + 9.0], 1)[:, 0], id="with gaps"),
        pytest.param(lambda tensor: tensor[:1].expand(len(tensor)), id="one number many times"),
    ],
)
def test_unusual_memory(unusual):
    scores = torch.tensor([0.3, -1.2, 0.8, 2.0, -0.1])
    target = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0])
    for given in ((unusual(scores), target), (scores, unusual(target)), (unusual(scores), unusual(target))):
        plain = [torch.tensor(tensor.tolist()) for tensor in given]
        (value, gradient), (expected, expected_gradient) = (as_given(*tensors) for tensors in (given, plain))
        assert value == expected
        assert torch.equal(gradient, expected_gradient)


@pytest.mark.parametrize("zeros", [torch._efficientzerotensor(3), torch._efficientzerotensor(4)[1:]])
def test_tensors_that_only_stand_for_zeros(zeros):
    numbers, labels = torch.tensor([0.5, -0.5, 1.0]), torch.tensor([1, 0, 1])
    assert tl.lp.fscore_loss(zeros, labels).item() == tl.lp.fscore_loss(torch.zeros(3), labels).item()
    assert tl.lp.fscore_loss(numbers, zeros).item() == tl.lp.fscore_loss(numbers, torch.zeros(3)).item()


@pytest.mark.parametrize("target", [torch.int64, torch.bool, torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("scores", [torch.float32, torch.float64])
def test_which_batches_have_an_entrance_of_their_own(scores, target):
    task = tl.lp.FScoreLoss().task
    numbers, labels = torch.tensor([0.5, -0.5, 1.0]).to(scores), torch.tensor([1, 0, 1]).to(target)
    assert ratio_of_one_labeling(task, numbers, labels) is not None
    for unusual in (
        (numbers.half(), labels),
        (numbers.to_sparse(), labels),
        (numbers[None], labels[None]),
        (numbers[:0], labels[:0]),
        (numbers, labels[:2]),
        (torch.nn.Parameter(numbers), labels),
        (numbers.to("meta"), labels.to("meta")),
        (numbers * torch.inf, labels),
        (numbers, labels.short()),
    ):
        assert ratio_of_one_labeling(task, *unusual) is None


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated")
def test_torch_with_other_habits():
    """Modes and tracers, in which an operation may return what has no memory."""
    scores, target = torch.tensor([0.5, -0.5, 1.0]), torch.tensor([1, 0, 1])
    expected = tl.lp.fscore_loss(scores, target)
    task = tl.lp.FScoreLoss().task
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert ratio_of_one_labeling(task, scores, target) is None
    with torch.device("meta"):
        assert tl.lp.fscore_loss(scores, target).item() == expected.item()
    with pytest.warns(torch.jit.TracerWarning):
        traced = torch.jit.trace(lambda s: tl.lp.fscore_loss(s, target) * s.sum(), (scores,), check_trace=False)
    assert traced(scores).item() == pytest.approx((expected * scores.sum()).item())
