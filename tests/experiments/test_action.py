"""Heads of several classes are separate networks, flips leave unknown labels alone, and runs continue after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from taskloss.experiments import action
from taskloss.experiments.action import ClassHeads, choose_settings, class_precisions, flip_known, run_heads, split_persons
from taskloss.experiments.action_paper import MEANS, METHODS, NOISE, OLDER, TABLE_1, paper_value
from taskloss.experiments.methods import METHODS as CRITERIA
from taskloss.experiments.pretrained import SQUEEZENET
from taskloss.experiments.runner import Files
from taskloss.experiments.voc_action import CLASSES, PACKED, UNKNOWN
from tests.experiments.devkit import as_jpeg
from tests.experiments.stored_weights import squeezenet_weights, write_weights
from tests.experiments.test_runner import make_runner

REPOSITORY = Path(__file__).parents[2]


def write_features(folder: Path, persons: int = 120, classes: int = 10) -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((persons, 6)).astype(np.float32)
    labels = (features @ rng.standard_normal((6, classes)) > 1.5).astype(np.int64)
    labels[:5, 0] = UNKNOWN
    np.savez(folder / "voc_action-squeezenet.npz", features=features, labels=labels, image=np.arange(persons) // 2)


def cell(method: str, weight: float = 1.0, iterations: int = 6) -> dict:
    return {"noise": 0.2, "method": method, "weight": weight, "rate": 0.01, "decay": 0.01, "seed": 0, "iterations": iterations}


def test_the_heads_are_separate_networks():
    heads, x = ClassHeads(5, 3, 4, seed=1), torch.randn(7, 5)
    for index in range(3):
        rows = slice(4 * index, 4 * index + 4)
        hidden = (x @ heads.hidden.weight[rows].T + heads.hidden.bias[rows]).relu()
        torch.testing.assert_close(heads(x)[:, index], hidden @ heads.output[index] + heads.bias[index])


@pytest.mark.parametrize("method", METHODS)
def test_a_class_learns_as_if_it_were_alone(method):
    """The sum over the columns gives each class the gradient that its own scores would have."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(40, 3, generator=generator).requires_grad_()
    target = (torch.rand(40, 3, generator=generator) < 0.3).long()
    target[:4, 1] = UNKNOWN
    CRITERIA[method](0.5, ignore_index=UNKNOWN, reduction="sum")(scores, target).backward()
    for column in range(3):
        known = target[:, column] != UNKNOWN
        alone = scores.detach()[known, column].clone().requires_grad_()
        CRITERIA[method](0.5)(alone, target[known, column]).backward()
        torch.testing.assert_close(scores.grad[known, column], alone.grad)
        assert not scores.grad[~known, column].any()


def test_flips_leave_unknown_labels_alone():
    labels = np.array([[1, 0]] * 20)
    labels[:10, 0] = UNKNOWN
    flipped = flip_known(labels, 0.3, np.random.default_rng(0))
    assert (flipped[:10, 0] == UNKNOWN).all()
    assert (flipped != labels).sum(0).tolist() == [3, 6]


def test_test_labels_stay_clean_and_images_in_one_part():
    rng = np.random.default_rng(0)
    labels, image = rng.integers(0, 2, (90, 10)), np.arange(90) // 3
    features = torch.arange(90.0)[:, None]
    parts = split_persons(features, labels, image, 0.4, seed=2)
    rows = [part.features.flatten().long().numpy() for part in parts]
    assert sorted(np.concatenate(rows)) == list(range(90))
    for first in range(3):
        for second in range(first):
            assert not set(image[rows[first]]) & set(image[rows[second]])
    assert np.array_equal(parts.test.target.numpy(), labels[rows[2]])
    for part, own in zip(parts[:2], rows[:2], strict=True):
        assert ((part.target.numpy() != labels[own]).sum(0) == round(0.4 * len(own))).all()


def test_precisions_of_classes_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    scores, target = rng.standard_normal((30, 2)), rng.integers(0, 2, (30, 2))
    target[:5, 1] = UNKNOWN
    values = class_precisions(torch.tensor(scores), torch.tensor(target))
    assert values == pytest.approx(
        [average_precision_score(target[:, 0], scores[:, 0]), average_precision_score(target[5:, 1], scores[5:, 1])]
    )


def test_a_run_records_both_protocols(tmp_path):
    write_features(tmp_path)
    record = run_heads(cell("x-ent", iterations=12), Files(None, tmp_path))
    assert record["curve"]["iteration"] == [1, 5, 10, 12]
    assert record["curve"]["test"][-1] == pytest.approx(np.mean(record["fixed"]["test"]), abs=1e-3)
    for early, last in zip(record["early"]["validation"], record["fixed"]["validation"], strict=True):
        assert early >= last
    assert set(record["stopped"]) <= {1, 5, 10, 12}


def test_settings_are_chosen_by_validation_for_each_protocol():
    def record(rate: float, fixed: float, early: float) -> dict:
        values = {"fixed": {"validation": [fixed], "test": [1 - fixed]}, "early": {"validation": [early], "test": [1 - early]}}
        return {**cell("x-ent"), "experiment": "action", "rate": rate, **values}

    tuning = [record(1.0, 0.2, 0.9), record(2.0, 0.5, 0.6)]
    assert [one["rate"] for one in choose_settings(tuning, "fixed")] == [2.0]
    assert [one["rate"] for one in choose_settings(tuning, "early")] == [1.0]


def test_the_experiment_runs_from_end_to_end(tmp_path, monkeypatch):
    write_features(tmp_path)
    monkeypatch.setattr(action, "RATES", (0.01,))
    monkeypatch.setattr(action, "DECAYS", (0.01,))
    monkeypatch.setattr(action, "EPSILONS", (0.5, 2.0))
    experiment = action.Action(iterations=3)
    results = experiment.run(make_runner(tmp_path), 2)
    assert len(results["tuning"]) == len(NOISE) * 4
    assert len(results["fixed"]) == len(results["early"]) == len(NOISE) * len(METHODS) * 2
    page = experiment.make_page(results)
    assert "| pos-AP | paper | 69.5 | 62.5 | 57.8 | 45.9 | 29.6 |" in page.text
    assert "40% flipped, early stopping: pos-AP is ahead of x-ent" in page.verdict
    assert set(page.figures) == {"action"}


def test_the_means_of_the_paper_are_those_of_its_rows():
    for noise in NOISE:
        for method in METHODS:
            classes = [paper_value(row, noise, method) for row in range(len(TABLE_1))]
            assert np.mean(classes) == pytest.approx(paper_value(None, noise, method), abs=0.051)
    assert len(MEANS) == 15
    for row in OLDER.values():
        assert np.mean(row[:10]) == pytest.approx(row[10], abs=0.11)


FINE_TUNING = """
import os, signal, sys
from pathlib import Path
import torch
from taskloss.experiments import action_fine_tuning as module
from taskloss.experiments.runner import Files

torch.set_num_threads(1)
module.EVERY = 2
data, cache, kill_at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
measure = module.PrecisionCurve.measure

def measure_and_die(self, progress):
    if progress.iteration == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    measure(self, progress)

module.PrecisionCurve.measure = measure_and_die
cell = {"class": "reading", "noise": 0.1, "method": "pos-AP", "weight": 1.0, "rate": 1e-4}
cell |= {"decay": 0.01, "seed": 0, "iterations": 4}
print(module.run_class(cell, Files(data, cache)))
"""


def test_fine_tuning_continues_after_a_kill_to_the_same_record(tmp_path):
    data, rng = tmp_path / "data", np.random.default_rng(0)
    write_weights(data / SQUEEZENET, squeezenet_weights(0))
    (data / PACKED).parent.mkdir()
    np.savez(
        data / PACKED,
        **as_jpeg([rng.integers(0, 256, (48, 48, 3), np.uint8) for _ in range(24)]),
        image_id=np.array([f"{number:02}" for number in range(24)]),
        object_index=np.ones(24, np.int64),
        labels=np.where(rng.random((24, 10)) < 0.5, 1, -1).astype(np.int8),
        box=np.ones((24, 4)),
        classes=np.array(CLASSES),
    )

    def run(cache: str, kill_at: int) -> tuple[int, str]:
        command = [sys.executable, "-c", FINE_TUNING, str(data), str(tmp_path / cache), str(kill_at)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, env=os.environ)
        return result.returncode, result.stdout if result.returncode == 0 else result.stderr

    code, whole = run("whole", 0)
    assert code == 0, whole
    for kill_at in (1, 3, 4):
        assert run("killed", kill_at)[0] == -signal.SIGKILL
    assert run("killed", 0) == (0, whole)
