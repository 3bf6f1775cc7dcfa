"""Batch samplers: what every batch holds, what an epoch is, ranks, positions."""

from __future__ import annotations

import itertools
import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import taskloss as tl
from taskloss.samplers import QueryBatchSampler, StratifiedBatchSampler
from taskloss.training.data import Batches, TrainingData


def rare_target(n: int, positives: int, seed: int = 0) -> torch.Tensor:
    target = torch.zeros(n, dtype=torch.int64)
    target[torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:positives]] = 1
    return target


def epoch_of(sampler) -> list[list[int]]:
    return list(sampler)


def flat(batches: list[list[int]]) -> list[int]:
    return sorted(itertools.chain.from_iterable(batches))


def ranks_of(make, count: int) -> list:
    return [make(num_replicas=count, rank=rank) for rank in range(count)]


# --- one label ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "positives", "batch_size", "minimum"), [(1000, 100, 64, 2), (997, 33, 32, 1), (50, 50, 7, 3)])
def test_each_sample_occurs_once_and_each_batch_has_its_share(n, positives, batch_size, minimum):
    target = rare_target(n, positives)
    sampler = StratifiedBatchSampler(target, batch_size, min_positives=minimum)
    batches = epoch_of(sampler)
    assert len(batches) == len(sampler) == -(-n // batch_size)
    assert flat(batches) == list(range(n))
    assert max(map(len, batches)) - min(map(len, batches)) <= 1
    counts = [int(target[rows].sum()) for rows in batches]
    share = positives / len(batches)
    assert min(counts) >= minimum
    assert max(abs(count - share) for count in counts) <= 3, "positives are spread evenly"
    assert sampler.occurrences().tolist() == [1] * n


def test_the_minimum_holds_where_the_shares_just_reach_it():
    """As many positives as batches: shares alone would leave some batches without one."""
    target = rare_target(640, 10)
    for seed in range(20):
        counts = [int(target[rows].sum()) for rows in StratifiedBatchSampler(target, 64, min_positives=1, seed=seed)]
        assert counts == [1] * 10


@pytest.mark.parametrize(("positives", "minimum"), [(5, 2), (3, 3), (7, 30)])
def test_too_few_positives_are_repeated_equally_often(positives, minimum):
    target = rare_target(1000, positives)
    if minimum > positives:
        with pytest.warns(UserWarning, match="every batch holds all of them"):
            sampler = StratifiedBatchSampler(target, 50, min_positives=minimum)
    else:
        sampler = StratifiedBatchSampler(target, 50, min_positives=minimum)
    batches = epoch_of(sampler)
    needed = min(minimum, positives)
    assert all(int(target[rows].sum()) == needed for rows in batches)
    assert all(len(set(rows)) == len(rows) <= 50 for rows in batches), "no sample twice in a batch"
    occurrences = sampler.occurrences()
    assert torch.equal(occurrences, torch.bincount(torch.tensor(flat(batches)), minlength=1000))
    assert occurrences[target == 0].unique().tolist() == [1], "others once, in as many batches as that takes"
    drawn = occurrences[target == 1]
    assert drawn.sum() == needed * len(sampler)
    assert drawn.max() - drawn.min() <= 1
    assert len(sampler) == -(-(1000 - positives) // (50 - needed))


def test_without_a_minimum_it_is_the_division_of_the_training_loop():
    target = rare_target(500, 60)
    batches = Batches(TrainingData(torch.arange(500.0)[:, None], target), batch_size=64, seed=5)
    sampler = StratifiedBatchSampler(target, 64, min_positives=0, seed=5)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        steps = range(epoch * len(sampler), (epoch + 1) * len(sampler))
        assert epoch_of(sampler) == [batches.of_step(step).features[:, 0].long().tolist() for step in steps]


# --- several labels -----------------------------------------------------------------------------------------------------


def test_every_batch_has_positives_of_every_label():
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(2000, 6, generator=generator) < torch.tensor([0.3, 0.05, 0.02, 0.01, 0.005, 0.5])).long()
    sampler = StratifiedBatchSampler(target, 100, min_positives=2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = epoch_of(sampler)
        assert len(batches) == len(sampler)
        assert torch.stack([target[rows].sum(0) for rows in batches]).min() >= 2
        assert all(len(set(rows)) == len(rows) <= 100 for rows in batches)
        assert sampler.occurrences().min() == 1
        assert sampler.occurrences()[target.sum(1) == 0].tolist() == [1] * int((target.sum(1) == 0).sum())


def test_overlapping_labels_leave_out_a_few_samples_at_most():
    """Label 2 is the union of the others, so its positives gather where theirs do."""
    generator = torch.Generator().manual_seed(1)
    parts = torch.rand(400, 2, generator=generator) < 0.06
    target = torch.cat([parts, parts.any(1, keepdim=True)], 1)
    sampler = StratifiedBatchSampler(target, 20, min_positives=3)
    batches = epoch_of(sampler)
    assert torch.stack([target[rows].sum(0) for rows in batches]).min() >= 3
    assert max(map(len, batches)) <= 20
    assert (sampler.occurrences() == 0).sum() <= 8


def test_a_label_without_positives_warns_and_unknown_labels_are_no_positives():
    target = torch.zeros(100, 3, dtype=torch.int64)
    target[:40:2, 0], target[1::4, 1], target[:, 2] = 1, 1, -1
    with pytest.warns(UserWarning, match="label 2 has 0 positives"):
        sampler = StratifiedBatchSampler(target, 20, min_positives=2, ignore_index=-1)
    assert all((target[rows] == 1).sum(0).tolist()[:2] >= [2, 2] for rows in sampler)


# --- queries ------------------------------------------------------------------------------------------------------------


def random_queries(count: int, largest: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, largest + 1, (count,), generator=generator)
    ids = torch.repeat_interleave(torch.arange(count) * 3 - 50, sizes)
    return ids[torch.randperm(len(ids), generator=generator)]


@pytest.mark.parametrize("size", [{"batch_size": 8}, {"max_samples": 64}, {"max_samples": 30}])
def test_queries_stay_whole(size):
    groups = random_queries(101, 30)
    sampler = QueryBatchSampler(groups, **size)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = epoch_of(sampler)
        assert len(batches) == len(sampler)
        assert flat(batches) == list(range(len(groups)))
        queries = [groups[rows].unique().tolist() for rows in batches]
        assert len(flat(queries)) == 101, "no query is in two batches"
        if "batch_size" in size:
            assert max(map(len, queries)) - min(map(len, queries)) <= 1
            assert max(map(len, queries)) <= 8
        else:
            assert max(map(len, batches)) <= size["max_samples"]


@pytest.mark.parametrize("seed", range(30))
def test_packed_batches_never_exceed_the_bound(seed):
    rng = np.random.default_rng(seed)
    sizes = np.maximum(1, np.minimum(rng.pareto(0.8, size=rng.integers(1, 200)) * rng.integers(1, 20), 100)).astype(int)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    bound = int(sizes.max() * rng.choice([1, 1.1, 2, 5]))
    sampler = QueryBatchSampler(groups, max_samples=bound, seed=seed)
    batches = epoch_of(sampler)
    assert max(map(len, batches)) <= bound
    assert flat(batches) == list(range(len(groups)))
    if bound >= 5 * sizes.max():
        assert len(sampler) <= 1 + 1.4 * len(groups) / bound, "not many more batches than needed"


def test_every_batch_has_queries_with_a_positive():
    groups = torch.arange(600) // 6
    target = torch.where(torch.isin(groups, torch.tensor([3, 50, 51, 77])) & (torch.arange(600) % 6 == 2), 2, 0)
    sampler = QueryBatchSampler(groups, 10, target=target, min_positives=2)
    batches = epoch_of(sampler)
    assert all(len(groups[rows][target[rows] > 0].unique()) >= 2 for rows in batches)
    assert all(len(rows) == 6 * len(groups[rows].unique()) <= 60 for rows in batches)
    assert sampler.occurrences().min() == 1


# --- epochs, ranks, positions -------------------------------------------------------------------------------------------

TARGET = rare_target(300, 20)
MAKERS = [
    lambda **options: StratifiedBatchSampler(TARGET, 16, min_positives=2, **options),
    lambda **options: StratifiedBatchSampler(torch.stack([TARGET, TARGET.roll(7)], 1), 16, min_positives=1, **options),
    lambda **options: QueryBatchSampler(torch.arange(300) // 4, 5, **options),
    lambda **options: QueryBatchSampler(torch.arange(300) // 4, max_samples=18, **options),
]


@pytest.mark.parametrize("make", MAKERS)
def test_an_epoch_depends_on_the_seed_and_its_number_alone(make):
    sampler, other = make(seed=3), make(seed=3)
    first = epoch_of(sampler)
    assert epoch_of(sampler) == first, "a second walk over an epoch, as for exact gradients in two passes"
    sampler.set_epoch(1)
    second = epoch_of(sampler)
    other.set_epoch(1)
    assert epoch_of(other) == second != first
    sampler.set_epoch(0)
    assert epoch_of(pickle.loads(pickle.dumps(sampler))) == first
    assert epoch_of(make(seed=4)) != first


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("replicas", [2, 3, 7])
def test_ranks_share_an_epoch(make, replicas):
    samplers = ranks_of(make, replicas)
    parts = [epoch_of(sampler) for sampler in samplers]
    assert len({len(part) for part in parts}) == 1
    assert len(parts[0]) == len(samplers[0])
    together = [rows for step in zip(*parts, strict=True) for rows in step]
    occurrences = samplers[0].occurrences()
    assert torch.equal(torch.bincount(torch.tensor(flat(together)), minlength=300), occurrences)
    assert occurrences.min() == 1
    if isinstance(samplers[0], StratifiedBatchSampler):
        assert min(int(TARGET[rows].sum()) for rows in together) >= samplers[0].min_positives
    single = make()
    if len(single) % replicas == 0:
        assert epoch_of(single) == together, "several ranks do in one step what one does in several"


@pytest.mark.parametrize("make", MAKERS)
def test_a_walk_continues_where_it_was_interrupted(make):
    options = {"num_replicas": 2, "rank": 1, "seed": 9}
    sampler = make(**options)
    sampler.set_epoch(4)
    whole = epoch_of(sampler)
    walk = iter(sampler)
    seen = [next(walk) for _ in range(3)]
    state = sampler.state_dict()
    resumed = make(**options)
    resumed.load_state_dict(state)
    resumed.set_epoch(4)
    assert seen + epoch_of(resumed) == whole
    assert epoch_of(resumed) == whole, "later walks are complete"
    assert resumed.state_dict() == {**state, "epoch": 5, "position": 0}, "the end of an epoch is the beginning of the next"
    assert json.loads(json.dumps(state)) == state
    resumed.load_state_dict(sampler.state_dict(position=5))
    assert epoch_of(resumed) == whole[5:]
    resumed.load_state_dict(state)
    resumed.set_epoch(5)
    assert len(epoch_of(resumed)) == len(sampler), "a new epoch begins at its beginning"


def test_the_state_of_another_sampler_is_refused():
    state = StratifiedBatchSampler(TARGET, 16).state_dict()
    others = [
        StratifiedBatchSampler(TARGET, 17),
        StratifiedBatchSampler(TARGET.roll(1), 16),
        StratifiedBatchSampler(TARGET, 16, seed=1),
        StratifiedBatchSampler(TARGET, 16, num_replicas=2, rank=0),
        StratifiedBatchSampler(TARGET, 16, min_positives=0),
        QueryBatchSampler(TARGET, max_samples=280),
    ]
    for other, named in zip(others, ("batches", "data", "seed", "num_replicas", "min_positives", "sampler"), strict=True):
        with pytest.raises(ValueError, match=f"another sampler: .*{named}"):
            other.load_state_dict(state)
    groups = torch.arange(1000) // 7
    by_queries, by_samples = QueryBatchSampler(groups, 20), QueryBatchSampler(groups, max_samples=147)
    assert len(by_queries) == len(by_samples)
    with pytest.raises(ValueError, match=r"another sampler: batch_size 20 \(here None\), max_samples None \(here 147\)"):
        by_samples.load_state_dict(by_queries.state_dict())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position": 999}, "position of the state is 999, but an epoch has 19 batches"),
        ({"position": 19}, "position of the state is 19"),
        ({"position": -1}, "position of the state must be a whole number of at least 0, got -1"),
        ({"epoch": None}, "epoch of the state must be a whole number of at least 0, got None"),
        ({"epoch": 1.5}, "epoch of the state must be"),
    ],
)
def test_a_damaged_state_is_refused(changes, message):
    sampler = StratifiedBatchSampler(TARGET, 16)
    with pytest.raises(ValueError, match=message):
        sampler.load_state_dict({**sampler.state_dict(), **changes})
    state = sampler.state_dict(position=3)
    assert sampler.state_dict() == {**state, "position": 0}, "it stays as it was"
    del state["epoch"]
    with pytest.raises(ValueError, match="epoch of the state"):
        sampler.load_state_dict(state)


def test_a_state_loaded_after_the_iterator_was_made():
    """StatefulDataLoader makes an iterator first, loads the state of the sampler, and then makes the iterator that it uses."""
    sampler, resumed = (StratifiedBatchSampler(TARGET, 16) for _ in range(2))
    walk = iter(sampler)
    seen = [next(walk) for _ in range(5)]
    unused = iter(resumed)
    resumed.load_state_dict(sampler.state_dict())
    assert seen + list(iter(resumed)) == epoch_of(sampler)
    del unused
    resumed.load_state_dict(sampler.state_dict())
    sampler.set_epoch(1)
    assert epoch_of(resumed) == epoch_of(sampler), "the state at the end of an epoch begins the next, even without set_epoch"


def test_in_a_data_loader_with_workers():
    dataset = TensorDataset(torch.arange(300), TARGET)
    sampler = StratifiedBatchSampler(TARGET, 16, min_positives=2)
    with_workers = DataLoader(dataset, batch_sampler=sampler, num_workers=1)
    walk = iter(with_workers)
    done = [next(walk)[0].tolist() for _ in range(4)]
    state = sampler.state_dict(position=4)
    del walk
    assert len(with_workers) == len(sampler)
    sampler.load_state_dict(state)
    rest = [rows.tolist() for rows, target in DataLoader(dataset, batch_sampler=sampler) if target.sum() >= 2]
    assert done + rest == epoch_of(StratifiedBatchSampler(TARGET, 16, min_positives=2))


def test_exact_gradients_in_two_passes():
    generator = torch.Generator().manual_seed(0)
    features, model, criterion = torch.randn(300, 2, generator=generator), torch.nn.Linear(2, 1), tl.DirectLoss("roc_auc")
    sampler = StratifiedBatchSampler(TARGET[:, None], 32)
    loader = DataLoader(TensorDataset(features, TARGET[:, None]), batch_sampler=sampler)
    expected = torch.autograd.grad(criterion(model(features), TARGET[:, None]), model.weight)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):  # Steps on all samples are no epochs: they need no set_epoch.
            model.zero_grad()
            tl.full_batch_backward(model, loader, criterion)
            torch.testing.assert_close(model.weight.grad, expected)


def test_lightning_sets_the_epoch():
    lightning = pytest.importorskip("pytorch_lightning")
    sampler, seen = StratifiedBatchSampler(TARGET, 64), []

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def training_step(self, batch):
            seen.append(batch[0].tolist())
            return self.weight * batch[1].sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    loader = DataLoader(TensorDataset(torch.arange(300), TARGET), batch_sampler=sampler)
    lightning.Trainer(max_epochs=2, accelerator="cpu", **options).fit(Model(), loader)
    expected = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected += epoch_of(sampler)
    assert seen == expected


def test_the_default_process_group_is_used(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", world_size=1, rank=0)
    try:
        assert (StratifiedBatchSampler(TARGET, 16).num_replicas, StratifiedBatchSampler(TARGET, 16).rank) == (1, 0)
    finally:
        torch.distributed.destroy_process_group()


def test_a_sampler_from_before_the_process_group_is_refused(monkeypatch):
    early, explicit = StratifiedBatchSampler(TARGET, 16), StratifiedBatchSampler(TARGET, 16, num_replicas=1, rank=0)
    for name, result in {"is_initialized": True, "get_world_size": 2, "get_rank": 1}.items():
        monkeypatch.setattr(torch.distributed, name, lambda result=result: result)
    for use in (len, lambda sampler: next(iter(sampler))):
        with pytest.raises(ValueError, match="built for rank 0 of 1, .* rank 1 of 2; build the sampler after init_process_group"):
            use(early)
    assert len(epoch_of(explicit)) == len(explicit) == 19
    assert len(StratifiedBatchSampler(TARGET, 16)) == 10


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StratifiedBatchSampler(torch.zeros(9), 3), "no sample is positive"),
        (lambda: StratifiedBatchSampler(TARGET, 4, min_positives=4), "leaves no room"),
        (lambda: StratifiedBatchSampler(2 * TARGET - 1, 4), "expected only 0 and 1"),
        (lambda: StratifiedBatchSampler(TARGET, 0), "batch_size must be"),
        (lambda: StratifiedBatchSampler(TARGET, 16, min_positives=-1), "min_positives must be"),
        (lambda: StratifiedBatchSampler(TARGET, 16, seed=-1), "seed must be"),
        (lambda: StratifiedBatchSampler(TARGET, 16, num_replicas=2), "belong together"),
        (lambda: StratifiedBatchSampler(TARGET, 16, num_replicas=2, rank=2), "not below num_replicas"),
        (lambda: StratifiedBatchSampler(TARGET[:3], 2, min_positives=0, num_replicas=4, rank=0), "fewer processes"),
        (lambda: StratifiedBatchSampler(torch.zeros(0), 2), "at least one sample"),
        (lambda: QueryBatchSampler(torch.arange(4)), "either in queries"),
        (lambda: QueryBatchSampler(torch.arange(4), 2, max_samples=3), "either in queries"),
        (lambda: QueryBatchSampler(torch.tensor([5, 5, 5, 1]), max_samples=2), "query 5 has 3 samples"),
        (lambda: QueryBatchSampler(torch.arange(4), max_samples=2, min_positives=1), "needs target="),
        (lambda: QueryBatchSampler(torch.arange(4), 2, min_positives=1, target=torch.ones(3)), "same shape"),
        (lambda: StratifiedBatchSampler(TARGET, 16).set_epoch(-1), "epoch must be"),
        (lambda: StratifiedBatchSampler(TARGET, 16).state_dict(99), "beyond the 19 batches"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_samplers_are_public():
    assert tl.samplers.StratifiedBatchSampler is StratifiedBatchSampler
