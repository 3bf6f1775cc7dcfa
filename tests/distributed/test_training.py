"""Training over several processes gives the parameters of one process, and a lost rank ends the others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.cases import CASES, SHARDS
from tests.distributed.endless_worker import TIMEOUT
from tests.distributed.running import run, start

MARGIN = 15
"""Seconds for busy machines."""


@pytest.fixture(scope="module")
def compiled_kernels():
    """Kernels on disk, so that the processes of a worker need not all compile them."""
    for case in CASES.values():
        case.train_in_one_process(steps=1)


@pytest.fixture(scope="module", params=[1, 2, 4])
def trained(request, compiled_kernels, tmp_path_factory):
    return run("training_worker.py", request.param, tmp_path_factory.mktemp("training"))


def test_parameters_after_training_are_those_of_one_process(trained):
    """Uneven shards, a rank without positives, one without samples, queries across ranks; float64; one batch and several."""
    assert len(trained) == len(SHARDS[len(trained)])
    for rank in trained:
        assert rank.keys() == CASES.keys()
        for name, result in rank.items():
            assert result["difference"] < 1e-12, name
            assert result["difference by batches"] < 1e-12, name
            assert result["moved"] > 0.05, name


@pytest.fixture(scope="module")
def interrupted(compiled_kernels, tmp_path_factory):
    """Two trainings of three processes, at the same time; rank 1 of the one is killed, of the other stopped."""
    folders = {how: tmp_path_factory.mktemp(how.name) for how in (signal.SIGKILL, signal.SIGSTOP)}
    launchers = {how: start("endless_worker.py", 3, folder) for how, folder in folders.items()}
    try:
        yield {how: interrupt(launchers[how], folder, how) for how, folder in folders.items()}
    finally:
        for how, folder in folders.items():
            for report in read(folder):
                end_process(report["process"])
            launchers[how].terminate()
            launchers[how].communicate()


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the reports that there are, ordered by rank."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def end_process(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.time() + seconds
    while not condition() and time.time() < end:
        time.sleep(0.1)
    return condition()


def interrupt(launcher: subprocess.Popen[str], folder: Path, how: signal.Signals) -> tuple[float, list[dict[str, Any]], int]:
    """Signal rank 1 once all ranks train; return when, the last reports of the ranks, and the exit code of torchrun."""
    assert wait_for(lambda: len(list(folder.glob("?.json"))) == 3 or launcher.poll() is not None, 120)
    when, stopped = time.time(), read(folder)[1]["process"]
    os.kill(stopped, how)
    wait_for(lambda: any("error" in report for report in read(folder)), TIMEOUT + MARGIN)
    reports = read(folder)
    # torchrun does this too, 30 seconds after its signal to end, which a stopped process does not receive.
    end_process(stopped)
    return when, reports, launcher.wait(MARGIN)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=lambda how: how.name)
def test_a_lost_rank_ends_all_ranks_with_an_error(interrupted, how):
    """The others notice a dead rank at once, and a stopped one after the timeout of the group."""
    when, reports, code = interrupted[how]
    assert code != 0
    errors = [report for report in reports if "error" in report]
    assert errors
    assert min(report["time"] for report in errors) - when < (TIMEOUT if how == signal.SIGSTOP else 0) + MARGIN
    assert not [report["process"] for report in reports if Path(f"/proc/{report['process']}").exists()]
