"""Batch samplers: epochs, ranks, states, and the loaders that walk them."""

from __future__ import annotations

import json
import pickle
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import taskloss as tl
from taskloss.samplers import QueryBatchSampler, StratifiedBatchSampler
from tests.samplers.cases import TARGET, epoch_of, flat, ranks_of

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
    lightning = pytest.importorskip("pytorch_lightning", reason="Lightning comes with taskloss[examples]")
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
