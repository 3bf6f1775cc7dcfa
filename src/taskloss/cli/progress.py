"""Progress on the error stream: a bar in a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from taskloss.cli.time_left import spell_duration

Report = Callable[[float, str, float | None], None]
"""Takes the amount done, a description of the current work, and the seconds left, None if they are not known yet."""

FIRST_LINE, NEXT_LINE, LATER_LINE = 5.0, 10.0, 60.0
"""Seconds before the first line, between the lines of the first minute, and between later ones."""


@contextmanager
def progress_bar(description: str, total: float, part: str = "") -> Iterator[Report]:
    """Show progress while the block runs; yield the function that reports it.

    ``part`` says which part of the work the progress and the time left are for, if it is not the whole.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_writer(total, part)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task(_join(part, description), total=total, left="")

        def report(done: float, current: str, left: float | None = None) -> None:
            progress.update(task, completed=done, description=_join(part, current), left=_spell_left(left))

        yield report


def _line_writer(total: float, part: str = "", now: Callable[[], float] = time.monotonic) -> Report:
    """Return a function that writes a line if the last one was some time ago."""
    start = now()
    due = start + FIRST_LINE

    def report(done: float, current: str, left: float | None = None) -> None:
        nonlocal due
        moment = now()
        if moment < due:
            return
        due = moment + (NEXT_LINE if moment - start < 60 else LATER_LINE)
        parts = (f"{done / total:.0%}", spell_duration(moment - start), _spell_left(left))
        # A console of rich would wrap the line at 80 columns.
        print(f"{_join(part, current)}: {', '.join(filter(None, parts))}", file=Console(stderr=True).file, flush=True)

    return report


def _join(part: str, current: str) -> str:
    return f"{part}, {current}" if part else current


def _spell_left(left: float | None) -> str:
    return "" if left is None else f"about {spell_duration(left)} left"
