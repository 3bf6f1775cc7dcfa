"""Records of runs that are saved one by one, so that an interrupted script resumes where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Cells:
    """Records of finished runs, each under its cell (what was run), kept in a JSON-lines file if a path is given.

    >>> cells = Cells(None)
    >>> cells.run({"seed": 0}, lambda: {"value": 1.0})["value"]
    1.0
    >>> cells.run({"seed": 0}, lambda: {"value": 2.0})["value"]   # known, so not run again
    1.0
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.records: dict[str, Record] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                stored = json.loads(line)
                self.records[self._key(stored["cell"])] = stored["record"]

    def knows(self, cell: Record) -> bool:
        """Whether the record of a cell is known, so that :meth:`run` would not make it."""
        return self._key(cell) in self.records

    def run(self, cell: Record, make: Callable[[], Record]) -> Record:
        """Return the record of a cell; unless it is known, make and keep it. The cell names all that its record depends on."""
        key = self._key(cell)
        if key not in self.records:
            start = time.perf_counter()
            record = {**cell, **make(), "seconds": time.perf_counter() - start}
            self.records[key] = record
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a") as file:
                    file.write(json.dumps({"cell": cell, "record": record}) + "\n")
        return self.records[key]

    def write_summary(self, path: Path | None, summary: Any) -> None:
        """Write a summary and all records to a JSON file, if a path is given."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"summary": summary, "records": list(self.records.values())}, indent=1))

    @staticmethod
    def _key(cell: Record) -> str:
        return json.dumps(cell, sort_keys=True)
