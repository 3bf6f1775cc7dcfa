"""Tables that commands write: CSV, TSV or Parquet, as the name of the file says."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taskloss.cli.errors import usage_error

SUFFIXES = {"": ",", ".csv": ",", ".txt": ",", ".tsv": "\t", ".tab": "\t", ".parquet": None, ".pq": None}
"""The delimiter that each ending of a name stands for, None for Parquet."""


def check_output_name(path: Path) -> None:
    """Raise if the name of a file stands for a format that is not written here."""
    suffix, zipped = _suffix(path)
    if suffix not in SUFFIXES or (zipped and SUFFIXES[suffix] is None):
        raise usage_error(
            f"--output {path}: cannot write {''.join(path.suffixes)}; expected .csv, .tsv, .csv.gz, .tsv.gz or .parquet"
        )


def write_table(columns: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write columns of equal length to a file, completely or not at all."""
    from taskloss._storage import replace_file

    suffix, zipped = _suffix(path)
    delimiter = SUFFIXES[suffix]
    if delimiter is None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), buffer)
        content = buffer.getvalue()
    else:
        content = as_text(columns, delimiter).encode()
    replace_file(path, gzip.compress(content, mtime=0) if zipped else content)


def as_text(columns: Mapping[str, Sequence[Any]], delimiter: str = ",") -> str:
    """Return columns of equal length as delimited text with a header line."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _suffix(path: Path) -> tuple[str, bool]:
    """Return the ending of a name in small letters, without ``.gz``, and whether it had that."""
    zipped = path.suffix.lower() == ".gz"
    return (path.with_suffix("") if zipped else path).suffix.lower(), zipped
