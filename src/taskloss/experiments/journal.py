"""The finished runs of an experiment on disk, so that an experiment that was killed continues with the same records."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from taskloss._storage import replace_file

Cell = dict[str, Any]
"""Everything that a run depends on besides the code and the data files, as JSON values."""
Record = dict[str, Any]
"""The result of a run, as JSON values."""


class Journal:
    """The records of finished runs by their cells, in a file of one JSON line per run.

    A line that was cut off when the process was killed is dropped, and its run is made again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[str, Record] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        lines = self._path.read_bytes().split(b"\n")
        intact = []
        for number, line in enumerate(lines):
            try:
                entry = json.loads(line)
                self._records[_key(entry["cell"])] = entry["record"]
                intact.append(line)
            except (ValueError, KeyError, TypeError) as error:
                if number < len(lines) - 1:
                    raise ValueError(
                        f"line {number + 1} of {self._path} is damaged ({error}); remove the line or the file"
                    ) from error
        if lines[-1]:
            replace_file(self._path, b"".join(line + b"\n" for line in intact))

    def __len__(self) -> int:
        return len(self._records)

    @property
    def seconds(self) -> float:
        """Seconds of all runs, each counted once, however many stages of the experiment use it."""
        return sum(record["seconds"] for record in self._records.values())

    def find(self, cell: Cell) -> Record | None:
        """Return the record of a cell, or None if it has not been run."""
        return self._records.get(_key(cell))

    def add(self, cell: Cell, record: Record) -> None:
        """Add a finished run to the file; when this returns, it is on the disk."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(json.dumps({"cell": cell, "record": record}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._records[_key(cell)] = record


def _key(cell: Cell) -> str:
    return json.dumps(cell, sort_keys=True)
