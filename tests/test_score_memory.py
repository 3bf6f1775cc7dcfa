"""A memory of scores: the union is ranked, the present batch learns, and the state is plain tensors."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

import taskloss as tl
from taskloss.tasks import Task

AP = "average_precision"


def batch(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype), (torch.rand(*shape, generator=generator) < 0.4).long()


def gradient(loss: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss, scores)[0]


def test_by_hand():
    """The ranking is 0.9+, 0.5-, 0.3+, 0.2-: AP = (1/1 + 2/3) / 2; each swap of neighbours is within reach of epsilon 1."""
    criterion = tl.ScoreMemory(tl.DirectLoss(AP), batches=1)
    criterion(torch.tensor([0.9, 0.5]), torch.tensor([1, 0]))
    scores = torch.tensor([0.2, 0.3], requires_grad=True)
    loss = criterion(scores, torch.tensor([0, 1]))
    assert loss.item() == pytest.approx(1 / 6)
    assert gradient(loss, scores).tolist() == [1.0, -1.0], "(0.5, -0.5) in the ranking of four, times 4 samples / 2 present"
    third = torch.tensor([0.4], requires_grad=True)
    loss = criterion(third, torch.tensor([1]))
    assert loss.item() == 0.0, "only the last batch is remembered: 0.4+, 0.3+, 0.2-"


@pytest.mark.parametrize(
    "loss", [tl.DirectLoss(AP), tl.StructuredHingeLoss("roc_auc"), tl.lp.AUCLoss(), tl.DirectLoss("f_score")]
)
@pytest.mark.parametrize("shape", [(12,), (12, 3)])
def test_value_and_gradient_are_those_of_the_union(loss, shape):
    memory = tl.ScoreMemory(loss, batches=2)
    batches = [batch(seed, *shape) for seed in range(5)]
    for number, (scores, target) in enumerate(batches):
        scores.requires_grad_()
        value = memory(scores, target)
        last = batches[max(0, number - 2) : number]
        union = torch.cat([scores, *(old for old, _ in last)])
        expected = loss(union, torch.cat([target, *(old for _, old in last)]))
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(gradient(value, scores), gradient(expected, scores) * (1 + len(last)))


def test_the_gradient_has_the_scale_of_the_whole_union():
    """Batches that are copies of each other have the gradient of one of them, however many are remembered."""
    scores, target = batch(0, 40)
    scores.requires_grad_()
    loss = tl.DirectLoss(AP)
    memory = tl.ScoreMemory(loss, batches=7)
    plain = gradient(loss(scores, target), scores)
    for _ in range(8):
        latest = gradient(memory(scores, target), scores)
    assert latest.norm().item() == pytest.approx(plain.norm().item(), rel=0.1)


def test_queries_of_the_batch_are_joined_by_their_own_samples():
    loss = tl.DirectLoss(AP, reduction="none")
    memory = tl.ScoreMemory(loss, batches=3)
    first, first_target = torch.tensor([0.9, 0.5, 0.1, 0.2], dtype=torch.float64), torch.tensor([1, 0, 1, 0])
    memory(first, first_target, groups=torch.tensor([7, 7, 4, 4]))
    scores, target = torch.tensor([0.2, 0.3, 0.6, 0.7], dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 1, 0])
    values = memory(scores, target, groups=torch.tensor([7, 7, 9, 9]), weight=torch.tensor([1.0, 2.0]))
    assert values.tolist() == pytest.approx([1 / 6, 2 * 1 / 2]), "query 4 is not present; query 9 is new; weights are of 7 and 9"
    slopes = gradient(values[0], scores)
    assert slopes.tolist() == [1.0, -1.0, 0.0, 0.0], "four of query 7 in all, two of them present"


def test_ignored_samples_are_neither_remembered_nor_counted():
    loss = tl.DirectLoss(AP, ignore_index=-1)
    memory = tl.ScoreMemory(loss, batches=1)
    memory(torch.tensor([0.9, 0.5, float("inf")]), torch.tensor([1, 0, -1]))
    assert memory.scores.tolist() == pytest.approx([0.9, 0.5])
    scores = torch.tensor([0.2, -torch.inf, 0.3], requires_grad=True)
    slopes = gradient(memory(scores, torch.tensor([0, -1, 1])), scores)
    assert slopes.tolist() == [1.0, 0.0, -1.0]


def test_columns_with_unknown_labels():
    scores, target = batch(0, 30, 3)
    target[::4, 1] = -1
    loss = tl.DirectLoss(AP, ignore_index=-1)
    memory = tl.ScoreMemory(loss, batches=1)
    memory(scores[:20], target[:20])
    torch.testing.assert_close(memory(scores[20:], target[20:]), loss(scores, target))


def test_evaluation_neither_reads_nor_fills():
    memory = tl.ScoreMemory(tl.DirectLoss(AP), batches=2)
    scores, target = batch(0, 10)
    memory(scores, target)
    before = copy.deepcopy(memory.state_dict())
    memory.eval()
    other, other_target = batch(1, 10)
    assert memory(other, other_target) == tl.DirectLoss(AP)(other, other_target)
    assert all(torch.equal(tensor, before[name]) for name, tensor in memory.state_dict().items())


def test_reset_forgets():
    memory = tl.ScoreMemory(tl.DirectLoss(AP), batches=2)
    memory(*batch(0, 10))
    memory.reset()
    scores, target = batch(1, 10, dtype=torch.float32)
    assert memory(scores, target) == tl.DirectLoss(AP)(scores, target), "another dtype is welcome too"


@pytest.mark.parametrize("grouped", [False, True])
def test_the_state_resumes_a_run(grouped):
    def call(memory: tl.ScoreMemory, seed: int) -> torch.Tensor:
        scores, target = batch(seed, 6 + seed, 2)
        return memory(scores, target, **({"groups": torch.arange(6 + seed) % 3} if grouped else {}))

    memory = tl.ScoreMemory(tl.DirectLoss(AP), batches=2)
    for seed in range(3):
        call(memory, seed)
    model = nn.ModuleDict({"criterion": tl.ScoreMemory(tl.DirectLoss(AP), batches=2)})
    stored = load(save({f"criterion.{name}": tensor for name, tensor in memory.state_dict().items()}))
    model.load_state_dict(stored)
    resumed = model["criterion"]
    call(copy.deepcopy(resumed), 5)
    for seed in range(3, 6):
        assert torch.equal(call(resumed, seed), call(memory, seed))
    fewer = tl.ScoreMemory(tl.DirectLoss(AP), batches=1)
    fewer.load_state_dict(memory.state_dict())
    assert fewer.sizes.tolist() == [11], "the newest batch is kept"
    empty = tl.ScoreMemory(tl.DirectLoss(AP), batches=2)
    memory.load_state_dict(empty.state_dict())
    assert memory.sizes.tolist() == []


def test_a_damaged_state_is_refused():
    memory = tl.ScoreMemory(tl.DirectLoss(AP), batches=2)
    memory(*batch(0, 10))
    state = {**memory.state_dict(), "sizes": torch.tensor([9])}
    with pytest.raises(RuntimeError, match="lengths of the memory do not fit: scores 10, target 10"):
        tl.ScoreMemory(tl.DirectLoss(AP), batches=2).load_state_dict(state)


def test_half_precision_is_ranked_and_multiplied_in_single():
    memory = tl.ScoreMemory(tl.DirectLoss(AP), batches=1)
    memory(torch.tensor([0.9, 0.5], dtype=torch.bfloat16), torch.tensor([1, 0]))
    assert memory.scores.dtype == torch.float32
    scores = torch.tensor([0.2, 0.3], dtype=torch.bfloat16, requires_grad=True)
    loss = memory(scores, torch.tensor([0, 1]))
    assert loss.dtype == torch.float32
    assert gradient(loss, scores).dtype == torch.bfloat16


def test_an_error_of_the_criterion_leaves_the_memory_as_it_was():
    memory = tl.ScoreMemory(tl.DirectLoss(AP), batches=2)
    memory(*batch(0, 10))
    scores, target = batch(1, 10)
    scores[3] = torch.nan
    with pytest.raises(ValueError, match="scores must be finite"):
        memory(scores, target)
    assert memory.sizes.tolist() == [10]


def test_any_function_is_a_criterion():
    memory = tl.ScoreMemory(lambda scores, target: (scores * target).mean(), batches=1)
    memory(torch.tensor([5.0]), torch.tensor([1]))
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = memory(scores, torch.tensor([1, 1]))
    assert loss.item() == pytest.approx(8 / 3)
    assert gradient(loss, scores).tolist() == pytest.approx([0.5, 0.5]), "1/3 each, times 3 samples / 2 present"


def test_pooled_images_are_remembered():
    loss = tl.DirectLoss("jaccard", dim=(0, 2, 3), reduction="none")
    memory = tl.ScoreMemory(loss, batches=1)
    scores, target = batch(0, 4, 2, 5, 5)
    memory(scores[:3], target[:3])
    torch.testing.assert_close(memory(scores[3:], target[3:]), loss(scores, target))


def test_training_works():
    torch.manual_seed(0)
    features = torch.randn(400, 5)
    target = (features[:, 0] + 0.3 * torch.randn(400) > 1.2).long()
    model = nn.Sequential(nn.Linear(5, 1), nn.Flatten(0))
    memory = tl.ScoreMemory(tl.DirectLoss(AP), batches=4)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(5):
        for rows in torch.randperm(400).split(40):
            optimizer.zero_grad()
            memory(model(features[rows]), target[rows]).backward()
            optimizer.step()
    assert tl.metrics.average_precision_score(model(features).detach(), target) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda scores, target: (scores.float(), target), "do not fit the remembered scores torch.float64"),
        (lambda scores, target: (scores, target.bool()), "target torch.bool"),
        (lambda scores, target: (scores[:, :2], target[:, :2]), r"shape \(n, 2\)"),
        (lambda scores, target: (scores, target, {"groups": torch.arange(10)}), "with groups do not fit"),
        (lambda scores, target: (scores, target, {"num_relevant": 9}), "num_relevant cannot be combined"),
        (lambda scores, target: (scores, target, {"dim": 1}), "a ranking or labeling of its own"),
        (lambda scores, target: (scores, target[:5]), "one row per sample"),
        (lambda scores, target: (scores, target, {"weight": torch.ones(10)}), "weight"),
    ],
)
def test_bad_calls(change, message):
    memory = tl.ScoreMemory(tl.DirectLoss(AP), batches=2)
    memory(*batch(0, 10, 3))
    scores, target, *options = change(*batch(1, 10, 3))
    with pytest.raises(ValueError, match=message):
        memory(scores, target, **(options[0] if options else {}))


@pytest.mark.parametrize("task", ["multi_class", "top_k_error"])
def test_losses_of_single_samples_are_refused(task: str | Task):
    memory = tl.ScoreMemory(tl.DirectLoss(task), batches=2)
    with pytest.raises(ValueError, match="of its own"):
        memory(torch.randn(5, 4), torch.randint(4, (5,)))


def test_bad_settings():
    with pytest.raises(ValueError, match="batches must be"):
        tl.ScoreMemory(tl.DirectLoss(AP), batches=0)
    with pytest.raises(TypeError, match="criterion must be a loss"):
        tl.ScoreMemory(AP, batches=1)
