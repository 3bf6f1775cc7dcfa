"""Names, handles, and their life across processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass

import pytest

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


def test_equal_tasks_share_a_handle():
    @dataclass(frozen=True)
    class Other(tl.AveragePrecision):
        pass

    assert handle_of(tl.AveragePrecision()) == handle_of("average_precision")
    assert handle_of(tl.AveragePrecision(on_one_class="raise")) != handle_of("average_precision")
    assert handle_of(Other()) != handle_of("average_precision")
    assert task_of(handle_of(Other())) == Other()


def test_a_pickled_loss_finds_its_task_in_another_process():
    # Here the task is not the first one known, there it is.
    loss = tl.DirectLoss(tl.AveragePrecision(on_one_class="raise"), epsilon=0.25)
    program = (
        "import pickle, sys, torch; loss = pickle.load(sys.stdin.buffer); "
        "print(loss.task, loss._handle, loss(torch.tensor([0.1, 0.2]), torch.tensor([1, 0])).item())"
    )
    result = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(loss), capture_output=True, check=True)
    assert result.stdout.decode().strip() == "AveragePrecision(on_one_class='raise') 0 0.5"
    assert loss._handle > 0
