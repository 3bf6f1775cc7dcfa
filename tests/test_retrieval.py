"""Retrieval: rankings from embeddings, and the chunked loss and score against the whole matrix."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import taskloss as tl
from taskloss.retrieval import SELF, SIMILARITIES, retrieval_loss, retrieval_rankings, retrieval_score

every_similarity = pytest.mark.parametrize("similarity", SIMILARITIES)
CRITERIA = {
    "direct": tl.DirectLoss("average_precision", epsilon=0.3),
    "negative": tl.DirectLoss("average_precision", epsilon=0.3, update="negative"),
    "hinge": tl.StructuredHingeLoss("average_precision"),
}
every_criterion = pytest.mark.parametrize("criterion", [pytest.param(loss, id=name) for name, loss in CRITERIA.items()])


def points(n: int = 23, d: int = 5, seed: int = 0, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Float64 embeddings and labels that are neither dense nor positive; the last item is the only one of its class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([-7, 0, 10**12, 5, 6, 8])[torch.randint(classes, (n,), generator=generator)]
    labels[-1] = 99
    return torch.randn(n, d, generator=generator, dtype=torch.float64), labels


def whole(embeddings, labels, criterion, **options):
    """The loss on the whole score matrix, by ordinary autograd."""
    return criterion(*retrieval_rankings(embeddings, labels, **options), dim=1, ignore_index=SELF)


def value_and_gradients(function, criterion, tensors, labels, **options):
    """The value times three, and its gradients in the queries and, when there is one, the gallery."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    if len(leaves) == 2:
        options["gallery"] = leaves[1]
    value = 3.0 * function(leaves[0], labels, criterion, **options)
    value.backward()
    return value.detach(), [leaf.grad for leaf in leaves]


# --- rankings ---------------------------------------------------------------------------------------------------------


@every_similarity
def test_rankings_by_brute_force(similarity):
    embeddings, labels = points()
    scores, target = retrieval_rankings(embeddings, labels, similarity=similarity)
    x = embeddings.numpy()
    for i in range(len(x)):
        for j in range(len(x)):
            expected = {
                "dot": x[i] @ x[j],
                "cosine": x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j]),
                "euclidean": -np.linalg.norm(x[i] - x[j]),
            }[similarity]
            assert scores[i, j].item() == pytest.approx(expected, abs=1e-12)
            assert target[i, j].item() == (SELF if i == j else int(labels[i] == labels[j]))


@every_similarity
def test_gallery_excludes_nobody(similarity):
    embeddings, labels = points()
    everything, _ = retrieval_rankings(embeddings, labels, similarity=similarity)
    scores, target = retrieval_rankings(
        embeddings[:4], labels[:4], gallery=embeddings, gallery_labels=labels.numpy(), similarity=similarity
    )
    torch.testing.assert_close(scores, everything[:4])
    assert torch.equal(target.bool(), labels[:4, None] == labels)


def test_close_neighbours_keep_their_order():
    embeddings = 1000 + torch.tensor([[0.0], [0.001], [0.003], [0.0]])
    scores, _ = retrieval_rankings(embeddings.expand(-1, 30), [0, 0, 1, 0], similarity="euclidean")
    assert scores[0, 3] == 0
    assert scores[0, 1] > scores[0, 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(dtype):
    embeddings, labels = points()
    leaf = embeddings.to(dtype).requires_grad_()
    scores, target = retrieval_rankings(leaf, labels.to(torch.int32) % 7)
    assert scores.dtype == torch.promote_types(dtype, torch.float32)
    assert target.dtype == torch.int8
    loss = retrieval_loss(leaf, labels, tl.DirectLoss("average_precision"), chunk=5)
    assert loss.dtype == scores.dtype
    loss.backward()
    assert leaf.grad.dtype == dtype
    assert leaf.grad.abs().sum() > 0


def test_autocast_does_not_round_similarities():
    embeddings, labels = points()
    embeddings = embeddings.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores, _ = retrieval_rankings(embeddings, labels)
    assert torch.equal(scores, retrieval_rankings(embeddings, labels)[0])


# --- the chunked loss -------------------------------------------------------------------------------------------------


@every_criterion
@every_similarity
@pytest.mark.parametrize("chunk", [1, 4, 23, 1000, None])
def test_loss_equals_the_whole(criterion, similarity, chunk):
    embeddings, labels = points()
    expected, (gradient,) = value_and_gradients(whole, criterion, [embeddings], labels, similarity=similarity)
    value, (chunked,) = value_and_gradients(retrieval_loss, criterion, [embeddings], labels, similarity=similarity, chunk=chunk)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(chunked, gradient)
    assert gradient.abs().sum() > 0


@every_similarity
def test_loss_with_a_gallery(similarity):
    embeddings, labels = points(9, seed=1)
    gallery, gallery_labels = points(31, seed=2)
    options = {"gallery_labels": gallery_labels, "similarity": similarity}
    criterion = CRITERIA["direct"]
    expected, gradients = value_and_gradients(whole, criterion, [embeddings, gallery], labels, **options)
    value, chunked = value_and_gradients(retrieval_loss, criterion, [embeddings, gallery], labels, chunk=2, **options)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(chunked, gradients)
    frozen, (alone,) = value_and_gradients(
        lambda *arguments, **more: retrieval_loss(*arguments, gallery=gallery, chunk=2, **more),
        criterion,
        [embeddings],
        labels,
        **options,
    )
    torch.testing.assert_close(frozen, value)
    torch.testing.assert_close(alone, gradients[0])


def test_smooth_criterion_against_finite_differences():
    def criterion(scores, target, *, dim, ignore_index, reduction):
        assert (dim, reduction) == (1, "sum")
        return torch.where(target == ignore_index, 0.0, (scores - target) ** 3).sum()

    embeddings, labels = points(7, 3)
    labels[-1] = labels[0]
    assert torch.autograd.gradcheck(lambda leaf: retrieval_loss(leaf, labels, criterion, chunk=2), [embeddings.requires_grad_()])


def test_mean_is_over_the_defined_queries_only():
    embeddings, labels = points()
    alone, _ = points(40, seed=3)
    everything = torch.cat([embeddings, alone])
    singletons = torch.cat([labels, 1000 + torch.arange(40)])
    scores, target = retrieval_rankings(everything, singletons)
    defined = (target == 1).any(1)
    assert 0 < defined.sum() < len(embeddings)
    values = tl.DirectLoss("average_precision", dim=1, ignore_index=SELF, reduction="none")(scores, target)
    expected = values[defined].mean()
    torch.testing.assert_close(retrieval_loss(everything, singletons, CRITERIA["direct"], chunk=6), expected)
    assert retrieval_score(everything, singletons, chunk=6) == pytest.approx(1 - expected.item())


@pytest.mark.parametrize("labels", [torch.zeros(6, dtype=torch.long), torch.arange(6)], ids=["one class", "singletons"])
def test_nothing_is_defined(labels):
    embeddings = torch.randn(6, 3, requires_grad=True)
    loss = retrieval_loss(embeddings, labels, CRITERIA["direct"])
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(embeddings.grad, torch.zeros(6, 3))
    assert np.isnan(retrieval_score(embeddings, labels))


def test_no_items_at_all():
    embeddings = torch.zeros(0, 3, requires_grad=True)
    retrieval_loss(embeddings, torch.zeros(0, dtype=torch.long), CRITERIA["direct"]).backward()
    assert embeddings.grad.shape == (0, 3)


def test_without_gradient():
    embeddings, labels = points()
    expected = whole(embeddings, labels, CRITERIA["direct"])
    assert not retrieval_loss(embeddings, labels, CRITERIA["direct"]).requires_grad
    with torch.no_grad():
        value = retrieval_loss(embeddings.requires_grad_(), labels, CRITERIA["direct"], chunk=3)
    torch.testing.assert_close(value, expected)


def test_func_grad():
    embeddings, labels = points()
    _, (gradient,) = value_and_gradients(retrieval_loss, CRITERIA["direct"], [embeddings], labels)
    result = torch.func.grad(lambda leaf: 3.0 * retrieval_loss(leaf, labels, CRITERIA["direct"]))(embeddings)
    torch.testing.assert_close(result, gradient)


def test_second_derivative_raises():
    embeddings, labels = points()
    embeddings.requires_grad_()
    (gradient,) = torch.autograd.grad(retrieval_loss(embeddings, labels, CRITERIA["direct"]), embeddings, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.square().sum().backward()


# --- memory -----------------------------------------------------------------------------------------------------------


class LargestTensor(TorchDispatchMode):
    """The most elements that any result of a torch operation has."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


class Kept:
    """A tensor saved for the backward pass."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def kept_elements(make_loss) -> int:
    """How many elements the graph of a loss keeps for the backward pass."""
    alive: weakref.WeakSet[Kept] = weakref.WeakSet()

    def pack(tensor: torch.Tensor) -> Kept:
        kept = Kept(tensor)
        alive.add(kept)
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        loss = make_loss()
    gc.collect()
    elements = sum(kept.tensor.numel() for kept in alive)
    loss.backward()
    return elements


def test_memory_is_that_of_one_chunk():
    n, d, chunk = 400, 8, 10
    embeddings, labels = points(n, d)
    embeddings.requires_grad_()
    with LargestTensor() as largest:
        retrieval_loss(embeddings, labels, CRITERIA["direct"], chunk=chunk).backward()
    assert largest.elements <= chunk * n
    with LargestTensor() as largest:
        whole(embeddings, labels, CRITERIA["direct"]).backward()
    assert largest.elements == n * n


def test_graph_keeps_no_more_than_the_embeddings():
    embeddings, labels = points(400, 8)
    embeddings.requires_grad_()
    assert kept_elements(lambda: retrieval_loss(embeddings, labels, CRITERIA["direct"], chunk=10)) <= 10 * embeddings.numel()
    assert kept_elements(lambda: whole(embeddings, labels, CRITERIA["direct"])) >= 400 * 400


def test_default_chunk_bounds_the_scores(monkeypatch):
    monkeypatch.setattr(tl.retrieval, "CHUNK_SCORES", 100)
    embeddings, labels = points()
    seen = []

    def metric(scores, target, **options):
        seen.append(scores.numel())
        return tl.metrics.average_precision_score(scores, target, **options)

    retrieval_score(embeddings, labels, metric)
    assert max(seen) <= 100
    assert len(seen) > 4


# --- the score --------------------------------------------------------------------------------------------------------


@every_similarity
@pytest.mark.parametrize("chunk", [1, 7, None])
def test_score_equals_the_metric_of_the_whole(similarity, chunk):
    embeddings, labels = points(60, seed=4)
    scores, target = retrieval_rankings(embeddings, labels, similarity=similarity)
    for metric in (tl.metrics.average_precision_score, tl.metrics.roc_auc_score):
        expected = metric(scores, target, dim=1, ignore_index=SELF)
        value = retrieval_score(embeddings.requires_grad_(), labels, metric, similarity=similarity, chunk=chunk)
        assert value == pytest.approx(expected, abs=1e-12)


def test_score_with_a_gallery():
    embeddings, labels = points(9, seed=1)
    gallery = dict(zip(("gallery", "gallery_labels"), points(31, seed=2), strict=True))
    expected = tl.metrics.average_precision_score(*retrieval_rankings(embeddings, labels, **gallery), dim=1)
    assert retrieval_score(embeddings, labels, **gallery, chunk=2) == pytest.approx(expected, abs=1e-12)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_input():
    x, labels = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    poisoned = x.clone()
    poisoned[2, 1] = float("nan")
    for error, message, embeddings, classes, options in (
        (TypeError, "embeddings must be a torch.Tensor, got ndarray", x.numpy(), labels, {}),
        (TypeError, "floating point, got torch.int64.*swapped", labels, x, {}),
        (ValueError, r"embeddings has shape \(4, 3, 1\).*flatten", x[..., None], labels, {}),
        (ValueError, r"embeddings\[2\] is not finite \(1 of 4", poisoned, labels, {}),
        (TypeError, "labels must be integers, got torch.float32.*number your classes", x, labels.float(), {}),
        (TypeError, "labels must be integers, got None", x, None, {}),
        (TypeError, "labels must be a tensor or an array", x, ["cat", "cat", "dog", "dog"], {}),
        (ValueError, r"labels has shape \(3,\).*shape \(4,\)", x, labels[:3], {}),
        (ValueError, "similarity='l2'.*'cosine', 'dot', 'euclidean'", x, labels, {"similarity": "l2"}),
        (ValueError, "gallery is given without gallery_labels", x, labels, {"gallery": x}),
        (ValueError, "gallery_labels is given without gallery", x, labels, {"gallery_labels": labels}),
        (ValueError, "3 columns and gallery has 2", x, labels, {"gallery": x[:, :2], "gallery_labels": labels}),
        (ValueError, r"gallery_labels has shape \(4,\)", x, labels, {"gallery": x[:2], "gallery_labels": labels}),
        (ValueError, "gallery is on meta", x, labels, {"gallery": torch.zeros(2, 3, device="meta"), "gallery_labels": [0, 1]}),
    ):
        with pytest.raises(error, match=message):
            retrieval_rankings(embeddings, classes, **options)
    for chunk in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="chunk must be a whole number of at least 1"):
            retrieval_score(x, labels, chunk=chunk)
    with pytest.raises(TypeError, match="criterion must be a loss, got str"):
        retrieval_loss(x, labels, "average_precision")
    with pytest.raises(ValueError, match="reduction='sum'.*mean over queries"):
        retrieval_loss(x, labels, tl.DirectLoss("average_precision", reduction="sum"))
