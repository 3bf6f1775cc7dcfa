"""Cells are run once, in any number of processes, and killed experiments continue to the same records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from taskloss.experiments.journal import Journal
from taskloss.experiments.runner import Files, Runner


@contextmanager
def silent(stage: str, total: float):
    yield lambda done, what, left: None


def square(cell: dict, files: Files) -> dict:
    assert torch.get_num_threads() == 1
    return {"square": cell["x"] ** 2, "process": os.getpid()}


def make_runner(folder: Path, jobs: int = 1, show=silent) -> Runner:
    return Runner(Journal(folder / "runs.jsonl"), Files(None, folder), jobs=jobs, show=show)


def test_records_come_in_the_order_of_the_cells(tmp_path):
    cells = [{"x": x} for x in (3, 1, 2)]
    records = make_runner(tmp_path).run("squares", square, cells)
    assert [(record["x"], record["square"]) for record in records] == [(3, 9), (1, 1), (2, 4)]
    assert all(record["seconds"] >= 0 for record in records)


def test_two_processes_give_the_same_records(tmp_path):
    cells = [{"x": x} for x in range(4)]
    records = make_runner(tmp_path, jobs=2).run("squares", square, cells)
    assert [record["square"] for record in records] == [0, 1, 4, 9]
    assert os.getpid() not in {record["process"] for record in records}


def test_known_cells_are_not_run_again(tmp_path):
    seen: list[tuple[float, str]] = []

    @contextmanager
    def show(stage: str, total: float):
        yield lambda done, what, left: seen.append((done, total))

    make_runner(tmp_path).run("squares", square, [{"x": 1}, {"x": 2}])
    runner = make_runner(tmp_path, show=show)
    runner.run("squares", square, [{"x": 1}, {"x": 2}, {"x": 3}])
    assert seen == [(2, 3), (3, 3)]
    seen.clear()
    runner.run("squares", square, [{"x": 3}, {"x": 1}])
    assert seen == []


def test_an_experiment_without_its_data_says_how_to_give_them(tmp_path):
    with pytest.raises(FileNotFoundError, match="--data"):
        Files(None, tmp_path).data_folder()


EXPERIMENT = """
import os, signal, sys
from pathlib import Path
from tests.experiments.test_runner import make_runner
from taskloss.experiments import linear

linear.GRIDS = {"normal": linear.Grid((1.0,), (1.0,), (0.1,))}
linear.METHODS = {"pos-AP": None, "x-ent": None}
folder, kill_after = Path(sys.argv[1]), int(sys.argv[2])
runner = make_runner(folder)
add, added = runner._journal.add, []

def add_and_die(cell, record):
    add(cell, record)
    added.append(cell)
    if len(added) == kill_after:
        os.kill(os.getpid(), signal.SIGKILL)

runner._journal.add = add_and_die
linear.Linear(points=200, iterations=20).run(runner, 2)
"""


def test_an_experiment_that_is_killed_continues_to_the_same_records(tmp_path):
    def run(folder: Path, kill_after: int) -> int:
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-c", EXPERIMENT, str(folder), str(kill_after)]
        return subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode

    assert run(tmp_path / "whole", 0) == 0
    for kill_after in (3, 2):
        assert run(tmp_path / "killed", kill_after) == -signal.SIGKILL
    with (tmp_path / "killed" / "runs.jsonl").open("a") as file:
        file.write('{"cell": {"experiment": "lin')  # As if the process had died while it wrote.
    assert run(tmp_path / "killed", 0) == 0

    def records(folder: Path) -> list[dict]:
        entries = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
        return [{**entry["cell"], **entry["record"], "seconds": 0} for entry in entries]

    assert len(records(tmp_path / "whole")) == 8
    assert records(tmp_path / "killed") == records(tmp_path / "whole")
