"""The gradient over all batches in the memory of one equals that of one graph over all of them."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import taskloss as tl
from tests.full_batch.cases import (
    AP,
    assert_buffers_same,
    assert_same,
    bce,
    build,
    plain,
    reference,
    samples,
    split,
    stateful,
)

# --- the same gradient ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("count", [1, 7, 50])
@pytest.mark.parametrize("make", [plain, stateful])
def test_equals_one_graph_over_all_batches(make, count, dtype, tolerance):
    batches = split(count, *samples(dtype=dtype))
    expected = build(make, dtype)
    ours = copy.deepcopy(expected)
    torch.manual_seed(2)
    loss = reference(expected, batches)
    after = torch.rand(3)
    torch.manual_seed(2)
    assert torch.equal(tl.full_batch_backward(ours, batches, AP), loss)
    assert torch.equal(torch.rand(3), after), "the random state moves on as in one run"
    assert_same(ours, expected, tolerance)
    if make is stateful:
        assert_buffers_same(ours, expected)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("count", [1, 7, 50])
def test_equals_one_batch_of_everything(count, dtype, tolerance):
    features, target = samples(dtype=dtype)
    expected = build(plain, dtype)
    ours = copy.deepcopy(expected)
    AP(expected(features), target).backward()
    tl.full_batch_backward(ours, split(count, features, target), AP)
    assert_same(ours, expected, tolerance)


class Augmented(Dataset):
    """Samples with noise from all the global generators, and one of its own."""

    def __init__(self) -> None:
        self.features, self.target = samples(60)
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        # numpy's global state, as augmentations use it.
        noise = random.random() + np.random.rand() + torch.rand(()).item() + self.own.random()  # noqa: NPY002
        return self.features[index] * noise, self.target[index]


@pytest.mark.parametrize(("workers", "own_generator"), [(0, False), (0, True), (2, False)])
def test_shuffled_and_augmented_loader_is_walked_in_the_same_order(workers, own_generator):
    def loader() -> DataLoader:
        generator = torch.Generator().manual_seed(5) if own_generator else None
        return DataLoader(Augmented(), batch_size=16, shuffle=True, generator=generator, num_workers=workers)

    def seed() -> None:
        torch.manual_seed(3)
        np.random.seed(3)  # noqa: NPY002  # The state that augmentations use.
        random.seed(3)

    expected = build(stateful)
    ours = copy.deepcopy(expected)
    walked, walked_by_ours = loader(), loader()
    seed()
    reference(expected, walked)
    following = next(iter(walked))[0]
    seed()
    tl.full_batch_backward(ours, walked_by_ours, AP)
    assert_same(ours, expected)
    assert_buffers_same(ours, expected)
    assert torch.equal(next(iter(walked_by_ours))[0], following), "the next epoch has the order it would have had"


class CountingSampler:
    """Shuffles by the epoch, which it counts by itself."""

    def __init__(self, n: int) -> None:
        self.n, self.epoch = n, 0

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter(np.random.default_rng(self.epoch).permutation(self.n).tolist())

    def __len__(self) -> int:
        return self.n


def test_sampler_that_counts_epochs_advances_once():
    sampler = CountingSampler(60)
    expected = build(plain)
    ours = copy.deepcopy(expected)
    reference(expected, DataLoader(TensorDataset(*samples(60)), batch_size=16, sampler=CountingSampler(60)))
    tl.full_batch_backward(ours, DataLoader(TensorDataset(*samples(60)), batch_size=16, sampler=sampler), AP)
    assert_same(ours, expected)
    assert sampler.epoch == 1


# --- criteria ---------------------------------------------------------------------------------------------------------

CRITERIA = {
    "cross-entropy": (lambda scores, target: bce(scores, target.float()), None, {}),
    "multi-label": (AP, 3, {"weight": torch.tensor([1.0, 2.0, 3.0])}),
    "missing positives": (AP, None, {"num_relevant": 60}),
    "labels": (tl.DirectLoss("f_score"), None, {}),
    "hinge": (tl.StructuredHingeLoss("roc_auc"), None, {}),
    "linear program": (tl.lp.AUCLoss(), None, {}),
    "linear program by the solver": (tl.lp.FScoreLoss(solver="lp"), None, {}),
    "embeddings": (lambda scores, target: tl.retrieval.retrieval_loss(scores, target, criterion=AP), 4, {}),
}


@pytest.mark.parametrize("name", CRITERIA)
def test_criteria_and_their_options(name):
    criterion, classes, options = CRITERIA[name]
    features, target = samples(classes=classes)
    if name == "embeddings":
        target = target.sum(1)
    expected = build(partial(plain, classes))
    ours = copy.deepcopy(expected)
    loss = criterion(expected(features), target, **options)
    loss.backward()
    value = tl.full_batch_backward(ours, split(7, features, target), criterion, options=options)
    torch.testing.assert_close(value, loss.detach())
    assert_same(ours, expected)


def test_queries_that_span_batches():
    features, target = samples()
    groups = torch.arange(100) % 9
    expected = build(plain)
    ours = copy.deepcopy(expected)
    AP(expected(features), target, groups=groups).backward()
    tl.full_batch_backward(ours, split(7, features, target, groups), AP, groups=2)
    assert_same(ours, expected)


def test_class_indices_and_pooled_segmentation():
    torch.manual_seed(0)
    images, masks = torch.randn(12, 2, 5, 5), torch.randint(0, 3, (12, 5, 5))
    expected = nn.Conv2d(2, 3, 3, padding=1)
    for criterion in (tl.DirectLoss("jaccard", dim=(0, 2, 3)), tl.DirectLoss(tl.MultiClass())):
        ours = copy.deepcopy(expected)
        expected.zero_grad()
        criterion(expected(images), masks).backward()
        tl.full_batch_backward(ours, split(5, images, masks), criterion)
        assert_same(ours, expected)


def test_images_of_different_sizes_are_flattened():
    torch.manual_seed(0)
    batches = [(torch.randn(2, 1, size, size), torch.rand(2, 1, size, size) < 0.3) for size in (3, 4, 5)]
    model = nn.Conv2d(1, 1, 3, padding=1)
    expected = copy.deepcopy(model)
    AP(torch.cat([expected(x).flatten() for x, _ in batches]), torch.cat([y.flatten() for _, y in batches])).backward()
    tl.full_batch_backward(model, batches, AP, scores=torch.flatten, target=lambda batch: batch[1].flatten())
    assert_same(model, expected)
    with pytest.raises(ValueError, match=r"batch 1 has scores or targets of shape \(2, 1, 4, 4\), batch 0 of \(2, 1, 3, 3\)"):
        tl.full_batch_backward(model, batches, AP)


def test_batches_without_rows_change_nothing():
    batches = split(4, *samples())
    ours, expected = build(plain), build(plain)
    reference(expected, batches)
    tl.full_batch_backward(ours, [(batches[0][0][:0], batches[0][1][:0]), *batches], AP)
    assert_same(ours, expected)


def test_target_of_several_parts_is_joined_part_by_part():
    features, target = samples()
    weights = torch.rand(100)

    def weighted(scores: torch.Tensor, target: dict[str, torch.Tensor]) -> torch.Tensor:
        return bce(scores, target["label"].float(), target["weight"])

    expected = build(plain)
    ours = copy.deepcopy(expected)
    bce(expected(features), target.float(), weights).backward()
    batches = [(x, {"label": y, "weight": w}) for x, y, w in split(7, features, target, weights)]
    tl.full_batch_backward(ours, batches, weighted)
    assert_same(ours, expected)


class Tempered(nn.Module):
    """A criterion with a parameter, a buffer that moves once per call, and randomness."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return bce(scores / self.temperature + torch.randn(len(scores)), target.float())


def test_parameters_buffers_and_randomness_of_the_criterion():
    """Also where the criterion is a part of the model, as in a LightningModule."""
    model = build(stateful)
    model.criterion = Tempered()
    model.forward = lambda x, layers=list(model)[:-1]: nn.Sequential(*layers)(x)
    expected = build(stateful)
    criterion = Tempered()
    batches = split(5, *samples())
    torch.manual_seed(0)
    reference(expected, batches, criterion)
    after = torch.rand(3)
    torch.manual_seed(0)
    tl.full_batch_backward(model, batches, model.criterion)
    assert torch.equal(torch.rand(3), after)
    assert model.criterion.calls == 1
    torch.testing.assert_close(model.criterion.temperature.grad, criterion.temperature.grad)
    torch.testing.assert_close(model[0].bias.grad, expected[0].bias.grad)


def test_a_criterion_that_holds_the_model_moves_batch_norm_once():
    class Penalized(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model, self.loss = model, tl.DirectLoss("average_precision")

        def forward(self, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.loss(scores, target) + 0.01 * sum((p**2).sum() for p in self.model.parameters())

    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1), nn.Flatten(0))
    tl.full_batch_backward(model, [(torch.randn(8, 3), torch.arange(8) % 2) for _ in range(5)], Penalized(model))
    assert model[1].num_batches_tracked == 5


def test_batches_without_a_gradient_among_others():
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).squeeze(1) if x[0, 0] > 0 else x[:, 0]

    batches = [(torch.full((4, 3), value) * torch.rand(4, 3), torch.arange(4) % 2) for value in (1.0, -1.0)]
    model = Gate()
    tl.full_batch_backward(model, batches, nn.functional.mse_loss)
    assert model.layer.weight.grad.any()
