"""The finished runs of a comparison on disk, so that an interrupted comparison can continue."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from taskloss._storage import replace_file
from taskloss.cli.data import TableSamples
from taskloss.cli.errors import BAD_DATA, CommandError
from taskloss.cli.methods import Plan
from taskloss.cli.report import UNFINISHED
from taskloss.report import Run
from taskloss.report.files import restore


class Journal:
    """The finished runs, by method and seed; the file is written again after each run."""

    def __init__(self, folder: Path, samples: TableSamples, plan: Plan, *, resume: bool) -> None:
        self._path = folder / UNFINISHED
        self._fingerprint = _fingerprint(samples, plan)
        self._runs: dict[tuple[str, int], Run] = {}
        if resume and self._path.exists():
            self._runs = self._read()

    def _read(self) -> dict[tuple[str, int], Run]:
        try:
            record = json.loads(self._path.read_bytes())
            fingerprint, runs = record["fingerprint"], [restore(Run, run, "runs") for run in record["runs"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(f"{self._path} is damaged ({error}); remove it, or leave out --resume", BAD_DATA) from error
        if fingerprint != self._fingerprint:
            raise CommandError(
                f"{self._path} belongs to another comparison: the data, the metric, the methods or the settings differ. "
                "Leave out --resume to start from the beginning"
            )
        return {(run.method, run.seed): run for run in runs}

    def __len__(self) -> int:
        return len(self._runs)

    def find(self, method: str, seed: int) -> Run | None:
        """Return the run of this method and seed, or None if it is not finished."""
        return self._runs.get((method, seed))

    def add(self, run: Run) -> None:
        """Add a finished run and write the file."""
        self._runs[run.method, run.seed] = run
        record: dict[str, Any] = {"fingerprint": self._fingerprint, "runs": [asdict(done) for done in self._runs.values()]}
        replace_file(self._path, json.dumps(record).encode())

    def remove(self) -> None:
        """Delete the file, once the comparison is complete."""
        self._path.unlink(missing_ok=True)


def _fingerprint(samples: TableSamples, plan: Plan) -> str:
    """Return a fingerprint of the data and the settings, excluding the number of splits: more may be added later."""
    digest = hashlib.sha256(repr((plan.metric.task, plan.methods, plan.seed, samples.encoder.to_dict())).encode())
    digest.update(samples.features(np.arange(len(samples.target))).tobytes())
    digest.update(samples.target.tobytes())
    return digest.hexdigest()
