"""Kinds of columns, the encoder, the target."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from taskloss.tables import Table, TableEncoder, TableError, binary_target, graded_target
from taskloss.tables.encoder import MAX_CATEGORIES


def table_of(**columns) -> Table:
    return Table("data.csv", {name: pa.array(values) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", "2.5", "-3e2", ".5"], [1, 2.5, -300, 0.5]),
        (["1,234", "5", "1,234,567.25"], [1234, 5, 1234567.25]),
        (["1,5", "2,125"], [1.5, 2.125]),
        (["0,125", "0,250"], [0.125, 0.25]),
        (["12%", "3.5 %", ""], [0.12, 0.035, np.nan]),
        (["$1,200", "-$3", "$ 4.50"], [1200, -3, 4.5]),
        (["1970-01-02", "1970-01-03 12:00", "1970-01-01T00:00:00Z"], [1, 2.5, 0]),
        (["NA", "?", "7"], [np.nan, np.nan, 7]),
    ],
)
def test_numbers_as_people_write_them(cells, values):
    table = table_of(x=cells)
    kind = table.kind("x")
    assert kind.numeric
    np.testing.assert_allclose(table.numbers("x", kind.style), values)
    assert bool(kind.note) == (not kind.style.is_plain)


@pytest.mark.parametrize(
    "cells", [["1,5", "1,234,567"], ["12%", "0.12"], ["1_000", "2_000"], ["\u0661", "\u0662"], ["2020-13-45", "2020-01-01"]]
)
def test_ambiguous_numbers_are_no_numbers(cells):
    assert not table_of(x=cells).kind("x").numeric


def test_median_of_the_largest_numbers_is_finite():
    (rule,) = TableEncoder.fit(table_of(x=["8.9e307", "", "9.1e307"])).rules
    assert rule.median == 9.0e307


def test_junk_among_numbers_is_named():
    cells = [str(n) for n in range(40)]
    cells[16] = "oops"
    with pytest.raises(TableError, match=r"row 17, column 'x' of data.csv: 'oops' is not a number, .* --missing 'oops'"):
        TableEncoder.fit(table_of(x=cells))
    lenient = Table("data.csv", {"x": pa.array(cells), "y": pa.array(cells[::-1])}, missing=frozenset({"oops"}))
    assert TableEncoder.fit(lenient).feature_names == ["x", "x missing", "y", "y missing"]


@pytest.mark.parametrize("cells", [["inf", "1"], ["1", "1e999"]])
def test_infinite_is_refused(cells):
    with pytest.raises(TableError, match="column 'x' of data.csv: the value is infinite"):
        TableEncoder.fit(table_of(x=cells))


def test_encoder_handles_every_kind():
    n = 200
    rng = np.random.default_rng(0)
    shade = ["a"] * 100 + ["b"] * 90 + [f"rare{i}" for i in range(9)] + [""]
    numbers = [f"{value:.3f}" for value in rng.normal(size=n)]
    numbers[5] = "NA"
    table = table_of(
        number=numbers,
        shade=shade,
        same=["x"] * n,
        zero=["0"] * n,
        empty=[""] * n,
        index=[str(i) for i in range(n)],
        ident=[f"person {i}" for i in range(n)],
        flag=["yes", ""] * (n // 2),
    )
    encoder = TableEncoder.fit(table)
    assert encoder.feature_names == [
        *("number", "number missing", "shade = a", "shade = b", "shade other", "shade missing", "flag = yes", "flag missing")
    ]
    said = " ".join(encoder.notices)
    for words in (
        "'same' is left out",
        "'zero' is left out",
        "'empty' is left out",
        "'index' is left out: it counts",
        "an identifier?",
    ):
        assert words in said
    features = encoder.encode(table)
    assert (features.shape, features.dtype) == ((n, 8), np.float32)
    assert features[5, 1] == 1
    assert features[5, 0] == pytest.approx(np.median([float(x) for x in numbers if x != "NA"]))
    np.testing.assert_array_equal(features[:, 2:6].sum(axis=1), 1)
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder
    np.testing.assert_array_equal(again.encode(table), features)


def test_encoding_other_tables():
    encoder = TableEncoder.fit(table_of(x=["1,000", "2,500"] * 3, c=["a", "b"] * 3))
    other = table_of(c=["b", "new", ""], x=["3", "1,500,000", ""], more=["1", "2", "3"])
    np.testing.assert_array_equal(encoder.encode(other), [[3, 0, 1], [1_500_000, 0, 0], [1750, 0, 0]])
    with pytest.raises(TableError, match="has no column 'x'"):
        encoder.encode(table_of(c=["a"]))
    with pytest.raises(TableError, match="row 2, column 'x' of data.csv: 'two' is not a number"):
        encoder.encode(table_of(c=["a", "b"], x=["1", "two"]))
    with pytest.raises(TableError, match="not a fitted encoder"):
        TableEncoder.from_dict({"columns": [{"kind": "numeric"}]})


def test_most_frequent_categories_are_kept():
    cells = [f"c{i:03}" for i in range(50) for _ in range(2 + i)]
    encoder = TableEncoder.fit(table_of(c=cells))
    assert encoder.feature_names == [*(f"c = c{i:03}" for i in range(50 - MAX_CATEGORIES, 50)), "c other"]


def test_huge_numbers_stay_finite():
    table = table_of(x=["1e300", "-1e300", "0"])
    assert np.isfinite(TableEncoder.fit(table).encode(table)).all()


def test_nothing_to_learn_from():
    with pytest.raises(TableError, match="no column to learn from: column 'x' is left out"):
        TableEncoder.fit(table_of(x=["1", "1"]))


@pytest.mark.parametrize(
    ("cells", "positive", "chosen", "labels"),
    [
        (["0", "1", "0"], None, "1", [0, 1, 0]),
        (["1", "1.0", "0"], None, "1", [1, 1, 0]),
        (["1", "1.0", "0"], "1.00", "1", [1, 1, 0]),
        (["yes", "no", "", "yes"], None, "no", [0, 1, 0]),
        (["no", "yes"], None, "yes", [0, 1]),
        (["-1", "1", "1"], None, "1", [0, 1, 1]),
        (["True", "false", "True"], None, "True", [1, 0, 1]),
        (["b", "a", "b", "a", "b"], None, "b", [1, 0, 1, 0, 1]),
        (["a", "b", "c", "c"], "c", "c", [0, 0, 1, 1]),
    ],
)
def test_positive_label(cells, positive, chosen, labels):
    target = binary_target(table_of(y=cells), "y", positive)
    assert target.positive == chosen
    assert target.labels.tolist() == labels
    assert target.rows.tolist() == [row for row, cell in enumerate(cells) if cell]
    assert any("left out" in notice for notice in target.notices) == ("" in cells)
    told = positive is None and not set(cells) <= {"0", "1", "1.0", "-1", "True", "false"}
    assert any("--positive" in notice for notice in target.notices) == told


@pytest.mark.parametrize(
    ("cells", "positive", "words"),
    [
        (["a", "a"], None, r"one class only: 'a' \(2\)"),
        (["a", "a"], "a", "one class only"),
        (["", "NA"], None, "every cell of the target"),
        (["a", "b", "c"], None, r"3 different labels: 'a' \(1\), .* Give --positive"),
        (["a", "b"], "z", r"no label 'z'; its labels are 'a' \(1\), 'b' \(1\)"),
    ],
)
def test_bad_targets(cells, positive, words):
    with pytest.raises(TableError, match=words):
        binary_target(table_of(y=cells), "y", positive)
    with pytest.raises(TableError, match="no column 'z'; did you mean|no column 'z'; the columns are 'y'"):
        binary_target(table_of(y=cells), "z", positive)


def test_graded_target():
    grades, rows, notices = graded_target(table_of(y=["0", "", "2"]), "y")
    assert (grades.tolist(), rows.tolist()) == ([0, 2], [0, 2])
    assert "first: row 2" in notices[0]
    with pytest.raises(TableError, match="row 2, column 'y' of data.csv: the relevance is 0.5"):
        graded_target(table_of(y=["1", "0.5"]), "y")
