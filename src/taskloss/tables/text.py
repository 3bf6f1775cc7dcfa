"""Reading delimited text: CSV, TSV, and files with semicolons or bars.

Cells are read as text, one chunk of rows at a time, and kept in Arrow's compact form, so a large file takes about its own size in
memory. The meaning of the cells is decided later, for a whole column (:mod:`taskloss.tables.table`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TextIO

import pyarrow as pa

from taskloss.tables.errors import TableError, shorten
from taskloss.tables.numbers import PLAIN

DELIMITERS = (",", ";", "\t", "|")
CHUNK_ROWS = 65_536


def read_delimited(file: TextIO, source: str, *, delimiter: str | None = None) -> tuple[dict[str, pa.Array], list[str]]:
    """Read the columns of a file with a header line as text; return them and notices.

    ``file`` must decode invalid bytes to surrogate escapes, so that the error can name their cell.
    """
    first = file.readline()
    if not first.strip():
        raise TableError(f"{source} is empty, or begins with an empty line; expected a line with the names of the columns")
    delimiter = delimiter or find_delimiter(first)
    file.seek(0)
    rows = _checked_rows(csv.reader(file, delimiter=delimiter, strict=True), source)
    header = next(rows, [])
    names, notices = name_columns([_decoded(cell, source, 0, str(column)) for column, cell in enumerate(header, 1)], source)
    chunks: list[list[pa.Array]] = [[] for _ in names]
    done = 0
    while block := list(islice(rows, CHUNK_ROWS)):
        for number, row in enumerate(block, done + 1):
            if len(row) != len(names):
                _refuse_ragged(row, names, source, number)
        for parts, name, cells in zip(chunks, names, zip(*block, strict=True), strict=True):
            parts.append(_as_array(cells, source, name, done))
        done += len(block)
    return {name: join_chunks(parts, name, source) for name, parts in zip(names, chunks, strict=True)}, notices


def find_delimiter(header: str) -> str:
    """Return the comma if the header has one outside of quotes, else the delimiter that it has most of.

    >>> find_delimiter('a;"b,c";d'), find_delimiter("only")
    (';', ',')
    """
    bare = "".join(header.split('"')[::2])
    if "," in bare:
        return ","
    return max(DELIMITERS, key=bare.count)


def name_columns(header: Sequence[str], source: str) -> tuple[list[str], list[str]]:
    """Return a name for each column, and notices about columns without one; equal names are an error."""
    names = [name.strip() for name in header]
    if names and all(PLAIN.fullmatch(name) for name in names):
        raise TableError(
            f"the first line of {source} holds numbers only ({shorten(', '.join(names))}); expected the names of the columns. "
            "Add a line with names at the top"
        )
    notices = []
    for column, name in enumerate(names, 1):
        if not name:
            names[column - 1] = f"column {column}"
            notices.append(f"column {column} has no name; it is called 'column {column}'")
    first: dict[str, int] = {}
    for column, name in enumerate(names, 1):
        if name in first:
            raise TableError(
                f"columns {first[name]} and {column} of {source} have the same name, {shorten(name)}; rename or remove one"
            )
        first[name] = column
    return names, notices


def join_chunks(parts: Sequence[pa.Array], name: str, source: str) -> pa.Array:
    """Return the chunks of a column as one array."""
    if not parts:
        return pa.array([], pa.string())
    try:
        return pa.concat_arrays(parts)
    except pa.ArrowInvalid as error:
        raise TableError(f"column {name!r} of {source} holds more text than 2 GiB; remove it") from error


def _checked_rows(lines: Iterator[list[str]], source: str) -> Iterator[list[str]]:
    """Yield the rows that are not blank; errors of the csv reader become a :class:`TableError`."""
    number = -1
    while True:
        try:
            row = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            line = lines.line_num  # type: ignore[attr-defined]  # A csv reader has this attribute.
            raise TableError(
                f"row {number + 1}, about line {line} of {source}, cannot be split into cells: {error}. "
                "Is a quotation mark left open there?"
            ) from error
        if len(row) > 1 or (row and row[0].strip()):
            number += 1
            yield row


def _refuse_ragged(row: Sequence[str], names: Sequence[str], source: str, number: int) -> None:
    if len(row) < len(names):
        problem = f"the cell of column {names[len(row)]!r} and those after it are missing"
    else:
        problem = f"{shorten(row[len(names)])} stands after the last column, {names[-1]!r}"
    raise TableError(
        f"row {number} of {source} has {len(row)} cells, but the header has {len(names)}: {problem}. "
        "Correct the row; text that holds the delimiter needs quotes"
    )


def _as_array(cells: Sequence[str], source: str, name: str, before: int) -> pa.Array:
    """Return a chunk of a column as an array; ``before`` is the number of rows before it."""
    stripped = [cell.strip() for cell in cells]
    try:
        return pa.array(stripped, pa.string())
    except (UnicodeEncodeError, pa.ArrowInvalid):
        for number, cell in enumerate(stripped, before + 1):
            _decoded(cell, source, number, repr(name))
        raise


def _decoded(cell: str, source: str, number: int, column: str) -> str:
    """Return the cell itself, or raise an error if it holds bytes that could not be decoded."""
    try:
        cell.encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(cell[error.start]) & 0xFF
        where = f"row {number}" if number else "the header"
        raise TableError(
            f"{where}, column {column} of {source}: the byte 0x{byte:02x} is not valid in this encoding; "
            "give the file's own, for example --encoding cp1252 (Windows) or --encoding latin-1"
        ) from error
    return cell
