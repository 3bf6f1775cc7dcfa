"""Every calling form gives what the simple form gives on each ranking by itself."""

from __future__ import annotations

import pytest
import torch

from tests.contract.cases import every_loss, every_task, example, tasks_that, value_and_gradient

pytestmark = every_loss


def apart(loss, task_inputs):
    """Values and gradients of rankings computed one by one."""
    pairs = [value_and_gradient(loss, scores, target) for scores, target in task_inputs]
    return torch.stack([value for value, _ in pairs]), [gradient for _, gradient in pairs]


@tasks_that(one_score=True)
def test_columns_are_separate_rankings(task, make_loss):
    scores, target = example(task, (20, 5))
    values, gradients = apart(make_loss(task), [(scores[:, k], target[:, k]) for k in range(5)])
    together, gradient = value_and_gradient(make_loss(task, reduction="none"), scores, target)
    torch.testing.assert_close(together, values)
    torch.testing.assert_close(gradient, torch.stack(gradients, 1))
    mean, mean_gradient = value_and_gradient(make_loss(task), scores, target)
    torch.testing.assert_close(mean, values.mean())
    torch.testing.assert_close(mean_gradient, gradient / 5)
    total, total_gradient = value_and_gradient(make_loss(task, reduction="sum"), scores, target)
    torch.testing.assert_close(total, values.sum())
    torch.testing.assert_close(total_gradient, gradient)


@tasks_that(take=("dim",))
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_dim_is_the_ranked_axis(task, make_loss, dim):
    scores, target = example(task, (6, 5, 4), seed=1)
    moved = scores.movedim(dim, 0).reshape(scores.shape[dim], -1), target.movedim(dim, 0).reshape(scores.shape[dim], -1)
    expected, expected_gradient = value_and_gradient(make_loss(task, reduction="none"), *moved)
    values, gradient = value_and_gradient(make_loss(task, reduction="none", dim=dim), scores, target)
    shape = tuple(n for axis, n in enumerate(scores.shape) if axis != dim % 3)
    assert values.shape == shape
    torch.testing.assert_close(values, expected.reshape(shape))
    torch.testing.assert_close(gradient.movedim(dim, 0).reshape(scores.shape[dim], -1), expected_gradient)


@tasks_that(take=("dim",))
@pytest.mark.parametrize("dim", [(1, 2), (0, 2), (-1, 0), (0, 1, 2)])
def test_several_axes_make_one_item(task, make_loss, dim):
    scores, target = example(task, (4, 5, 6), seed=7)
    axes = sorted(axis % 3 for axis in dim)
    others = [axis for axis in range(3) if axis not in axes]
    rows = [x.permute(*others, *axes).reshape(*(x.shape[axis] for axis in others), -1) for x in (scores, target)]
    expected, expected_gradient = value_and_gradient(make_loss(task, reduction="none", dim=-1), *rows)
    values, gradient = value_and_gradient(make_loss(task, reduction="none", dim=dim), scores, target)
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(gradient.permute(*others, *axes).reshape(rows[0].shape), expected_gradient)


@tasks_that(take=("groups",))
def test_groups_are_separate_rankings_in_sorted_order(task, make_loss):
    scores, target = example(task, (60,), seed=2)
    groups = torch.tensor([40, -3, 7, 10**15])[torch.randint(4, (60,), generator=torch.Generator().manual_seed(0))]
    members = [groups == name for name in sorted(set(groups.tolist()))]
    values, gradients = apart(make_loss(task), [(scores[m], target[m]) for m in members])
    together, gradient = value_and_gradient(make_loss(task, reduction="none"), scores, target, groups=groups)
    torch.testing.assert_close(together, values)
    for member, expected in zip(members, gradients, strict=True):
        torch.testing.assert_close(gradient[member], expected)
    mean, _ = value_and_gradient(make_loss(task), scores, target, groups=groups.numpy())
    torch.testing.assert_close(mean, values.mean())


@tasks_that(take=("groups",))
def test_groups_of_columns(task, make_loss):
    scores, target = example(task, (24, 3), seed=3)
    groups = torch.arange(24) % 2
    values, _ = value_and_gradient(make_loss(task, reduction="none"), scores, target, groups=groups)
    assert values.shape == (2, 3)
    for g in range(2):
        expected, _ = value_and_gradient(make_loss(task, reduction="none"), scores[g::2], target[g::2])
        torch.testing.assert_close(values[g], expected)


@tasks_that(take=("ignore_index",))
def test_ignored_samples_do_not_exist(task, make_loss):
    scores, target = example(task, (40,), seed=4)
    ignored = torch.arange(40) % 5 == 2
    marked = target.long().masked_fill(ignored, -100)
    padded = scores.clone()
    padded[ignored] = float("nan")
    value, gradient = value_and_gradient(make_loss(task, ignore_index=-100), padded, marked)
    expected, expected_gradient = value_and_gradient(make_loss(task), scores[~ignored], target[~ignored])
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient[~ignored], expected_gradient)
    assert (gradient[ignored] == 0).all()
    again, _ = value_and_gradient(make_loss(task), padded, marked, ignore_index=-100)
    assert torch.equal(again, value)


@tasks_that(
    take=(
        "ignore_index",
        "groups",
        "dim",
    )
)
def test_padded_matrix_equals_groups(task, make_loss):
    scores, target = example(task, (4, 10), seed=5)
    lengths = torch.tensor([10, 4, 7, 2])
    real = torch.arange(10) < lengths[:, None]
    target[:, 0], target[:, 1] = True, False
    marked = target.long().masked_fill(~real, -1)
    by_row, row_gradient = value_and_gradient(make_loss(task, dim=1, ignore_index=-1), scores, marked)
    groups = torch.arange(4)[:, None].expand(4, 10)[real]
    by_group, group_gradient = value_and_gradient(make_loss(task), scores[real], target[real], groups=groups)
    torch.testing.assert_close(by_row, by_group)
    torch.testing.assert_close(row_gradient[real], group_gradient)


@tasks_that(take=("weight",), one_score=True)
def test_weights_make_a_weighted_mean(task, make_loss):
    scores, target = example(task, (20, 3), seed=6)
    weight = torch.tensor([2.0, 0.0, 1.0])
    values, gradient = value_and_gradient(make_loss(task, reduction="none"), scores, target)
    mean, mean_gradient = value_and_gradient(make_loss(task), scores, target, weight=weight)
    torch.testing.assert_close(mean, (values * weight).sum() / 3)
    torch.testing.assert_close(mean_gradient, gradient * weight / 3)
    each, _ = value_and_gradient(make_loss(task, reduction="none"), scores, target, weight=weight)
    torch.testing.assert_close(each, values * weight)
    nothing, no_gradient = value_and_gradient(make_loss(task), scores, target, weight=torch.zeros(3))
    assert nothing == 0
    assert (no_gradient == 0).all()


@every_task
def test_functional_form_equals_the_module(task, make_loss):
    import taskloss.functional as F

    scores, target = example(task)
    loss = make_loss(task)
    name = type(loss).__name__
    functions = {"DirectLoss": F.direct_loss, "StructuredHingeLoss": F.structured_hinge_loss, "PerceptronLoss": F.perceptron_loss}
    settings = {key: getattr(loss, key) for key in ("epsilon", "update", "margin") if hasattr(loss, key)}
    assert torch.equal(functions[name](scores, target, task, **settings), loss(scores, target))


@every_task
def test_an_option_that_the_task_cannot_honour_is_refused(task, make_loss):
    scores, target = example(task)
    values = {"groups": torch.zeros(30, dtype=torch.long), "num_relevant": 30, "weight": torch.tensor(1.0)}
    for option, value in values.items():
        if option not in task.options:
            with pytest.raises(ValueError, match=option):
                make_loss(task)(scores, target, **{option: value})
    with pytest.raises(TypeError, match="group_ids"):
        make_loss(task)(scores, target, group_ids=1)
    with pytest.raises(TypeError, match="axis"):
        make_loss(task, axis=1)
