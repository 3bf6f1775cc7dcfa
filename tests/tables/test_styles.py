"""Ways of writing numbers and dates, identifiers, and what is said about each column."""

from __future__ import annotations

import json
from datetime import date, time, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskloss.tables import Table, TableEncoder, TableError, read_table
from taskloss.tables.identifiers import why_identifier

NEW_YEARS_EVE = (date(2023, 12, 31) - date(1970, 1, 1)).days


def table_of(**columns) -> Table:
    return Table("data.csv", {name: pa.array(values) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1.234,56", "7,5", "1.000.000"], [1234.56, 7.5, 1e6]),
        (["1 234,5", "12", "1\u00a0234\u202f567,25"], [1234.5, 12, 1234567.25]),
        (["1'234.5", "1\u2019000"], [1234.5, 1000]),
        (["(123)", "5", "(1,200)"], [-123, 5, -1200]),
        (["($3.50)", "$2"], [-3.5, 2]),
        (["\u22125", "1,000"], [-5, 1000]),
        (["31/12/2023", "01/02/1970"], [NEW_YEARS_EVE, 31]),
        (["12/31/2023", "02/01/1970"], [NEW_YEARS_EVE, 31]),
        (["31.12.2023", "01.02.1970"], [NEW_YEARS_EVE, 31]),
        (["01.02.1970", "02.02.1970"], [31, 32]),
        (["31-12-2023", "30/12/23"], [NEW_YEARS_EVE, NEW_YEARS_EVE - 1]),
        (["12/31/2023 6:00 AM", "12/31/2023 6:00:00 PM"], [NEW_YEARS_EVE + 0.25, NEW_YEARS_EVE + 0.75]),
        (["1970-01-02T01:00:00+01:00", "1970-01-01 16:00:00-0800", "1970-01-02 12:00 UTC"], [1, 1, 1.5]),
        (["2023/12/31", "2023/12/30"], [NEW_YEARS_EVE, NEW_YEARS_EVE - 1]),
        (["12:34", "7:30:36", "1:00 PM"], [12 + 34 / 60, 7.51, 13]),
    ],
)
def test_columns_as_people_write_them(cells, values):
    table = table_of(x=cells)
    encoder = TableEncoder.fit(table)
    np.testing.assert_allclose(encoder.encode(table)[:, 0], values, rtol=1e-6)
    assert "is read as" in encoder.notices[0]
    assert TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder


@pytest.mark.parametrize(
    "cells",
    [
        ["1.2.3", "1.12.10"],
        ["10.0.0.1", "10.0.0.2"],
        ["555-1234", "555-1235"],
        ["(a)", "(b)"],
        ["1 2 3", "4 5 6"],
        ["1:5", "2:7"],
    ],
)
def test_what_looks_like_numbers_and_is_not(cells):
    assert not table_of(x=cells).kind("x").numeric


def test_order_of_day_and_month_is_asked_for():
    table = table_of(when=["01/02/2023", "05/06/2023"], x=["1", "2"])
    with pytest.raises(
        TableError,
        match=r"'when' of data.csv holds dates like '01/02/2023', which is 2023-02-01 or 2023-01-02.*--dates day-first",
    ):
        TableEncoder.fit(table)
    for order, days in (("day-first", 31), ("month-first", 1)):
        told = Table("data.csv", {"when": pa.array(["01/02/1970", "05/06/1970"])}, dates=order)
        encoder = TableEncoder.fit(told)
        # The order is part of the encoder: other tables need no answer.
        assert encoder.encode(table_of(when=["01/02/1970"]))[0, 0] == days


def test_dates_that_contradict_each_other_are_named():
    cells = [f"{day:02}/01/2023" for day in range(1, 29)] + ["12/31/2023"]
    with pytest.raises(TableError, match="row 29, column 'when' of data.csv: '12/31/2023' is not a number"):
        TableEncoder.fit(table_of(when=cells))


def test_parquet_times(tmp_path: Path):
    pq.write_table(
        pa.table({"at": pa.array([time(12, 30), None]), "took": pa.array([timedelta(hours=3), None])}), tmp_path / "x.parquet"
    )
    table = read_table(tmp_path / "x.parquet")
    np.testing.assert_array_equal(table.numbers("at"), [12.5, np.nan])
    np.testing.assert_array_equal(table.numbers("took"), [0.125, np.nan])


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
@pytest.mark.parametrize("gaps", [1, 5])
def test_identifiers_in_any_order_and_with_gaps(order, gaps):
    rng = np.random.default_rng(0)
    ids = rng.choice(200 * gaps, 200, replace=False) + 10_000
    ids = np.sort(ids) if order == "sorted" else ids
    size = np.round(rng.normal(100, 30, 200))
    table = table_of(customer=[str(number) for number in ids], size=[str(number) for number in size])
    encoder = TableEncoder.fit(table)
    assert encoder.feature_names == ["size"]
    assert [use.name for use in encoder.uses if use.identifier] == ["customer"]
    assert "--keep" in encoder.notices[0]
    assert TableEncoder.fit(table, keep=["customer"]).feature_names == ["customer", "size"]


def test_identifiers_by_name_and_what_is_none():
    rng = np.random.default_rng(0)
    far_apart = np.unique(rng.integers(0, 10**12, 50)).astype(float)
    assert why_identifier("CustomerID", far_apart)
    assert not why_identifier("income", far_apart)
    assert not why_identifier("paid", far_apart)
    assert not why_identifier("id", far_apart + 0.5)
    for seed in range(50):
        draws = np.random.default_rng(seed).integers(0, 300, 100).astype(float)
        assert not why_identifier("score", draws), "independent draws from a uniform distribution"


def test_one_line_per_column():
    table = table_of(
        plain=["1", "2", "3", ""],
        branch=["a", "b", "a", "b"],
        euro=["1,5", "2,5", "3,5", "4,5"],
        same=["x"] * 4,
        day=["2023-12-31"] * 3 + [""],
    )
    assert [(use.name, use.line) for use in TableEncoder.fit(table).uses] == [
        ("plain", "numbers, 1 missing"),
        ("branch", "2 categories"),
        ("euro", "numbers, '1,5' is read as 1.5"),
        ("same", "left out: it is 'x' everywhere"),
        ("day", "dates, '2023-12-31' is read as 2023-12-31, 1 missing"),
    ]
