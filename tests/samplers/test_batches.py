"""Batch samplers: what every batch holds, for one label, several labels and queries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.samplers import QueryBatchSampler, StratifiedBatchSampler
from taskloss.training.data import Batches, TrainingData
from tests.samplers.cases import TARGET, epoch_of, flat, random_queries, rare_target

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
