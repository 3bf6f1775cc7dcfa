"""Progress of a long call on the error stream: one line that is rewritten in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

Report = Callable[[int, int | None], object]
"""Takes the number of batches done, both passes counted, and their total, None if it is not known yet."""

SECONDS_BETWEEN_LINES = 10.0


def make_report(progress: bool | Report) -> Report:
    """Return the function to call after every batch."""
    if callable(progress):
        return progress
    return _LineWriter() if progress else lambda done, total: None


class _LineWriter:
    def __init__(self) -> None:
        self._in_terminal = sys.stderr.isatty()
        self._due = time.monotonic() + (0.0 if self._in_terminal else SECONDS_BETWEEN_LINES)

    def __call__(self, done: int, total: int | None) -> None:
        text = f"full batch: {done} of {total or '?'} batches"
        if self._in_terminal:
            print(f"\r{text}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + SECONDS_BETWEEN_LINES
            print(text, file=sys.stderr, flush=True)
