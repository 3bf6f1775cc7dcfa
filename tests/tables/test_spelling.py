"""The same categories in other spellings and formats: encoded alike, or announced."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from taskloss.tables import Table, TableEncoder, binary_target, class_indices, read_table

FLAGS = [True, False, False, True, True, False] * 4


def table_of(**columns) -> Table:
    return Table("data.csv", {name: pa.array(values) for name, values in columns.items()})


def files(folder: Path, frame: pd.DataFrame) -> list[Table]:
    """Return the frame as read from CSV, from CSV in capitals, and from Parquet."""
    frame.to_csv(folder / "x.csv", index=False)
    (folder / "capitals.csv").write_text((folder / "x.csv").read_text().replace("True", "TRUE").replace("False", "FALSE"))
    frame.to_parquet(folder / "x.parquet")
    return [read_table(folder / name) for name in ("x.csv", "capitals.csv", "x.parquet")]


def test_booleans_are_the_same_in_all_formats(tmp_path: Path):
    tables = files(tmp_path, pd.DataFrame({"flag": FLAGS, "size": range(100, 124)}))
    for fitted in tables:
        encoder = TableEncoder.fit(fitted, keep=["size"])
        assert encoder.feature_names == ["flag = False", "flag = True", "size"]
        for table in tables:
            np.testing.assert_array_equal(encoder.encode(table)[:, 1], FLAGS)


def test_booleans_as_0_and_1():
    encoder = TableEncoder.fit(table_of(flag=FLAGS))
    np.testing.assert_array_equal(encoder.encode(table_of(flag=["1", "0"])), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(encoder.encode(table_of(flag=[1.0, 0.0])), [[0, 1], [1, 0]])
    numbers = TableEncoder.fit(table_of(flag=["0", "1"]))
    np.testing.assert_array_equal(numbers.encode(table_of(flag=[True, False, None])), [[1], [0], [0.5]])


def test_whole_numbers_are_the_same_in_all_formats():
    spellings = [["1", "2", "10"], ["1.0", "2.0", "10."], [1.0, 2.0, 10.0]]
    for fitted in spellings:
        encoder = TableEncoder.fit(table_of(size=fitted * 2), categorical=["size"])
        for cells in spellings:
            np.testing.assert_array_equal(encoder.encode(table_of(size=cells)), np.eye(3)[[0, 2, 1]])


def test_large_numbers_and_texts_that_only_look_alike():
    assert table_of(x=[1e15, 2.0]).categories("x").labels == ("1000000000000000", "2")
    assert table_of(x=["007", "7", "2.10", "2.1", "yes", "Yes"]).categories("x").labels == (
        "007",
        "2.1",
        "2.10",
        "7",
        "Yes",
        "yes",
    )


def test_boolean_targets_are_the_same_in_all_formats():
    for cells in (["true", "false", "true"], ["TRUE", "False", "TRUE"], [True, False, True]):
        for positive in (None, "TRUE", "true"):
            target = binary_target(table_of(y=cells), "y", positive)
            assert (target.positive, target.labels.tolist()) == ("True", [1, 0, 1])
        assert binary_target(table_of(y=cells), "y", "1").labels.tolist() == [1, 0, 1]
        for classes in (("False", "True"), ("0", "1")):
            assert class_indices(table_of(y=cells), "y", classes)[0].tolist() == [1, 0, 1]
    assert binary_target(table_of(y=["1", "0"]), "y", "True").labels.tolist() == [1, 0]


@pytest.mark.parametrize("rare", [0, 1])
def test_most_values_unknown_is_announced(rare):
    encoder = TableEncoder.fit(table_of(colour=["red", "blue"] * 20 + ["odd"] * rare))
    words = r"'colour' of data.csv: 3 of 4 values are none of the known categories.*: 'Rot', 'blau'; known are 'blue', 'red'"
    with pytest.warns(UserWarning, match=words):
        TableEncoder.from_dict(encoder.to_dict()).encode(table_of(colour=["Rot", "blau", "blau", "red", None]))


def test_a_few_new_values_are_not_announced():
    common = TableEncoder.fit(table_of(colour=["red", "blue"] * 20))
    long_tail = TableEncoder.fit(table_of(colour=["red"] * 20 + [f"colour {i}" for i in range(20)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        common.encode(table_of(colour=["red", "new", None]))
        long_tail.encode(table_of(colour=["new", "newer"]))
