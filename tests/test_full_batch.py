"""The gradient over all batches in the memory of one equals that of one graph over all of them, whatever the model and loader."""

from __future__ import annotations

import copy
import random
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

import taskloss as tl

AP = tl.DirectLoss("average_precision")
bce = nn.functional.binary_cross_entropy_with_logits


def samples(n: int = 100, classes: int | None = None, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, 6, generator=generator, dtype=dtype)
    noise = torch.randn((n,) if classes is None else (n, classes), generator=generator, dtype=dtype)
    return features, (features[:, :1].expand(n, classes or 1).reshape(noise.shape) + noise > 0.8).long()


def split(count: int, *tensors: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    return list(zip(*(tensor.tensor_split(count) for tensor in tensors), strict=True))


class Wandering(nn.Module):
    """A buffer that moves in every run and takes part in the scores; it is replaced, not changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return x - self.mean


def plain(outputs: int | None = None) -> nn.Module:
    last = [nn.Linear(8, 1), nn.Flatten(0)] if outputs is None else [nn.Linear(8, outputs)]
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), *last)


def stateful() -> nn.Module:
    return nn.Sequential(
        *(parametrizations.spectral_norm(nn.Linear(6, 8)), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), Wandering()),
        *(nn.Linear(8, 1), nn.Flatten(0)),
    )


def build(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(1)
    return make().to(dtype)


def gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def reference(model: nn.Module, batches: Any, criterion: Callable[..., torch.Tensor] = AP, **options: Any) -> torch.Tensor:
    """Hold the graphs of all batches."""
    parts = [(model(batch[0]), batch[1]) for batch in batches]
    loss = criterion(torch.cat([scores for scores, _ in parts]), torch.cat([target for _, target in parts]), **options)
    loss.backward()
    return loss.detach()


def assert_same(ours: nn.Module, expected: nn.Module, tolerance: float = 1e-6) -> None:
    error = (gradients(ours) - gradients(expected)).norm() / gradients(expected).norm()
    assert gradients(expected).norm() > 0
    assert error <= tolerance, f"relative error {error:.1e}"


def assert_buffers_same(ours: nn.Module, expected: nn.Module) -> None:
    buffers = dict(expected.named_buffers())
    assert buffers
    for name, buffer in ours.named_buffers():
        assert torch.equal(buffer, buffers[name]), name


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
        noise = random.random() + np.random.rand() + torch.rand(()).item() + self.own.random()  # noqa: NPY002
        return self.features[index] * noise, self.target[index]


@pytest.mark.parametrize(("workers", "own_generator"), [(0, False), (0, True), (2, False)])
def test_shuffled_and_augmented_loader_is_walked_in_the_same_order(workers, own_generator):
    def loader() -> DataLoader:
        generator = torch.Generator().manual_seed(5) if own_generator else None
        return DataLoader(Augmented(), batch_size=16, shuffle=True, generator=generator, num_workers=workers)

    def seed() -> None:
        torch.manual_seed(3)
        np.random.seed(3)  # noqa: NPY002
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


# --- batches and outputs ----------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", ["image", "label"])


@dataclass
class Sample:
    image: torch.Tensor
    label: torch.Tensor


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = plain()

    def forward(self, image: torch.Tensor, shift: torch.Tensor | float = 0.0) -> torch.Tensor:
        return self.net(image + shift)


FORMS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "tuple": (lambda x, s, y: (x + s, y), {}),
    "list of inputs": (lambda x, s, y: [[x, s], y], {}),
    "dict of inputs": (lambda x, s, y: ({"image": x, "shift": s}, y), {}),
    "named tuple": (lambda x, s, y: Pair(x + s, y), {}),
    "named tuple by name": (lambda x, s, y: Pair(y, x + s), {"inputs": "label", "target": "image"}),
    "dict": (lambda x, s, y: {"image": x + s, "label": y, "name": "n"}, {"inputs": "image", "target": "label"}),
    "several keys": (lambda x, s, y: {"image": x, "shift": s, "label": y}, {"inputs": ["image", "shift"], "target": "label"}),
    "several indices": (lambda x, s, y: (x, s, y), {"inputs": (0, 1), "target": 2}),
    "dataclass": (lambda x, s, y: Sample(x + s, y), {"inputs": "image", "target": "label"}),
    "functions": (lambda x, s, y: Sample(x, y), {"inputs": lambda b: (b.image, 0.5), "target": lambda b: b.label}),
    "arrays as targets": (lambda x, s, y: (x + s, y.numpy()), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_batches(form):
    make, fields = FORMS[form]
    features, target = samples()
    expected = build(TwoInputs)
    ours = copy.deepcopy(expected)
    AP(expected(features, 0.5), target).backward()
    batches = [make(x, torch.full((len(x), 1), 0.5), y) for x, y in split(4, features, target)]
    tl.full_batch_backward(ours, batches, AP, **fields)
    assert_same(ours, expected)


def test_packed_sequence_is_one_argument():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.GRU(3, 1, batch_first=True)

        def forward(self, sequence: nn.utils.rnn.PackedSequence) -> torch.Tensor:
            return self.net(sequence)[1].flatten()

    x = torch.randn(8, 4, 3)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 3, 2, 1, 4, 3, 2, 1]), batch_first=True, enforce_sorted=False)
    model = Recurrent()
    tl.full_batch_backward(model, [(packed, torch.arange(8) % 2)] * 3, AP)
    assert gradients(model).norm() > 0


@pytest.mark.parametrize(
    ("wrap", "scores"),
    [
        (lambda out: {"logits": out, "hidden": out}, "logits"),
        (lambda out: Sample(out, out), "label"),
        (lambda out: (out, None), 0),
        (lambda out: out[:, None], lambda output: output[:, 0]),
    ],
)
def test_models_that_return_more_than_scores(wrap, scores):
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: torch.Tensor) -> Any:
            return wrap(self.net(x))

    batches = split(4, *samples())
    ours, expected = build(Wrapped), build(plain)
    reference(expected, batches)
    tl.full_batch_backward(ours, batches, AP, scores=scores)
    assert_same(ours, expected)


# --- the rest of a training step --------------------------------------------------------------------------------------


def test_gradients_accumulate():
    batches = split(4, *samples())
    ours, expected = build(plain), build(plain)
    reference(expected, batches)
    reference(expected, batches, tl.DirectLoss("roc_auc"))
    tl.full_batch_backward(ours, batches, AP)
    tl.full_batch_backward(ours, batches, tl.DirectLoss("roc_auc"))
    assert_same(ours, expected)


def test_scaler_scales_before_the_network():
    """Scores in float16: their gradients would be zero without the scale."""
    features, target = samples(dtype=torch.float16)
    model = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)).half()
    expected = copy.deepcopy(model)

    def small(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return 1e-7 * AP(scores, target)

    tl.full_batch_backward(model, split(4, features, target), small)
    assert not gradients(model).any()
    model.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    loss = tl.full_batch_backward(model, split(4, features, target), small, scaler=scaler)
    scaler.scale(small(expected(features), target)).backward()
    assert loss < 1e-6
    assert_same(model, expected, 1e-2)


def test_autocast():
    features, target = samples()
    batches = split(4, features, target)
    expected = build(stateful)
    ours = copy.deepcopy(expected)
    # Without the cache of autocast, which would add up the gradients of all batches in bfloat16.
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        torch.manual_seed(0)
        parts = [expected(x) for x, _ in batches]
        assert parts[0].dtype == torch.bfloat16
        loss = AP(torch.cat(parts), target)
    loss.backward()
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(0)
        assert torch.equal(tl.full_batch_backward(ours, batches, AP), loss.detach())
        assert torch.is_autocast_enabled("cpu")
    assert_same(ours, expected)
    assert_buffers_same(ours, expected)


def test_autocast_of_the_model_is_not_that_of_the_backward_pass():
    """A layer that a model keeps in float32 has a gradient computed in float32, and weights change between two calls."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.first(x).float()
            with torch.autocast("cpu", enabled=False):
                return self.last(hidden).flatten()

    batches = split(4, *samples())
    ours, expected = build(Mixed), build(Mixed)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            ours.zero_grad()
            tl.full_batch_backward(ours, batches, AP)
            torch.optim.SGD(ours.parameters(), lr=1.0).step()
    for _ in range(2):
        expected.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            loss = AP(torch.cat([expected(x) for x, _ in batches]), torch.cat([y for _, y in batches]))
        loss.backward()
        torch.optim.SGD(expected.parameters(), lr=1.0).step()
    assert_same(ours, expected)


def test_memory_that_is_reused():
    """Loaders with one pinned buffer and models with a workspace overwrite in the next batch what they gave for the last."""

    class Reusing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.workspace = plain(), torch.empty(20)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x) if torch.is_grad_enabled() else self.workspace.copy_(self.net(x))

    class OneBuffer:
        def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
            buffer = tuple(torch.empty_like(tensor) for tensor in samples(20))
            for batch in split(5, *samples(100)):
                yield tuple(place.copy_(tensor) for place, tensor in zip(buffer, batch, strict=True))

    ours, expected = build(Reusing), build(plain)
    reference(expected, split(5, *samples(100)))
    tl.full_batch_backward(ours, OneBuffer(), AP)
    assert_same(ours, expected)


def test_compiled_model():
    batches = split(4, *samples())
    expected = build(stateful)
    ours = copy.deepcopy(expected)
    torch.manual_seed(0)
    reference(expected, batches)
    torch.manual_seed(0)
    tl.full_batch_backward(torch.compile(ours, backend="aot_eager"), batches, AP)
    assert_same(ours, expected)
    assert_buffers_same(ours, expected)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_activation_checkpointing(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.net = nn.Linear(6, 6), stateful()[2:4]
            self.last = nn.Linear(6, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(checkpoint(self.net, self.first(x), use_reentrant=reentrant)).flatten()

    batches = split(4, *samples())
    expected = build(Checkpointed)
    ours = copy.deepcopy(expected)
    torch.manual_seed(0)
    reference(expected, batches)
    torch.manual_seed(0)
    tl.full_batch_backward(ours, batches, AP)
    assert_same(ours, expected)


def test_only_one_graph_is_alive():
    """The activations of a batch are freed before the next batch runs."""
    alive, most = 0, 0

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            nonlocal alive, most
            if x.requires_grad:
                alive += 1
                most = max(most, alive)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            nonlocal alive
            alive -= 1
            return gradient

    class Counting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Counted.apply(x) if torch.is_grad_enabled() else x

    tl.full_batch_backward(nn.Sequential(plain(), Counting()), split(10, *samples()), AP)
    assert (alive, most) == (0, 1)


def test_progress(capsys):
    batches = split(3, *samples())
    seen: list[tuple[int, int | None]] = []
    tl.full_batch_backward(build(plain), batches, AP, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 6) for done in range(1, 7)]
    seen.clear()

    class WithoutLength:
        def __iter__(self) -> Iterator[Any]:
            return iter(batches)

    tl.full_batch_backward(build(plain), WithoutLength(), AP, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, None), (2, None), (3, None), (4, 6), (5, 6), (6, 6)]
    tl.full_batch_backward(build(plain), batches, AP, progress=True)
    assert capsys.readouterr().err == "", "away from a terminal, a short run prints no line"


def test_progress_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    tl.full_batch_backward(build(plain), split(2, *samples()), AP, progress=True)
    assert capsys.readouterr().err.endswith("\rfull batch: 4 of 4 batches\n")


# --- errors -----------------------------------------------------------------------------------------------------------


def state_of(model: nn.Module) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in (*model.buffers(), *(p.grad for p in model.parameters()), torch.get_rng_state())]


def assert_raises_and_leaves_no_trace(
    error: type[BaseException], match: str | None, model: nn.Module, *args: Any, **options: Any
) -> None:
    """Gradients from before the call are there too, since a caller may be accumulating."""
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = state_of(model)
    with pytest.raises(error, match=match):
        tl.full_batch_backward(model, *args, **options)
    assert all(map(torch.equal, state_of(model), before))


@pytest.mark.parametrize("make", [iter, lambda batches: (batch for batch in batches), lambda batches: zip(batches)])
def test_iterator_is_refused_before_the_first_batch(make):
    batches = make(split(3, *samples()))
    with pytest.raises(TypeError, match="is an iterator, which can be walked only once; pass a DataLoader, a list"):
        tl.full_batch_backward(build(plain), batches, AP)
    assert len(list(batches)) == 3


class Walks:
    """What each walk over the loader gives."""

    def __init__(self, *walks: list[Any]) -> None:
        self.walks = iter(walks)

    def __iter__(self) -> Iterator[Any]:
        return iter(next(self.walks, []))


def test_loader_that_changes():
    batches = split(3, *samples())
    other_inputs = [(x.flip(0), y) for x, y in batches]
    raises = partial(assert_raises_and_leaves_no_trace, ValueError)
    raises("gave 3 batches, the second 0", build(stateful), Walks(batches), AP)
    raises("gave 3 batches, the second 2", build(stateful), Walks(batches, batches[:2]), AP)
    raises("gave 3 batches, the second more", build(stateful), Walks(batches, batches * 2), AP)
    raises("batch 0 has another target", build(stateful), Walks(batches, batches[::-1]), AP)
    raises("batch 0 has another target", build(stateful), Walks(batches, split(2, *samples())), AP)
    raises("batch 0 has other scores.*persistent_workers=False", build(stateful), Walks(batches, other_inputs), AP)
    groups = [(*batch, torch.arange(len(batch[1])) % 4) for batch in batches]
    other_groups = [(x, y, g.flip(0)) for x, y, g in groups]
    raises("batch 0 has another target or other groups", build(stateful), Walks(groups, other_groups), AP, groups=2)


def test_augmentation_that_draws_elsewhere():
    rng = np.random.default_rng(0)
    dataset = [(x * rng.random(), y) for x, y in zip(*samples(60), strict=True)]

    class Hidden(Dataset):
        def __len__(self) -> int:
            return len(dataset)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            return dataset[index][0] * rng.random(), dataset[index][1]

    with pytest.raises(ValueError, match="other scores in the second run than in the first: the largest difference is"):
        tl.full_batch_backward(build(plain), DataLoader(Hidden(), batch_size=16), AP)


def test_model_with_hidden_state():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.calls = plain(), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.net(x) + 0.01 * self.calls * x[:, 0]

    batches = split(3, *samples())
    match = "batch 0 has other scores.*Register other state of the model as a buffer"
    assert_raises_and_leaves_no_trace(ValueError, match, build(Counter), batches, AP)
    tl.full_batch_backward(build(Counter), batches, AP, tolerance=1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_no_difference(dtype):
    """Scores that differ by a few units in the last place, as with kernels that add in no fixed order."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.net(x)
            return scores * (1 + 4 * torch.finfo(dtype).eps * torch.is_grad_enabled())

    batches = split(3, *samples(dtype=dtype))
    tl.full_batch_backward(build(Noisy, dtype), batches, AP)
    if dtype == torch.float32:
        with pytest.raises(ValueError, match="other scores"):
            tl.full_batch_backward(build(Noisy), batches, AP, tolerance=1e-8)


def test_infinite_scores_of_padding_are_the_same_in_both_runs():
    x, target = samples(12)
    target[::3] = -1

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.net(x) * (1 + 1e-6 * torch.is_grad_enabled())
            return scores.masked_fill(torch.arange(len(x)) % 3 == 0, -torch.inf)

    tl.full_batch_backward(build(Masked), [(x, target)], AP, options={"ignore_index": -1})


def test_errors_within_the_passes_leave_no_trace():
    batches = split(3, *samples())
    model = build(stateful)
    broken = [*batches[:2], (torch.randn(5, 3), torch.zeros(5))]
    assert_raises_and_leaves_no_trace(RuntimeError, "shapes cannot be multiplied", model, broken, AP)
    infinite = [*batches[:2], (torch.full((5, 6), torch.inf), torch.zeros(5, dtype=torch.long))]
    assert_raises_and_leaves_no_trace(ValueError, "scores.*(inf|nan|finite)", model, infinite, AP)

    def stop(done: int, total: int | None) -> None:
        if done == 5:
            raise KeyboardInterrupt

    assert_raises_and_leaves_no_trace(KeyboardInterrupt, None, model, batches, AP, progress=stop)
    model.zero_grad()
    with pytest.raises(KeyboardInterrupt):
        tl.full_batch_backward(model, batches, AP, progress=stop)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_wrong_calls():
    batches, model = split(3, *samples()), build(plain)
    run = tl.full_batch_backward
    with pytest.raises(TypeError, match="model must be an nn.Module.*got function"):
        run(lambda x: x, batches, AP)
    with pytest.raises(TypeError, match="batches must be an iterable.*got int"):
        run(model, 3, AP)
    with pytest.raises(TypeError, match="criterion must be a function.*got str"):
        run(model, batches, "average_precision")
    with pytest.raises(ValueError, match="there are no batches"):
        run(model, [], AP)
    with torch.no_grad(), pytest.raises(RuntimeError, match="gradients are switched off"):
        run(model, batches, AP)
    with pytest.raises(ValueError, match="has no parameters that require a gradient"):
        run(nn.Flatten(0), batches, AP)
    with pytest.raises(ValueError, match="lazy layers that are not initialized"):
        run(nn.Sequential(nn.LazyLinear(1), nn.Flatten(0)), batches, AP)
    with pytest.raises(ValueError, match="tolerance must be finite and above zero"):
        run(model, batches, AP, tolerance=0.0)
    with pytest.raises(ValueError, match=r"must return one number as a tensor .*got a tensor of shape \(3,\)"):
        run(build(partial(plain, 3)), split(3, *samples(classes=3)), tl.DirectLoss("average_precision", reduction="none"))
    with pytest.raises(ValueError, match="the loss does not depend on the scores"):
        run(model, batches, lambda scores, target: scores.detach().mean())
    with pytest.raises(ValueError, match="scores do not depend on a parameter that requires a gradient"):
        run(model, batches, AP, scores=torch.Tensor.detach)


def test_wrong_forms_of_batches():
    x, y = samples(10)
    model = build(plain)

    def raises(match: str, batch: Any, **fields: Any) -> None:
        with pytest.raises(ValueError, match=match):
            tl.full_batch_backward(model, [batch], AP, **fields)

    raises(r"expected batches \(inputs, target\), got a tensor of shape \(10, 6\); name its parts", x)
    raises(r"got a dict with the keys 'x', 'y'; name its parts: inputs=", {"x": x, "y": y})
    raises(r"got a Sample with the fields image, label; name its parts", Sample(x, y))
    raises(r"got a tuple of 3: .*groups=2 for query ids", (x, y, y))
    raises(r"got a tuple of 1", (x,))
    raises(r"target='z' is not a part of a dict with the keys 'x', 'y'", {"x": x, "y": y}, inputs="x", target="z")
    raises(r"inputs='z' is not a part of a Pair with the fields image, label", Pair(x, y), inputs="z", target=1)
    raises(r"groups=5 is not a part of a tuple of 2", (x, y), groups=5)
    raises(r"target must be a tensor or an array .*got an object of type str", (x, "label"))
    raises(r"with the samples along its first axis .*got a tensor of shape \(\)", (x, torch.tensor(1)))
    raises(r"the scores of a batch must be floats with the samples along the first axis", (x, y), scores=torch.sum)
    raises(r"scores='logits' is not a part of a tensor", (x, y), scores="logits")

    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.net(x), "hidden": x}

    model = Several()
    raises("the model returned a dict with the keys 'logits', 'hidden'; say which part .* as in scores='logits'", (x, y))


def test_padding_does_not_hide_a_mismatch():
    """A score of -1e9 is no measure of a small difference."""

    class NotReplayed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.generator = nn.Linear(16, 8), torch.Generator().manual_seed(0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            keep = torch.rand(x.shape, generator=self.generator) > 0.5
            return self.layer(x * keep).masked_fill(x[:, :8] > 1.5, -1e9)

    batches = [(torch.randn(16, 16), (torch.rand(16, 8) < 0.3).long()) for _ in range(3)]
    with pytest.raises(ValueError, match="other scores in the second run"):
        tl.full_batch_backward(NotReplayed(), batches, tl.DirectLoss("average_precision"), options={"dim": 1})


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


def test_buffers_that_share_memory_and_graphs_of_the_caller():
    """Buffers that did not change are not written: an expanded one cannot be, and a graph that was built before may need one."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1), nn.Flatten(0)).eval()
    model.register_buffer("expanded", torch.ones(1).expand(4))
    batches = [(torch.randn(8, 3), torch.arange(8) % 2) for _ in range(2)]
    before = model(batches[0][0]).mean()
    tl.full_batch_backward(model, batches, tl.DirectLoss("average_precision"))
    before.backward()


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
