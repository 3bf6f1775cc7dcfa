"""Images, volumes and masks of class indices: each gives what the simple form gives on each labeling by itself."""

from __future__ import annotations

import pytest
import torch

from tests.contract.cases import every_labeling_task, every_loss, value_and_gradient

pytestmark = [every_labeling_task, every_loss]


def images(*shape: int, classes: int | None = None, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and a 0/1 target of one shape; or scores with a class axis and a mask of class indices. One image lacks a class."""
    generator = torch.Generator().manual_seed(seed)
    if classes is None:
        target = (torch.rand(shape, generator=generator) < 0.4).long()
        target[0] = 0
        return torch.randn(shape, generator=generator, dtype=torch.float64), target
    mask = torch.randint(0, classes, shape, generator=generator)
    mask[0][mask[0] == 1] = 0
    return torch.randn(shape[0], classes, *shape[1:], generator=generator, dtype=torch.float64), mask


def check(loss, scores, target, values, gradient, kept=None):
    """``values`` and ``gradient`` of labelings along the last axis are those of each by itself."""
    for index in torch.cartesian_prod(*(torch.arange(n) for n in values.shape)).reshape(-1, values.ndim).tolist():
        place = tuple(index)
        chosen = torch.ones_like(target[place], dtype=torch.bool) if kept is None else kept[place]
        value, expected = value_and_gradient(loss, scores[place][chosen], target[place][chosen])
        torch.testing.assert_close(values[place], value)
        torch.testing.assert_close(gradient[place][chosen], expected)
        assert (gradient[place][~chosen] == 0).all()


def test_an_image_is_a_labeling(task, make_loss):
    scores, target = images(4, 5, 6)
    values, gradient = value_and_gradient(make_loss(task, reduction="none"), scores, target)
    assert values.shape == (4,)
    check(make_loss(task), scores.flatten(1), target.flatten(1), values, gradient.flatten(1))
    mean, _ = value_and_gradient(make_loss(task), scores[:, None], target[:, None].bool())
    torch.testing.assert_close(mean, values.mean())


@pytest.mark.parametrize("size", [(5, 6), (2, 3, 4), (7,), ()])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_masks_of_class_indices(task, make_loss, size, dtype):
    scores, mask = images(3 if size else 20, *size, classes=4)
    values, gradient = value_and_gradient(make_loss(task, reduction="none"), scores, mask.to(dtype))
    one_hot = torch.nn.functional.one_hot(mask, 4).movedim(-1, 1)
    if size:
        assert values.shape == (3, 4)
        check(make_loss(task), scores.flatten(2), one_hot.flatten(2), values, gradient.flatten(2))
    else:
        assert values.shape == (4,)
        check(make_loss(task), scores.T, one_hot.T, values, gradient.T)


def test_ignored_pixels(task, make_loss):
    scores, mask = images(2, 5, 6, classes=3)
    one_hot = torch.nn.functional.one_hot(mask, 3).movedim(-1, 1)
    ignored = torch.arange(60).reshape(2, 5, 6) % 7 == 3
    marked, kept = mask.masked_fill(ignored, 255).to(torch.uint8), ~ignored[:, None].expand(2, 3, 5, 6)
    scores = scores.masked_fill(~kept, float("nan"))
    values, gradient = value_and_gradient(make_loss(task, reduction="none", ignore_index=255), scores, marked)
    check(make_loss(task), *(x.flatten(2) for x in (scores, one_hot)), values, gradient.flatten(2), kept.flatten(2))


def test_an_image_without_a_known_pixel_is_left_out(task, make_loss):
    scores, mask = images(3, 4, 4, classes=2)
    mask[1] = -1
    mean, gradient = value_and_gradient(make_loss(task, ignore_index=-1), scores, mask)
    expected, _ = value_and_gradient(make_loss(task), scores[[0, 2]], mask[[0, 2]])
    torch.testing.assert_close(mean, expected)
    assert (gradient[1] == 0).all()


def test_pooled_over_the_batch(task, make_loss):
    scores, mask = images(3, 5, 6, classes=4)
    one_hot = torch.nn.functional.one_hot(mask, 4).movedim(-1, 1)
    values, gradient = value_and_gradient(make_loss(task, reduction="none", dim=(0, 2, 3)), scores, mask)
    assert values.shape == (4,)
    by_class = [x.movedim(1, 0).flatten(1) for x in (scores, one_hot, gradient)]
    check(make_loss(task), *by_class[:2], values, by_class[2])


def test_groups_of_images(task, make_loss):
    """Slices of several patients: one labeling a patient."""
    scores, target = images(6, 4, 4, seed=1)
    patients = torch.tensor([9, 2, 9, 2, 2, 9])
    values, gradient = value_and_gradient(make_loss(task, reduction="none", dim=(0, 1, 2)), scores, target, groups=patients)
    assert values.shape == (2,)
    by_patient = [torch.stack([x[patients == name].flatten() for name in (2, 9)]) for x in (scores, target, gradient)]
    check(make_loss(task), *by_patient[:2], values, by_patient[2])


def test_volumes(task, make_loss):
    scores, target = images(3, 2, 4, 5)
    values, gradient = value_and_gradient(make_loss(task, reduction="none", dim=(1, 2, 3)), scores, target)
    check(make_loss(task), scores.flatten(1), target.flatten(1), values, gradient.flatten(1))
    with pytest.raises(ValueError, match=r"\(3, 2, 4, 5\).*classes or.*volume.*dim=\(2, 3\).*dim=\(1, 2, 3\)"):
        make_loss(task)(scores, target)
    with_classes, mask = images(2, 2, 3, 4, classes=3)
    one_hot = torch.nn.functional.one_hot(mask, 3).movedim(-1, 1)
    both = [value_and_gradient(make_loss(task, reduction="none"), with_classes, t) for t in (mask, one_hot)]
    assert both[0][0].shape == (2, 3)
    for first, second in zip(*both, strict=True):
        assert torch.equal(first, second)


def test_half_precision_and_single(task, make_loss):
    scores, mask = images(2, 8, 8, classes=3)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        value, gradient = value_and_gradient(make_loss(task), scores.to(dtype), mask)
        expected, expected_gradient = value_and_gradient(make_loss(task), scores.to(dtype).double(), mask)
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(gradient, expected_gradient.to(dtype))


def test_compiled(task, make_loss):
    torch._dynamo.reset()
    scores, mask = images(2, 8, 8, classes=3)
    loss = make_loss(task, reduction="none")
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for first, second in zip(value_and_gradient(loss, scores, mask), value_and_gradient(compiled, scores, mask), strict=True):
        assert torch.equal(first, second)


def test_masks_that_are_wrong(task, make_loss):
    scores, mask = images(2, 5, 6, classes=3)
    for wrong in (3, -1, 255):
        bad = mask.clone()
        bad[1, 2, 0] = bad[1, 4, 4] = wrong
        with pytest.raises(ValueError, match=rf"target\[1, 2, 0\] is {wrong}.*from 0 to 2.*ignore_index={wrong}"):
            make_loss(task)(scores, bad)
    with pytest.raises(TypeError, match=r"class indices.*integers.*float32.*target.long\(\)"):
        make_loss(task)(scores, mask.float())
    with pytest.raises(ValueError, match="same shape"):
        make_loss(task)(scores, mask[:, :-1])
    scores[1, 2, 3, 4] = float("inf")
    with pytest.raises(ValueError, match=r"scores\[1, 2, 3, 4\] is inf"):
        make_loss(task)(scores, mask)
