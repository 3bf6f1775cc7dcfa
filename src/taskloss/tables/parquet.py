"""Reading Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from taskloss.tables.errors import TableError
from taskloss.tables.table import MICROSECONDS_PER_DAY
from taskloss.tables.text import join_chunks, name_columns


def read_parquet(path: Path, source: str) -> tuple[dict[str, pa.Array], list[str]]:
    """Return the columns in the types of a :class:`~taskloss.tables.Table`, and notices of those that are left out."""
    try:
        table = pq.ParquetFile(path).read()
        table.validate(full=True)  # Arrow reads text that is not UTF-8 without a word.
    except (pa.ArrowException, OSError, ValueError) as error:  # Names of columns that are not UTF-8 are a ValueError.
        raise TableError(f"{source} cannot be read as Parquet: {str(error).partition(chr(10))[0]}") from error
    names, notices = name_columns(table.column_names, source)
    columns: dict[str, pa.Array] = {}
    for name, data in zip(names, table.columns, strict=True):
        converted = _convert(data, name, source)
        if converted is None:
            notices.append(f"column {name!r} is left out: it holds {data.type}, neither numbers nor text")
        else:
            columns[name] = converted
    return columns, notices


def _convert(data: pa.ChunkedArray, name: str, source: str) -> pa.Array | None:
    """Return a column as float64, booleans, dates, times of day or text, None if it is none of them."""
    kind = data.type
    if pa.types.is_dictionary(kind):
        kind, data = kind.value_type, data.cast(kind.value_type)
    if pa.types.is_temporal(kind):
        return _temporal(data, kind, name, source)
    if pa.types.is_null(kind):
        return pa.nulls(len(data), pa.float64())
    if pa.types.is_boolean(kind):
        return _join(data, name, source)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _join(data.cast(pa.float64(), safe=False), name, source)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.utf8_trim_whitespace(_join(data.cast(pa.string()), name, source))
    return None


def _temporal(data: pa.ChunkedArray, kind: pa.DataType, name: str, source: str) -> pa.Array | None:
    """Return dates and timestamps as timestamps in UTC, times of day as such, durations as days; None for calendar intervals."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _join(data.cast(pa.timestamp("us"), safe=False), name, source)
    if pa.types.is_time(kind):
        return _join(data.cast(pa.time64("us"), safe=False), name, source)
    if pa.types.is_duration(kind):
        return durations_in_days(_join(data, name, source))
    return None


def durations_in_days(data: pa.Array) -> pa.Array:
    """Return a column of durations as numbers of days."""
    microseconds = data.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(microseconds, MICROSECONDS_PER_DAY)


def _join(data: pa.ChunkedArray, name: str, source: str) -> pa.Array:
    return join_chunks(data.chunks, name, source) if data.num_chunks else pa.array([], data.type)
