"""Reading svmlight files: ``label [qid:number] index:value ... [# comment]``, one sample per line."""

from __future__ import annotations

from typing import TextIO

import numpy as np
import pyarrow as pa

from taskloss.tables.errors import TableError, shorten
from taskloss.tables.numbers import PLAIN

TARGET, QUERY = "target", "qid"
MAX_CELLS = 500_000_000
"""Largest number of cells; the table is dense, and more would take over 4 GB."""


def read_svmlight(file: TextIO, source: str) -> dict[str, pa.Array]:
    """Return the columns ``target``, ``qid`` if the file has queries, and ``f<index>`` for every index that occurs."""
    labels: list[float] = []
    queries: list[float] = []
    cells: dict[int, tuple[list[int], list[float]]] = {}
    for number, line in enumerate(file, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        labels.append(_number(words[0], source, number, "the label"))
        row = len(labels) - 1
        entries = words[1:]
        if entries and entries[0].startswith("qid:"):
            queries.append(_number(entries[0][4:], source, number, "qid"))
            entries = entries[1:]
        if len(queries) not in (0, len(labels)):
            raise TableError(f"line {number} of {source}: some rows have a qid and some do not; give every row one, or none")
        for entry in entries:
            index, value = _entry(entry, source, number)
            rows, values = cells.setdefault(index, ([], []))
            if rows and rows[-1] == row:
                raise TableError(f"line {number} of {source}: feature {index} is given twice")
            rows.append(row)
            values.append(value)
    if len(labels) * len(cells) > MAX_CELLS:
        raise TableError(f"{source} has {len(labels):,} rows and {len(cells):,} features: too many for a dense table in memory")
    columns = {TARGET: pa.array(labels, pa.float64())}
    if queries:
        columns[QUERY] = pa.array(queries, pa.float64())
    for index in sorted(cells):
        dense = np.zeros(len(labels))
        dense[cells[index][0]] = cells[index][1]
        columns[f"f{index}"] = pa.array(dense)
    return columns


def _number(text: str, source: str, line: int, name: str) -> float:
    if not PLAIN.fullmatch(text):
        raise TableError(f"line {line} of {source}: {name} is {shorten(text)}; expected a number")
    return float(text)


def _entry(entry: str, source: str, line: int) -> tuple[int, float]:
    index, colon, value = entry.partition(":")
    if not (colon and index.isascii() and index.isdigit() and len(index) < 10):
        raise TableError(f"line {line} of {source}: {shorten(entry)} is not of the form index:value, as in 3:0.5")
    return int(index), _number(value, source, line, f"feature {index}")
