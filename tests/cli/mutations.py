"""Damaged files: mutate the files of a model and tables, and check that the commands end with a message and an exit code.

The tests try a few hundred; ``python -m tests.cli.mutations --models 50000 --tables 50000`` tries many and prints the exit codes.
A failure prints the seed of its case; ``--models 1 --seed SEED`` or ``--tables 1 --seed SEED`` repeats it.
"""

from __future__ import annotations

import argparse
import collections
import csv
import functools
import gzip
import io
import json
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import typer.testing

from taskloss.cli.models import Model, digest_of
from tests.cli.running import CODES, invoke, write_claims

HANG = 60
"""Seconds after which a case counts as a hang."""
VALUES = [
    None,
    True,
    False,
    0,
    -1,
    3,
    1e308,
    -0.5,
    float("nan"),
    "",
    "x",
    "fraud",
    "label",
    "1,5",
    [],
    {},
    ["a"],
    [1],
    {"a": 1},
    "\0",
    "é" * 9,
]
CELLS = [
    "",
    "NA",
    "nan",
    "inf",
    "1e999",
    "-",
    "(",
    "(1)",
    "1,5",
    "1.234,5",
    "31/12/2023",
    "12/31/2023",
    "01/02/2023",
    "12:61",
    "9" * 400,
]
CELLS += [
    "0001-01-01T00:00+14:00",
    "9999-12-31T23:59-12:00",
    "%",
    "$",
    "1 %",
    '"',
    "\0",
    "\u202f",
    "\u0661",
    "ok",
    "fraud",
    "x" * 5000,
]


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes with one or a few of them changed, removed, repeated or inserted."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5])):
        start = rng.randrange(len(data) + 1)
        length = rng.choice([1, 1, 4, 50])
        match rng.randrange(5):
            case 0:
                data[start : start + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[start : start + length]
            case 2:
                data[start:start] = data[start : start + length]
            case 3:
                data[start:start] = rng.randbytes(length)
            case 4:
                del data[start:]
    return bytes(data)


def mutate_record(record: Any, rng: random.Random) -> Any:
    """Return JSON with an entry somewhere removed, replaced or repeated."""
    record = json.loads(json.dumps(record))
    places = list(_places(record))
    for _ in range(rng.choice([1, 1, 1, 3])):
        holder, key = rng.choice(places)
        if not (key in holder if isinstance(holder, dict) else key < len(holder)):
            continue
        match rng.randrange(4):
            case 0:
                del holder[key]
            case 1:
                holder[key] = rng.choice(VALUES)
            case 2:
                other_holder, other_key = rng.choice(places)
                if other_key in other_holder if isinstance(other_holder, dict) else other_key < len(other_holder):
                    holder[key] = json.loads(json.dumps(other_holder[other_key]))
            case 3:
                if isinstance(holder, list):
                    holder.append(holder[key])
                elif isinstance(holder[key], str):
                    holder[key] = mutate_bytes(holder[key].encode(), rng).decode(errors="replace")
    return record


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a JSON value with each of its keys."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for key, item in items:
        yield value, key
        yield from _places(item)


def mutate_model(folder: Path, original: Path, rng: random.Random) -> None:
    """Fill a folder with a damaged copy of a model."""
    record = json.loads((original / "model.json").read_text())
    weights = (original / "model.safetensors").read_bytes()
    way = rng.randrange(4)
    if way == 0:
        content = mutate_bytes((original / "model.json").read_bytes(), rng)
    elif way == 1:
        content = json.dumps(mutate_record(record, rng)).encode()
    elif way == 2:  # Damage that the digest does not show.
        changed = mutate_record(record, rng)
        if isinstance(changed, dict):
            changed["digest"] = digest_of(changed)
        content = json.dumps(changed).encode()
    else:
        content, weights = (original / "model.json").read_bytes(), mutate_bytes(weights, rng)
    (folder / "model.json").write_bytes(content)
    (folder / "model.safetensors").write_bytes(weights)


def mutate_table(folder: Path, claims: Path, rng: random.Random) -> Path:
    """Write a damaged table in one of the formats; return its path."""
    form = rng.choice(["csv", "csv", "tsv", "parquet", "csv.gz", "svm"])
    path = folder / f"table.{form}"
    if form == "svm":
        text = "".join(f"{row % 2} {'qid:1 ' if row % 5 == 0 else ''}1:{row} 2:{row / 3:.2f}\n" for row in range(20))
        path.write_bytes(mutate_bytes(text.encode(), rng))
        return path
    with claims.open(newline="") as file:
        rows = list(csv.reader(file))[:80]
    for _ in range(rng.choice([0, 1, 1, 3, 40])):
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = rng.choice(CELLS)
    if form == "parquet":
        names = [f"{name}{rows[0][:index].count(name) or ''}" for index, name in enumerate(rows[0])]
        pq.write_table(pa.table(dict(zip(names, zip(*rows[1:], strict=True), strict=True))), path)
        content = path.read_bytes()
    else:
        text = io.StringIO()
        csv.writer(text, delimiter="\t" if form == "tsv" else ",").writerows(rows)
        content = text.getvalue().encode()
    if rng.random() < 0.5:
        content = mutate_bytes(content, rng)
    if form == "csv.gz":
        content = gzip.compress(content, mtime=0)
        content = mutate_bytes(content, rng) if rng.random() < 0.3 else content
    path.write_bytes(content)
    return path


class Workshop:
    """A folder with a trained model and a table, and room for damaged copies."""

    def __init__(self, folder: Path) -> None:
        self.claims = write_claims(folder / "claims.csv", rows=120)
        self.small = folder / "small.csv"
        self.small.write_text("\n".join(self.claims.read_text().splitlines()[:11]) + "\n")
        self.model, self.place = folder / "model", folder / "place"
        self.place.mkdir()
        result = invoke("train", self.claims, "--target", "label", "--iterations", "3", "--output", self.model)
        assert result.exit_code == 0, result.output
        self.loaded = Model.load(self.model)

    def damaged_model(self, seed: int) -> int:
        """Predict with a damaged model; return the exit code."""
        mutate_model(self.place, self.model, random.Random(seed))
        return self._run(seed, "predict", self.place, self.small)

    def damaged_table(self, seed: int) -> int:
        """Predict a damaged table, or read it for a training; return the exit code."""
        rng = random.Random(seed)
        path = mutate_table(self.place, self.claims, rng)
        if rng.random() < 0.5:
            # The model is whole, so it is read once.
            with mock.patch("taskloss.cli.models.Model.load", return_value=self.loaded):
                return self._run(seed, "predict", self.model, path)
        target = rng.choice(["label", "label", "branch", "target", "id"])
        with mock.patch("taskloss.cli.train._fit", side_effect=KeyboardInterrupt):
            return self._run(seed, "train", path, "--target", target, "--output", self.place / "out", "--force")

    def _run(self, seed: int, *arguments: Any) -> int:
        with time_limit():
            result = invoke(*arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise AssertionError(f"seed {seed}: {repr(result.exception)[:300]}") from result.exception
        assert result.exit_code in CODES, f"seed {seed}: exit code {result.exit_code}"
        assert "Traceback" not in result.output, f"seed {seed}"
        assert result.exit_code == 0 or result.stderr.strip(), f"seed {seed}: no message"
        return int(result.exit_code)


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise in a block that takes too long."""

    def stop(*_: Any) -> None:
        raise AssertionError(f"no end after {HANG} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=0, help="number of damaged models")
    parser.add_argument("--tables", type=int, default=0, help="number of damaged tables")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    failures = 0
    # The runner would build the commands anew for each case, which takes longer than the case.
    typer.testing._get_command = functools.cache(typer.testing._get_command)
    try:
        workshop = Workshop(folder)
        cases: list[tuple[str, int, Callable[[int], int]]] = [
            ("models", arguments.models, workshop.damaged_model),
            ("tables", arguments.tables, workshop.damaged_table),
        ]
        for name, number, run in cases:
            codes: collections.Counter[int] = collections.Counter()
            slowest, start = (0.0, 0), time.perf_counter()
            for seed in range(arguments.seed, arguments.seed + number):
                before = time.perf_counter()
                try:
                    codes[run(seed)] += 1
                except AssertionError as error:
                    failures += 1
                    print(f"{name}: {error}", flush=True)
                slowest = max(slowest, (time.perf_counter() - before, seed))
                if (seed + 1) % 5000 == 0:
                    print(f"{name}: {seed + 1 - arguments.seed}, exit codes {dict(codes)}, failures {failures}", flush=True)
            worst = f"slowest {slowest[0]:.1f} s (seed {slowest[1]})"
            print(f"{name}: {number} cases, exit codes {dict(codes)}, {worst}, {time.perf_counter() - start:.0f} s", flush=True)
    finally:
        shutil.rmtree(folder)
    raise SystemExit(f"{failures} failures" if failures else 0)


if __name__ == "__main__":
    main()
