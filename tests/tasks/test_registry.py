"""Names, handles, and their life across processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import taskloss as tl
from taskloss.tasks.registry import as_task, handle_of, task_of


def test_names():
    assert as_task("average_precision") == tl.AveragePrecision()
    with pytest.raises(ValueError, match="no task is named 'ap'; the names are .*average_precision"):
        tl.DirectLoss("ap")
    with pytest.raises(TypeError, match=r"the class AveragePrecision; write AveragePrecision\(\)"):
        tl.DirectLoss(tl.AveragePrecision)
    with pytest.raises(TypeError, match="got int"):
        tl.DirectLoss(3)
    with pytest.raises(ValueError, match="taken by AveragePrecision"):
        tl.register("average_precision")(tl.AveragePrecision)


def test_labels_for_readers():
    labels = {name: cls.label for name, cls in tl.tasks.registered().items()}
    assert labels["average_precision"] == "average precision"
    assert labels["dice"] == "Dice"
    assert labels["f_score"] == "F-score"


def test_every_registered_task_is_public():
    for cls in tl.tasks.registered().values():
        assert getattr(tl, cls.__name__) is cls
        assert cls.__name__ in tl.__all__
        assert cls.__name__ in tl.tasks.__all__


def test_handles_by_identity_follow_the_tasks():
    task = tl.PrecisionAtK(3)
    assert handle_of(task) == handle_of(task) == handle_of(tl.PrecisionAtK(3))
    for k in range(1, 300):
        # Each of these may get the id of one that is gone.
        assert task_of(handle_of(tl.RecallAtK(k))) == tl.RecallAtK(k)


def test_equal_tasks_share_a_handle():
    @dataclass(frozen=True)
    class Other(tl.AveragePrecision):
        pass

    assert handle_of(tl.AveragePrecision()) == handle_of("average_precision")
    assert handle_of(tl.AveragePrecision(on_one_class="raise")) != handle_of("average_precision")
    assert handle_of(Other()) != handle_of("average_precision")
    assert task_of(handle_of(Other())) == Other()


def test_settings_that_compare_equal_are_told_apart():
    assert handle_of(tl.PrecisionAtK(1)) != handle_of(tl.PrecisionAtK(1.0))
    scores, target = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 1])
    assert tl.DirectLoss(tl.PrecisionAtK(1))(scores, target).item() == 1.0
    assert tl.DirectLoss(tl.PrecisionAtK(1.0))(scores, target).item() == pytest.approx(1 / 3)


def test_a_task_that_cannot_be_hashed_says_so():
    @dataclass(frozen=True)
    class WithArray(tl.AveragePrecision):
        cost: object = None

    with pytest.raises(TypeError, match="WithArray cannot be hashed.*tuples"):
        tl.DirectLoss(WithArray(cost=np.zeros(2)))(torch.zeros(2), torch.tensor([0, 1]))


def test_a_pickled_loss_finds_its_task_in_another_process():
    # Here the task is not the first one known, there it is.
    handle_of("average_precision")
    loss = tl.DirectLoss(tl.AveragePrecision(on_one_class="raise"), epsilon=0.25)
    program = (
        "import pickle, sys, torch; loss = pickle.load(sys.stdin.buffer); "
        "from taskloss.tasks.registry import handle_of; "
        "print(loss.task, loss(torch.tensor([0.1, 0.2]), torch.tensor([1, 0])).item(), handle_of(loss.task))"
    )
    result = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(loss), capture_output=True, check=True)
    assert result.stdout.decode().strip() == "AveragePrecision(on_one_class='raise', at=None) 0.5 0"
    assert handle_of(loss.task) > 0
