"""The synthetic data are what the paper says, and runs record what their protocol promises."""

from __future__ import annotations

import pytest
import torch

from taskloss.experiments import linear, noise_robustness, synthetic
from taskloss.experiments.learning import (
    Grid,
    Samples,
    choose,
    curve_iterations,
    flip_labels,
    in_columns,
    plan_cells,
    train_on,
)


def cell(method: str = "pos-AP", protocol: str = "torch", rate: float = 1.0, iterations: int = 20, seed: int = 0) -> dict:
    return {"method": method, "weight": 1.0, "rate": rate, "protocol": protocol, "iterations": iterations, "seed": seed}


def test_flipped_labels_are_a_fixed_number():
    target = torch.arange(50) % 2
    flipped = flip_labels(target, 0.2, torch.Generator().manual_seed(0))
    assert (flipped != target).sum() == 10
    assert torch.equal(flip_labels(target, 0.0, torch.Generator()), target)


def test_a_fifth_of_the_synthetic_points_is_positive():
    training, test = synthetic.make_samples(3, 1000)
    assert len(training.target) == len(test.target) == 500
    assert training.target.sum() + test.target.sum() == 200
    other, _ = synthetic.make_samples(4, 1000)
    assert not torch.equal(other.x, training.x)


def test_the_student_does_not_begin_as_its_teacher():
    for seed in range(5):
        training, test = synthetic.make_samples(seed, 1000)
        for protocol in ("normal", "torch"):
            record = train_on(
                {**cell(protocol=protocol, iterations=1, rate=1e-9), "seed": seed}, training, {"test": test}, hidden=(10, 10, 10)
            )
            assert record["test AP"] < 0.9


def test_the_norm_decides_the_class_of_noisy_points():
    training, test = noise_robustness.make_samples(0, 1000, 0.0)
    for samples in (training, test):
        norm = samples.x.square().sum(1)
        assert torch.equal(samples.target == 1, norm > 1200)
        assert ((norm > 1200) | (norm < 1000)).all()
        assert 0.6 < len(norm) / 1000 < 0.95
    noisy, same_test = noise_robustness.make_samples(0, 1000, 0.3)
    assert (noisy.target != training.target).sum() == round(0.3 * len(training.target))
    assert torch.equal(same_test.target, test.target)


def test_the_sum_decides_the_class_of_linear_points():
    training, tests = linear.make_samples(0, 1000, 0.2)
    assert torch.equal(tests["clean"].target == 1, tests["clean"].x.sum(1) > 0)
    assert torch.equal(tests["flipped"].x, tests["clean"].x)
    wrong = (training.target == 1) != (training.x.sum(1) > 0)
    assert wrong.sum() + (tests["flipped"].target != tests["clean"].target).sum() == 200


@pytest.mark.parametrize("protocol", ["normal", "torch", "adam"])
def test_a_run_records_its_end_and_its_curve(protocol):
    training, tests = linear.make_samples(0, 400, 0.0)
    record = train_on(cell("x-ent", protocol, rate=0.5), training, tests, hidden=(8,))
    assert record["iterations measured"][0] == 0
    assert set(record["curves"]) == {"clean AP", "clean accuracy", "flipped AP", "flipped accuracy"}
    if protocol != "adam":
        assert record["iterations measured"] == curve_iterations(20)
        assert record["curves"]["clean AP"][-1] == record["clean AP"]
        assert record["chosen_by"] == pytest.approx(record["training AP"], abs=1e-5)


def test_accuracy_is_that_of_the_best_threshold_of_the_training_set():
    x = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    samples = Samples(x, torch.tensor([0, 0, 1, 1]))
    # A linear model without bias and any weight above zero separates the classes at 2.5 times the weight, not at zero.
    for seed in range(4):
        record = train_on(cell("x-ent", "normal", rate=0.1, seed=seed), samples, {"test": samples}, hidden=())
        if record["test AP"] == 1.0:
            assert record["test accuracy"] == 1.0


def test_a_run_that_diverges_is_recorded_as_such():
    training, tests = linear.make_samples(0, 200, 0.2)
    for method in ("x-ent", "pos-AP"):
        record = train_on(cell(method, "normal", rate=1e30), training, tests, hidden=(8, 8))
        assert record["diverged"]
        assert record["clean AP"] == record["chosen_by"] == 0.0


def test_the_best_setting_of_each_group_is_chosen():
    records = [
        {"method": method, "seed": seed, "rate": rate, "chosen_by": value}
        for method, seed, rate, value in (
            ("b", 0, 1, 0.1),
            ("b", 0, 2, 0.3),
            ("a", 0, 1, 0.2),
            ("b", 1, 1, 0.5),
            ("a", 0, 2, 0.2),
        )
    ]
    assert [(one["method"], one["seed"], one["rate"]) for one in choose(records, "method", "seed")] == [
        ("b", 0, 2),
        ("a", 0, 1),
        ("b", 1, 1),
    ]


def test_only_direct_losses_get_several_weights_unless_the_grid_says_so():
    grid = Grid((1.0, 2.0), (0.1,), (0.2, 0.3))
    cells = plan_cells({"seed": 0}, "torch", ["pos-AP", "x-ent"], grid)
    assert [(one["method"], one["weight"], one["rate"]) for one in cells] == [
        ("pos-AP", 1.0, 0.1),
        ("pos-AP", 2.0, 0.1),
        ("x-ent", 1.0, 0.2),
        ("x-ent", 1.0, 0.3),
    ]


def test_a_table_of_runs_leaves_out_curves():
    table = in_columns([{"seed": 0, "test AP": 0.1234567, "curves": {}, "points": 5}])
    assert table == {"columns": ["seed", "test AP"], "rows": [[0, 0.12346]]}
