"""Reading Parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from taskloss.tables.errors import TableError
from taskloss.tables.text import join_chunks, name_columns

MICROSECONDS_PER_DAY, MICROSECONDS_PER_HOUR = 86_400e6, 3_600e6


def read_parquet(path: Path, source: str) -> tuple[dict[str, pa.Array], list[str]]:
    """Return the columns as numbers, booleans or text, and notices of those that were left out because they are neither."""
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
    """Return a column as float64, booleans or text, None if it is neither."""
    kind = data.type
    if pa.types.is_dictionary(kind):
        kind, data = kind.value_type, data.cast(kind.value_type)
    if pa.types.is_temporal(kind):
        return _temporal(data, kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(data), pa.float64())
    if pa.types.is_boolean(kind):
        return _join(data, name, source)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _join(data.cast(pa.float64(), safe=False), name, source)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.compute.utf8_trim_whitespace(_join(data.cast(pa.string()), name, source))
    return None


def _temporal(data: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | None:
    """Return dates and timestamps as days since 1970, times of day and durations as hours; None for calendar intervals."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit, data = MICROSECONDS_PER_DAY, data.cast(pa.timestamp("us"), safe=False)
    elif pa.types.is_time(kind) or pa.types.is_duration(kind):
        unit, data = (
            MICROSECONDS_PER_HOUR,
            data.cast(pa.time64("us") if pa.types.is_time(kind) else pa.duration("us"), safe=False),
        )
    else:
        return None
    return pa.array(data.cast(pa.int64()).to_numpy().astype(np.float64) / unit, from_pandas=True)


def _join(data: pa.ChunkedArray, name: str, source: str) -> pa.Array:
    return join_chunks(data.chunks, name, source) if data.num_chunks else pa.array([], data.type)
