"""Bad input: what was given, what was expected, what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.contract.cases import every_loss, every_task, example, tasks_that

pytestmark = every_loss


@every_task
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_not_finite(task, make_loss, bad):
    scores, target = example(task, (6, 4))
    rows = scores.view(6, -1)
    rows[2, 1] = rows[5, 0] = bad
    with pytest.raises(ValueError, match=rf"scores\[2, (0, )*1\] is {bad}.*2 of {scores.numel()}"):
        make_loss(task)(scores, target)


@every_task
def test_not_tensors(task, make_loss):
    scores, target = example(task)
    with pytest.raises(TypeError, match="scores must be a torch.Tensor, got list"):
        make_loss(task)(scores.tolist(), target)
    with pytest.raises(TypeError, match="target must be a torch.Tensor, got ndarray"):
        make_loss(task)(scores, target.numpy())
    with pytest.raises(TypeError, match="swapped"):
        make_loss(task)(torch.arange(30), target)
    with pytest.raises(ValueError, match="swapped"):
        make_loss(task)(scores, scores.clone().requires_grad_())


@tasks_that(one_score=True)
def test_shapes(task, make_loss):
    scores, target = example(task)
    with pytest.raises(ValueError, match=r"\(30, 1\).*\(30,\).*squeeze\(-1\)"):
        make_loss(task)(scores[:, None], target)
    with pytest.raises(ValueError, match=r"\(29,\).*\(30,\)"):
        make_loss(task)(scores[:-1], target)
    with pytest.raises(ValueError, match="no axis"):
        make_loss(task)(scores[0], target[0])


@tasks_that(kinds=("binary", "labels"))
def test_binary_targets(task, make_loss):
    scores, target = example(task)
    for wrong, advice in (
        (2, "binary"),
        (-1, r"target > 0.*ignore_index=-1"),
        (0.5, "Map your classes"),
        (float("nan"), "0 and 1"),
    ):
        marked = target.double()
        marked[3] = wrong
        with pytest.raises(ValueError, match=rf"target\[3\] is {wrong}.*{advice}"):
            make_loss(task)(scores, marked if wrong not in (2, -1) else marked.long())


@tasks_that(take=("groups",))
def test_groups(task, make_loss):
    scores, target = example(task)
    with pytest.raises(ValueError, match=r"\(3,\).*30 samples.*group sizes.*repeat_interleave"):
        make_loss(task)(scores, target, groups=torch.tensor([10, 10, 10]))
    with pytest.raises(TypeError, match="integers.*float32"):
        make_loss(task)(scores, target, groups=torch.zeros(30))
    with pytest.raises(TypeError, match="groups"):
        make_loss(task)(scores, target, groups=np.array(["a"] * 30, dtype=object))


@tasks_that(take=("weight",), one_score=True)
def test_weights(task, make_loss):
    scores, target = example(task)
    with pytest.raises(ValueError, match=r"\(30,\).*shape \(\).*each sample"):
        make_loss(task)(scores, target, weight=torch.ones(30))
    with pytest.raises(ValueError, match="not negative"):
        make_loss(task)(scores, target, weight=torch.tensor(-1.0))
    with pytest.raises(ValueError, match="detach"):
        make_loss(task)(scores, target, weight=torch.tensor(1.0, requires_grad=True))


@tasks_that(take=("num_relevant",))
def test_num_relevant(task, make_loss):
    scores, target = example(task)
    with pytest.raises(ValueError, match="num_relevant is 1 for ranking 0"):
        make_loss(task)(scores, target, num_relevant=1)
    with pytest.raises(ValueError, match="whole numbers"):
        make_loss(task)(scores, target, num_relevant=40.5)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        make_loss(task)(scores, target, num_relevant=[40, 40])


@every_task
def test_settings(task, make_loss):
    scores, target = example(task)
    with pytest.raises(ValueError, match="reduction='max'"):
        make_loss(task, reduction="max")
    with pytest.raises(ValueError, match="reduction='max'"):
        make_loss(task)(scores, target, reduction="max")
    for wrong in ("a", -1.0, True):
        with pytest.raises(TypeError, match="ignore_index must be an integer or None"):
            make_loss(task)(scores, target, ignore_index=wrong)


@tasks_that(take=("dim",))
def test_axes(task, make_loss):
    scores, target = example(task)
    with pytest.raises(ValueError, match="dim=1 is out of range"):
        make_loss(task, dim=1)(scores, target)
    for wrong in ("0", (0, "1"), True, 0.0):
        with pytest.raises(TypeError, match="dim must be an integer"):
            make_loss(task, dim=wrong)(scores, target)
    for wrong, message in (((), "names no axis"), ((0, 0), "twice")):
        with pytest.raises(ValueError, match=message):
            make_loss(task, dim=wrong)(scores, target)
