"""Reading a data file of any supported format: :func:`read_table` detects the format and reads the table."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from taskloss import _checks
from taskloss.tables.dates import DAY_FIRST, MONTH_FIRST
from taskloss.tables.errors import TableError
from taskloss.tables.parquet import read_parquet
from taskloss.tables.svmlight import read_svmlight
from taskloss.tables.table import MISSING, Table
from taskloss.tables.text import read_delimited

FORMATS = ("csv", "tsv", "parquet", "svmlight")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
}
SVMLIGHT_LINE = re.compile(rb"[+-]?[\d.eE+-]+( qid:\d+)?( \d+:[\d.eE+-]+)+\s*(#.*)?", re.DOTALL)
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
PEEK = 8192
"""Number of bytes from which the format and the encoding are guessed."""


def read_table(
    path: str | Path,
    *,
    form: str | None = None,
    encoding: str | None = None,
    missing: Iterable[str] = (),
    dates: str | None = None,
) -> Table:
    """Read a CSV, TSV, Parquet or svmlight file, plain or gzipped.

    Args:
        path: the file.
        form: ``"csv"``, ``"tsv"``, ``"parquet"`` or ``"svmlight"``; by default it is guessed from the name and the first bytes.
        encoding: encoding of a text file; by default that of its byte order mark, or UTF-8.
        missing: cells that stand for a missing value, besides the usual ones (``NA``, ``null``, ``?`` ...).
        dates: ``"day-first"`` or ``"month-first"``, the meaning of dates such as 01/02/2023 in columns that do not decide it; by
            default such a column is an error.

    Raises:
        TableError: if the file cannot be used; the message names the row and the column.
    """
    path = Path(path)
    if form is not None:
        _checks.check_choice("form", form, FORMATS)
    if dates is not None:
        _checks.check_choice("dates", dates, (DAY_FIRST, MONTH_FIRST))
    if encoding is not None:
        _check_encoding(encoding)
    try:
        columns, notices = _read(path, form, encoding)
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise TableError(f"{path.name} is damaged: its compressed data cannot be read ({error})") from error
    except MemoryError as error:
        raise TableError(f"{path.name} does not fit into memory; take a sample of its rows") from error
    table = Table(path.name, columns, tuple(notices), MISSING | frozenset(missing), dates)
    if table.rows == 0:
        raise TableError(f"{path.name} holds no rows; expected one row per sample" + (" below the header" if columns else ""))
    return table


def _read(path: Path, form: str | None, encoding: str | None) -> tuple[dict[str, pa.Array], list[str]]:
    with path.open("rb") as raw:
        start = raw.read(4)
        raw.seek(0)
        zipped = start[:2] == b"\x1f\x8b"
        file = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if zipped else raw
        peek = file.read(PEEK)
        file.seek(0)
        form = form or _find_form(path, peek)
        if form == "parquet":
            return read_parquet(path, path.name)
        if not peek:
            raise TableError(f"{path.name} is empty")
        text = io.TextIOWrapper(file, encoding or _find_encoding(path, peek), errors="surrogateescape", newline="")
        try:
            if form == "svmlight":
                return read_svmlight(text, path.name), []
            return read_delimited(text, path.name, delimiter="\t" if form == "tsv" else None)
        except UnicodeError as error:
            raise TableError(
                f"{path.name} cannot be decoded ({error}); give its encoding, for example --encoding cp1252"
            ) from error


def _find_form(path: Path, peek: bytes) -> str:
    """Return the format: by content where that is certain, else by the name, else by the first line."""
    if peek[:4] == b"PAR1":
        return "parquet"
    if peek[:4] in (b"PK\x03\x04", b"\xd0\xcf\x11\xe0"):
        raise TableError(f"{path.name} is a spreadsheet or an archive; save the table as CSV and give that file")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else "".join(suffixes[-1:])
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    first = next((line for line in peek.splitlines() if line.strip() and not line.startswith(b"#")), b"")
    return "svmlight" if SVMLIGHT_LINE.fullmatch(first) else "csv"


def _find_encoding(path: Path, peek: bytes) -> str:
    """Return the encoding of the byte order mark, UTF-8 without one."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if peek.startswith(mark):
            return encoding
    if b"\0" in peek:
        raise TableError(f"{path.name} is not a text file: it holds zero bytes. Expected CSV, TSV, Parquet or svmlight")
    return "utf-8"


def _check_encoding(encoding: str) -> None:
    try:
        known = codecs.lookup(encoding)._is_text_encoding
    except (LookupError, ValueError):
        known = False
    if not known:
        raise TableError(f"no encoding is called {encoding!r}; try utf-8, cp1252, latin-1 or utf-16")
