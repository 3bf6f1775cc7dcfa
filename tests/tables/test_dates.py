"""Dates and times of Parquet files: the same as in CSV, and no identifiers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskloss.tables import Table, TableEncoder, read_table

DAYS = pd.date_range("2022-01-01", periods=40, freq="D")
FIRST = 18_993


def both(folder: Path, columns: dict) -> tuple[Table, Table]:
    """Return the columns as read from CSV and from Parquet."""
    table = pa.table(columns)
    table.to_pandas().to_csv(folder / "x.csv", index=False)
    pq.write_table(table, folder / "x.parquet")
    return read_table(folder / "x.csv"), read_table(folder / "x.parquet")


@pytest.mark.parametrize(
    "kind",
    [
        pa.date32(),
        pa.date64(),
        pa.timestamp("s"),
        pa.timestamp("ns"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us", "Europe/Stockholm"),
    ],
    ids=str,
)
def test_daily_dates_are_the_same_in_csv_and_parquet(tmp_path: Path, kind):
    dates = pa.array(DAYS.to_numpy().astype("datetime64[us]")).cast(kind)
    tables = both(tmp_path, {"day": dates, "colour": ["red", "blue"] * 20})
    for fitted in tables:
        encoder = TableEncoder.fit(fitted)
        assert encoder.uses[0].line.startswith("dates")
        for table in tables:
            np.testing.assert_array_equal(encoder.encode(table)[:, 0], FIRST + np.arange(40))


def test_times_of_day_are_the_same_in_csv_and_parquet(tmp_path: Path):
    hours = pa.array(range(0, 24 * 3600, 3600), pa.time32("s"))
    tables = both(tmp_path, {"at": hours, "colour": ["red", "blue"] * 12})
    for fitted in tables:
        for table in tables:
            np.testing.assert_array_equal(TableEncoder.fit(fitted).encode(table)[:, 0], np.arange(24))


def test_missing_and_constant_dates(tmp_path: Path):
    day = [DAYS[0].to_pydatetime(), None, DAYS[4].to_pydatetime()]
    _, table = both(tmp_path, {"day": day, "same": [DAYS[0].to_pydatetime()] * 3})
    encoder = TableEncoder.fit(table)
    np.testing.assert_array_equal(encoder.encode(table), [[FIRST, 0], [FIRST + 2, 1], [FIRST + 4, 0]])
    assert [use.line for use in encoder.uses] == ["dates, 1 missing", "left out: it is 2022-01-01 everywhere"]


def test_dates_as_cells_and_categories(tmp_path: Path):
    csv, parquet = both(tmp_path, {"day": DAYS[:3].to_numpy(), "moment": (DAYS[:3] + pd.Timedelta(hours=1)).to_numpy()})
    for name in ("day", "moment"):
        assert parquet.cells(name) == csv.cells(name)
        assert parquet.categories(name).labels == csv.categories(name).labels
    assert parquet.cells("day")[0] == "2022-01-01"
