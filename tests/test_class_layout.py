"""Class scores are called as cross-entropy is."""

from __future__ import annotations

import pytest
import torch

import taskloss as tl
from tests.contract.cases import every_loss, value_and_gradient

every_class_task = pytest.mark.parametrize("task", [tl.MultiClass(), tl.TopKError(2)], ids=["multi-class", "top 2"])


def pixels(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    return scores, torch.randint(3, (2, 4, 5), generator=generator)


@every_class_task
@every_loss
def test_pixels_are_samples(task, make_loss):
    scores, target = pixels()
    rows, labels = scores.movedim(1, -1).reshape(-1, 3), target.reshape(-1)
    for reduction in ("mean", "sum", "none"):
        value, gradient = value_and_gradient(make_loss(task, reduction=reduction), scores, target)
        expected, expected_gradient = value_and_gradient(make_loss(task, reduction=reduction), rows, labels)
        assert value.shape == torch.nn.functional.cross_entropy(scores, target, reduction=reduction).shape
        torch.testing.assert_close(value.reshape(-1), expected.reshape(-1))
        torch.testing.assert_close(gradient.movedim(1, -1).reshape(-1, 3), expected_gradient)


@every_class_task
@every_loss
def test_ignored_pixels_do_not_exist(task, make_loss):
    scores, target = pixels(1)
    ignored = torch.rand(2, 4, 5, generator=torch.Generator().manual_seed(2)) < 0.3
    marked = target.masked_fill(ignored, 255)
    scores = scores.masked_fill(ignored[:, None], float("inf"))
    value, gradient = value_and_gradient(make_loss(task, ignore_index=255), scores, marked)
    rows = scores.movedim(1, -1)[~ignored]
    expected, expected_gradient = value_and_gradient(make_loss(task), rows, target[~ignored])
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient.movedim(1, -1)[~ignored], expected_gradient)
    assert (gradient.movedim(1, -1)[ignored] == 0).all()
    everything = torch.full_like(target, 255)
    nothing, no_gradient = value_and_gradient(make_loss(task, ignore_index=255), scores, everything)
    assert nothing == 0
    assert (no_gradient == 0).all()


@every_class_task
@every_loss
def test_one_sample_without_a_batch(task, make_loss):
    scores, target = pixels(3)
    value, gradient = value_and_gradient(make_loss(task, reduction="none"), scores[0, :, 0, 0], target[0, 0, 0])
    expected, expected_gradient = value_and_gradient(make_loss(task), scores[:1, :, 0, 0], target[:1, 0, 0])
    assert value.shape == ()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, expected_gradient[0])


@every_class_task
def test_pixels_compile(task):
    torch._dynamo.reset()
    scores, target = pixels(4)
    loss = tl.DirectLoss(task, reduction="none")
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(scores, target), loss(scores, target))
    assert torch.equal(value_and_gradient(compiled, scores, target)[1], value_and_gradient(loss, scores, target)[1])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_any_integer_target(dtype):
    scores, target = pixels(5)
    loss = tl.DirectLoss("multi_class")
    assert torch.equal(loss(scores, target.to(dtype)), loss(scores, target))


def test_wrong_targets():
    loss = tl.DirectLoss("multi_class")
    scores = torch.zeros(5, 3)
    for target, message in (
        (torch.zeros(5, 1, dtype=torch.long), r"\(5, 3\).*\(5, 1\).*shape \(5,\).*target\.squeeze\(-1\)"),
        (torch.eye(5, 3).long(), r"\(5, 3\).*target\.argmax\(1\)"),
        (torch.zeros(4, dtype=torch.long), r"\(4,\).*expected class indices of shape \(5,\)"),
        (torch.tensor([0, 1, 3, 0, 0]), r"target\[2\] is 3; expected class indices from 0 to 2"),
        (torch.tensor([0, 1, -100, 0, 0]), r"target\[2\] is -100.*ignore_index"),
    ):
        with pytest.raises(ValueError, match=message):
            loss(scores, target)
    with pytest.raises(TypeError, match=r"class indices.*float32.*argmax\(1\)"):
        loss(scores, torch.zeros(5))
    with pytest.raises(ValueError, match=r"movedim\(-1, 1\)"):
        loss(torch.zeros(2, 4, 5, 3), torch.zeros(2, 4, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="no axis"):
        loss(torch.tensor(0.0), torch.tensor(0))
    with pytest.raises(ValueError, match=r"weight has shape \(3,\).*class_weight\[target\]"):
        loss(scores, torch.zeros(5, dtype=torch.long), weight=torch.ones(3))
