"""Run the cells of an experiment in several processes, those that are not in its journal yet."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from taskloss._processes import run_in_processes, single_thread
from taskloss.experiments.journal import Cell, Journal, Record


class Files(NamedTuple):
    """Where a run finds its data, and where it keeps what later runs need again."""

    data: Path | None
    """The folder of the data sets and of the pretrained networks; None if it was not given."""
    cache: Path

    def data_folder(self) -> Path:
        """Return the folder of the data, which the caller needs."""
        if self.data is None:
            raise FileNotFoundError("this experiment needs data: give their folder as --data DIR")
        return self.data


Run = Callable[[Cell, Files], Record]
Report = Callable[[float, str, float | None], None]
"""Takes the number of finished runs, a description of the work, and the seconds left, None if they are not known yet."""
Show = Callable[[str, float], AbstractContextManager[Report]]
"""Takes the description of a stage and its number of runs; shows the progress that is reported to it."""


class Runner:
    """Runs cells and keeps their records.

    Args:
        journal: the records of earlier runs; new ones are added.
        files: the folders that runs read and write.
        jobs: number of processes; each uses one thread, so the records do not depend on it.
        show: shows the progress of a stage.
    """

    def __init__(self, journal: Journal, files: Files, *, jobs: int, show: Show) -> None:
        self._journal, self.files, self._jobs, self.show = journal, files, jobs, show

    def run(self, stage: str, function: Run, cells: Sequence[Cell]) -> list[Record]:
        """Return the record of each cell, in order, and run ``function`` on those that have none.

        ``function`` must be defined at the top of a module, so that other processes find it. The seconds of a run are added to
        its record.
        """
        todo = [cell for cell in cells if self._journal.find(cell) is None]
        if todo:
            self._run(stage, function, todo, len(cells))
        return [{**cell, **(self._journal.find(cell) or {})} for cell in cells]

    def _run(self, stage: str, function: Run, todo: Sequence[Cell], total: int) -> None:
        jobs, start = min(self._jobs, len(todo)), time.perf_counter()
        calls = [(function, cell, self.files) for cell in todo]
        with self.show(stage, total) as report:
            report(total - len(todo), stage, None)
            results = (timed_run(*call) for call in calls) if jobs == 1 else run_in_processes(timed_run, calls, jobs)
            for done, (cell, record) in enumerate(results, 1):
                self._journal.add(cell, record)
                left = (time.perf_counter() - start) / done * (len(todo) - done)
                report(total - len(todo) + done, stage, left)


def timed_run(function: Run, cell: Cell, files: Files) -> tuple[Cell, Record]:
    """Return the cell with its record, in one thread."""
    start = time.perf_counter()
    with single_thread(), warnings.catch_warnings():
        # What a loss advises those who call it from Python; a network that learned nothing shows in its record.
        warnings.simplefilter("ignore", UserWarning)
        record = function(cell, files)
    return cell, {**record, "seconds": round(time.perf_counter() - start, 2)}
