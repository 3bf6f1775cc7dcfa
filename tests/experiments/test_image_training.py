"""Splits, imbalance and training runs of the experiments with images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.experiments import image_training
from taskloss.experiments.auc import cross_entropy
from taskloss.experiments.image_training import (
    Images,
    Parts,
    binary_parts,
    drop_negatives,
    load_parts,
    run_tuned,
    score_images,
    train_network,
)
from taskloss.experiments.multiclass_auc import grouped_parts, roc_curve
from taskloss.experiments.residual_network import ARCHITECTURES, ResidualNetwork
from tests.experiments.image_cache import SIDE, make_runner, write_images

CELL = {"network": "small", "rate": 0.1, "iterations": 6, "seed": 0}


def numbered_parts(classes: int, training: int = 300) -> Parts:
    """Images whose pixels are their number, so that parts can be recognized."""

    def images(number: int) -> Images:
        pixels = torch.arange(number).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)
        return Images(pixels, torch.arange(number) % classes)

    return Parts(images(training), images(40), images(50))


def test_resnet18_has_its_parameters():
    network = ResidualNetwork(ARCHITECTURES["resnet18"], 10, 0)
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_173_962
    assert network.eval()(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).shape == (2, 10)


def test_one_output_is_a_vector_of_scores_and_the_seed_matters():
    first, again, other = (ResidualNetwork(ARCHITECTURES["small"], 1, seed).eval() for seed in (0, 0, 1))
    pixels = torch.randint(256, (5, 3, 16, 16), dtype=torch.uint8)
    assert first(pixels).shape == (5,)
    assert torch.equal(first(pixels), again(pixels))
    assert not torch.equal(first(pixels), other(pixels))


@pytest.mark.parametrize(("ratio", "negatives"), [(0.5, 60), (0.91, 10), (0.999, 0), (0.2, 60)])
def test_negatives_are_dropped_to_the_ratio(ratio, negatives):
    target = np.array([1] * 100 + [0] * 60)
    kept = drop_negatives(target, ratio, 0)
    assert np.array_equal(kept, np.unique(kept))
    assert target[kept].sum() == 100
    assert len(kept) - 100 == negatives
    assert 0 < negatives < 60 or np.array_equal(kept, drop_negatives(target, ratio, 1))


def test_half_of_the_classes_are_positive_and_only_training_loses_images():
    parts = binary_parts(numbered_parts(10), 0.75, 0)
    for part in parts:
        assert torch.equal(part.labels == 1, part.pixels[:, 0, 0, 0] % 10 < 5)
    assert parts.training.labels.double().mean().item() == pytest.approx(0.75)
    assert (len(parts.validation.labels), len(parts.test.labels)) == (40, 50)


@pytest.mark.parametrize(("classes", "bounds"), [(10, (3, 6)), (100, (33, 66))])
def test_three_groups_of_which_two_are_dropped(classes, bounds):
    parts = grouped_parts(numbered_parts(classes), 0.9, 0)
    label = parts.training.pixels[:, 0, 0, 0] % classes
    group = (label >= bounds[0]).long() + (label >= bounds[1])
    assert torch.equal(parts.training.labels, group)
    size = 300 // classes
    expected = [round(bounds[0] * size * 0.1), round(bounds[0] * size * 0.1), size * (classes - bounds[1])]
    assert torch.bincount(group).tolist() == expected
    assert len(parts.test.labels) == 50
    assert len(grouped_parts(numbered_parts(classes), 0.0, 0).training.labels) == 300


def test_parts_do_not_overlap(tmp_path):
    files = write_images(tmp_path, ["stl10"])
    parts = load_parts(files, "stl10", SIDE, 0)
    assert [len(part.labels) for part in parts] == [96, 24, 40]
    with np.load(tmp_path / f"images-stl10-{SIDE}.npz") as arrays:
        without_test = {**arrays, "test pixels": arrays["pixels"][:0], "test labels": arrays["labels"][:0]}
    np.savez(tmp_path / f"images-stl10-{SIDE}.npz", **without_test)
    parts = load_parts(files, "stl10", SIDE, 0)
    assert [len(part.labels) for part in parts] == [77, 19, 24]
    rows = torch.cat([part.pixels.flatten(1) for part in parts])
    assert len(rows.unique(dim=0)) == len(rows) == 120
    other = load_parts(files, "stl10", SIDE, 1)
    assert not torch.equal(other.test.pixels, parts.test.pixels)


def test_a_run_is_repeatable_and_learns(tmp_path):
    files = write_images(tmp_path, ["stl10"])
    parts = binary_parts(load_parts(files, "stl10", SIDE, 0), 0.5, 0)
    cell = {**CELL, "iterations": 40}
    first, losses = train_network(cell, files, parts.training, cross_entropy)
    second, again = train_network(cell, files, parts.training, cross_entropy)
    assert losses == again
    assert len(losses) == 40
    scores = score_images(first, parts.test.pixels)
    assert torch.equal(scores, score_images(second, parts.test.pixels))
    assert tl.metrics.roc_auc_score(scores, parts.test.labels) > 0.8


def test_the_bias_moves_all_scores(tmp_path):
    files = write_images(tmp_path, ["stl10"])
    images = binary_parts(load_parts(files, "stl10", SIDE, 0), 0.5, 0).training
    cell = {**CELL, "iterations": 1, "rate": 1e-9}
    plain, moved = (train_network(start, files, images, cross_entropy)[0] for start in (cell, {**cell, "bias": 3.0}))
    difference = score_images(moved, images.pixels) - score_images(plain, images.pixels)
    assert torch.allclose(difference, difference[0].expand_as(difference), atol=1e-4)
    assert score_images(moved, images.pixels).min() > 1.5


def test_a_run_that_diverges_is_told_from_a_mistake(tmp_path):
    files = write_images(tmp_path, ["stl10"])
    images = binary_parts(load_parts(files, "stl10", SIDE, 0), 0.5, 0).training
    model, losses = train_network({**CELL, "rate": 1e30}, files, images, tl.DirectLoss("roc_auc"))
    assert losses == ()
    assert not score_images(model, images.pixels).isfinite().all()

    def mistaken(scores, target):
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        train_network(CELL, files, images, mistaken)


def test_a_long_run_continues_from_its_checkpoint(tmp_path, monkeypatch):
    files = write_images(tmp_path, ["stl10"])
    images = binary_parts(load_parts(files, "stl10", SIDE, 0), 0.5, 0).training
    expected = score_images(train_network(CELL, files, images, cross_entropy)[0], images.pixels)
    monkeypatch.setattr(image_training, "LONG", 2)
    steps = []

    def interrupted(scores, target):
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return cross_entropy(scores, target)

    interrupted.__qualname__ = "cross_entropy"
    with pytest.raises(KeyboardInterrupt):
        train_network(CELL, files, images, interrupted)
    model, losses = train_network(CELL, files, images, interrupted)
    assert len(steps) == 4 + 4  # The first two steps were in the checkpoint.
    assert len(losses) == 6
    assert torch.equal(score_images(model, images.pixels), expected)


def test_the_learning_rate_is_tuned_where_it_should_be(tmp_path):
    runner = make_runner(write_images(tmp_path, []))
    cells = [{"set": name, "method": "a", "seed": seed} for name in BEST_RATES for seed in (0, 1)]
    records, tried = run_tuned(runner, _fake_run, cells, lambda cell: True, (1.0, 0.1, 0.01))
    assert {(record["set"], record["seed"]): record["rate"] for record in records} == {
        (name, seed): best for name, best in BEST_RATES.items() for seed in (0, 1)
    }
    searched = {name: sorted(record["rate"] for record in tried if record["set"] == name) for name in BEST_RATES}
    assert searched["inside"] == [0.01, 0.1, 1.0]
    assert searched["above"] == [0.01, 0.1, 1.0, 10.0, 100.0]  # 100 shows that 10 is not at the edge.
    assert searched["far below"] == [0.0001, 0.001, 0.01, 0.1, 1.0]  # The search ends there.


BEST_RATES = {"inside": 0.1, "above": 10.0, "far below": 0.0001}


def _fake_run(cell, files):
    """Return a metric that falls with the distance from the best rate; other seeds must not matter."""
    distance = abs(np.log10(cell["rate"] / BEST_RATES[cell["set"]]))
    return {"chosen_by": -distance if cell["seed"] == 0 else distance}


def test_small_data_sets_are_tuned_on_all_seeds(tmp_path):
    runner = make_runner(write_images(tmp_path, []))
    cells = [{"set": name, "method": "a", "seed": seed} for name in ("stl10", "cifar10") for seed in range(3)]
    records, _ = run_tuned(runner, _lucky_run, cells, lambda cell: True, (1.0, 0.1, 0.01))
    assert {record["set"]: record["rate"] for record in records} == {"stl10": 0.1, "cifar10": 1.0}


def _lucky_run(cell, files):
    """Return a metric that is best at 0.1, but for a lucky first seed at 1."""
    lucky = cell["seed"] == 0 and cell["rate"] == 1.0
    return {"chosen_by": 0.95 if lucky else {1.0: 0.5, 0.1: 0.9}.get(cell["rate"], 0.1)}


def test_the_roc_curve_is_that_of_scikit_learn():
    from sklearn.metrics import roc_curve as reference

    from taskloss.experiments.multiclass_auc_page import ROC_RATES

    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 12, (200,), generator=generator).float()
    positive = torch.rand(200, generator=generator) < 0.3
    false, true, _ = reference(positive.numpy(), scores.numpy(), drop_intermediate=False)
    assert roc_curve(scores, positive) == pytest.approx(np.interp(ROC_RATES, false, true).tolist(), abs=1e-3)
