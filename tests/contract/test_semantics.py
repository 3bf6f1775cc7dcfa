"""What holds for every task and every loss: dtypes, graphs, ties, extremes, purity."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import taskloss as tl
from tests.contract.cases import every_loss, every_task, example, scores_shape, tasks_that, value_and_gradient

pytestmark = every_loss

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@every_task
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_dtype(task, make_loss, dtype, device):
    scores, target = example(task)
    scores = scores.to(device, dtype)
    value, gradient = value_and_gradient(make_loss(task), scores, target.to(device))
    expected, expected_gradient = value_and_gradient(make_loss(task), scores.double(), target.to(device))
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert gradient.dtype == dtype
    assert value.device.type == gradient.device.type == device
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gradient, expected_gradient.to(dtype))


@tasks_that(kinds=("binary", "labels"))
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.bfloat16])
def test_any_target_dtype(task, make_loss, dtype):
    scores, target = example(task)
    expected = value_and_gradient(make_loss(task), scores, target)
    given = value_and_gradient(make_loss(task), scores, target.to(dtype))
    assert torch.equal(given[0], expected[0])
    assert torch.equal(given[1], expected[1])


@every_task
def test_non_contiguous_input(task, make_loss):
    scores, target = example(task, (20, 4))
    expected = value_and_gradient(make_loss(task), scores, target)
    strided = scores.transpose(0, -1).contiguous().transpose(0, -1)
    assert not strided.is_contiguous()
    leaf = strided.requires_grad_()
    value = make_loss(task)(leaf, target.flip(0).flip(0))
    value.backward()
    assert torch.equal(value, expected[0])
    assert torch.equal(leaf.grad, expected[1])


@every_task
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_order_of_samples_does_not_matter(task, make_loss, ties, dtype):
    scores, target = example(task, (50,), ties=ties)
    scores = scores.to(dtype)
    value, gradient = value_and_gradient(make_loss(task), scores, target)
    for seed in range(5):
        order = torch.randperm(50, generator=torch.Generator().manual_seed(seed))
        shuffled, shuffled_gradient = value_and_gradient(make_loss(task), scores[order], target[order])
        assert torch.equal(shuffled, value)
        assert torch.equal(shuffled_gradient, gradient[order])


@tasks_that(one_score=True)
def test_equal_samples_get_equal_gradients(task, make_loss):
    scores, target = example(task, (50,), ties=True)
    _, gradient = value_and_gradient(make_loss(task), scores, target)
    for score in scores.unique():
        for label in target.unique():
            assert len(gradient[(scores == score) & (target == label)].unique()) <= 1


@every_task
def test_grad_output_is_respected(task, make_loss):
    scores, target = example(task, (20, 3))
    leaf = scores.clone().requires_grad_()
    values = make_loss(task, reduction="none")(leaf, target)
    factors = torch.linspace(-1, 2, values.numel(), dtype=torch.float64).reshape(values.shape)
    each = [torch.autograd.grad(values, leaf, one, retain_graph=True)[0] for one in torch.eye(values.numel()).double()]
    expected = sum(factor * gradient for factor, gradient in zip(factors, each, strict=True))
    torch.testing.assert_close(torch.autograd.grad(values, leaf, factors)[0], expected)
    leaf = scores.clone().requires_grad_()
    (make_loss(task, reduction="sum")(leaf, target) * -3.0).backward()
    torch.testing.assert_close(leaf.grad, -3.0 * sum(each))


@every_task
@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_huge_and_tiny_scores(task, make_loss, scale):
    scores, target = example(task, (40,))
    value, gradient = value_and_gradient(make_loss(task), scores * scale, target)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()
    largest = torch.finfo(torch.float64).max
    _, extreme = value_and_gradient(make_loss(task), scores.sign() * largest, target)
    assert torch.isfinite(extreme).all()


@every_task
def test_func_grad(task, make_loss):
    scores, target = example(task)
    loss = make_loss(task)
    value, gradient = value_and_gradient(loss, scores, target)
    functional_gradient, functional_value = torch.func.grad_and_value(lambda x: loss(x, target))(scores)
    assert torch.equal(functional_value, value)
    assert torch.equal(functional_gradient, gradient)


@every_task
def test_autocast(task, make_loss):
    scores, target = example(task)
    weight = torch.ones(1, 1, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = (scores.float()[..., None] @ weight).squeeze(-1)
        assert half.dtype == torch.bfloat16
        loss = make_loss(task)(half, target)
    loss.backward()
    expected, _ = value_and_gradient(make_loss(task), half.detach(), target)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)
    assert torch.isfinite(weight.grad).all()


@every_task
def test_copies_and_pickles(task, make_loss):
    scores, target = example(task)
    loss = make_loss(task, reduction="sum")
    expected = value_and_gradient(loss, scores, target)
    for other in (copy.deepcopy(loss), copy.copy(loss), pickle.loads(pickle.dumps(loss))):
        assert repr(other) == repr(loss)
        assert other.task == task
        value, gradient = value_and_gradient(other, scores, target)
        assert torch.equal(value, expected[0])
        assert torch.equal(gradient, expected[1])
    assert not loss.state_dict()


@every_task
def test_double_backward_raises(task, make_loss):
    scores, target = example(task)
    leaf = scores.requires_grad_()
    (gradient,) = torch.autograd.grad(make_loss(task)(leaf, target), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.square().sum().backward()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.func.grad(lambda x: torch.func.grad(lambda z: make_loss(task)(z, target))(x).square().sum())(scores.detach())


@every_task
def test_vmap_says_what_to_use_instead(task, make_loss):
    scores, target = example(task, (6, 4))
    with pytest.raises(RuntimeError, match="dim="):
        torch.func.vmap(make_loss(task))(scores, target)


@every_task
def test_no_state_and_no_change_of_the_input(task, make_loss):
    scores, target = example(task)
    loss = make_loss(task)
    before = scores.clone(), target.clone()
    first = value_and_gradient(loss, scores, target)
    value_and_gradient(loss, -scores, target)
    second = value_and_gradient(loss, scores, target)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert torch.equal(scores, before[0])
    assert torch.equal(target, before[1])


@every_task
def test_value_without_gradient(task, make_loss):
    scores, target = example(task)
    expected, _ = value_and_gradient(make_loss(task), scores, target)
    with torch.no_grad():
        assert torch.equal(make_loss(task)(scores, target), expected)
    assert not make_loss(task)(scores, target).requires_grad


@every_task
def test_empty_input_reaches_the_graph(task, make_loss):
    for shape in ((0,), (0, 3), (3, 0)):
        leaf = torch.zeros(scores_shape(task, shape), requires_grad=True)
        target = torch.zeros(shape, dtype=torch.bool) if leaf.shape == shape else example(task, shape)[1]
        value = make_loss(task)(leaf, target)
        value.backward()
        assert value == 0
        assert leaf.grad.shape == leaf.shape


@every_task
def test_epsilon_and_the_margin_are_units_of_the_scores(task, make_loss):
    """The direct loss with weight w is that with weight 1 of scores / w; hinge and perceptron are w times as large."""
    scores, target = example(task)
    weight, loss, unit = 4.0, make_loss(task), make_loss(task)
    for module, value in ((loss, weight), (unit, 1.0)):
        setattr(module, "epsilon" if isinstance(module, tl.DirectLoss) else "margin", value)
    value, gradient = value_and_gradient(loss, scores, target)
    unit_value, unit_gradient = value_and_gradient(unit, scores / weight, target)
    direct = isinstance(loss, tl.DirectLoss)
    torch.testing.assert_close(value, unit_value * (1.0 if direct else weight))
    torch.testing.assert_close(gradient, unit_gradient / weight if direct else unit_gradient)
